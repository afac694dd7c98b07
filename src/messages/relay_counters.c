/* relay_counters.c - see relay_counters.h. */
#include "messages/relay_counters.h"

#include <inttypes.h>
#include <stddef.h>

/* From a local broker's millisecond to hours of an outage. */
static const int64_t bucket_ms[RELAY_BUCKETS] = { 1,    2,    5,    10,    25,    50,    100,    250,     500,
                                                  1000, 2500, 5000, 10000, 30000, 60000, 300000, 1800000, 7200000 };

void relay_histogram_add(struct relay_histogram *h, uint64_t us)
{
    size_t i = 0;
    while (i < RELAY_BUCKETS && us > (uint64_t)bucket_ms[i] * 1000)
        i++;
    atomic_fetch_add_explicit(&h->counts[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum_us, us, memory_order_relaxed);
}

void relay_counters_sum(const struct relay_counters *counters, struct relay_sums *out)
{
    *out = (struct relay_sums){ 0 };
    for (size_t i = 0; i <= RELAY_ROUTES_MAX; i++) {
        const struct relay_route_counters *row = &counters->rows[i];
        out->published += atomic_load(&row->published);
        out->refused += atomic_load(&row->refused);
        out->unreached += atomic_load(&row->unreached);
        out->crashed += atomic_load(&row->crashed);
        out->dead += atomic_load(&row->dead_refused) + atomic_load(&row->dead_crashed);
    }
}

void relay_counters_count(struct relay_counters *counters, const struct outbox_counts *counts)
{
    atomic_store(&counters->pending, counts->pending);
    atomic_store(&counters->stalled, counts->stalled);
    atomic_store(&counters->scheduled, counts->scheduled);
    atomic_store(&counters->dead, counts->dead);
    atomic_store(&counters->lag_ms, counts->lag_ms > 0 ? counts->lag_ms : 0); /* clocks are set back */
    atomic_store(&counters->stalled_lag_ms, counts->stalled_lag_ms > 0 ? counts->stalled_lag_ms : 0);
    atomic_store(&counters->counted, true);
}

/* ------------------------------------------------------------------ for Prometheus */

struct put {
    const struct relay_counters *counters;
    const char *const *patterns;
    size_t count; /* of routes; one more row is for topics without a route */
    FILE *file;
};

static void put_head(FILE *file, const char *name, const char *type, const char *help)
{
    fprintf(file, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_one(FILE *file, const char *name, const char *type, uint64_t value, const char *help)
{
    put_head(file, name, type, help);
    fprintf(file, "%s %" PRIu64 "\n", name, value);
}

static const struct relay_route_counters *row_of(const struct put *put, size_t i)
{
    return &put->counters->rows[i < put->count ? i : RELAY_ROUTES_MAX];
}

/* route="...". A topic has no space, so "no route" cannot be confused with a pattern. */
static void put_route(const struct put *put, size_t i)
{
    fputs("route=\"", put->file);
    for (const char *c = i < put->count ? put->patterns[i] : "no route"; *c != '\0'; c++) {
        if (*c == '\\' || *c == '"')
            fputc('\\', put->file);
        if (*c == '\n')
            fputs("\\n", put->file);
        else
            fputc(*c, put->file);
    }
    fputc('"', put->file);
}

static void put_counter(const struct put *put, const char *name, size_t offset, const char *help)
{
    put_head(put->file, name, "counter", help);
    for (size_t i = 0; i <= put->count; i++) {
        const _Atomic uint64_t *value = (const void *)((const char *)row_of(put, i) + offset);
        fprintf(put->file, "%s{", name);
        put_route(put, i);
        fprintf(put->file, "} %" PRIu64 "\n", atomic_load(value));
    }
}

static void put_dead(const struct put *put)
{
    static const char name[] = "once_relay_dead_letters_total";
    put_head(put->file, name, "counter", "Messages that became dead letters, by cause.");
    for (size_t i = 0; i <= put->count; i++) {
        const struct relay_route_counters *row = row_of(put, i);
        fprintf(put->file, "%s{", name);
        put_route(put, i);
        fprintf(put->file, ",cause=\"refused\"} %" PRIu64 "\n%s{", atomic_load(&row->dead_refused), name);
        put_route(put, i);
        fprintf(put->file, ",cause=\"crashed\"} %" PRIu64 "\n", atomic_load(&row->dead_crashed));
    }
}

static void put_histogram(const struct put *put, const char *name, size_t offset, const char *help)
{
    put_head(put->file, name, "histogram", help);
    for (size_t i = 0; i < put->count; i++) {
        const struct relay_histogram *h = (const void *)((const char *)row_of(put, i) + offset);
        uint64_t total = 0;
        for (size_t b = 0; b <= RELAY_BUCKETS; b++) {
            total += atomic_load(&h->counts[b]);
            fprintf(put->file, "%s_bucket{", name);
            put_route(put, i);
            if (b < RELAY_BUCKETS)
                fprintf(put->file, ",le=\"%g\"} %" PRIu64 "\n", (double)bucket_ms[b] / 1000, total);
            else
                fprintf(put->file, ",le=\"+Inf\"} %" PRIu64 "\n", total);
        }
        uint64_t sum = atomic_load(&h->sum_us);
        fprintf(put->file, "%s_sum{", name);
        put_route(put, i);
        fprintf(put->file, "} %" PRIu64 ".%06u\n%s_count{", sum / 1000000, (unsigned)(sum % 1000000), name);
        put_route(put, i);
        fprintf(put->file, "} %" PRIu64 "\n", total);
    }
}

static void put_outbox(const struct relay_counters *n, FILE *file)
{
    put_head(file, "once_outbox_messages", "gauge", "Messages in the outbox, up to 100000 per state.");
    fprintf(file, "once_outbox_messages{state=\"pending\"} %" PRId64 "\n", atomic_load(&n->pending));
    fprintf(file, "once_outbox_messages{state=\"stalled\"} %" PRId64 "\n", atomic_load(&n->stalled));
    fprintf(file, "once_outbox_messages{state=\"scheduled\"} %" PRId64 "\n", atomic_load(&n->scheduled));
    fprintf(file, "once_outbox_messages{state=\"dead\"} %" PRId64 "\n", atomic_load(&n->dead));
    put_head(file, "once_outbox_oldest_seconds", "gauge",
             "Age of the oldest message in this state; 0 without messages.");
    fprintf(file, "once_outbox_oldest_seconds{state=\"pending\"} %.3f\n", (double)atomic_load(&n->lag_ms) / 1000);
    fprintf(file, "once_outbox_oldest_seconds{state=\"stalled\"} %.3f\n",
            (double)atomic_load(&n->stalled_lag_ms) / 1000);
}

void relay_counters_put(const struct relay_counters *n, const char *const *patterns, size_t count, FILE *file)
{
    const struct put put = { n, patterns, count, file };
    bool up = atomic_load(&n->up);
    put_one(file, "once_relay_up", "gauge", up, "Whether the relay is connected to its outbox.");
    put_one(file, "once_relay_outages_total", "counter", atomic_load(&n->outages),
            "How often the connection to the outbox was lost.");
    put_one(file, "once_relay_batches_total", "counter", atomic_load(&n->batches), "Batches that were taken.");
    put_one(file, "once_relay_unsettled_total", "counter", atomic_load(&n->unsettled),
            "Batches that could not be settled: their messages are published again.");
    put_counter(&put, "once_relay_published_total", offsetof(struct relay_route_counters, published),
                "Messages that their sink confirmed.");
    put_counter(&put, "once_relay_refused_total", offsetof(struct relay_route_counters, refused),
                "Attempts that a sink refused, or did not answer.");
    put_counter(&put, "once_relay_unreached_total", offsetof(struct relay_route_counters, unreached),
                "Attempts that did not reach a sink.");
    put_counter(&put, "once_relay_crashed_total", offsetof(struct relay_route_counters, crashed),
                "Messages that were in flight when a relay crashed, and were tried again, alone.");
    put_dead(&put);
    put_histogram(&put, "once_relay_publish_seconds", offsetof(struct relay_route_counters, publish),
                  "Time from the start of a publish to its confirmation.");
    put_histogram(&put, "once_relay_delay_seconds", offsetof(struct relay_route_counters, delay),
                  "Time from the enqueue of a message to its confirmation.");
    if (up && atomic_load(&n->counted))
        put_outbox(n, file);
}
