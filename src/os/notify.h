/*
 * notify.h - what a service manager is told: sd_notify(3)'s protocol, a datagram to the socket that $NOTIFY_SOCKET
 * names. Without one nothing is sent.
 */
#ifndef ONCE_OS_NOTIFY_H
#define ONCE_OS_NOTIFY_H

#include <stdint.h>

/* "READY=1", "STATUS=...", lines of them. Nobody waits for it: what cannot be sent at once is lost. */
void once_os_notify(const char *text);
/* How often the manager wants to hear WATCHDOG=1 from this process, in ms; 0: it does not. */
int64_t once_os_watchdog_ms(void);

#endif
