/* record_out.c - see record_out.h. */
#include "program/record_out.h"

#include "core/json/record_json.h"
#include "program/cli.h"

const char *once_record_state_text(const struct once_record *record)
{
    if (record->state == ONCE_STATE_RUNNING && !record->lease_live)
        return "running, lease over";
    if (record->state == ONCE_STATE_FAILED && record->retryable)
        return "failed, to be retried";
    return once_state_name(record->state);
}

void once_record_listed_json(struct once_json *json, const struct once_record *record, once_time now)
{
    once_record_json(json, record);
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
