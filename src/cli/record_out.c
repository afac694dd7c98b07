/* record_out.c - see record_out.h. */
#include "cli/record_out.h"

#include "cli/cli.h"
#include "core/span.h"

const char *once_record_state_text(const struct once_record *record)
{
    if (record->state == ONCE_STATE_RUNNING && !record->lease_live)
        return "running, lease over";
    if (record->state == ONCE_STATE_FAILED && record->retryable)
        return "failed, to be retried";
    return once_state_name(record->state);
}

void once_record_json(struct once_json *json, const struct once_record *record, once_time now)
{
    bool finished = record->state != ONCE_STATE_RUNNING;
    once_json_bytes(json, "key", record->key);
    once_json_bytes(json, "tenant", record->tenant);
    once_json_hex(json, "record", once_span_of(record->grant.record, sizeof record->grant.record));
    once_json_uint(json, "fence", record->grant.fence);
    once_json_text(json, "state", once_state_name(record->state));
    once_json_bool(json, "retryable", record->retryable);
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
    once_json_bool(json, "body_dropped", record->body_dropped);
    once_json_bytes(json, "recovery_point", record->recovery_point);
    if (record->retention_ms == ONCE_NEVER)
        once_json_null(json, "retention_ms");
    else
        once_json_int(json, "retention_ms", record->retention_ms);
    once_json_time(json, "created_at", record->created_at);
    once_json_time(json, "claimed_at", record->claimed_at);
    once_json_time(json, "lease_until", record->lease_until);
    once_json_time(json, "finished_at", record->finished_at);
    once_json_time(json, "expires_at", record->expires_at);
    once_json_int(json, "age_ms", now - record->created_at);
}

int once_record_now(const struct once_cli *cli, struct once *once, once_time *now)
{
    struct once_stats stats;
    struct once_error err;
    if (once_stats(once, &stats, &err) != ONCE_OK)
        return once_cli_error(cli, &err, "read the store's clock");
    *now = stats.now;
    return ONCE_EXIT_OK;
}
