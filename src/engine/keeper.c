/* keeper.c - see keeper.h. */
#include "engine/keeper.h"

#include "core/err.h"
#include "os/os.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>

struct keeper {
    struct once *once;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct kept *first;
    bool running, stopping;
    pthread_t thread;
};

static once_time renew_after(const struct kept *k, once_time now)
{
    once_time third = k->lease_ms / 3;
    return now + (third > 0 ? third : 1);
}

static struct kept *next_due(struct keeper *k)
{
    struct kept *due = NULL;
    for (struct kept *at = k->first; at != NULL; at = at->next)
        if (due == NULL || at->renew_at < due->renew_at)
            due = at;
    return due;
}

/* Without the lock: the store may take its time. */
static void renew(struct keeper *k, struct kept *kept)
{
    struct once_reply reply;
    once_time asked = once_os_monotonic_ms();
    once_result r = once_extend(k->once, kept->grant, kept->lease_ms, &reply, NULL);
    once_time now = once_os_monotonic_ms();
    if (r == ONCE_OK && reply.arm == ONCE_ARM_DONE) {
        kept->lost_at = asked + kept->lease_ms;
        kept->renew_at = renew_after(kept, now);
        atomic_store(&kept->held, true);
    } else if (r == ONCE_OK) {
        kept->renew_at = INT64_MAX; /* fenced: nothing to renew any more */
        atomic_store(&kept->held, false);
    } else { /* the store is in trouble: the lease may still be there when it is back */
        kept->renew_at = now + (kept->lease_ms / 10 > 0 ? kept->lease_ms / 10 : 1);
        if (now >= kept->lost_at)
            atomic_store(&kept->held, false);
    }
    once_reply_release(&reply);
}

static void *keep(void *arg)
{
    struct keeper *k = arg;
    pthread_setname_np(pthread_self(), "once-keeper");
    pthread_mutex_lock(&k->lock);
    while (!k->stopping) {
        struct kept *due = next_due(k);
        if (due == NULL || due->renew_at == INT64_MAX) {
            pthread_cond_wait(&k->changed, &k->lock);
            continue;
        }
        if (due->renew_at > once_os_monotonic_ms()) {
            struct timespec until = { .tv_sec = due->renew_at / 1000, .tv_nsec = due->renew_at % 1000 * 1000000 };
            pthread_cond_timedwait(&k->changed, &k->lock, &until);
            continue;
        }
        due->busy = true;
        pthread_mutex_unlock(&k->lock);
        renew(k, due);
        pthread_mutex_lock(&k->lock);
        due->busy = false;
        pthread_cond_broadcast(&k->changed);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

once_result keeper_create(struct once *once, struct keeper **out, struct once_error *err)
{
    struct keeper *k = calloc(1, sizeof *k);
    if (k == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory to keep leases");
    k->once = once;
    pthread_mutex_init(&k->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&k->changed, &attr);
    pthread_condattr_destroy(&attr);
    *out = k;
    return ONCE_OK;
}

void keeper_free(struct keeper *k)
{
    if (k == NULL)
        return;
    assert(k->first == NULL); /* once_close() while once_run() is under way */
    pthread_mutex_lock(&k->lock);
    k->stopping = true;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
    if (k->running)
        pthread_join(k->thread, NULL);
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

static int start_thread(struct keeper *k)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&k->thread, NULL, keep, k);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

once_result keeper_add(struct keeper *k, struct kept *kept, struct once_grant grant, int64_t lease_ms,
                       struct once_error *err)
{
    once_time now = once_os_monotonic_ms();
    *kept = (struct kept){ .grant = grant, .lease_ms = lease_ms, .lost_at = now + lease_ms };
    kept->renew_at = renew_after(kept, now);
    atomic_init(&kept->held, true);
    once_result r = ONCE_OK;
    pthread_mutex_lock(&k->lock);
    if (!k->running && start_thread(k) != 0)
        r = once_fail(err, ONCE_UNAVAILABLE, "cannot start the thread that renews leases");
    if (r == ONCE_OK) {
        k->running = true;
        kept->next = k->first;
        k->first = kept;
        pthread_cond_broadcast(&k->changed);
    }
    pthread_mutex_unlock(&k->lock);
    return r;
}

void keeper_remove(struct keeper *k, struct kept *kept)
{
    pthread_mutex_lock(&k->lock);
    while (kept->busy)
        pthread_cond_wait(&k->changed, &k->lock);
    for (struct kept **at = &k->first; *at != NULL; at = &(*at)->next) {
        if (*at == kept) {
            *at = kept->next;
            break;
        }
    }
    pthread_mutex_unlock(&k->lock);
}
