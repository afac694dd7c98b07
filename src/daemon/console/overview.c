/* overview.c - GET /api/overview: how it goes, now and over the last quarter of an hour. */
#include "core/span.h"
#include "daemon/api/query.h"
#include "daemon/completer/completer.h"
#include "daemon/completer/escalate.h"
#include "daemon/console/parts.h"
#include "daemon/reaper/reaper.h"
#include "engine/engine_stats.h"
#include "os/os.h"

#include <stdlib.h>

/* Totals since the daemon began. */
static void put_totals(const struct console *console, struct once_json *json)
{
    struct once_engine_stats i;
    once_engine_stats(console->options.once, &i);
    once_json_open(json, "totals", '{');
    once_json_uint(json, "executions", i.claims[ONCE_ARM_EXECUTE] + i.claims[ONCE_ARM_PROBE]);
    once_json_uint(json, "replays", i.claims[ONCE_ARM_REPLAY]);
    once_json_uint(json, "conflicts", i.claims[ONCE_ARM_IN_PROGRESS]);
    once_json_uint(json, "mismatches", i.claims[ONCE_ARM_MISMATCH]);
    once_json_uint(json, "unknowns", i.claims[ONCE_ARM_UNKNOWN]);
    once_json_uint(json, "outcomes_unknown", i.outcomes[ONCE_STATE_UNKNOWN]);
    once_json_uint(json, "takeovers", i.verbs[ONCE_VERB_TAKE_OVER]);
    once_json_uint(json, "errors", i.errors);
    once_json_close(json);
    once_json_uint(json, "queued", i.queued);
}

static void put_workers(const struct console_options *o, struct once_json *json)
{
    if (o->expiry != NULL) {
        once_json_uint(json, "expired", atomic_load(&o->expiry->removed));
        once_json_int(json, "expiry_lag_ms", once_os_monotonic_ms() - atomic_load(&o->expiry->caught_up_ms));
    }
    if (o->escalations != NULL)
        once_json_uint(json, "escalations", atomic_load(&o->escalations->recorded));
    if (o->completer != NULL) {
        once_json_open(json, "completer", '{');
        once_json_uint(json, "taken", atomic_load(&o->completer->taken));
        once_json_uint(json, "finished", atomic_load(&o->completer->finished));
        once_json_uint(json, "retryable", atomic_load(&o->completer->retryable));
        once_json_uint(json, "escalated", atomic_load(&o->completer->escalated));
        once_json_close(json);
    }
}

void console_overview(struct api_call *call)
{
    struct console *console = call->context;
    struct api_parameter since = { .name = "since" };
    struct once_json json;
    once_buf_init(&since.value, 21);
    if (api_query_read(call, &since, 1) && console_answer_begin(call, &json)) {
        char text[24];
        snprintf(text, sizeof text, "%.*s", ONCE_SPAN_ARGS(once_buf_span(&since.value)));
        once_json_text(&json, "version", once_version());
        once_json_text(&json, "store", console->options.store);
        once_json_bool(&json, "has_outbox", console->options.outbox != NULL);
        console_sampler_put(console->sampler, &json, strtoull(text, NULL, 10));
        put_totals(console, &json);
        put_workers(&console->options, &json);
        console_answer_end(call, &json);
    }
    once_buf_release(&since.value);
}
