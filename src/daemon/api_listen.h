/* api_listen.h - a listening socket from ADDRESS:PORT. */
#ifndef ONCE_DAEMON_API_LISTEN_H
#define ONCE_DAEMON_API_LISTEN_H

#include "once.h"

#include <sys/socket.h>

enum { API_ADDRESS_LEN = 64 }; /* "[ipv6 address]:65535" and its NUL fit */

/* Refuses (ONCE_INVALID) what is not ADDRESS:PORT, and other than loopback addresses unless
 * any_address. *bound and `text` are the address with the port that it got. */
ONCE_CHECKED once_result api_listen(const char *address, bool any_address, int *fd, struct sockaddr_storage *bound,
                                    char text[API_ADDRESS_LEN], struct once_error *err);

#endif
