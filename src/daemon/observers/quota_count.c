/* quota_count.c - see quota_count.h. */
#include "daemon/observers/quota_count.h"

#include "core/err.h"
#include "engine/daemon_api.h"
#include "os/os.h"
#include "os/stderr_log.h"
#include "os/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    START_MS_MAX = 2000, /* what the first walk may hold up the start */
    REST_SHARE = 20,     /* a rest is so much longer than what it follows */
    REST_MS_MIN = 1,
    PAUSE_MS_MIN = 2000, /* between walks over a small store */
    PAUSE_MS_MAX = 60 * 1000,
    FAILED_MS = 5000, /* the store was not there */
};

struct quota_count {
    struct once *once;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t wake;
    bool stopping;

    /* the thread's own */
    struct quota_scan scan;
    once_time worked_ms; /* on this walk */
    bool first;          /* it is the first */
};

once_time quota_count_rest_ms(once_time step_ms, bool first)
{
    once_time rest = first ? step_ms : step_ms * REST_SHARE;
    return rest < REST_MS_MIN ? REST_MS_MIN : rest;
}

once_time quota_count_pause_ms(once_time walk_ms)
{
    once_time pause = walk_ms * REST_SHARE;
    return pause < PAUSE_MS_MIN ? PAUSE_MS_MIN : pause > PAUSE_MS_MAX ? PAUSE_MS_MAX : pause;
}

/* One step. How long to wait before the next. A step that failed may have counted half: the walk begins anew. */
static once_result step(struct quota_count *c, once_time *wait_ms, struct once_error *err)
{
    once_time start = once_os_monotonic_ms();
    once_result r = once_usage_step(c->once, &c->scan, err);
    once_time took = once_os_monotonic_ms() - start;
    c->worked_ms += took;
    *wait_ms = r != ONCE_OK   ? FAILED_MS
               : c->scan.more ? quota_count_rest_ms(took, c->first)
                              : quota_count_pause_ms(c->worked_ms);
    if (r != ONCE_OK || !c->scan.more) {
        c->scan = (struct quota_scan){ .after = 0 };
        c->worked_ms = 0;
        c->first = c->first && r != ONCE_OK;
    }
    return r;
}

/* True: stop. */
static bool wait(struct quota_count *c, once_time ms)
{
    once_time until = once_os_monotonic_ms() + ms;
    struct timespec at = { .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };
    pthread_mutex_lock(&c->lock);
    while (!c->stopping && pthread_cond_timedwait(&c->wake, &c->lock, &at) == 0)
        ;
    bool stopping = c->stopping;
    pthread_mutex_unlock(&c->lock);
    return stopping;
}

static void *work(void *arg)
{
    struct quota_count *c = arg;
    pthread_setname_np(pthread_self(), "once-quotas");
    once_time wait_ms = c->first ? 0 : PAUSE_MS_MIN;
    bool failing = false;
    while (!wait(c, wait_ms)) {
        struct once_error err;
        bool failed = step(c, &wait_ms, &err) != ONCE_OK;
        if (failed && !failing)
            once_os_log("once daemon", "cannot count what tenants have: %s", err.text);
        failing = failed;
    }
    return NULL;
}

/* The first walk, as far as it gets. */
static once_result begin(struct quota_count *c, struct once_error *err)
{
    once_time until = once_os_monotonic_ms() + START_MS_MAX, unused;
    once_result r = ONCE_OK;
    c->first = true;
    while (r == ONCE_OK && c->first && once_os_monotonic_ms() < until)
        r = step(c, &unused, err);
    return r;
}

once_result quota_count_start(struct once *once, struct quota_count **out, struct once_error *err)
{
    struct quota_count *c = calloc(1, sizeof *c);
    if (c == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the daemon");
    c->once = once;
    pthread_mutex_init(&c->lock, NULL);
    once_cond_init(&c->wake);
    once_result r = begin(c, err);
    if (r == ONCE_OK && once_thread_start(&c->thread, work, c) != 0)
        r = once_fail(err, ONCE_UNAVAILABLE, "cannot start a thread");
    if (r != ONCE_OK) {
        pthread_cond_destroy(&c->wake);
        pthread_mutex_destroy(&c->lock);
        free(c);
        return r;
    }
    *out = c;
    return ONCE_OK;
}

void quota_count_stop(struct quota_count *c)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
