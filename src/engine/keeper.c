/* keeper.c - see keeper.h. */
#include "engine/keeper.h"

#include "core/err.h"
#include "os/os.h"
#include "os/thread.h"

#include <assert.h>
#include <pthread.h>

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

/* When the next renewal is due; INT64_MAX if none is. */
static once_time next_due(const struct keeper *k)
{
    once_time next = INT64_MAX;
    for (const struct kept *at = k->first; at != NULL; at = at->next)
        if (at->renew_at < next)
            next = at->renew_at;
    return next;
}

/* Those that are due, as a list; soon counts as now, so that they share a commit. */
static struct kept *take_due(struct keeper *k, once_time now)
{
    struct kept *due = NULL;
    for (struct kept *at = k->first; at != NULL; at = at->next) {
        if (at->renew_at > now + at->lease_ms / 30)
            continue;
        at->busy = true;
        at->next_due = due;
        due = at;
    }
    return due;
}

static void submit(struct keeper *k, struct kept *kept)
{
    kept->job = (struct job){ .kind = JOB_OPERATION, .answered = &kept->answered };
    kept->job.request =
        (struct once_request){ .verb = ONCE_VERB_EXTEND, .grant = kept->grant, .extend = { kept->lease_ms } };
    kept->job.op.request = &kept->job.request;
    memcpy(kept->job.op.record, kept->grant.record, 16);
    if (engine_submit(k->once->engine, &kept->job, NULL) != ONCE_OK) {
        kept->job.op.result = ONCE_BUSY;
        sem_post(&kept->answered);
    }
}

static void take_answer(struct kept *kept, once_time asked)
{
    while (sem_wait(&kept->answered) != 0)
        ; /* interrupted */
    once_time now = once_os_lease_ms();
    struct once_op *op = &kept->job.op;
    if (op->result == ONCE_OK && op->reply.arm == ONCE_ARM_DONE) {
        atomic_store(&kept->lost_at, asked + kept->lease_ms);
        kept->renew_at = renew_after(kept, now);
    } else if (op->result == ONCE_OK) {
        kept->renew_at = INT64_MAX; /* fenced: nothing to renew any more */
        atomic_store(&kept->fenced, true);
    } else { /* the store is in trouble: the lease may still be there when it is back */
        kept->renew_at = now + (kept->lease_ms / 10 > 0 ? kept->lease_ms / 10 : 1);
    }
    once_reply_release(&op->reply);
}

/* Without the lock: the store may take its time. */
static void renew_all(struct keeper *k, struct kept *due, once_time asked)
{
    for (struct kept *at = due; at != NULL; at = at->next_due)
        submit(k, at);
    for (struct kept *at = due; at != NULL; at = at->next_due)
        take_answer(at, asked);
}

static void *keep(void *arg)
{
    struct keeper *k = arg;
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
        struct kept *due = take_due(k, now);
        pthread_mutex_unlock(&k->lock);
        renew_all(k, due, now);
        pthread_mutex_lock(&k->lock);
        for (struct kept *at = due, *after; at != NULL; at = after) {
            after = at->next_due; /* once it is not busy, it may be gone */
            at->busy = false;
        }
        pthread_cond_broadcast(&k->changed);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

bool keeper_is_held(const struct kept *kept)
{
    struct kept *k = (struct kept *)kept; /* atomics are read through a plain pointer */
    return !atomic_load(&k->fenced) && once_os_lease_ms() < atomic_load(&k->lost_at);
}

void keeper_tell_fenced(struct kept *kept)
{
    atomic_store(&kept->fenced, true);
}

once_result keeper_create(struct once *once, struct keeper **out, struct once_error *err)
{
    struct keeper *k = calloc(1, sizeof *k);
    if (k == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory to keep leases");
    k->once = once;
    pthread_mutex_init(&k->lock, NULL);
    once_cond_init(&k->changed);
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

once_result keeper_add(struct keeper *k, struct kept *kept, struct once_grant grant, int64_t lease_ms, once_time asked,
                       struct once_error *err)
{
    *kept = (struct kept){ .grant = grant, .lease_ms = lease_ms };
    kept->renew_at = renew_after(kept, asked); /* at once, if the answer took its time */
    atomic_init(&kept->lost_at, asked + lease_ms);
    atomic_init(&kept->fenced, false);
    sem_init(&kept->answered, 0, 0);
    once_result r = ONCE_OK;
    pthread_mutex_lock(&k->lock);
    if (!k->running && once_thread_start(&k->thread, keep, k) != 0)
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
    sem_destroy(&kept->answered);
}
