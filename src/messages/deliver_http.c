/*
 * deliver_http.c - see deliver.h: a message as a POST.
 *
 * The message id is the Idempotency-Key of every attempt, so that an endpoint, or a gateway before it, recognises
 * repeats. If the id cannot be a header value, the child key of its record is used. The message's own headers are sent
 * along, except those that control HTTP itself or name the sender.
 */
#include "messages/deliver.h"

#include "core/http/header.h"
#include "core/span.h"
#include "http/http_call.h"
#include "messages/brokers/headers.h"
#include "messages/sinks/reserved.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { ANSWER_MAX = 4096, SAID_MAX = 120 };
static const int64_t retry_after_max_ms = 24 * 3600 * 1000;

static void add_escaped(struct once_buf *out, once_span text)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
                     c == '.' || c == '_' || c == '~';
        once_buf_addf(out, plain ? "%c" : "%%%02X", c);
    }
}

static bool is_field_text(once_span text, const char *but)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] < ' ' || text.ptr[i] > '~' || strchr(but, text.ptr[i]) != NULL)
            return false;
    return text.len > 0;
}

static void add_ours(struct once_buf *out, const struct delivery_call *call)
{
    const struct incoming *m = call->incoming;
    const struct once_record *record = once_attempt_record(call->attempt);
    char key[ONCE_CHILD_KEY_LEN + 1];
    once_attempt_child_key(call->attempt, ONCE_LIT("consume"), key);
    bool id = is_field_text(call->id, "\"\\ ");
    once_buf_addf(out, "Idempotency-Key: \"%.*s\"\r\n", id ? (int)call->id.len : ONCE_CHILD_KEY_LEN,
                  id ? (const char *)call->id.ptr : key);
    once_buf_addf(out, "Once-Message-Id: ");
    add_escaped(out, call->id);
    once_buf_addf(out, "\r\nOnce-Consumer: ");
    add_escaped(out, call->consumer);
    if (is_field_text(m->message.topic, ""))
        once_buf_addf(out, "\r\nOnce-Topic: %.*s", ONCE_SPAN_ARGS(m->message.topic));
    if (m->message.has_key) {
        once_buf_addf(out, "\r\nOnce-Message-Key: ");
        add_escaped(out, m->message.key);
    }
    once_buf_addf(out, "\r\nOnce-Key: %s\r\nOnce-Fence: %" PRIu64 "\r\nOnce-Attempt: %" PRIu32, key,
                  record->grant.fence, record->attempt);
    once_buf_addf(out, "\r\nContent-Type: %.*s\r\nUser-Agent: once-consume\r\n",
                  ONCE_SPAN_ARGS(is_field_text(m->message.content_type, "") ? m->message.content_type
                                                                            : ONCE_LIT("application/octet-stream")));
}

static void add_own(struct once_buf *out, once_span lines)
{
    enum { MOST = 150 }; /* the limit of http_call(), less our own headers */
    once_span name, value;
    for (int i = 0; i < MOST && headers_next(&lines, &name, &value); i++) {
        if (!is_field_text(name, " \"(),/:;<=>?@[\\]{}") || header_is_reserved(name))
            continue;
        if (value.len > 0 && !is_field_text(value, ""))
            continue;
        once_header_add(out, name, value);
    }
}

static bool is_wanted(void *arg)
{
    return once_attempt_is_held(arg);
}

static int64_t retry_after_ms(once_span headers)
{
    once_span value;
    int64_t wait_ms = 0; /* a Retry-After with a date is ignored: the backoff decides */
    bool given = once_header_find(headers, "Retry-After", &value);
    return given && once_retry_after_seconds(value, retry_after_max_ms, &wait_ms) ? wait_ms : 0;
}

static enum deliver_end judge(const struct http_answer *a, struct delivery_answer *answer)
{
    char said[SAID_MAX] = "";
    answer->status = a->status;
    if (a->end != HTTP_ANSWERED) {
        snprintf(answer->reason, sizeof answer->reason, "%s%.180s", a->end == HTTP_BROKEN ? "no complete answer: " : "",
                 a->error);
        return a->end == HTTP_NOT_SENT ? DELIVER_NOT_SENT : DELIVER_LOST;
    }
    snprintf(said, sizeof said, "%.*s", ONCE_SPAN_ARGS(once_buf_span(&a->body)));
    for (char *c = said; *c != '\0'; c++)
        if (*c < ' ' || *c > '~')
            *c = ' ';
    snprintf(answer->reason, sizeof answer->reason, "status %d%s%s", a->status, said[0] != '\0' ? ": " : "", said);
    answer->retry_after_ms = retry_after_ms(once_buf_span(&a->headers));
    switch (a->status) {
    case 400:
    case 413:
    case 415:
    case 422:
        return DELIVER_REFUSED;
    case 408:
    case 425:
    case 429:
        return DELIVER_LATER;
    case 503:
        return a->headers.len > 0 ? DELIVER_LATER : DELIVER_FAILED;
    default:
        return a->status >= 200 && a->status <= 299 ? DELIVER_DONE : DELIVER_FAILED;
    }
}

enum deliver_end deliver_http(const struct target *target, const struct delivery_call *call,
                              struct delivery_answer *answer)
{
    struct once_buf ours, own;
    struct http_answer a;
    *answer = (struct delivery_answer){ .status = 0 };
    once_buf_init(&ours, 16 << 10);
    once_buf_init(&own, SOURCE_HEADERS_LEN_MAX + 1024);
    add_ours(&ours, call);
    add_own(&own, call->headers);
    enum deliver_end end = DELIVER_NOT_SENT;
    if (ours.result == ONCE_OK && own.result == ONCE_OK) {
        http_call(&(struct http_call){ .url = target->url,
                                       .method = ONCE_LIT("POST"),
                                       .lines = { once_buf_span(&ours), once_buf_span(&own) },
                                       .body = call->incoming->message.payload,
                                       .kept = ONCE_LIT("Retry-After\n"),
                                       .body_max = ANSWER_MAX,
                                       .timeout_ms = target->timeout_ms,
                                       .tick = is_wanted,
                                       .arg = call->attempt },
                  &a);
        end = judge(&a, answer);
        http_answer_release(&a);
    } else {
        snprintf(answer->reason, sizeof answer->reason, "no memory for a request");
    }
    once_buf_release(&ours);
    once_buf_release(&own);
    return end;
}
