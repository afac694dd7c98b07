/* lease_keeper.c - see lease_keeper.h. */
#include "flow/lease_keeper.h"

#include "core/err.h"
#include "flow/database.h"
#include "os/os.h"
#include "os/thread.h"

#include <assert.h>
#include <time.h>

static once_time renew_after(const struct flow_lease_keeper *k, int64_t parts)
{
    int64_t part = k->lease_ms / parts;
    return once_os_lease_ms() + (part > 0 ? part : 1);
}

once_result flow_renew(struct once_flow_db *db, struct once_grant grant, int64_t lease_ms, bool *fenced,
                       struct once_error *err)
{
    struct once_reply reply = { .arm = ONCE_ARM_NONE };
    once_result r = db->ops->renew(db, grant, lease_ms, &reply, err);
    *fenced = r == ONCE_OK && reply.arm != ONCE_ARM_DONE;
    once_reply_release(&reply);
    return r;
}

/* Releases the lock meanwhile: the database may be slow. */
static void renew(struct flow_lease_keeper *k)
{
    k->busy = true;
    struct once_grant grant = k->grant;
    int64_t lease_ms = k->lease_ms;
    pthread_mutex_unlock(&k->lock);
    bool fenced = false;
    once_time asked = once_os_lease_ms();
    once_result r = flow_renew(k->db, grant, lease_ms, &fenced, NULL);
    pthread_mutex_lock(&k->lock);
    k->busy = false;
    if (r != ONCE_OK) { /* the database failed: try again soon, before the lease is over */
        k->renew_at = renew_after(k, 10);
    } else if (fenced) {
        atomic_store(&k->fenced, true);
        k->renew_at = INT64_MAX;
    } else {
        atomic_store(&k->lost_at, asked + lease_ms);
        k->renew_at = renew_after(k, 3);
    }
    pthread_cond_broadcast(&k->changed);
}

static void *keep(void *arg)
{
    struct flow_lease_keeper *k = arg;
    pthread_setname_np(pthread_self(), "once-flow");
    pthread_mutex_lock(&k->lock);
    while (!k->stopping) {
        once_time due = k->active ? k->renew_at : INT64_MAX;
        if (due == INT64_MAX) {
            pthread_cond_wait(&k->changed, &k->lock);
        } else if (due > once_os_lease_ms()) {
            struct timespec until = once_os_lease_deadline(due);
            pthread_cond_timedwait(&k->changed, &k->lock, &until);
        } else {
            renew(k);
        }
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

void flow_lease_keeper_init(struct flow_lease_keeper *k, struct once_flow_db *db)
{
    k->db = db;
    pthread_mutex_init(&k->lock, NULL);
    once_cond_init(&k->changed);
}

void flow_lease_keeper_release(struct flow_lease_keeper *k)
{
    assert(!k->active);
    pthread_mutex_lock(&k->lock);
    k->stopping = true;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
    if (k->running)
        pthread_join(k->thread, NULL);
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->lock);
}

void flow_lease_keeper_granted(struct flow_lease_keeper *k, once_time asked, int64_t lease_ms)
{
    atomic_store(&k->fenced, false);
    atomic_store(&k->lost_at, asked + lease_ms);
}

once_result flow_lease_keeper_start(struct flow_lease_keeper *k, struct once_grant grant, int64_t lease_ms,
                                    struct once_error *err)
{
    once_result r = ONCE_OK;
    pthread_mutex_lock(&k->lock);
    assert(!k->active);
    if (!k->running && once_thread_start(&k->thread, keep, k) != 0)
        r = once_fail(err, ONCE_UNAVAILABLE, "cannot start the thread that renews leases");
    if (r == ONCE_OK) {
        k->running = k->active = true;
        k->grant = grant;
        k->lease_ms = lease_ms;
        k->renew_at = renew_after(k, 3);
        pthread_cond_broadcast(&k->changed);
    }
    pthread_mutex_unlock(&k->lock);
    return r;
}

void flow_lease_keeper_stop(struct flow_lease_keeper *k)
{
    pthread_mutex_lock(&k->lock);
    k->active = false;
    while (k->busy)
        pthread_cond_wait(&k->changed, &k->lock);
    pthread_mutex_unlock(&k->lock);
}

bool flow_lease_keeper_is_held(const struct flow_lease_keeper *k, int64_t ms)
{
    struct flow_lease_keeper *own = (struct flow_lease_keeper *)k; /* C17 reads atomics through a non-const pointer */
    return !atomic_load(&own->fenced) && once_os_lease_ms() + ms < atomic_load(&own->lost_at);
}
