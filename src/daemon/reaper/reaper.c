/* reaper.c - see reaper.h. */
#include "daemon/reaper/reaper.h"

#include "core/duration.h"
#include "core/err.h"
#include "daemon/reaper/clock.h"
#include "daemon/reaper/pace.h"
#include "engine/daemon_api.h"
#include "engine/engine_stats.h"
#include "os/os.h"
#include "os/stderr_log.h"
#include "os/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct reaper {
    struct once *once;
    bool manual;
    struct expiry_counters counters;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t wake;
    bool stopping;
    bool accepted; /* the clock, by an operator */

    /* the thread's own */
    struct pace pace;
    struct clock_guard clock_guard;
};

/* ------------------------------------------------------------------ the clock */

static void tell_held(struct reaper *p, enum clock_verdict verdict)
{
    char by[ONCE_DURATION_TEXT_LEN];
    once_time off = p->clock_guard.off_ms;
    once_duration_format(((off < 0 ? -off : off) + 500) / 1000 * 1000, by);
    once_os_log("once daemon",
                "the store's clock %s by %s: expired records are not removed until it is right, or has been steady "
                "for an hour, or somebody "
                "who has looked runs 'once expire' here",
                verdict != CLOCK_JUMPED ? "is ahead of this machine's"
                : off < 0               ? "jumped back"
                                        : "jumped forward",
                by);
}

/* May anything be deleted by this clock? Said once, when that changes. */
static bool can_believe(struct reaper *p)
{
    struct clock_reading r = { .before = once_os_lease_ms() };
    if (once_read_clock(p->once, &r.store, NULL) != ONCE_OK)
        return false;
    r.wall = once_os_clock.wall(once_os_clock.arg);
    r.after = once_os_lease_ms();
    bool suspended = atomic_load(&p->counters.suspended);
    enum clock_verdict verdict = clock_guard_check(&p->clock_guard, &r);
    if (verdict != CLOCK_GOOD && !suspended) {
        atomic_fetch_add(verdict == CLOCK_JUMPED ? &p->counters.jumped : &p->counters.ahead, 1);
        tell_held(p, verdict);
    } else if (verdict == CLOCK_GOOD && suspended) {
        once_os_log("once daemon", "expired records are removed again");
    }
    atomic_store(&p->counters.suspended, verdict != CLOCK_GOOD);
    return verdict == CLOCK_GOOD;
}

/* ------------------------------------------------------------------ a step */

static void step(struct reaper *p, uint32_t budget)
{
    uint64_t removed = 0;
    bool more = false;
    once_time start = once_os_monotonic_ms();
    once_result r = can_believe(p) ? once_expire(p->once, budget, &removed, &more, NULL) : ONCE_UNAVAILABLE;
    once_time now = once_os_monotonic_ms();
    if (r != ONCE_OK) {
        pace_give_up(&p->pace, now);
        return;
    }
    struct expiry_counters *c = &p->counters;
    atomic_fetch_add(&c->removed, removed);
    atomic_fetch_add(&c->steps, 1);
    atomic_fetch_add(&c->worked_ms, (uint64_t)(now - start));
    if (!more)
        atomic_store(&c->caught_up_ms, now);
    if (pace_did(&p->pace, now, now - start, more)) {
        atomic_fetch_add(&c->rounds, 1);
        atomic_store(&c->round_ms, (uint64_t)p->pace.spent_ms);
    }
}

/* What is due now. How long to wait after it. */
static once_time turn(struct reaper *p)
{
    if (p->manual)
        return PACE_IDLE_MS;
    struct once_engine_stats engine_stats;
    once_engine_stats(p->once, &engine_stats);
    struct pace_load load = { engine_stats.queued, engine_stats.queue_max };
    struct pace_order order = pace_next(&p->pace, once_os_monotonic_ms(), load);
    bool pauses = order.what == PACE_PAUSE;
    if (pauses && !atomic_exchange(&p->counters.paused, true))
        atomic_fetch_add(&p->counters.pauses, 1);
    if (order.what != PACE_STEP)
        return order.wait_ms;
    atomic_store(&p->counters.paused, p->pace.paused_at != 0);
    step(p, order.budget);
    return 0;
}

/* ------------------------------------------------------------------ the thread */

/* True: stop. */
static bool wait(struct reaper *p, once_time ms)
{
    once_time until = once_os_monotonic_ms() + ms;
    struct timespec at = { .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };
    pthread_mutex_lock(&p->lock);
    while (ms > 0 && !p->stopping && !p->accepted && pthread_cond_timedwait(&p->wake, &p->lock, &at) == 0)
        ;
    bool stopping = p->stopping;
    if (p->accepted)
        clock_guard_accept(&p->clock_guard);
    p->accepted = false;
    pthread_mutex_unlock(&p->lock);
    return stopping;
}

static void *work(void *arg)
{
    struct reaper *p = arg;
    pthread_setname_np(pthread_self(), "once-reaper");
    once_time wait_ms = 0;
    while (!wait(p, wait_ms))
        wait_ms = turn(p);
    return NULL;
}

void reaper_accept_clock(struct reaper *p)
{
    if (!atomic_load(&p->counters.suspended))
        return; /* there is nothing to accept; what comes later is another matter */
    pthread_mutex_lock(&p->lock);
    p->accepted = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

once_result reaper_start(struct once *once, bool manual, struct reaper **out, struct once_error *err)
{
    struct reaper *p = calloc(1, sizeof *p);
    if (p == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the daemon");
    p->once = once;
    p->manual = manual;
    p->counters.caught_up_ms = once_os_monotonic_ms();
    pace_init(&p->pace, once_os_monotonic_ms());
    pthread_mutex_init(&p->lock, NULL);
    once_cond_init(&p->wake);
    if (once_thread_start(&p->thread, work, p) != 0) {
        pthread_cond_destroy(&p->wake);
        pthread_mutex_destroy(&p->lock);
        free(p);
        return once_fail(err, ONCE_UNAVAILABLE, "cannot start a thread");
    }
    *out = p;
    return ONCE_OK;
}

void reaper_stop(struct reaper *p)
{
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

const struct expiry_counters *reaper_counters(const struct reaper *p)
{
    return &p->counters;
}
