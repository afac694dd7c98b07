/* lease_keeper.c - see lease_keeper.h. */
#include "engine/lease_keeper.h"

#include "core/err.h"
#include "os/os.h"
#include "os/thread.h"

#include <assert.h>
#include <pthread.h>

struct lease_keeper {
    struct once *once;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct kept_lease *first;
    bool running, stopping;
    pthread_t thread;
};

static once_time renew_after(const struct kept_lease *k, once_time now)
{
    once_time third = k->lease_ms / 3;
    return now + (third > 0 ? third : 1);
}

/* When the next renewal is due; INT64_MAX if none is. */
static once_time next_due(const struct lease_keeper *k)
{
    once_time next = INT64_MAX;
    for (const struct kept_lease *at = k->first; at != NULL; at = at->next)
        if (at->renew_at < next)
            next = at->renew_at;
    return next;
}

/* Those that are due, as a list; soon counts as now, so that they share a commit. */
static struct kept_lease *take_due(struct lease_keeper *k, once_time now)
{
    struct kept_lease *due = NULL;
    for (struct kept_lease *at = k->first; at != NULL; at = at->next) {
        if (at->renew_at > now + at->lease_ms / 30)
            continue;
        at->busy = true;
        at->next_due = due;
        due = at;
    }
    return due;
}

static void submit(struct lease_keeper *k, struct kept_lease *kept_lease)
{
    kept_lease->job = (struct job){ .kind = JOB_OPERATION, .answered = &kept_lease->answered };
    kept_lease->job.request = (struct once_request){ .verb = ONCE_VERB_EXTEND,
                                                     .grant = kept_lease->grant,
                                                     .extend = { kept_lease->lease_ms } };
    kept_lease->job.op.request = &kept_lease->job.request;
    memcpy(kept_lease->job.op.record, kept_lease->grant.record, 16);
    if (engine_submit(k->once->engine, &kept_lease->job, NULL) != ONCE_OK) {
        kept_lease->job.op.result = ONCE_BUSY;
        sem_post(&kept_lease->answered);
    }
}

static void take_answer(struct kept_lease *kept_lease, once_time asked)
{
    while (sem_wait(&kept_lease->answered) != 0)
        ; /* interrupted */
    once_time now = once_os_lease_ms();
    struct once_op *op = &kept_lease->job.op;
    if (op->result == ONCE_OK && op->reply.arm == ONCE_ARM_DONE) {
        atomic_store(&kept_lease->lost_at, asked + kept_lease->lease_ms);
        kept_lease->renew_at = renew_after(kept_lease, now);
    } else if (op->result == ONCE_OK) {
        kept_lease->renew_at = INT64_MAX; /* fenced: nothing to renew any more */
        atomic_store(&kept_lease->fenced, true);
    } else { /* the store is in trouble: the lease may still be there when it is back */
        kept_lease->renew_at = now + (kept_lease->lease_ms / 10 > 0 ? kept_lease->lease_ms / 10 : 1);
    }
    once_reply_release(&op->reply);
}

/* Without the lock: the store may take its time. */
static void renew_all(struct lease_keeper *k, struct kept_lease *due, once_time asked)
{
    for (struct kept_lease *at = due; at != NULL; at = at->next_due)
        submit(k, at);
    for (struct kept_lease *at = due; at != NULL; at = at->next_due)
        take_answer(at, asked);
}

static void *keep(void *arg)
{
    struct lease_keeper *k = arg;
    pthread_setname_np(pthread_self(), "once-keeper");
    pthread_mutex_lock(&k->lock);
    while (!k->stopping) {
        once_time next = next_due(k), now = once_os_lease_ms();
        if (next == INT64_MAX) {
            pthread_cond_wait(&k->changed, &k->lock);
            continue;
        }
        if (next > now) {
            struct timespec until = once_os_lease_deadline(next);
            pthread_cond_timedwait(&k->changed, &k->lock, &until);
            continue;
        }
        struct kept_lease *due = take_due(k, now);
        pthread_mutex_unlock(&k->lock);
        renew_all(k, due, now);
        pthread_mutex_lock(&k->lock);
        for (struct kept_lease *at = due, *after; at != NULL; at = after) {
            after = at->next_due; /* once it is not busy, it may be gone */
            at->busy = false;
        }
        pthread_cond_broadcast(&k->changed);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

bool lease_keeper_is_held(const struct kept_lease *kept_lease)
{
    struct kept_lease *k = (struct kept_lease *)kept_lease; /* atomics are read through a plain pointer */
    return !atomic_load(&k->fenced) && once_os_lease_ms() < atomic_load(&k->lost_at);
}

void lease_keeper_set_fenced(struct kept_lease *kept_lease)
{
    atomic_store(&kept_lease->fenced, true);
}

once_result lease_keeper_create(struct once *once, struct lease_keeper **out, struct once_error *err)
{
    struct lease_keeper *k = calloc(1, sizeof *k);
    if (k == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory to keep leases");
    k->once = once;
    pthread_mutex_init(&k->lock, NULL);
    once_cond_init(&k->changed);
    *out = k;
    return ONCE_OK;
}

void lease_keeper_free(struct lease_keeper *k)
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

once_result lease_keeper_add(struct lease_keeper *k, struct kept_lease *kept_lease, struct once_grant grant,
                             int64_t lease_ms, once_time asked, struct once_error *err)
{
    *kept_lease = (struct kept_lease){ .grant = grant, .lease_ms = lease_ms };
    kept_lease->renew_at = renew_after(kept_lease, asked); /* at once, if the answer took its time */
    atomic_init(&kept_lease->lost_at, asked + lease_ms);
    atomic_init(&kept_lease->fenced, false);
    sem_init(&kept_lease->answered, 0, 0);
    once_result r = ONCE_OK;
    pthread_mutex_lock(&k->lock);
    if (!k->running && once_thread_start(&k->thread, keep, k) != 0)
        r = once_fail(err, ONCE_UNAVAILABLE, "cannot start the thread that renews leases");
    if (r == ONCE_OK) {
        k->running = true;
        kept_lease->next = k->first;
        k->first = kept_lease;
        pthread_cond_broadcast(&k->changed);
    }
    pthread_mutex_unlock(&k->lock);
    return r;
}

void lease_keeper_remove(struct lease_keeper *k, struct kept_lease *kept_lease)
{
    pthread_mutex_lock(&k->lock);
    while (kept_lease->busy)
        pthread_cond_wait(&k->changed, &k->lock);
    for (struct kept_lease **at = &k->first; *at != NULL; at = &(*at)->next) {
        if (*at == kept_lease) {
            *at = kept_lease->next;
            break;
        }
    }
    pthread_mutex_unlock(&k->lock);
    sem_destroy(&kept_lease->answered);
}
