/*
 * metrics.c - /metrics: counters for Prometheus, in its text format 0.0.4.
 *
 * The engine's counters are there also while the store is not; what only the store knows is
 * then left out, and once_store_up is 0.
 */
#include "daemon/api/call.h"
#include "daemon/completer/completer.h"
#include "daemon/completer/escalate.h"
#include "daemon/observers/health.h"
#include "daemon/reaper/reaper.h"
#include "daemon/socket/admin_queries.h"
#include "engine/daemon_api.h"
#include "engine/route_stats.h"
#include "os/os.h"

#include <inttypes.h>
#include <stdlib.h>

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
    put_metric(file, "once_recovered_total", "counter", stats->recovered,
               "Operations whose answer was lost, and found by looking.");
    if (result != ONCE_OK)
        return;
    put_metric(file, "once_attempts", "gauge", stats->attempts,
               "Attempts in the store, about: a record has one for each time that it was begun.");
    put_metric(file, "once_store_bytes", "gauge", stats->bytes, "Bytes that the store takes.");
}

/* How much the store promises, and what it broke of that, as far as it was seen. */
static void put_tier(FILE *file, const struct once *once, const struct once_stats *stats, once_result result)
{
    put_head(file, "once_store_tier", "gauge", "How much the store promises: full, or best-effort.");
    fprintf(file, "once_store_tier{tier=\"%s\"} 1\n", once_tier(once));
    if (strcmp(once_tier(once), "full") == 0 || result != ONCE_OK)
        return;
    put_metric(file, "once_store_lost_total", "counter", stats->lost,
               "Writes of this daemon that the store acknowledged and lost.");
    put_metric(file, "once_store_evicted_total", "counter", stats->evicted, "Keys that the store's server evicted.");
    put_metric(file, "once_store_restarts_total", "counter", stats->restarts,
               "Times that the store's server was another process than before.");
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
    put_metric(file, "once_escalations_total", "counter", atomic_load(&e->recorded),
               "Records that became unknown through this daemon: somebody has to look.");
    put_metric(file, "once_escalations_delivered_total", "counter", atomic_load(&e->delivered),
               "Escalations that the webhook accepted.");
    put_metric(file, "once_escalations_dropped_total", "counter", atomic_load(&e->dropped),
               "Escalations that the webhook will not be told of.");
}

static void put_completer(FILE *file, const struct completer_counters *c)
{
    put_metric(file, "once_completer_takeovers_total", "counter", atomic_load(&c->taken),
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

/* A label's value, with what must be escaped in one. */
static void put_value(FILE *file, const char *value)
{
    for (; *value != '\0'; value++)
        fprintf(file, *value == '"' || *value == '\\' ? "\\%c" : "%c", *value);
}

/* `{route="R",name="value"}`; who has no route has no such label, which is the same to Prometheus as an empty one. */
static void put_labels(FILE *file, const char *route, const char *name, const char *value)
{
    if (route[0] == '\0' && name == NULL)
        return;
    fputc('{', file);
    if (route[0] != '\0') {
        fputs("route=\"", file);
        put_value(file, route);
        fputs(name != NULL ? "\"," : "\"", file);
    }
    if (name != NULL)
        fprintf(file, "%s=\"%s\"", name, value);
    fputc('}', file);
}

static void put_routed(FILE *file, const char *metric, const char *route, const char *name, const char *value,
                       uint64_t count)
{
    fputs(metric, file);
    put_labels(file, route, name, value);
    fprintf(file, " %" PRIu64 "\n", count);
}

/* Buckets by powers of two from 64 us to 16 s: the engine's are finer, which is for the console. */
static void put_times(FILE *file, const char *name, const char *route, const struct engine_latency *times)
{
    enum { FIRST_US = 64, LAST_US = 16 << 20 };
    char metric[64], le[32];
    uint64_t seen = 0, edge = FIRST_US;
    snprintf(metric, sizeof metric, "%s_bucket", name);
    for (unsigned i = 0; i < ENGINE_LATENCY_BUCKETS; i++) {
        seen += times->buckets[i];
        if (engine_latency_bucket_us(i) + 1 == edge && edge <= LAST_US) {
            snprintf(le, sizeof le, "%g", (double)edge / 1e6);
            put_routed(file, metric, route, "le", le, seen);
            edge *= 2;
        }
    }
    put_routed(file, metric, route, "le", "+Inf", times->count);
    fprintf(file, "%s_sum", name);
    put_labels(file, route, NULL, NULL);
    fprintf(file, " %.9f\n", (double)times->sum_ns / 1e9);
    snprintf(metric, sizeof metric, "%s_count", name);
    put_routed(file, metric, route, NULL, NULL, times->count);
}

/* What is counted by route. Sums over the routes are what there was, exactly. */
static void put_routes(FILE *file, const struct engine_route_stats *routes, size_t count)
{
    put_head(file, "once_claims_total", "counter", "Claims, by what they were answered.");
    for (size_t i = 0; i < count; i++)
        for (int arm = ONCE_ARM_EXECUTE; arm <= ONCE_ARM_EXPIRED;
             arm = arm == ONCE_ARM_UNKNOWN ? ONCE_ARM_EXPIRED : arm + 1)
            put_routed(file, "once_claims_total", routes[i].name, "arm", once_arm_name((enum once_arm)arm),
                       routes[i].claims[arm]);
    put_head(file, "once_claims_failed_total", "counter", "Claims that could not be done, or found the queue full.");
    for (size_t i = 0; i < count; i++)
        put_routed(file, "once_claims_failed_total", routes[i].name, NULL, NULL, routes[i].failed);
    put_head(file, "once_outcomes_total", "counter", "Attempts that ended, by how.");
    for (size_t i = 0; i < count; i++)
        for (int state = ONCE_STATE_NONE; state <= ONCE_STATE_UNKNOWN; state++)
            if (state != ONCE_STATE_RUNNING)
                put_routed(file, "once_outcomes_total", routes[i].name, "state",
                           state == ONCE_STATE_NONE ? "released" : once_state_name((enum once_state)state),
                           routes[i].outcomes[state]);
    put_head(file, "once_claim_seconds", "histogram", "From a claim's arrival to its answer, waits apart.");
    for (size_t i = 0; i < count; i++)
        put_times(file, "once_claim_seconds", routes[i].name, &routes[i].claim);
    put_head(file, "once_finish_seconds", "histogram", "From a finish's arrival to its answer.");
    for (size_t i = 0; i < count; i++)
        put_times(file, "once_finish_seconds", routes[i].name, &routes[i].finish);
}

static void put_insight(FILE *file, const struct once_engine_stats *engine_stats)
{
    put_metric(file, "once_errors_total", "counter", engine_stats->errors, "Operations that could not be done.");
    put_metric(file, "once_queue_length", "gauge", engine_stats->queued, "Operations that wait for the next batch.");
    put_metric(file, "once_waiting_claims", "gauge", engine_stats->waiting, "Claims that wait for another's outcome.");
    put_head(file, "once_batch_size", "histogram", "Operations that were committed together.");
    uint64_t seen = 0;
    for (unsigned i = 0; i < ENGINE_BATCH_BUCKETS; i++) {
        seen += engine_stats->batch_sizes[i];
        fprintf(file, "once_batch_size_bucket{le=\"%u\"} %" PRIu64 "\n", 1u << i, seen);
    }
    fprintf(file, "once_batch_size_bucket{le=\"+Inf\"} %" PRIu64 "\n", seen);
    fprintf(file, "once_batch_size_sum %" PRIu64 "\nonce_batch_size_count %" PRIu64 "\n",
            engine_stats->batch_operations, seen);
}

static void put_seconds(FILE *file, const char *name, const char *type, uint64_t ms, const char *help)
{
    put_head(file, name, type, help);
    fprintf(file, "%s %" PRIu64 ".%03u\n", name, ms / 1000, (unsigned)(ms % 1000));
}

static void put_leases(FILE *file, const struct engine_lease_counts *leases)
{
    put_metric(file, "once_leases", "gauge", leases->held,
               "Attempts under way whose leases were granted here; of the last 16384.");
    put_metric(file, "once_leases_ending", "gauge", leases->ending,
               "Of them, those whose lease is over within 5 s unless it is renewed.");
}

static void put_expiry(FILE *file, const struct expiry_counters *e)
{
    put_metric(file, "once_expired_total", "counter", atomic_load(&e->removed),
               "Records past their retention whose space was given back.");
    put_seconds(file, "once_expiry_lag_seconds", "gauge",
                (uint64_t)(once_os_monotonic_ms() - atomic_load(&e->caught_up_ms)),
                "Time since no such record was left; it looks every 5 s.");
    put_metric(file, "once_reaper_rounds_total", "counter", atomic_load(&e->rounds), "Turns of the reaper.");
    put_metric(file, "once_reaper_steps_total", "counter", atomic_load(&e->steps), "Bounded steps that it took.");
    put_seconds(file, "once_reaper_seconds_total", "counter", atomic_load(&e->worked_ms), "Time of these steps.");
    put_seconds(file, "once_reaper_round_seconds", "gauge", atomic_load(&e->round_ms),
                "Time of the last turn's steps; a turn has half a second.");
    put_metric(file, "once_reaper_pauses_total", "counter", atomic_load(&e->pauses),
               "Times that it began to wait because many operations did.");
    put_metric(file, "once_reaper_paused", "gauge", atomic_load(&e->paused), "Whether it waits for that now.");
    put_head(file, "once_reaper_suspensions_total", "counter",
             "Times that it began to refuse to delete by the store's clock.");
    put_routed(file, "once_reaper_suspensions_total", "", "reason", "jumped", atomic_load(&e->jumped));
    put_routed(file, "once_reaper_suspensions_total", "", "reason", "ahead", atomic_load(&e->ahead));
    put_metric(file, "once_reaper_suspended", "gauge", atomic_load(&e->suspended),
               "Whether it refuses now: somebody has to look.");
}

static void put_quotas(FILE *file, struct once *once)
{
    struct quota_counters n;
    once_quota_counters(once, &n);
    put_head(file, "once_quota_refusals_total", "counter",
             "Claims refused because their tenant has as much as it may have, by kind.");
    for (size_t i = 0; i < QUOTA_KIND_COUNT; i++)
        put_routed(file, "once_quota_refusals_total", "", "kind", quota_kind_name((enum quota_kind)i), n.refused[i]);
    put_metric(file, "once_quota_tenants", "gauge", n.tenants, "Tenants that are counted: those that have something.");
    put_metric(file, "once_quota_in_flight", "gauge", n.grants, "Operations under way, where quotas count them.");
    put_metric(file, "once_quota_uncounted_total", "counter", n.uncounted,
               "Claims that were let through uncounted, for want of room.");
    put_metric(file, "once_quota_scans_total", "counter", n.scans, "Times that all of the store was counted.");
}

/* What is graphed should not begin with its first event: zeros are there, too. */
static void put_engine_routes(FILE *file, struct once *once)
{
    size_t count = 0;
    struct engine_lease_counts leases;
    struct engine_route_stats *routes = once_route_stats(once, &count, &leases);
    if (routes == NULL)
        return;
    put_routes(file, routes, count);
    put_leases(file, &leases);
    free(routes);
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
        struct once_engine_stats engine_stats;
        once_engine_stats(call->once, &engine_stats);
        put_store(file, &stats, result);
        put_tier(file, call->once, &stats, result);
        put_insight(file, &engine_stats);
        put_quotas(file, call->once);
        put_engine_routes(file, call->once);
    }
    if (call->counters->health != NULL) {
        struct health_view view;
        health_read(call->counters->health, &view);
        put_metric(file, "once_ready", "gauge", view.ready, "Whether /readyz says so.");
        put_metric(file, "once_queue_capacity", "gauge", view.queue_max, "Operations that may wait; more are refused.");
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
