/* health.c - see health.h. */
#include "daemon/observers/health.h"

#include "core/err.h"
#include "engine/daemon_api.h"
#include "engine/engine_stats.h"
#include "os/notify.h"
#include "os/os.h"
#include "os/stderr_log.h"
#include "os/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_MS = 1000,
    SILENCE_MS = 3000, /* a look-up that takes longer: the store does not answer */
    SAY_MS = 10000,    /* between two lines about operations that failed */
};

struct health {
    struct once *once;
    uint32_t queue_max;
    once_time started_ms;
    int64_t watchdog_ms; /* 0: nobody wants to hear */
    pthread_t thread;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    int users; /* of this structure: its owner, and a look-up under way */
    bool stopping, ending;
    once_time asked_ms; /* 0: no look-up is under way */
    uint64_t answers;
    once_result result; /* of the last one; at first that of opening the store, a moment ago */
    char text[500];

    uint64_t fed_answers, fed_turns; /* the thread's own: as of the last WATCHDOG=1 */
    char told[600];                  /* likewise: the last STATUS= */
    bool said_not_ready;             /* likewise: what the log says */
    uint64_t said_failures;
    once_time say_failures_at;
};

/* Called with the lock. */
static void leave(struct health *p)
{
    bool last = --p->users == 0;
    pthread_mutex_unlock(&p->lock);
    if (!last)
        return;
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* ---------------------------------------------------------------- looking */

/* Called with the lock. */
static void note(struct health *p, once_result result, const struct once_error *err)
{
    p->asked_ms = 0;
    p->result = result;
    snprintf(p->text, sizeof p->text, "%s", result != ONCE_OK ? err->text : "");
    pthread_cond_signal(&p->changed);
}

static void on_done(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    struct health *p = arg;
    once_reply_release(reply);
    pthread_mutex_lock(&p->lock);
    p->answers++;
    note(p, result, err);
    leave(p);
}

static void ask(struct health *p)
{
    struct once_error err;
    pthread_mutex_lock(&p->lock);
    if (p->asked_ms != 0) { /* the one before is not answered */
        pthread_mutex_unlock(&p->lock);
        return;
    }
    p->asked_ms = once_os_monotonic_ms();
    p->users++;
    pthread_mutex_unlock(&p->lock);
    once_result r = once_check_health(p->once, on_done, p, &err);
    if (r == ONCE_OK)
        return;
    pthread_mutex_lock(&p->lock);
    note(p, r, &err);
    leave(p); /* the callback will not come; the owner's use stays */
}

void health_read(struct health *p, struct health_view *v)
{
    struct once_engine_stats engine_stats;
    once_engine_stats(p->once, &engine_stats);
    once_time now = once_os_monotonic_ms();
    *v = (struct health_view){ .queued = engine_stats.queued, .queue_max = p->queue_max, .up_ms = now - p->started_ms };
    pthread_mutex_lock(&p->lock);
    bool silent = p->asked_ms != 0 && now - p->asked_ms > SILENCE_MS;
    bool full = v->queued >= p->queue_max || p->result == ONCE_BUSY;
    v->store = !silent && (p->result == ONCE_OK || p->result == ONCE_BUSY);
    if (p->ending)
        snprintf(v->reason, sizeof v->reason, "it was told to end");
    else if (silent)
        snprintf(v->reason, sizeof v->reason, "the store has not answered for %lld s",
                 (long long)(now - p->asked_ms) / 1000);
    else if (full)
        snprintf(v->reason, sizeof v->reason, "the queue is full: %u operations wait", v->queued);
    else if (p->result != ONCE_OK)
        snprintf(v->reason, sizeof v->reason, "%s", p->text);
    pthread_mutex_unlock(&p->lock);
    v->ready = v->reason[0] == '\0';
}

/* ---------------------------------------------------------------- the log */

static void put_in_one_line(char *text)
{
    for (; *text != '\0'; text++)
        *text = *text == '\n' ? ' ' : *text;
}

/* When that changes; while it ends, everybody knows. */
static void say_ready(struct health *p, const struct health_view *view)
{
    pthread_mutex_lock(&p->lock);
    bool ending = p->ending;
    pthread_mutex_unlock(&p->lock);
    if (ending || view->ready != p->said_not_ready)
        return;
    p->said_not_ready = !view->ready;
    once_os_log("once daemon", view->ready ? "ready again%s" : "not ready: %s", view->reason);
}

/* What clients were told as 503: they do not look after the disk. */
static void say_failures(struct health *p)
{
    struct once_engine_stats engine_stats;
    once_time now = once_os_monotonic_ms();
    once_engine_stats(p->once, &engine_stats);
    if (engine_stats.failures == p->said_failures || now < p->say_failures_at)
        return;
    put_in_one_line(engine_stats.failure);
    once_os_log("once daemon", "%llu operations could not be done; the last: %s",
                (unsigned long long)(engine_stats.failures - p->said_failures), engine_stats.failure);
    p->said_failures = engine_stats.failures;
    p->say_failures_at = now + SAY_MS;
}

/* ---------------------------------------------------------------- the service manager */

static void feed(struct health *p)
{
    struct once_engine_stats engine_stats;
    once_engine_stats(p->once, &engine_stats);
    pthread_mutex_lock(&p->lock);
    uint64_t answers = p->answers;
    pthread_mutex_unlock(&p->lock);
    if (answers == p->fed_answers && engine_stats.store_calls == p->fed_turns)
        return;
    p->fed_answers = answers;
    p->fed_turns = engine_stats.store_calls;
    once_os_notify("WATCHDOG=1");
}

static void tell(struct health *p)
{
    struct health_view view;
    char text[sizeof p->told];
    health_read(p, &view);
    put_in_one_line(view.reason);
    say_ready(p, &view);
    snprintf(text, sizeof text, "STATUS=%s%s", view.ready ? "ready" : "not ready: ", view.reason);
    if (strcmp(text, p->told) == 0)
        return;
    memcpy(p->told, text, sizeof text);
    once_os_notify(text);
}

/* ---------------------------------------------------------------- the thread */

/* False: it is to stop. */
static bool rest(struct health *p, int64_t ms)
{
    once_time until = once_os_monotonic_ms() + ms;
    struct timespec at = { .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };
    pthread_mutex_lock(&p->lock);
    while (!p->stopping && pthread_cond_timedwait(&p->changed, &p->lock, &at) == 0)
        ;
    bool on = !p->stopping;
    pthread_mutex_unlock(&p->lock);
    return on;
}

static void *watch(void *arg)
{
    struct health *p = arg;
    pthread_setname_np(pthread_self(), "once-health");
    int64_t pause = p->watchdog_ms > 0 && p->watchdog_ms / 3 < LOOK_MS ? p->watchdog_ms / 3 : LOOK_MS;
    do {
        ask(p);
        if (p->watchdog_ms > 0)
            feed(p);
        tell(p);
        say_failures(p);
    } while (rest(p, pause > 0 ? pause : 1));
    return NULL;
}

once_result health_start(struct once *once, uint32_t queue_max, struct health **out, struct once_error *err)
{
    struct health *p = calloc(1, sizeof *p);
    if (p == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the daemon");
    p->once = once;
    p->queue_max = queue_max;
    p->started_ms = once_os_monotonic_ms();
    p->watchdog_ms = once_os_watchdog_ms();
    p->result = ONCE_OK;
    p->users = 1;
    pthread_mutex_init(&p->lock, NULL);
    once_cond_init(&p->changed);
    if (once_thread_start(&p->thread, watch, p) != 0) {
        pthread_mutex_lock(&p->lock);
        leave(p);
        return once_fail(err, ONCE_UNAVAILABLE, "cannot start a thread");
    }
    *out = p;
    return ONCE_OK;
}

void health_end(struct health *p)
{
    pthread_mutex_lock(&p->lock);
    p->ending = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    once_os_notify("STOPPING=1\nSTATUS=ending: what is under way is answered");
}

void health_stop(struct health *p)
{
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_mutex_lock(&p->lock);
    leave(p);
}
