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

static struct relay_route_counters *row_of(struct relay *relay, const struct relay_item *item)
{
    return &relay->counters->rows[item->route];
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
        return; /* this message was started before the first failure was known */
    int64_t longest = relay->backoff_ms_max < BREAK_MS_MAX ? relay->backoff_ms_max : BREAK_MS_MAX;
    b->until_ms = now + 1 + jittered(relay, longest, (uint32_t)b->failures);
    b->failures++;
    snprintf(b->reason, sizeof b->reason, "%s", reason);
}

/* Whether a message may be started now. After failures, one message tests the sink. */
static bool sink_is_open(const struct relay_breaker *b)
{
    return b->failures == 0 || (once_os_monotonic_ms() >= b->until_ms && b->sink->busy == 0);
}

/* ------------------------------------------------------------------ traces */

/* A message that carries a sampled trace is published under a span in it; all others as they are. A message whose sink
 * had no room comes here again. */
static void begin_span(struct relay *relay, struct relay_item *item)
{
    if (relay->exporter == NULL || item->span.on)
        return;
    struct tracer tracer = { .exporter = relay->exporter, .ratio = 0 };
    tracer_begin(&tracer, item->message.headers, &item->span);
    if (!item->span.on)
        return;
    once_buf_init(&item->headers, item->message.headers.len + 128);
    once_trace_replace(item->message.headers, &item->span.own, &item->headers);
    if (item->headers.result == ONCE_OK)
        item->message.headers = once_buf_span(&item->headers);
    else
        item->span.on = false;
}

static void end_span(struct relay *relay, const struct relay_item *item, bool confirmed)
{
    const struct message *m = &item->message;
    if (!item->span.on)
        return;
    struct tracer tracer = { .exporter = relay->exporter };
    struct otlp_span otlp = { .attempt = (uint32_t)(m->refusals + m->crashes + 1) };
    otlp.span.name = ONCE_TRACE_PUBLISH;
    otlp.span.failed = !confirmed;
    once_trace_text(m->topic, otlp.topic);
    once_trace_text(once_span_str(m->id), otlp.message);
    tracer_end(&tracer, &item->span, &otlp);
}

/* ------------------------------------------------------------------ one message */

static void fail(struct relay *relay, struct relay_item *item, bool refused, int64_t retry_after_ms, const char *reason)
{
    struct outbox_message *row = item->row;
    uint32_t before = (uint32_t)item->message.refusals + (uint32_t)row->delays;
    row->wait_ms = jittered(relay, relay->backoff_ms_max, before);
    if (retry_after_ms > row->wait_ms)
        row->wait_ms = retry_after_ms;
    row->verdict = !refused                                            ? OUTBOX_UNREACHED
                   : item->message.refusals + 1 >= relay->attempts_max ? OUTBOX_DEAD_REFUSED
                                                                       : OUTBOX_REFUSED;
    snprintf(row->reason, sizeof row->reason, "%s", reason);
    for (char *c = row->reason; *c != '\0'; c++) /* one byte that is not text, and the database rejects the batch */
        if (*c < ' ' || *c > '~')
            *c = '?';
    count(refused ? &row_of(relay, item)->refused : &row_of(relay, item)->unreached);
}

static void confirm(struct relay *relay, struct relay_item *item)
{
    uint64_t now = once_os_monotonic_ns();
    int64_t age_ms = item->message.age_ms > 0 ? item->message.age_ms : 0; /* a clock may be set back */
    item->row->verdict = OUTBOX_CONFIRMED;
    count(&row_of(relay, item)->published);
    relay_histogram_add(&row_of(relay, item)->publish, (now - item->started_ns) / 1000);
    relay_histogram_add(&row_of(relay, item)->delay, (uint64_t)age_ms * 1000 + (now - relay->taken_ns) / 1000);
}

void relay_done(void *arg, const struct message *message, enum sink_result result, int64_t retry_after_ms,
                const char *reason)
{
    struct relay *relay = arg;
    struct relay_item *item = &relay->items[(const struct relay_item *)message - relay->items];
    struct relay_breaker *b = breaker_of(relay, relay->routes[item->route].sink);
    end_span(relay, item, result == SINK_CONFIRMED);
    if (result == SINK_UNREACHED) {
        sink_failed(relay, b, reason);
        fail(relay, item, false, 0, reason);
        return;
    }
    relay->sink_recovered |= b->failures > 0;
    b->failures = 0;
    if (result == SINK_REFUSED) {
        fail(relay, item, true, retry_after_ms, reason);
        return;
    }
    ONCE_CRASH_POINT("relay.confirmed");
    confirm(relay, item);
    if (item->next != NULL)
        relay->ready[relay->ready_count++] = item->next; /* RELAY-1 */
}

/* False: its sink has no room now. */
static bool start(struct relay *relay, struct relay_item *item)
{
    struct sink *sink = item->route < relay->route_count ? relay->routes[item->route].sink : NULL;
    if (item->message.crashes >= relay->crashes_max) {
        item->row->verdict = OUTBOX_DEAD_CRASHED;
        snprintf(item->row->reason, sizeof item->row->reason, "%d relays crashed while only this message was in flight",
                 item->message.crashes);
        return true;
    }
    if (sink == NULL) {
        fail(relay, item, false, 0, "no route for its topic");
        return true;
    }
    struct relay_breaker *b = breaker_of(relay, sink);
    if (!sink_is_open(b)) {
        if (b->sink->busy > 0)
            return false; /* another message is testing the sink */
        fail(relay, item, false, b->until_ms - once_os_monotonic_ms(), b->reason);
        return true;
    }
    begin_span(relay, item);
    item->started_ns = once_os_monotonic_ns();
    bool started = sink_start(sink, &item->message);
    if (started)
        ONCE_CRASH_POINT("relay.sent");
    return started;
}

/* ------------------------------------------------------------------ a batch */

/* Links the messages of each key; the first of each key are ready. Messages come sorted by lane and order, and a key is
 * in one lane. */
static void link_keys(struct relay *relay)
{
    for (size_t i = 0; i < relay->item_count; i++) {
        struct relay_item *item = &relay->items[i];
        bool first = true;
        for (size_t j = i; item->message.has_key && j > 0 && relay->items[j - 1].row->lane == item->row->lane; j--) {
            struct relay_item *before = &relay->items[j - 1];
            if (before->message.has_key && once_span_equal(before->message.key, item->message.key)) {
                before->next = item;
                first = false;
                break;
            }
        }
        if (first)
            relay->ready[relay->ready_count++] = item;
    }
}

/* False: no memory. */
static bool begin_batch(struct relay *relay, const struct outbox_batch *batch)
{
    relay->items = calloc(batch->count, sizeof *relay->items);
    relay->ready = calloc(batch->count, sizeof *relay->ready);
    relay->ready_count = 0;
    relay->item_count = relay->items != NULL && relay->ready != NULL ? batch->count : 0;
    for (size_t i = 0; i < relay->item_count; i++) {
        struct relay_item *item = &relay->items[i];
        item->row = &batch->messages[i];
        item->message = item->row->message;
        item->route = relay_route_of(relay, item->message.topic);
        if (item->row->suspect)
            count(&row_of(relay, item)->crashed);
    }
    return relay->item_count > 0;
}

static void end_batch(struct relay *relay)
{
    for (size_t i = 0; i < relay->item_count; i++)
        once_buf_release(&relay->items[i].headers);
    free(relay->items);
    free(relay->ready);
    relay->items = NULL;
    relay->ready = NULL;
    relay->item_count = 0;
}

static size_t busy_of(const struct relay *relay)
{
    size_t busy = 0;
    for (size_t i = 0; i < relay->breaker_count; i++)
        busy += relay->breakers[i].sink->busy;
    return busy;
}

/* Starts the ready messages. Those whose sink has no room stay ready, in their order. */
static void start_ready(struct relay *relay)
{
    size_t count = relay->ready_count, kept = 0;
    for (size_t i = 0; i < count; i++)
        if (!start(relay, relay->ready[i]))
            relay->ready[kept++] = relay->ready[i];
    /* A start may have completed at once, and made other messages ready. */
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
                sink_poll(sink, sink->busy == busy ? TURN_MS : SHORT_TURN_MS);
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
        relay->say(relay->arg, "the outbox is reachable again");
    relay->trouble.text[0] = '\0';
}

static void sleep_ms(int64_t ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    nanosleep(&t, NULL);
}

/* RELAY-4. */
static once_result settle(struct relay *relay, const struct outbox_batch *batch, once_time until,
                          struct once_error *err)
{
    enum { AGAIN_MS = 100, STOP_MS = 5000 };
    once_result r = outbox_settle(relay->outbox, batch, err);
    bool stopping = false;
    while (r != ONCE_OK && once_os_monotonic_ms() < until) {
        relay_outbox_down(relay, err);
        if (!stopping && relay->must_stop(relay->arg)) { /* a stop waits for less than a lease */
            stopping = true;
            once_time soon = once_os_monotonic_ms() + STOP_MS;
            until = soon < until ? soon : until;
        }
        sleep_ms(AGAIN_MS);
        r = outbox_connect(relay->outbox, err);
        if (r == ONCE_OK)
            r = outbox_settle(relay->outbox, batch, err);
        if (r == ONCE_OK)
            relay_outbox_up(relay);
    }
    if (r != ONCE_OK)
        count(&relay->counters->unsettled);
    for (size_t i = 0; r == ONCE_OK && i < relay->item_count; i++) {
        const struct relay_item *item = &relay->items[i];
        if (item->row->verdict == OUTBOX_DEAD_REFUSED)
            count(&row_of(relay, item)->dead_refused);
        else if (item->row->verdict == OUTBOX_DEAD_CRASHED)
            count(&row_of(relay, item)->dead_crashed);
    }
    return r;
}

once_result relay_step(struct relay *relay, size_t *took, struct once_error *err)
{
    struct outbox_batch batch;
    once_time now = once_os_monotonic_ms();
    *took = 0;
    for (size_t i = 0; i < relay->breaker_count; i++) /* answers heartbeats, and notices connections that were closed */
        sink_poll(relay->breakers[i].sink, 0);
    relay->alone = !relay->alone; /* suspects must not keep everything else waiting */
    once_result r = outbox_take(relay->outbox, relay->lease_ms, relay->batch_len, relay->alone, &batch, err);
    if (r == ONCE_OK && batch.count == 0 && !relay->alone) { /* there may be suspects only */
        outbox_batch_release(relay->outbox, &batch);
        r = outbox_take(relay->outbox, relay->lease_ms, relay->batch_len, true, &batch, err);
    }
    if (r != ONCE_OK || batch.count == 0) {
        if (r == ONCE_OK)
            outbox_batch_release(relay->outbox, &batch);
        return r;
    }
    relay->taken_ns = once_os_monotonic_ns();
    ONCE_CRASH_POINT("relay.taken");
    if (begin_batch(relay, &batch)) {
        link_keys(relay);
        publish(relay, now + relay->lease_ms / 2);
    }
    r = settle(relay, &batch, now + relay->lease_ms, err);
    if (r == ONCE_OK)
        ONCE_CRASH_POINT("relay.settled");
    end_batch(relay);
    *took = batch.count;
    count(&relay->counters->batches);
    outbox_batch_release(relay->outbox, &batch);
    if (r == ONCE_OK && relay->sink_recovered) {
        r = outbox_retry_now(relay->outbox, err);
        relay->sink_recovered = r != ONCE_OK;
    }
    return r;
}
