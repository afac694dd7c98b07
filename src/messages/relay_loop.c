/* relay_loop.c - see relay_loop.h. */
#include "messages/relay_loop.h"

#include "core/backoff.h"
#include "os/os.h"

#include <poll.h>

enum {
    UPKEEP_MS = 1000,
    SMALL_PART = 4,   /* a batch with less than 1/4 of batch_len is small */
    COUNT_SHARE = 50, /* counting takes at most 1/50 of the time */
    RECONNECT_MS = 250,
    RECONNECT_MS_MIN = 20,
    RECONNECT_MS_MAX = 5000,
};

static bool must_stop(const struct relay_loop *loop)
{
    return loop->relay->must_stop(loop->relay->arg);
}

static void pause_for(const struct relay_loop *loop, int64_t ms)
{
    struct pollfd wake = { .fd = loop->wake, .events = POLLIN };
    poll(&wake, 1, (int)ms);
}

static once_result connect_once(struct relay_loop *loop, struct once_error *err)
{
    struct outbox *o = loop->relay->outbox;
    once_result r = outbox_connect(o, err);
    if (r == ONCE_OK)
        r = outbox_retry_now(o, err); /* messages that had no route may have one now */
    return r;
}

static void reconnect(struct relay_loop *loop, const struct once_error *why)
{
    struct once_error err;
    if (why != NULL)
        relay_outbox_down(loop->relay, why);
    for (uint32_t failures = 0; !must_stop(loop); failures++) {
        if (connect_once(loop, &err) == ONCE_OK) {
            relay_outbox_up(loop->relay);
            return;
        }
        relay_outbox_down(loop->relay, &err);
        uint32_t random;
        once_os_random(&random, sizeof random);
        pause_for(loop, RECONNECT_MS_MIN +
                            once_backoff_ms((struct once_backoff){ RECONNECT_MS, RECONNECT_MS_MAX, ONCE_JITTER_FULL },
                                            failures, random));
    }
}

once_result relay_loop_count(struct relay_loop *loop, struct once_error *err)
{
    struct outbox_counts counts;
    struct outbox *o = loop->relay->outbox;
    uint64_t start = once_os_monotonic_ns();
    once_result r = outbox_counts(o, &counts, err);
    if (r == ONCE_OK)
        relay_counters_count(loop->relay->counters, &counts);
    int64_t took_ms = (int64_t)((once_os_monotonic_ns() - start) / 1000000);
    int64_t rest_ms = took_ms * COUNT_SHARE;
    loop->count_at = once_os_monotonic_ms() + (rest_ms > UPKEEP_MS ? rest_ms : UPKEEP_MS);
    return r;
}

static once_result upkeep_when_due(struct relay_loop *loop, struct once_error *err)
{
    once_time now = once_os_monotonic_ms();
    struct outbox *o = loop->relay->outbox;
    if (now < loop->upkeep_at)
        return ONCE_OK;
    loop->upkeep_at = now + UPKEEP_MS;
    once_result r = outbox_upkeep(o, err);
    if (r == ONCE_OK && now >= loop->count_at)
        r = relay_loop_count(loop, err);
    if (r == ONCE_OK && loop->tick != NULL)
        loop->tick(loop->arg);
    return r;
}

/* Nothing to do. After it declared itself idle the relay looks for messages once more before it waits: an enqueue in
 * between did not wake it. */
static once_result wait_for_messages(struct relay_loop *loop, bool *is_idle, struct once_error *err)
{
    struct outbox *o = loop->relay->outbox;
    if (!*is_idle) {
        *is_idle = true;
        return outbox_set_idle(o, true, err);
    }
    outbox_wait(o, loop->wake, OUTBOX_POLL_MS);
    return outbox_set_idle(o, true, err);
}

void relay_loop_run(struct relay_loop *loop)
{
    struct relay *relay = loop->relay;
    struct once_error err;
    bool is_idle = false;
    relay->sink_recovered = true; /* messages that wait for a sink are due: there may be other routes now */
    if (!loop->connected)
        reconnect(loop, NULL);
    else
        relay_outbox_up(relay);
    while (!must_stop(loop)) {
        size_t took = 0;
        once_result r = upkeep_when_due(loop, &err);
        if (r == ONCE_OK)
            r = relay_step(relay, &took, &err);
        if (r == ONCE_OK && took > 0) {
            is_idle = false;
            /* After a small batch the relay stays declared idle: it will wait soon, and being woken costs less. */
            if (took * SMALL_PART >= (size_t)relay->batch_len)
                r = outbox_set_idle(relay->outbox, false, &err);
        } else if (r == ONCE_OK && loop->drain) {
            break;
        } else if (r == ONCE_OK) {
            r = wait_for_messages(loop, &is_idle, &err);
        }
        if (r != ONCE_OK)
            reconnect(loop, &err);
    }
}
