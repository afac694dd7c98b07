/* listen.c - see api/listen.h. */
#include "daemon/api/listen.h"

#include "core/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static bool read_port(const char *text, in_port_t *port)
{
    unsigned long value = 0;
    size_t len = strspn(text, "0123456789");
    if (len == 0 || len > 5 || text[len] != '\0')
        return false;
    for (size_t i = 0; i < len; i++)
        value = value * 10 + (unsigned long)(text[i] - '0');
    *port = htons((uint16_t)value);
    return value <= 65535;
}

/* The address in numbers; "localhost" is 127.0.0.1, no other name is looked up. */
static once_result read_address(const char *text, struct sockaddr_storage *out, socklen_t *len, struct once_error *err)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)out;
    const char *colon = strrchr(text, ':');
    char name[API_ADDRESS_LEN];
    in_port_t port = 0;
    *out = (struct sockaddr_storage){ 0 };
    size_t name_len = colon != NULL ? (size_t)(colon - text) : 0;
    if (name_len == 0 || name_len >= sizeof name || !read_port(colon + 1, &port))
        return once_fail(err, ONCE_INVALID, "'%.100s' is not ADDRESS:PORT, such as 127.0.0.1:7411 or [::1]:0", text);
    memcpy(name, text, name_len);
    name[name_len] = '\0';
    if (name[0] == '[' && name[name_len - 1] == ']') {
        name[name_len - 1] = '\0';
        v6->sin6_family = AF_INET6;
        v6->sin6_port = port;
        *len = sizeof *v6;
        if (inet_pton(AF_INET6, name + 1, &v6->sin6_addr) == 1)
            return ONCE_OK;
    } else {
        v4->sin_family = AF_INET;
        v4->sin_port = port;
        *len = sizeof *v4;
        if (inet_pton(AF_INET, strcmp(name, "localhost") == 0 ? "127.0.0.1" : name, &v4->sin_addr) == 1)
            return ONCE_OK;
    }
    return once_fail(err, ONCE_INVALID, "'%.100s': the address must be in numbers, or localhost", text);
}

static bool is_loopback(const struct sockaddr_storage *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
    if (address->ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
}

static unsigned port_of(const struct sockaddr_storage *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
    return ntohs(address->ss_family == AF_INET6 ? v6->sin6_port : v4->sin_port);
}

static void write_address(const struct sockaddr_storage *address, char text[API_ADDRESS_LEN])
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
    char name[INET6_ADDRSTRLEN] = "";
    bool is_v6 = address->ss_family == AF_INET6;
    inet_ntop(address->ss_family, is_v6 ? (const void *)&v6->sin6_addr : (const void *)&v4->sin_addr, name,
              sizeof name);
    snprintf(text, API_ADDRESS_LEN, is_v6 ? "[%s]:%u" : "%s:%u", name, port_of(address));
}

/* An address that may be listened on. */
static once_result read_own(const char *address, bool any_address, struct sockaddr_storage *out, socklen_t *len,
                            struct once_error *err)
{
    once_result r = read_address(address, out, len, err);
    if (r == ONCE_OK && !any_address && !is_loopback(out))
        r = once_fail(err, ONCE_INVALID,
                      "'%.100s' can be reached from other machines; listen on a loopback address such as "
                      "127.0.0.1:%u",
                      address, port_of(out));
    return r;
}

once_result api_listen_check(const char *address, bool any_address, struct once_error *err)
{
    struct sockaddr_storage own;
    socklen_t len = 0;
    return read_own(address, any_address, &own, &len, err);
}

once_result api_listen(const char *address, bool any_address, int *fd, struct sockaddr_storage *bound,
                       char text[API_ADDRESS_LEN], struct once_error *err)
{
    socklen_t len = 0;
    once_result r = read_own(address, any_address, bound, &len, err);
    if (r != ONCE_OK)
        return r;
    int listener = socket(bound->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;
    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(listener, (struct sockaddr *)bound, len) != 0 || listen(listener, SOMAXCONN) != 0 ||
        getsockname(listener, (struct sockaddr *)bound, &len) != 0) {
        int error = errno;
        if (listener >= 0)
            close(listener);
        return once_fail(err, ONCE_UNAVAILABLE, "cannot listen on '%.100s': %s", address, strerror(error));
    }
    write_address(bound, text);
    *fd = listener;
    return ONCE_OK;
}

/* Removes a socket whose process is gone. Other files are not touched. */
static void remove_stale(const struct sockaddr_un *address)
{
    struct stat found;
    if (lstat(address->sun_path, &found) != 0 || !S_ISSOCK(found.st_mode))
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 && errno == ECONNREFUSED)
        unlink(address->sun_path);
    close(fd);
}

once_result api_listen_unix(const char *path, int *fd, struct sockaddr_storage *bound, char text[API_ADDRESS_LEN],
                            struct once_error *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof address.sun_path)
        return once_fail(err, ONCE_INVALID, "the socket's path is %zu bytes long, the limit is %zu", strlen(path),
                         sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, strlen(path) + 1);
    remove_stale(&address);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(0177);
    bool good = listener >= 0 && bind(listener, (const struct sockaddr *)&address, sizeof address) == 0;
    int error = errno;
    umask(before);
    if (good && listen(listener, SOMAXCONN) != 0) {
        error = errno;
        unlink(path);
        good = false;
    }
    if (!good) {
        if (listener >= 0)
            close(listener);
        return once_fail(err, ONCE_UNAVAILABLE, "cannot listen on '%.100s': %s", path, strerror(error));
    }
    *bound = (struct sockaddr_storage){ 0 };
    memcpy(bound, &address, sizeof address);
    snprintf(text, API_ADDRESS_LEN, "%s", path);
    *fd = listener;
    return ONCE_OK;
}

void api_listen_close(int fd, const struct sockaddr_storage *bound)
{
    const struct sockaddr_un *address = (const struct sockaddr_un *)(const void *)bound;
    if (bound->ss_family == AF_UNIX)
        unlink(address->sun_path);
    close(fd);
}
