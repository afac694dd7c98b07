/* listen.h - a listening socket from ADDRESS:PORT, or at a path. */
#ifndef ONCE_DAEMON_API_LISTEN_H
#define ONCE_DAEMON_API_LISTEN_H

#include "once.h"

#include <sys/socket.h>

enum { API_ADDRESS_LEN = 128 }; /* "[ipv6 address]:65535", or the path of a socket, and its NUL fit */

/* What api_listen() refuses whatever this machine has: for command lines, before anything is made. */
ONCE_CHECKED once_result api_listen_check(const char *address, bool any_address, struct once_error *err);

/* Refuses (ONCE_INVALID) what is not ADDRESS:PORT, and other than loopback addresses unless
 * any_address. *bound and `text` are the address with the port that it got. */
ONCE_CHECKED once_result api_listen(const char *address, bool any_address, int *fd, struct sockaddr_storage *bound,
                                    char text[API_ADDRESS_LEN], struct once_error *err);

/* At a path, for the same user only (mode 0600). A socket there that nobody answers on is replaced. */
ONCE_CHECKED once_result api_listen_unix(const char *path, int *fd, struct sockaddr_storage *bound,
                                         char text[API_ADDRESS_LEN], struct once_error *err);
/* Also removes the socket's name. */
void api_listen_close(int fd, const struct sockaddr_storage *bound);

#endif
