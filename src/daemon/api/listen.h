/* listen.h - a listening socket from ADDRESS:PORT, or at a path. */
#ifndef ONCE_DAEMON_API_LISTEN_H
#define ONCE_DAEMON_API_LISTEN_H

#include "once.h"

#include <sys/socket.h>

enum { API_ADDRESS_LEN = 128 }; /* "[ipv6 address]:65535", or a socket's path, with its NUL */

/* Checks the syntax as api_listen() does, for command lines. */
ONCE_CHECKED once_result api_listen_check(const char *address, bool any_address, struct once_error *err);

/* ONCE_INVALID: not ADDRESS:PORT, or not a loopback address without any_address. *bound and `text` have the port that
 * it got. */
ONCE_CHECKED once_result api_listen(const char *address, bool any_address, int *fd, struct sockaddr_storage *bound,
                                    char text[API_ADDRESS_LEN], struct once_error *err);

/* At a path, for the same user only (mode 0600). Replaces a socket on which no process listens any more. */
ONCE_CHECKED once_result api_listen_unix(const char *path, int *fd, struct sockaddr_storage *bound,
                                         char text[API_ADDRESS_LEN], struct once_error *err);
/* Also removes the socket's file. */
void api_listen_close(int fd, const struct sockaddr_storage *bound);

#endif
