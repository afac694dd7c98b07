/* url.c - see redis/url.h. */
#include "store/redis/url.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int hex_of(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Percent-decoded, as a C string of at most `max` bytes. */
static once_result copy(once_span from, const char *what, char *out, size_t max, struct once_error *err)
{
    size_t len = 0;
    for (size_t i = 0; i < from.len; i++) {
        int c = from.ptr[i];
        if (c == '%') {
            int high = i + 2 < from.len ? hex_of(from.ptr[i + 1]) : i + 2 == from.len ? -1 : hex_of(from.ptr[i + 1]);
            int low = i + 2 < from.len ? hex_of(from.ptr[i + 2]) : -1;
            if (high < 0 || low < 0)
                return once_fail(err, ONCE_INVALID, "the Redis URL's %s has a '%%' without two hexadecimal digits",
                                 what);
            c = high << 4 | low;
            i += 2;
        }
        if (c == '\0')
            return once_fail(err, ONCE_INVALID, "the Redis URL's %s holds a zero byte", what);
        if (len == max)
            return once_fail(err, ONCE_LIMIT, "the Redis URL's %s is longer than %zu bytes", what, max);
        out[len++] = (char)c;
    }
    out[len] = '\0';
    return ONCE_OK;
}

static once_result read_number(once_span text, const char *what, uint32_t max, uint32_t *out, struct once_error *err)
{
    uint64_t value = 0;
    bool right = text.len > 0 && text.len <= 9;
    for (size_t i = 0; right && i < text.len; i++) {
        right = text.ptr[i] >= '0' && text.ptr[i] <= '9';
        value = value * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    if (!right || value > max)
        return once_fail(err, ONCE_INVALID, "the Redis URL's %s is not a number from 0 to %u", what, max);
    *out = (uint32_t)value;
    return ONCE_OK;
}

/* USER:PASSWORD, USER, or :PASSWORD, before the last '@' of the authority. */
static once_result parse_login(once_span *authority, struct redis_url *out, struct once_error *err)
{
    for (size_t at = authority->len; at > 0; at--) {
        if (authority->ptr[at - 1] != '@')
            continue;
        once_span user, password;
        once_span_cut(once_span_of(authority->ptr, at - 1), ':', &user, &password);
        *authority = once_span_skip(*authority, at);
        once_result r = copy(user, "user", out->user, REDIS_NAME_MAX, err);
        return r == ONCE_OK ? copy(password, "password", out->password, REDIS_PASSWORD_MAX, err) : r;
    }
    return ONCE_OK;
}

/* HOST, HOST:PORT, [IPV6], [IPV6]:PORT */
static once_result parse_place(once_span place, struct redis_url *out, struct once_error *err)
{
    once_span host, port;
    if (place.len > 0 && place.ptr[0] == '[') {
        if (!once_span_cut(once_span_skip(place, 1), ']', &host, &port))
            return once_fail(err, ONCE_INVALID, "the Redis URL's host has a '[' without its ']'");
        if (port.len > 0 && port.ptr[0] != ':')
            return once_fail(err, ONCE_INVALID, "the Redis URL has something between its host and its port");
        port = port.len > 0 ? once_span_skip(port, 1) : port;
    } else {
        once_span_cut(place, ':', &host, &port);
    }
    once_result r = copy(host.len > 0 ? host : ONCE_LIT("127.0.0.1"), "host", out->host, REDIS_NAME_MAX, err);
    uint32_t number = 6379;
    if (r == ONCE_OK && port.len > 0)
        r = read_number(port, "port", 65535, &number, err);
    snprintf(out->port, sizeof out->port, "%u", number);
    return r;
}

static once_result parse_db(once_span text, struct redis_url *out, struct once_error *err)
{
    uint32_t db = 0;
    once_result r = text.len > 0 ? read_number(text, "database", 65535, &db, err) : ONCE_OK;
    snprintf(out->db, sizeof out->db, "%u", db);
    return r;
}

static once_result parse_net(once_span rest, struct redis_url *out, struct once_error *err)
{
    if (!once_span_starts(rest, ONCE_LIT("//")))
        return once_fail(err, ONCE_INVALID, "a Redis URL is redis://HOST:PORT/DB?tier=best-effort");
    once_span authority, db;
    once_span_cut(once_span_skip(rest, 2), '/', &authority, &db);
    once_result r = parse_login(&authority, out, err);
    if (r == ONCE_OK)
        r = parse_place(authority, out, err);
    return r == ONCE_OK ? parse_db(db, out, err) : r;
}

/* All keys begin with it, and SCAN matches it as a pattern: no wildcard characters. */
static once_result parse_prefix(once_span text, struct redis_url *out, struct once_error *err)
{
    bool right = text.len > 0 && text.len < REDIS_PREFIX_MAX;
    for (size_t i = 0; right && i < text.len; i++) {
        uint8_t c = text.ptr[i];
        right = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '-' || c == '_' || c == '.';
    }
    if (!right)
        return once_fail(err, ONCE_INVALID, "the Redis URL's prefix is not 1 to %d of letters, digits, '-', '_', '.'",
                         REDIS_PREFIX_MAX - 1);
    snprintf(out->prefix, sizeof out->prefix, "%.*s:", ONCE_SPAN_ARGS(text));
    return ONCE_OK;
}

static once_result read_password_file(const char *path, struct redis_url *out, struct once_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out->password, REDIS_PASSWORD_MAX + 1) : -1;
    int why = errno;
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot read the Redis password file '%s': %s", path, strerror(why));
    while (n > 0 && (out->password[n - 1] == '\n' || out->password[n - 1] == '\r'))
        n--;
    if (n == 0 || n > REDIS_PASSWORD_MAX)
        return once_fail(err, ONCE_INVALID, "the Redis password file '%s' does not hold 1 to %d bytes", path,
                         REDIS_PASSWORD_MAX);
    out->password[n] = '\0';
    return ONCE_OK;
}

/* The password of the URL, else of the file, else of the environment. */
static once_result find_password(once_span query, struct redis_url *out, struct once_error *err)
{
    once_span value;
    char path[REDIS_NAME_MAX + 1];
    const char *variable = getenv("ONCE_REDIS_PASSWORD");
    if (once_url_param(query, "password_file", &value)) {
        if (out->password[0] != '\0')
            return once_fail(err, ONCE_INVALID, "the Redis URL has a password and a password_file");
        once_result r = copy(value, "password_file", path, REDIS_NAME_MAX, err);
        return r == ONCE_OK ? read_password_file(path, out, err) : r;
    }
    if (out->password[0] != '\0' || variable == NULL)
        return ONCE_OK;
    if (strlen(variable) > REDIS_PASSWORD_MAX)
        return once_fail(err, ONCE_LIMIT, "ONCE_REDIS_PASSWORD is longer than %d bytes", REDIS_PASSWORD_MAX);
    memcpy(out->password, variable, strlen(variable) + 1);
    return ONCE_OK;
}

static once_result parse_safety(once_span query, struct redis_url *out, struct once_error *err)
{
    once_span value;
    once_result r = ONCE_OK;
    out->wait_ms = ONCE_REDIS_WAIT_MS;
    if (once_url_param(query, "wait", &value))
        r = read_number(value, "wait", 100, &out->replicas, err);
    if (r == ONCE_OK && once_url_param(query, "wait_ms", &value)) {
        r = read_number(value, "wait_ms", ONCE_REDIS_WAIT_MS_MAX, &out->wait_ms, err);
        if (r == ONCE_OK && out->wait_ms == 0) /* Redis would wait for ever */
            r = once_fail(err, ONCE_INVALID, "the Redis URL's wait_ms is 0; write 1 to %d", ONCE_REDIS_WAIT_MS_MAX);
    }
    if (r == ONCE_OK && once_url_param(query, "waitaof", &value)) {
        out->fsync = once_span_equal(value, ONCE_LIT("1"));
        if (!out->fsync && !once_span_equal(value, ONCE_LIT("0")))
            r = once_fail(err, ONCE_INVALID, "the Redis URL's waitaof is neither 0 nor 1");
    }
    if (r == ONCE_OK && once_url_param(query, "keytext", &value)) {
        out->keytext = !once_span_equal(value, ONCE_LIT("off"));
        if (out->keytext && !once_span_equal(value, ONCE_LIT("on")))
            r = once_fail(err, ONCE_INVALID, "the Redis URL's keytext is neither on nor off");
    }
    return r;
}

static once_result parse_query(once_span query, struct redis_url *out, struct once_error *err)
{
    static const char *const known[] = { "tier",    "prefix", "db",      "user", "password_file", "wait", "wait_ms",
                                         "waitaof", "ca",     "keytext", NULL };
    once_span value;
    once_result r = once_url_check(query, known, err);
    if (r != ONCE_OK)
        return r;
    if (!once_url_param(query, "tier", &value) || !once_span_equal(value, ONCE_LIT("best-effort")))
        return once_fail(err, ONCE_INVALID,
                         "Redis may lose acknowledged writes: add tier=best-effort to the URL if that is acceptable "
                         "(docs/redis.md), or use postgresql: or sqlite:");
    if (once_url_param(query, "prefix", &value))
        r = parse_prefix(value, out, err);
    if (r == ONCE_OK && once_url_param(query, "db", &value))
        r = parse_db(value, out, err);
    if (r == ONCE_OK && once_url_param(query, "user", &value))
        r = copy(value, "user", out->user, REDIS_NAME_MAX, err);
    if (r == ONCE_OK && once_url_param(query, "ca", &value))
        r = copy(value, "ca", out->ca, REDIS_NAME_MAX, err);
    if (r == ONCE_OK)
        r = parse_safety(query, out, err);
    return r;
}

/* Everything but a password outside of the URL. */
static once_result parse(once_span url, struct redis_url *out, once_span *query, struct once_error *err)
{
    *out = (struct redis_url){ .prefix = "once:", .db = "0", .keytext = true };
    once_span scheme, rest;
    once_span_cut(url, ':', &scheme, &rest);
    once_span_cut(rest, '?', &rest, query);
    out->tls = once_span_equal(scheme, ONCE_LIT("rediss"));
    out->is_unix = once_span_equal(scheme, ONCE_LIT("redis+unix"));
    once_result r;
    if (out->is_unix) {
        if (once_span_starts(rest, ONCE_LIT("///")))
            rest = once_span_skip(rest, 2);
        r = copy(rest, "socket path", out->host, 100, err);
        if (r == ONCE_OK && out->host[0] != '/')
            r = once_fail(err, ONCE_INVALID, "a Redis URL with a socket is redis+unix:/PATH?tier=best-effort");
    } else {
        r = parse_net(rest, out, err);
    }
    return r == ONCE_OK ? parse_query(*query, out, err) : r;
}

once_result redis_url_parse(once_span url, struct redis_url *out, struct once_error *err)
{
    once_span query;
    once_result r = parse(url, out, &query, err);
    return r == ONCE_OK ? find_password(query, out, err) : r;
}

once_result once_store_redis_url_check(once_span url, struct once_error *err)
{
    struct redis_url parsed;
    once_span query;
    return parse(url, &parsed, &query, err);
}

void redis_url_text(const struct redis_url *url, char *out, size_t len)
{
    if (url->is_unix)
        snprintf(out, len, "redis+unix:%s, database %s", url->host, url->db);
    else
        snprintf(out, len, "%s://%s:%s/%s", url->tls ? "rediss" : "redis", url->host, url->port, url->db);
}
