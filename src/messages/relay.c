/* relay.c - see relay.h. */
#include "messages/relay.h"

#include "core/backoff.h"
#include "core/err.h"
#include "core/span.h"
#include "os/crash_point.h"
#include "os/os.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <time.h>

static int64_t jittered(const struct relay *relay, int64_t max_ms, uint32_t failures)
{
    uint32_t random;
    once_os_random(&random, sizeof random);
    return once_backoff_ms((struct once_backoff){ relay->backoff_ms, max_ms, ONCE_JITTER_FULL }, failures, random);
}

size_t relay_route_of(const struct relay *relay, once_span topic)
{
    char text[256];
    snprintf(text, sizeof text, "%.*s", ONCE_SPAN_ARGS(topic));
    for (size_t i = 0; i < relay->route_count; i++)
        if (fnmatch(relay->routes[i].pattern, text, 0) == 0)
            return i;
    return RELAY_ROUTES_MAX;
}

static struct relay_route_counters *row_of(struct relay *relay, const struct outbox_message *m)
{
    return &relay->counters->rows[m->route];
}

static void count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* ------------------------------------------------------------------ sinks that are not reached */

static struct relay_breaker *breaker_of(struct relay *relay, const struct sink *sink)
{
    for (size_t i = 0; i < relay->breaker_count; i++)
        if (relay->breakers[i].sink == sink)
            return &relay->breakers[i];
    return NULL;
}

static void sink_failed(struct relay *relay, struct relay_breaker *b, const char *reason)
{
    enum { BREAK_MS_MAX = 30000 };
    once_time now = once_os_monotonic_ms();
    if (now < b->until_ms)
        return; /* it was started before that was known */
    int64_t longest = relay->backoff_ms_max < BREAK_MS_MAX ? relay->backoff_ms_max : BREAK_MS_MAX;
    b->until_ms = now + 1 + jittered(relay, longest, (uint32_t)b->failures);
    b->failures++;
    snprintf(b->reason, sizeof b->reason, "%s", reason);
}

/* Whether a message may be started there now. After failures, one message finds out. */
static bool sink_is_open(const struct relay_breaker *b)
{
    return b->failures == 0 || (once_os_monotonic_ms() >= b->until_ms && b->sink->busy == 0);
}

/* ------------------------------------------------------------------ traces */

static struct relay_traced *traced_of(const struct relay *relay, const struct outbox_message *m)
{
    return relay->traced != NULL ? &relay->traced[m - relay->first] : NULL;
}

/* One that carries a sampled trace is published under a span in it; all others as they are. It may be begun anew: its
 * sink had no room. */
static void begin_span(struct relay *relay, struct outbox_message *m)
{
    struct relay_traced *t = traced_of(relay, m);
    if (t == NULL || t->span.on)
        return;
    struct tracer tracer = { .exporter = relay->exporter, .ratio = 0 };
    tracer_begin(&tracer, m->headers, &t->span);
    if (!t->span.on)
        return;
    once_buf_init(&t->headers, m->headers.len + 128);
    once_trace_replace(m->headers, &t->span.own, &t->headers);
    if (t->headers.result == ONCE_OK)
        m->headers = once_buf_span(&t->headers);
    else
        t->span.on = false;
}

static void end_span(struct relay *relay, const struct outbox_message *m, bool confirmed)
{
    const struct relay_traced *t = traced_of(relay, m);
    if (t == NULL || !t->span.on)
        return;
    struct tracer tracer = { .exporter = relay->exporter };
    struct otlp_span told = { .attempt = (uint32_t)(m->refusals + m->crashes + 1) };
    told.span.name = ONCE_TRACE_PUBLISH;
    told.span.failed = !confirmed;
    once_trace_text(m->topic, told.topic);
    once_trace_text(once_span_str(m->id), told.message);
    tracer_end(&tracer, &t->span, &told);
}

static void release_traced(struct relay *relay, size_t count)
{
    for (size_t i = 0; relay->traced != NULL && i < count; i++)
        once_buf_release(&relay->traced[i].headers);
    free(relay->traced);
    relay->traced = NULL;
}

/* ------------------------------------------------------------------ one message */

static void fail(struct relay *relay, struct outbox_message *m, bool refused, int64_t retry_after_ms,
                 const char *reason)
{
    m->wait_ms = jittered(relay, relay->backoff_ms_max, (uint32_t)m->refusals + (uint32_t)m->delays);
    if (retry_after_ms > m->wait_ms)
        m->wait_ms = retry_after_ms;
    m->verdict = !refused                                 ? OUTBOX_UNREACHED
                 : m->refusals + 1 >= relay->attempts_max ? OUTBOX_DEAD_REFUSED
                                                          : OUTBOX_REFUSED;
    snprintf(m->reason, sizeof m->reason, "%s", reason);
    for (char *c = m->reason; *c != '\0';
         c++) /* brokers say what they like; the outbox takes text, or nothing of a batch */
        if (*c < ' ' || *c > '~')
            *c = '?';
    count(refused ? &row_of(relay, m)->refused : &row_of(relay, m)->unreached);
}

static void confirm(struct relay *relay, struct outbox_message *m)
{
    uint64_t now = once_os_monotonic_ns();
    int64_t age_ms = m->age_ms > 0 ? m->age_ms : 0; /* clocks are set back */
    m->verdict = OUTBOX_CONFIRMED;
    count(&row_of(relay, m)->published);
    relay_histogram_add(&row_of(relay, m)->publish, (now - m->started_ns) / 1000);
    relay_histogram_add(&row_of(relay, m)->delay, (uint64_t)age_ms * 1000 + (now - relay->taken_ns) / 1000);
}

void relay_done(void *arg, struct outbox_message *m, enum sink_result result, int64_t retry_after_ms,
                const char *reason)
{
    struct relay *relay = arg;
    struct relay_breaker *b = breaker_of(relay, relay->routes[m->route].sink);
    end_span(relay, m, result == SINK_CONFIRMED);
    if (result == SINK_UNREACHED) {
        sink_failed(relay, b, reason);
        fail(relay, m, false, 0, reason);
        return;
    }
    relay->sink_recovered |= b->failures > 0;
    b->failures = 0;
    if (result == SINK_REFUSED) {
        fail(relay, m, true, retry_after_ms, reason);
        return;
    }
    ONCE_CRASH_POINT("relay.confirmed");
    confirm(relay, m);
    if (m->next != NULL)
        relay->ready[relay->ready_count++] = m->next; /* RELAY-1 */
}

/* False: no room at its sink now. */
static bool start(struct relay *relay, struct outbox_message *m)
{
    struct sink *sink = m->route < relay->route_count ? relay->routes[m->route].sink : NULL;
    if (m->crashes >= relay->crashes_max) {
        m->verdict = OUTBOX_DEAD_CRASHED;
        snprintf(m->reason, sizeof m->reason, "%d relays went away while this alone was under way", m->crashes);
        return true;
    }
    if (sink == NULL) {
        fail(relay, m, false, 0, "no route for its topic");
        return true;
    }
    struct relay_breaker *b = breaker_of(relay, sink);
    if (!sink_is_open(b)) {
        if (b->sink->busy > 0)
            return false; /* somebody is finding out */
        fail(relay, m, false, b->until_ms - once_os_monotonic_ms(), b->reason);
        return true;
    }
    begin_span(relay, m);
    m->started_ns = once_os_monotonic_ns();
    bool started = sink->ops->start(sink, m);
    if (started)
        ONCE_CRASH_POINT("relay.sent");
    return started;
}

/* ------------------------------------------------------------------ a batch */

/* Links the messages of each key; the first of each are ready. Messages come sorted by lane and
 * order, and a key is in one lane. */
static void link_keys(struct relay *relay, struct outbox_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct outbox_message *m = &batch->messages[i];
        bool first = true;
        m->route = relay_route_of(relay, m->topic);
        if (m->suspect)
            count(&row_of(relay, m)->crashed);
        for (size_t j = i; m->has_key && j > 0 && batch->messages[j - 1].lane == m->lane; j--) {
            struct outbox_message *before = &batch->messages[j - 1];
            if (before->has_key && once_span_equal(before->key, m->key)) {
                before->next = m;
                first = false;
                break;
            }
        }
        if (first)
            relay->ready[relay->ready_count++] = m;
    }
}

static size_t busy_of(const struct relay *relay)
{
    size_t busy = 0;
    for (size_t i = 0; i < relay->breaker_count; i++)
        busy += relay->breakers[i].sink->busy;
    return busy;
}

/* Starts what can be started; what found no room stays ready, in its order. */
static void start_ready(struct relay *relay)
{
    size_t count = relay->ready_count, kept = 0;
    for (size_t i = 0; i < count; i++)
        if (!start(relay, relay->ready[i]))
            relay->ready[kept++] = relay->ready[i];
    /* A start may have ended at once, and made others ready. */
    for (size_t i = count; i < relay->ready_count; i++)
        relay->ready[kept++] = relay->ready[i];
    relay->ready_count = kept;
}

static void publish(struct relay *relay, once_time start_until)
{
    enum { TURN_MS = 100, SHORT_TURN_MS = 2 };
    while (relay->ready_count > 0 || busy_of(relay) > 0) {
        bool stop = once_os_monotonic_ms() >= start_until || relay->must_stop(relay->arg); /* RELAY-3 */
        if (stop)
            relay->ready_count = 0;
        start_ready(relay);
        size_t busy = busy_of(relay);
        for (size_t i = 0; i < relay->breaker_count; i++) {
            struct sink *sink = relay->breakers[i].sink;
            if (sink->busy > 0)
                sink->ops->poll(sink, sink->busy == busy ? TURN_MS : SHORT_TURN_MS);
        }
    }
}

void relay_outbox_down(struct relay *relay, const struct once_error *why)
{
    char text[sizeof why->text + 32];
    atomic_store(&relay->counters->up, false);
    atomic_store(&relay->counters->counted, false);
    if (relay->trouble.text[0] == '\0')
        count(&relay->counters->outages);
    if (strcmp(relay->trouble.text, why->text) == 0)
        return;
    relay->trouble = *why;
    snprintf(text, sizeof text, "%s; trying again", why->text);
    relay->say(relay->arg, text);
}

void relay_outbox_up(struct relay *relay)
{
    atomic_store(&relay->counters->up, true);
    if (relay->trouble.text[0] != '\0')
        relay->say(relay->arg, "the outbox is reached again");
    relay->trouble.text[0] = '\0';
}

static void nap(int64_t ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    nanosleep(&t, NULL);
}

/* RELAY-4. */
static once_result settle(struct relay *relay, const struct outbox_batch *batch, once_time until,
                          struct once_error *err)
{
    enum { AGAIN_MS = 100, STOP_MS = 5000 };
    const struct outbox_ops *ops = relay->outbox->ops;
    once_result r = ops->settle(relay->outbox, batch, err);
    bool stopping = false;
    while (r != ONCE_OK && once_os_monotonic_ms() < until) {
        relay_outbox_down(relay, err);
        if (!stopping &&
            relay->must_stop(relay->arg)) { /* whoever waits for our end has some patience, not a lease's */
            stopping = true;
            once_time soon = once_os_monotonic_ms() + STOP_MS;
            until = soon < until ? soon : until;
        }
        nap(AGAIN_MS);
        r = ops->connect(relay->outbox, err);
        if (r == ONCE_OK)
            r = ops->settle(relay->outbox, batch, err);
        if (r == ONCE_OK)
            relay_outbox_up(relay);
    }
    if (r != ONCE_OK)
        count(&relay->counters->unsettled);
    for (size_t i = 0; r == ONCE_OK && i < batch->count; i++) {
        struct outbox_message *m = &batch->messages[i];
        if (m->verdict == OUTBOX_DEAD_REFUSED)
            count(&row_of(relay, m)->dead_refused);
        else if (m->verdict == OUTBOX_DEAD_CRASHED)
            count(&row_of(relay, m)->dead_crashed);
    }
    return r;
}

once_result relay_step(struct relay *relay, size_t *took, struct once_error *err)
{
    const struct outbox_ops *ops = relay->outbox->ops;
    struct outbox_batch batch;
    once_time now = once_os_monotonic_ms();
    *took = 0;
    for (size_t i = 0; i < relay->breaker_count; i++) /* heartbeats; connections that were closed meanwhile */
        relay->breakers[i].sink->ops->poll(relay->breakers[i].sink, 0);
    relay->alone = !relay->alone; /* suspects must not keep everything else waiting */
    once_result r = ops->take(relay->outbox, relay->lease_ms, relay->batch_len, relay->alone, &batch, err);
    if (r == ONCE_OK && batch.count == 0 && !relay->alone) { /* there may be suspects only */
        ops->batch_release(&batch);
        r = ops->take(relay->outbox, relay->lease_ms, relay->batch_len, true, &batch, err);
    }
    if (r != ONCE_OK || batch.count == 0) {
        if (r == ONCE_OK)
            ops->batch_release(&batch);
        return r;
    }
    relay->taken_ns = once_os_monotonic_ns();
    ONCE_CRASH_POINT("relay.taken");
    relay->ready = calloc(batch.count, sizeof *relay->ready);
    relay->ready_count = 0;
    relay->first = batch.messages;
    relay->traced = relay->exporter != NULL ? calloc(batch.count, sizeof *relay->traced) : NULL;
    if (relay->ready != NULL) {
        link_keys(relay, &batch);
        publish(relay, now + relay->lease_ms / 2);
    }
    free(relay->ready);
    relay->ready = NULL;
    release_traced(relay, batch.count);
    r = settle(relay, &batch, now + relay->lease_ms, err);
    if (r == ONCE_OK)
        ONCE_CRASH_POINT("relay.settled");
    *took = batch.count;
    count(&relay->counters->batches);
    ops->batch_release(&batch);
    if (r == ONCE_OK && relay->sink_recovered) {
        r = ops->retry_now(relay->outbox, err);
        relay->sink_recovered = r != ONCE_OK;
    }
    return r;
}
