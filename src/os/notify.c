/* notify.c - see notify.h. */
#include "os/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void once_os_notify(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    size_t len = path != NULL ? strlen(path) : 0;
    if (len < 2 || len >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, len);
    if (path[0] == '@') /* the abstract namespace: a leading NUL, and the length ends the name */
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    ssize_t n = sendto(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&address, size);
    (void)n;
    close(fd);
}

int64_t once_os_watchdog_ms(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (usec == NULL || (pid != NULL && strtoll(pid, NULL, 10) != (long long)getpid()))
        return 0;
    long long value = strtoll(usec, NULL, 10);
    return value > 0 ? (value + 999) / 1000 : 0;
}
