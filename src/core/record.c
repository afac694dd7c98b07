/* record.c - see record.h. */
#include "core/record.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"

#include <stdio.h>

void once_record_id(const struct once_mac *secret, once_span tenant, once_span key, uint8_t out[16])
{
    uint8_t mac[ONCE_MAC_LEN];
    once_mac_parts(secret, (once_span[]){ ONCE_LIT("once record 1"), tenant, key }, 3, mac);
    memcpy(out, mac, 16);
}

static int hex_digit(uint8_t c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* "-17", where 17 is a fence. */
static bool is_fence(once_span text)
{
    for (size_t i = 1; i < text.len; i++)
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
    return text.len > 1 && text.len <= 21 && text.ptr[0] == '-';
}

bool once_record_id_read(once_span text, uint8_t out[16])
{
    if (once_span_starts(text, ONCE_LIT("once-")))
        text = once_span_skip(text, 5);
    if (text.len < 32 || (text.len > 32 && !is_fence(once_span_skip(text, 32))))
        return false;
    for (size_t i = 0; i < 16; i++) {
        int high = hex_digit(text.ptr[2 * i]), low = hex_digit(text.ptr[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

void once_child_key_of(const struct once_mac *secret, const uint8_t record[16], once_span call,
                       char out[ONCE_CHILD_KEY_LEN + 1])
{
    uint8_t mac[ONCE_MAC_LEN];
    once_span parts[] = { ONCE_LIT("once child 1"), once_span_of(record, 16), call };
    once_mac_parts(secret, parts, 3, mac);
    for (int i = 0; i < ONCE_CHILD_KEY_LEN / 2; i++)
        snprintf(out + 2 * i, 3, "%02x", mac[i]);
}

bool once_stored_is_expired(const struct once_stored *stored, once_time now)
{
    const struct once_record *r = &stored->record;
    bool finished = r->state == ONCE_STATE_SUCCEEDED || r->state == ONCE_STATE_FAILED;
    return finished && r->expires_at != ONCE_NEVER && r->expires_at <= now;
}

bool once_record_is_tombstone(const struct once_record *r, once_time now)
{
    bool finished = r->state == ONCE_STATE_SUCCEEDED || r->state == ONCE_STATE_FAILED;
    return finished && r->body_retention_ms > 0 && r->finished_at + r->body_retention_ms <= now;
}

void once_record_expire_body(struct once_record *r)
{
    r->body_dropped = r->body_expired = true;
    r->headers = r->body = once_span_of(NULL, 0);
}

once_time once_expiry(enum once_state state, int64_t retention_ms, once_time now)
{
    if (state == ONCE_STATE_UNKNOWN || retention_ms == ONCE_NEVER)
        return ONCE_NEVER;
    return now + retention_ms;
}

enum once_arm once_arm_of_state(enum once_state state)
{
    switch (state) {
    case ONCE_STATE_SUCCEEDED:
    case ONCE_STATE_FAILED:
        return ONCE_ARM_REPLAY;
    case ONCE_STATE_UNKNOWN:
        return ONCE_ARM_UNKNOWN;
    case ONCE_STATE_RUNNING:
        return ONCE_ARM_IN_PROGRESS;
    default:
        return ONCE_ARM_FENCED; /* the record is gone */
    }
}

bool once_record_is_same_operation(const struct once_record *record, const struct once_fingerprint *fingerprint,
                                   once_time created_at)
{
    return record->created_at == created_at && memcmp(&record->fingerprint, fingerprint, sizeof *fingerprint) == 0;
}

const char *once_record_fault(const struct once_record *r)
{
    if (r->grant.fence == 0)
        return "a record without a fence";
    if (r->attempt == 0)
        return "a record without an attempt number";
    if (r->tenant.len > ONCE_TENANT_LEN_MAX || r->key.len > ONCE_KEY_LEN_MAX)
        return "a tenant or key over its limit";
    if (r->takeover < ONCE_TAKEOVER_ESCALATE || r->takeover > ONCE_TAKEOVER_COMPLETER)
        return "an unknown takeover policy";
    if (r->created_at > r->claimed_at)
        return "an attempt that was claimed before the first one";
    if (r->retention_ms < 0 && r->retention_ms != ONCE_NEVER)
        return "a negative retention";
    if (r->body_retention_ms < 0 || (r->retention_ms != ONCE_NEVER && r->body_retention_ms > r->retention_ms))
        return "a body retention that is negative, or longer than the record's";
    if (r->body_expired && (r->headers.len > 0 || r->body.len > 0))
        return "headers or a body past their retention";
    if (r->retryable && r->state != ONCE_STATE_FAILED)
        return "retryable but not failed";
    if (r->undelivered && !r->retryable)
        return "undelivered but not retryable";
    if (r->checkpoint.len > 0 && r->recovery_point.len == 0)
        return "a checkpoint without a recovery point";
    switch (r->state) {
    case ONCE_STATE_RUNNING:
        return r->finished_at != 0 || r->expires_at != 0 || r->body.len > 0 ? "running and finished" : NULL;
    case ONCE_STATE_UNKNOWN:
        return r->expires_at != ONCE_NEVER ? "an unknown outcome that expires" : NULL;
    case ONCE_STATE_SUCCEEDED:
    case ONCE_STATE_FAILED:
        return r->finished_at == 0 || r->expires_at == 0 ? "finished at no time" : NULL;
    default:
        return "an unknown state";
    }
}

static void copy_span(uint8_t **at, once_span *span)
{
    if (span->len == 0) { /* *at is NULL if all spans are empty */
        span->ptr = NULL;
        return;
    }
    memcpy(*at, span->ptr, span->len);
    span->ptr = *at;
    *at += span->len;
}

once_result once_reply_set(struct once_reply *reply, enum once_arm arm, const struct once_record *record,
                           struct once_error *err)
{
    *reply = (struct once_reply){ .arm = ONCE_ARM_NONE };
    if (record != NULL) {
        struct once_record copy = *record;
        once_span *spans[] = { &copy.tenant,  &copy.key,  &copy.recovery_point, &copy.checkpoint,
                               &copy.headers, &copy.body, &copy.request,        &copy.route };
        size_t total = 0;
        for (size_t i = 0; i < sizeof spans / sizeof *spans; i++)
            total += spans[i]->len;
        uint8_t *memory = NULL;
        if (total > 0 && (memory = malloc(total)) == NULL)
            return once_fail(err, ONCE_NO_MEMORY, "no memory for an answer of %zu bytes", total);
        uint8_t *at = memory;
        for (size_t i = 0; i < sizeof spans / sizeof *spans; i++)
            copy_span(&at, spans[i]);
        reply->record = copy;
        reply->memory = memory;
    }
    reply->arm = arm;
    return ONCE_OK;
}

void once_reply_release(struct once_reply *reply)
{
    if (reply == NULL)
        return;
    free(reply->memory);
    *reply = (struct once_reply){ .arm = ONCE_ARM_NONE };
}
