/* message.c - see message.h. */
#include "core/message.h"

#include "core/err.h"
#include "core/outcome.h"
#include "core/span.h"

static once_result check_text(const char *what, once_span text, uint8_t lowest, struct once_error *err)
{
    if (text.len < 1 || text.len > ONCE_TOPIC_LEN_MAX)
        return once_fail(err, ONCE_INVALID, "%s is %zu bytes long, not 1 to %d", what, text.len, ONCE_TOPIC_LEN_MAX);
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] < lowest || text.ptr[i] > '~')
            return once_fail(err, ONCE_INVALID, "%s holds byte 0x%02x: visible ASCII only", what, text.ptr[i]);
    return ONCE_OK;
}

once_result once_message_check(const struct once_message *m, struct once_error *err)
{
    once_result r = check_text("topic", m->topic, '!', err);
    if (r == ONCE_OK && m->content_type.len > 0)
        r = check_text("content type", m->content_type, ' ', err);
    if (r != ONCE_OK)
        return r;
    if (m->key.len > ONCE_KEY_LEN_MAX)
        return once_fail(err, ONCE_INVALID, "message key is %zu bytes long, the limit is %d", m->key.len,
                         ONCE_KEY_LEN_MAX);
    if (m->payload.len > ONCE_PAYLOAD_LEN_MAX)
        return once_fail(err, ONCE_LIMIT, "payload is %zu bytes long, the limit is %d", m->payload.len,
                         ONCE_PAYLOAD_LEN_MAX);
    if (m->headers.len > ONCE_MESSAGE_HEADERS_LEN_MAX)
        return once_fail(err, ONCE_LIMIT, "header lines of %zu bytes, the limit is %d", m->headers.len,
                         ONCE_MESSAGE_HEADERS_LEN_MAX);
    return once_headers_check(m->headers, err);
}

once_result once_consumer_check(const struct once_consumer *c, struct once_error *err)
{
    once_result r = once_inbox_name_check("consumer", c->name, err);
    if (r != ONCE_OK)
        return r;
    if (c->retention_ms != ONCE_NEVER && (c->retention_ms < 0 || c->retention_ms > ONCE_RETENTION_MS_MAX))
        return once_fail(err, ONCE_INVALID, "retention %lld ms is neither positive nor ONCE_NEVER",
                         (long long)c->retention_ms);
    if (c->redelivery_window_ms < 0 || c->redelivery_window_ms > ONCE_RETENTION_MS_MAX)
        return once_fail(err, ONCE_INVALID, "redelivery window %lld ms is out of range",
                         (long long)c->redelivery_window_ms);
    int64_t retention_ms = c->retention_ms != 0 ? c->retention_ms : ONCE_INBOX_RETENTION_MS_DEFAULT;
    if (retention_ms != ONCE_NEVER && retention_ms < c->redelivery_window_ms)
        return once_fail(
            err, ONCE_INVALID,
            "retention %lld ms is shorter than the redelivery window %lld ms: a message that is delivered again "
            "after it would be processed twice",
            (long long)retention_ms, (long long)c->redelivery_window_ms);
    return ONCE_OK;
}

once_result once_inbox_name_check(const char *what, once_span text, struct once_error *err)
{
    if (text.len < 1 || text.len > ONCE_KEY_LEN_MAX)
        return once_fail(err, ONCE_INVALID, "%s has %zu bytes, not 1 to %d", what, text.len, ONCE_KEY_LEN_MAX);
    return ONCE_OK;
}
