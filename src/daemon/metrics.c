/*
 * metrics.c - /metrics: counters for Prometheus, in its text format 0.0.4.
 *
 * The engine's counters are there also while the store is not; what only the store knows is
 * then left out, and once_store_up is 0.
 */
#include "daemon/api_call.h"
#include "daemon/completer.h"
#include "daemon/escalate.h"
#include "daemon/slow.h"
#include "engine/insight.h"
#include "os/os.h"

#include <inttypes.h>

static void put_head(FILE *file, const char *name, const char *type, const char *help)
{
    fprintf(file, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_metric(FILE *file, const char *name, const char *type, uint64_t value, const char *help)
{
    put_head(file, name, type, help);
    fprintf(file, "%s %" PRIu64 "\n", name, value);
}

static void put_store(FILE *file, const struct once_stats *stats, once_result result)
{
    put_metric(file, "once_store_up", "gauge", result == ONCE_OK || result == ONCE_BUSY,
               "Whether the store answered just now.");
    put_metric(file, "once_operations_total", "counter", stats->operations, "Operations that were answered.");
    put_metric(file, "once_batches_total", "counter", stats->batches, "Batches that were sent to the store.");
    put_metric(file, "once_commits_total", "counter", stats->commits, "Transactions that were committed.");
    put_metric(file, "once_executions_total", "counter", stats->executions, "Claims answered execute.");
    put_metric(file, "once_replays_total", "counter", stats->replays, "Claims answered replay.");
    put_metric(file, "once_fenced_total", "counter", stats->fenced, "Operations of holders that had been replaced.");
    put_metric(file, "once_busy_total", "counter", stats->busy, "Operations refused because the queue was full.");
    put_metric(file, "once_settled_total", "counter", stats->settled,
               "Operations whose answer was lost, and found by looking.");
    if (result != ONCE_OK)
        return;
    put_metric(file, "once_records", "gauge", stats->records, "Records in the store, about.");
    put_metric(file, "once_store_bytes", "gauge", stats->bytes, "Bytes that the store takes.");
}

static void put_http(FILE *file, struct api_counters *counters)
{
    put_metric(file, "once_http_connections", "gauge", atomic_load(&counters->connections),
               "HTTP connections that are open.");
    put_metric(file, "once_http_connections_total", "counter", atomic_load(&counters->connections_ever),
               "HTTP connections that were accepted.");
    put_metric(file, "once_http_timeouts_total", "counter", atomic_load(&counters->timed_out),
               "HTTP connections that were closed for being too slow.");
    put_head(file, "once_http_requests_total", "counter", "HTTP requests that were answered, by status.");
    for (int code = 0; code < API_STATUS_COUNT; code++) {
        uint64_t count = atomic_load(&counters->answers[code]);
        if (count > 0 || code == 200)
            fprintf(file, "once_http_requests_total{code=\"%d\"} %" PRIu64 "\n", code, count);
    }
}

static void put_escalations(FILE *file, const struct escalate_counters *e)
{
    put_metric(file, "once_escalations_total", "counter", atomic_load(&e->noted),
               "Records that became unknown through this daemon: somebody has to look.");
    put_metric(file, "once_escalations_told_total", "counter", atomic_load(&e->told),
               "Escalations that the webhook accepted.");
    put_metric(file, "once_escalations_dropped_total", "counter", atomic_load(&e->dropped),
               "Escalations that the webhook will not be told of.");
}

static void put_completer(FILE *file, const struct completer_counters *c)
{
    put_metric(file, "once_completer_taken_total", "counter", atomic_load(&c->taken),
               "Abandoned records that the completer took over.");
    put_head(file, "once_completer_ended_total", "counter", "How the completer's attempts ended.");
    const struct {
        const char *how;
        uint64_t count;
    } ends[] = { { "finished", atomic_load(&c->finished) },
                 { "adopted", atomic_load(&c->adopted) },
                 { "retryable", atomic_load(&c->retryable) },
                 { "escalated", atomic_load(&c->escalated) },
                 { "lost", atomic_load(&c->lost) } };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        fprintf(file, "once_completer_ended_total{how=\"%s\"} %" PRIu64 "\n", ends[i].how, ends[i].count);
}

/* One line each, also where it is 0: what is graphed should not begin with its first event. */
static void put_labelled(FILE *file, const char *name, const char *label, const char *value, uint64_t count)
{
    fprintf(file, "%s{%s=\"%s\"} %" PRIu64 "\n", name, label, value, count);
}

/* Buckets by powers of two from 64 us to 16 s: the engine's are finer, which is for the console. */
static void put_times(FILE *file, const char *name, const struct insight_times *times, const char *help)
{
    enum { FIRST_US = 64, LAST_US = 16 << 20 };
    put_head(file, name, "histogram", help);
    uint64_t seen = 0, edge = FIRST_US;
    for (unsigned i = 0; i < INSIGHT_TIMES; i++) {
        seen += times->buckets[i];
        if (insight_bucket_us(i) + 1 == edge && edge <= LAST_US) {
            fprintf(file, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, (double)edge / 1e6, seen);
            edge *= 2;
        }
    }
    fprintf(file, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, times->count);
    fprintf(file, "%s_sum %.9f\n%s_count %" PRIu64 "\n", name, (double)times->sum_ns / 1e9, name, times->count);
}

static void put_insight(FILE *file, const struct once_insight *insight)
{
    put_head(file, "once_claims_total", "counter", "Claims, by what they were answered.");
    for (int arm = ONCE_ARM_EXECUTE; arm <= ONCE_ARM_UNKNOWN; arm++)
        put_labelled(file, "once_claims_total", "arm", once_arm_name((enum once_arm)arm), insight->claims[arm]);
    put_labelled(file, "once_claims_total", "arm", once_arm_name(ONCE_ARM_EXPIRED), insight->claims[ONCE_ARM_EXPIRED]);
    put_head(file, "once_outcomes_total", "counter", "Outcomes that were stored, by state.");
    for (int state = ONCE_STATE_SUCCEEDED; state <= ONCE_STATE_UNKNOWN; state++)
        put_labelled(file, "once_outcomes_total", "state", once_state_name((enum once_state)state),
                     insight->outcomes[state]);
    put_metric(file, "once_errors_total", "counter", insight->errors, "Operations that could not be done.");
    put_metric(file, "once_queue_length", "gauge", insight->queued, "Operations that wait for the next batch.");
    put_times(file, "once_claim_seconds", &insight->claim, "From a claim's arrival to its answer, waits apart.");
    put_times(file, "once_finish_seconds", &insight->finish, "From a finish's arrival to its answer.");
    put_head(file, "once_batch_size", "histogram", "Operations that were committed together.");
    uint64_t seen = 0;
    for (unsigned i = 0; i < INSIGHT_SIZES; i++) {
        seen += insight->batch_sizes[i];
        fprintf(file, "once_batch_size_bucket{le=\"%u\"} %" PRIu64 "\n", 1u << i, seen);
    }
    fprintf(file, "once_batch_size_bucket{le=\"+Inf\"} %" PRIu64 "\n", seen);
    fprintf(file, "once_batch_size_sum %" PRIu64 "\nonce_batch_size_count %" PRIu64 "\n", insight->batch_operations,
            seen);
}

static void put_expiry(FILE *file, const struct expiry_counters *e)
{
    put_metric(file, "once_expired_total", "counter", atomic_load(&e->removed),
               "Records past their retention whose space was given back.");
    once_time lag_ms = once_os_monotonic_ms() - atomic_load(&e->caught_up_ms);
    put_head(file, "once_expiry_lag_seconds", "gauge", "Time since no such record was left; it looks every 5 s.");
    fprintf(file, "once_expiry_lag_seconds %" PRId64 ".%03d\n", lag_ms / 1000, (int)(lag_ms % 1000));
}

void api_metrics(struct api_call *call)
{
    struct once_stats stats;
    struct once_error err;
    once_result result = call->once != NULL ? once_stats(call->once, &stats, &err) : ONCE_OK;
    FILE *file = api_answer_begin(&call->answer, 200, "text/plain; version=0.0.4; charset=utf-8");
    if (file == NULL)
        return;
    if (call->once != NULL) {
        struct once_insight insight;
        once_insight(call->once, &insight);
        put_store(file, &stats, result);
        put_insight(file, &insight);
    }
    if (call->counters->expiry != NULL)
        put_expiry(file, call->counters->expiry);
    put_http(file, call->counters);
    if (call->counters->escalations != NULL)
        put_escalations(file, call->counters->escalations);
    if (call->counters->completer != NULL)
        put_completer(file, call->counters->completer);
    if (call->counters->more != NULL)
        call->counters->more(call->counters->more_arg, file);
    once_time up_ms = once_os_monotonic_ms() - call->counters->started_ms;
    put_head(file, "once_uptime_seconds", "gauge", "Time since this began to listen.");
    fprintf(file, "once_uptime_seconds %" PRId64 ".%03d\n", up_ms / 1000, (int)(up_ms % 1000));
    put_head(file, "once_build_info", "gauge", "The version of once.");
    fprintf(file, "once_build_info{version=\"%s\"} 1\n", once_version());
    api_answer_end(&call->answer);
}
