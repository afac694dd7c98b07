/* sampler.c - see console/sampler.h. */
#include "daemon/console/sampler.h"

#include "core/err.h"
#include "core/json/record_json.h"
#include "daemon/console/parts.h"
#include "daemon/console/unknown_count.h"
#include "engine/engine_stats.h"
#include "messages/outbox/outbox.h"
#include "os/os.h"
#include "os/thread.h"

#include <stdlib.h>

/* What a sample has; the page reads them by these names. */
#define SAMPLE_FIELDS(X)                                                                                               \
    X(at)         /* wall clock, ms */                                                                                 \
    X(ms)         /* how long it is */                                                                                 \
    X(claims)     /* in that time, as all of these */                                                                  \
    X(executions) /* claims to execute, or to probe first */                                                           \
    X(replays)                                                                                                         \
    X(conflicts) /* claims that found somebody at it */                                                                \
    X(mismatches)                                                                                                      \
    X(unknowns) /* claims that were told so */                                                                         \
    X(outcomes) /* stored */                                                                                           \
    X(errors)                                                                                                          \
    X(claim_p50_us)                                                                                                    \
    X(claim_p99_us)                                                                                                    \
    X(finish_p50_us)                                                                                                   \
    X(finish_p99_us)                                                                                                   \
    X(operations)                                                                                                      \
    X(batches)                                                                                                         \
    X(bytes) /* of the store, as last looked at; 0: not yet */                                                         \
    X(attempts)

struct sample {
#define SAMPLE__MEMBER(name) int64_t name;
    SAMPLE_FIELDS(SAMPLE__MEMBER)
#undef SAMPLE__MEMBER
};

struct console_sampler {
    struct console *console;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool ending;
    once_time watched_ms; /* monotonic: when the overview was last asked for; 0: never */
    struct sample samples[CONSOLE_SAMPLES];
    uint64_t count; /* ever; the ring's newest is count - 1 */
    bool looked;    /* what follows is known */
    struct once_stats stats;
    once_result store; /* whether it answered */
    struct once_page running, abandoned;
    struct console_unknown_count unknown;
    bool has_outbox;
    struct outbox_counts outbox;

    struct once_engine_stats before; /* the thread's own */
    once_time before_ms;
};

/* ---------------------------------------------------------------- samples */

static void take_sample(struct console_sampler *s)
{
    struct once_engine_stats now, d;
    once_engine_stats(s->console->options.once, &now);
    once_time now_ms = once_os_monotonic_ms();
    d = now;
    engine_latency_since(&d.claim, &s->before.claim);
    engine_latency_since(&d.finish, &s->before.finish);
    const struct once_engine_stats *b = &s->before;
    struct sample sample = { .at = once_os_clock.wall(once_os_clock.arg), .ms = now_ms - s->before_ms };
    for (int arm = 0; arm <= ONCE_ARM_EXPIRED; arm++) {
        int64_t n = (int64_t)(now.claims[arm] - b->claims[arm]);
        sample.claims += n;
        sample.executions += arm == ONCE_ARM_EXECUTE || arm == ONCE_ARM_PROBE ? n : 0;
        sample.replays += arm == ONCE_ARM_REPLAY ? n : 0;
        sample.conflicts += arm == ONCE_ARM_IN_PROGRESS ? n : 0;
        sample.mismatches += arm == ONCE_ARM_MISMATCH ? n : 0;
        sample.unknowns += arm == ONCE_ARM_UNKNOWN ? n : 0;
    }
    for (int state = 0; state <= ONCE_STATE_UNKNOWN; state++)
        sample.outcomes += (int64_t)(now.outcomes[state] - b->outcomes[state]);
    for (int i = 0; i < ENGINE_BATCH_BUCKETS; i++)
        sample.batches += (int64_t)(now.batch_sizes[i] - b->batch_sizes[i]);
    sample.operations = (int64_t)(now.batch_operations - b->batch_operations);
    sample.errors = (int64_t)(now.errors - b->errors);
    sample.claim_p50_us = (int64_t)engine_latency_quantile_us(&d.claim, 0.50);
    sample.claim_p99_us = (int64_t)engine_latency_quantile_us(&d.claim, 0.99);
    sample.finish_p50_us = (int64_t)engine_latency_quantile_us(&d.finish, 0.50);
    sample.finish_p99_us = (int64_t)engine_latency_quantile_us(&d.finish, 0.99);
    pthread_mutex_lock(&s->lock);
    sample.bytes = s->looked ? (int64_t)s->stats.bytes : 0;
    sample.attempts = s->looked ? (int64_t)s->stats.attempts : 0;
    s->samples[s->count++ % CONSOLE_SAMPLES] = sample;
    pthread_mutex_unlock(&s->lock);
    s->before = now;
    s->before_ms = now_ms;
}

/* ---------------------------------------------------------------- looking */

static int by_lease(const void *a, const void *b)
{
    const struct once_record *x = a, *y = b;
    return (x->lease_until > y->lease_until) - (x->lease_until < y->lease_until);
}

static void look(struct console_sampler *s)
{
    struct once *once = s->console->options.once;
    struct once_filter running = { .states = 1u << ONCE_STATE_RUNNING, .limit = CONSOLE_LISTED };
    struct once_filter abandoned = { .abandoned = true, .limit = CONSOLE_LISTED };
    struct once_page pages[2] = { { 0 }, { 0 } };
    struct console_unknown_count unknown = s->unknown; /* which only this thread changes */
    struct once_stats stats;
    struct outbox_counts counts = { 0 };
    once_result r = once_stats(once, &stats, NULL);
    if (r == ONCE_OK)
        r = once_list(once, &running, &pages[0], NULL);
    /* Until the first sweep is through, a page may be empty and not the last. */
    for (int step = 0; r == ONCE_OK && step < CONSOLE_LIST_STEPS && pages[1].count == 0; step++) {
        once_page_release(&pages[1]);
        r = once_list(once, &abandoned, &pages[1], NULL);
        if (pages[1].next == 0)
            break;
    }
    if (r == ONCE_OK)
        r = console_unknown_count_step(&unknown, once);
    if (pages[0].count > 1)
        qsort(pages[0].records, pages[0].count, sizeof *pages[0].records, by_lease);
    bool has_outbox = console_outbox_counts(s->console, &counts);
    pthread_mutex_lock(&s->lock);
    s->store = r;
    s->has_outbox = has_outbox;
    s->outbox = counts;
    if (r == ONCE_OK) {
        struct once_page old[2] = { s->running, s->abandoned };
        s->stats = stats;
        s->unknown = unknown;
        s->running = pages[0];
        s->abandoned = pages[1];
        s->looked = true;
        pages[0] = old[0];
        pages[1] = old[1];
    }
    pthread_mutex_unlock(&s->lock);
    once_page_release(&pages[0]);
    once_page_release(&pages[1]);
}

/* ---------------------------------------------------------------- the thread */

/* Until `until`, or somebody begins to watch; false: it is ending. */
static bool wait_until(struct console_sampler *s, once_time until, once_time watched)
{
    struct timespec at = { .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };
    pthread_mutex_lock(&s->lock);
    bool began = false;
    while (!s->ending && !began && pthread_cond_timedwait(&s->changed, &s->lock, &at) == 0)
        began = s->watched_ms - watched > CONSOLE_LOOK_MS;
    bool go_on = !s->ending;
    pthread_mutex_unlock(&s->lock);
    return go_on;
}

static void *run(void *arg)
{
    struct console_sampler *s = arg;
    pthread_setname_np(pthread_self(), "once-console");
    once_time sample_at = once_os_monotonic_ms() + CONSOLE_SAMPLE_MS, look_at = 0, watched = 0;
    while (wait_until(s, sample_at, watched)) {
        once_time now = once_os_monotonic_ms();
        pthread_mutex_lock(&s->lock);
        watched = s->watched_ms;
        pthread_mutex_unlock(&s->lock);
        if (watched > 0 && now - watched < CONSOLE_LOOK_MS && now >= look_at) {
            look(s);
            look_at = once_os_monotonic_ms() + CONSOLE_LOOK_MS;
        }
        if (now >= sample_at) {
            take_sample(s);
            sample_at = now + CONSOLE_SAMPLE_MS;
        }
    }
    return NULL;
}

once_result console_sampler_start(struct console *console, struct console_sampler **out, struct once_error *err)
{
    struct console_sampler *s = calloc(1, sizeof *s);
    if (s == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the console");
    s->console = console;
    s->before_ms = once_os_monotonic_ms();
    once_engine_stats(console->options.once, &s->before);
    pthread_mutex_init(&s->lock, NULL);
    once_cond_init(&s->changed);
    if (once_thread_start(&s->thread, run, s) != 0) {
        free(s);
        return once_fail(err, ONCE_UNAVAILABLE, "cannot start a thread");
    }
    *out = s;
    return ONCE_OK;
}

void console_sampler_stop(struct console_sampler *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    s->ending = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    once_page_release(&s->running);
    once_page_release(&s->abandoned);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---------------------------------------------------------------- what the page is told */

static void put_samples(const struct console_sampler *s, struct once_json *json, uint64_t since)
{
    once_json_open(json, "fields", '[');
#define SAMPLE__NAME(name) once_json_text(json, NULL, #name);
    SAMPLE_FIELDS(SAMPLE__NAME)
#undef SAMPLE__NAME
    once_json_close(json);
    uint64_t first = s->count > CONSOLE_SAMPLES ? s->count - CONSOLE_SAMPLES : 0;
    if (since > first && since <= s->count)
        first = since;
    once_json_uint(json, "count", s->count);
    once_json_uint(json, "interval_ms", CONSOLE_SAMPLE_MS);
    once_json_uint(json, "kept", CONSOLE_SAMPLES);
    once_json_open(json, "samples", '[');
    for (uint64_t i = first; i < s->count; i++) {
        const struct sample *sample = &s->samples[i % CONSOLE_SAMPLES];
        once_json_open(json, NULL, '[');
#define SAMPLE__VALUE(name) once_json_int(json, NULL, sample->name);
        SAMPLE_FIELDS(SAMPLE__VALUE)
#undef SAMPLE__VALUE
        once_json_close(json);
    }
    once_json_close(json);
}

static void put_looked(const struct console_sampler *s, struct once_json *json)
{
    once_json_bool(json, "looked", s->looked);
    if (s->store != ONCE_OK)
        once_json_text(json, "store_error", once_result_text(s->store));
    if (s->looked) {
        once_json_uint(json, "attempts", s->stats.attempts);
        once_json_uint(json, "bytes", s->stats.bytes);
        once_json_int(json, "now", s->stats.now);
        once_json_uint(json, "running_count", s->running.count);
        once_json_bool(json, "running_more", s->running.next != 0);
        once_json_uint(json, "abandoned_count", s->abandoned.count);
        once_json_bool(json, "abandoned_more", s->abandoned.next != 0);
        once_json_uint(json, "unknown_count", s->unknown.count);
        once_json_bool(json, "unknown_more", s->unknown.more);
        once_json_open(json, "running", '[');
        for (size_t i = 0; i < s->running.count && i < CONSOLE_RUNNING_SHOWN; i++) {
            once_json_open(json, NULL, '{');
            once_record_json(json, &s->running.records[i]);
            once_json_close(json);
        }
        once_json_close(json);
    }
    if (s->has_outbox) {
        once_json_open(json, "outbox", '{');
        once_json_int(json, "pending", s->outbox.pending);
        once_json_int(json, "stalled", s->outbox.stalled);
        once_json_int(json, "scheduled", s->outbox.scheduled);
        once_json_int(json, "dead", s->outbox.dead);
        once_json_int(json, "lag_ms", s->outbox.lag_ms);
        once_json_close(json);
    }
}

void console_sampler_put(struct console_sampler *s, struct once_json *json, uint64_t since)
{
    pthread_mutex_lock(&s->lock);
    s->watched_ms = once_os_monotonic_ms();
    pthread_cond_broadcast(&s->changed);
    put_samples(s, json, since);
    put_looked(s, json);
    pthread_mutex_unlock(&s->lock);
}
