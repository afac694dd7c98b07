/* amqp_url.c - see amqp_url.h. */
#include "messages/brokers/amqp_url.h"

#include "core/limits.h"
#include "core/span.h"

#include <stdio.h>

static const char shape[] = "it is not amqp://HOST[:PORT][/VHOST][?exchange=NAME][&routing-key=KEY]";

static int hex(uint8_t c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* False: too long, an incomplete percent-encoding, or a NUL. */
static bool decode(once_span text, char out[AMQP_NAME_LEN_MAX + 1])
{
    size_t len = 0;
    for (size_t i = 0; i < text.len; i++) {
        int c = text.ptr[i];
        if (c == '%') {
            int high = i + 2 < text.len ? hex(text.ptr[i + 1]) : -1, low = high >= 0 ? hex(text.ptr[i + 2]) : -1;
            if (i + 2 < text.len && low >= 0)
                c = high * 16 + low;
            else
                return false;
            i += 2;
        }
        if (c == 0 || len == AMQP_NAME_LEN_MAX)
            return false;
        out[len++] = (char)c;
    }
    out[len] = '\0';
    return true;
}

static const char *parse_place(once_span place, struct amqp_url *out)
{
    once_span host, port = { NULL, 0 };
    if (place.len > 0 && place.ptr[0] == '[') {
        if (!once_span_cut(once_span_skip(place, 1), ']', &host, &port) || (port.len > 0 && port.ptr[0] != ':'))
            return shape;
        port = port.len > 0 ? once_span_skip(port, 1) : port;
        if (port.len == 0 && place.ptr[place.len - 1] == ':')
            return shape;
    } else if (once_span_cut(place, ':', &host, &port) && port.len == 0) {
        return shape;
    }
    if (host.len == 0 || host.len >= sizeof out->host)
        return shape;
    snprintf(out->host, sizeof out->host, "%.*s", ONCE_SPAN_ARGS(host));
    out->port = port.len > 0 ? 0 : out->tls ? 5671 : 5672;
    for (size_t i = 0; i < port.len; i++) {
        if (port.ptr[i] < '0' || port.ptr[i] > '9' || (out->port = out->port * 10 + (port.ptr[i] - '0')) > 65535)
            return "its port is not a number up to 65535";
    }
    return out->port > 0 ? NULL : "its port is not a number up to 65535";
}

static const char *parse_query(once_span query, struct amqp_url *out)
{
    bool exchange = false, key = false;
    while (query.len > 0) {
        once_span one, name, value;
        once_span_cut(query, '&', &one, &query);
        once_span_cut(one, '=', &name, &value);
        bool *seen = once_span_equal(name, ONCE_LIT("exchange"))      ? &exchange
                     : once_span_equal(name, ONCE_LIT("routing-key")) ? &key
                                                                      : NULL;
        if (seen == NULL)
            return "only exchange=NAME and routing-key=KEY may follow the ?";
        if (*seen || value.len == 0 || !decode(value, seen == &key ? out->routing_key : out->exchange))
            return seen == &key ? "its routing key is empty, too long, given twice or badly encoded"
                                : "its exchange is empty, too long, given twice or badly encoded";
        *seen = true;
    }
    return NULL;
}

const char *amqp_url_parse(const char *url, struct amqp_url *out)
{
    once_span all = once_span_str(url), place, path, query;
    *out = (struct amqp_url){ .tls = once_span_starts(all, ONCE_LIT("amqps://")), .vhost = "/" };
    if (!out->tls && !once_span_starts(all, ONCE_LIT("amqp://")))
        return shape;
    if (all.len > ONCE_URL_LEN_MAX)
        return "it is too long";
    for (size_t i = 0; i < all.len; i++)
        if (all.ptr[i] <= ' ' || all.ptr[i] >= 0x7f || all.ptr[i] == '#')
            return "it contains a character that must be percent-encoded";
    all = once_span_skip(all, out->tls ? 8 : 7);
    once_span_cut(all, '?', &all, &query);
    bool has_path = once_span_cut(all, '/', &place, &path);
    if (place.len > 0 && memchr(place.ptr, '@', place.len) != NULL)
        return "other users can see a login in a URL; use --amqp-login instead";
    const char *fault = parse_place(place, out);
    if (fault == NULL && has_path && path.len > 0 && (memchr(path.ptr, '/', path.len) || !decode(path, out->vhost)))
        fault = "its vhost is too long or badly encoded; a slash in it is %2F";
    return fault != NULL ? fault : parse_query(query, out);
}
