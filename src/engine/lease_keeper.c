/* lease_keeper.c - see lease_keeper.h. */
#include "engine/lease_keeper.h"

#include "core/err.h"
#include "engine/handle.h"
#include "os/os.h"
#include "os/thread.h"

#include <assert.h>
#include <pthread.h>

struct lease_keeper {
    struct once *once;
    pthread_mutex_t lock; /* guards the following */
    pthread_cond_t changed;
    struct kept_lease *first;
    bool running, stopping;
    pthread_t thread;
};

/* The operation that extends a lease, and the semaphore that its answer posts. */
struct renewal {
    struct job job;
    sem_t answered;
};

/* When the next renewal is due; INT64_MAX if none is. */
static once_time next_due(const struct lease_keeper *k)
{
    once_time next = INT64_MAX;
    for (const struct kept_lease *at = k->first; at != NULL; at = at->next)
        if (at->lease.renew_at < next)
            next = at->lease.renew_at;
    return next;
}

/* The leases that are due now or soon, as a list: so they share a commit. */
static struct kept_lease *take_due(struct lease_keeper *k, once_time now)
{
    struct kept_lease *due = NULL;
    for (struct kept_lease *at = k->first; at != NULL; at = at->next) {
        if (at->lease.renew_at > now + at->lease.ms / 30)
            continue;
        at->busy = true;
        at->next_due = due;
        due = at;
    }
    return due;
}

static void submit(struct lease_keeper *k, struct kept_lease *kept)
{
    struct renewal *renewal = kept->renewal;
    struct job *job = &renewal->job;
    *job = (struct job){ .kind = JOB_OPERATION, .answered = &renewal->answered };
    job->request =
        (struct once_request){ .verb = ONCE_VERB_EXTEND, .grant = kept->grant, .extend = { kept->lease.ms } };
    job->op.request = &job->request;
    memcpy(job->op.record, kept->grant.record, 16);
    if (engine_submit(k->once->engine, job, NULL) != ONCE_OK) {
        job->op.result = ONCE_BUSY;
        sem_post(&renewal->answered);
    }
}

static void take_answer(struct kept_lease *kept, once_time asked)
{
    while (sem_wait(&kept->renewal->answered) != 0)
        ; /* interrupted */
    struct once_op *op = &kept->renewal->job.op;
    once_lease_renewed(&kept->lease,
                       op->result != ONCE_OK            ? ONCE_RENEWAL_FAILED
                       : op->reply.arm == ONCE_ARM_DONE ? ONCE_RENEWAL_DONE
                                                        : ONCE_RENEWAL_FENCED,
                       asked, once_os_lease_ms());
    once_reply_release(&op->reply);
}

/* Without the lock: the store may be slow. */
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
            after = at->next_due; /* once it is not busy, lease_keeper_remove() may free it */
            at->busy = false;
        }
        pthread_cond_broadcast(&k->changed);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

bool lease_keeper_is_held(const struct kept_lease *kept)
{
    return once_lease_is_held(&kept->lease, once_os_lease_ms());
}

void lease_keeper_set_fenced(struct kept_lease *kept)
{
    atomic_store(&kept->lease.fenced, true);
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

once_result lease_keeper_add(struct once *once, struct kept_lease *kept, struct once_grant grant, int64_t lease_ms,
                             once_time asked, struct once_error *err)
{
    struct lease_keeper *k = once->lease_keeper;
    *kept = (struct kept_lease){ .grant = grant, .renewal = calloc(1, sizeof *kept->renewal) };
    if (kept->renewal == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory to keep a lease");
    once_lease_granted(&kept->lease, lease_ms, asked); /* due at once, if the answer was slow */
    sem_init(&kept->renewal->answered, 0, 0);
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
    if (r != ONCE_OK)
        free(kept->renewal);
    return r;
}

void lease_keeper_remove(struct once *once, struct kept_lease *kept)
{
    struct lease_keeper *k = once->lease_keeper;
    pthread_mutex_lock(&k->lock);
    while (kept->busy)
        pthread_cond_wait(&k->changed, &k->lock);
    struct kept_lease **at = &k->first;
    while (*at != NULL && *at != kept)
        at = &(*at)->next;
    if (*at == kept)
        *at = kept->next;
    pthread_mutex_unlock(&k->lock);
    sem_destroy(&kept->renewal->answered);
    free(kept->renewal);
}
