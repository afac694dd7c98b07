/*
 * notify.h - notifies the service manager, with the protocol of sd_notify(3): a datagram to the socket that
 * $NOTIFY_SOCKET names. Without that variable nothing is sent.
 */
#ifndef ONCE_OS_NOTIFY_H
#define ONCE_OS_NOTIFY_H

#include <stdint.h>

/* Sends lines such as "READY=1" and "STATUS=...". Does not block: a message that cannot be sent at once is lost. */
void once_os_notify(const char *text);
/* The interval, in ms, in which the manager expects WATCHDOG=1 from this process; 0: it does not. */
int64_t once_os_watchdog_ms(void);

#endif
