/* record_json.c - see record_json.h. */
#include "core/json/record_json.h"

#include "core/span.h"

void once_record_json(struct once_json *json, const struct once_record *record)
{
    bool finished = record->state != ONCE_STATE_RUNNING;
    once_json_bytes(json, "key", record->key);
    once_json_bytes(json, "tenant", record->tenant);
    once_json_hex(json, "record", once_span_of(record->grant.record, sizeof record->grant.record));
    once_json_fence(json, "fence", record->grant.fence);
    once_json_text(json, "state", once_state_name(record->state));
    once_json_bool(json, "retryable", record->retryable);
    once_json_bool(json, "undelivered", record->undelivered);
    if (record->forgotten)
        once_json_bool(json, "forgotten", true);
    if (finished)
        once_json_null(json, "lease_live");
    else
        once_json_bool(json, "lease_live", record->lease_live);
    once_json_text(json, "takeover", once_takeover_name(record->takeover));
    once_json_uint(json, "attempt", record->attempt);
    if (finished)
        once_json_int(json, "status", record->status);
    else
        once_json_null(json, "status");
    once_json_bytes(json, "route", record->route);
    once_json_bytes(json, "recovery_point", record->recovery_point);
    if (record->retention_ms == ONCE_NEVER)
        once_json_null(json, "retention_ms");
    else
        once_json_int(json, "retention_ms", record->retention_ms);
    if (record->body_retention_ms == 0) /* as long as the record */
        once_json_null(json, "body_retention_ms");
    else
        once_json_int(json, "body_retention_ms", record->body_retention_ms);
    once_json_time(json, "created_at", record->created_at);
    once_json_time(json, "claimed_at", record->claimed_at);
    once_json_time(json, "lease_until", record->lease_until);
    once_json_time(json, "finished_at", record->finished_at);
    once_json_time(json, "expires_at", record->expires_at);
}

void once_record_details_json(struct once_json *json, const struct once_record *record)
{
    once_json_bool(json, "body_dropped", record->body_dropped);
    once_json_bool(json, "body_expired", record->body_expired);
    once_json_bool(json, "body_sealed", record->body_sealed);
    once_json_hex(json, "fingerprint", once_span_of(record->fingerprint.bytes, sizeof record->fingerprint.bytes));
}

void once_history_json(struct once_json *json, const struct once_history *history)
{
    once_json_open(json, "history", '[');
    for (size_t i = 0; i < history->count; i++) {
        const struct once_event *event = &history->events[i];
        once_json_open(json, NULL, '{');
        once_json_time(json, "at", event->at);
        once_json_text(json, "what", event->what);
        once_json_fence(json, "fence", event->fence);
        once_json_uint(json, "attempt", event->attempt);
        once_json_text(json, "state", event->state != ONCE_STATE_NONE ? once_state_name(event->state) : NULL);
        once_json_int(json, "status", event->status);
        once_json_bytes(json, "actor", event->actor);
        once_json_bytes(json, "reason", event->reason);
        once_json_close(json);
    }
    once_json_close(json);
}
