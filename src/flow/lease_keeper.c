/* lease_keeper.c - see lease_keeper.h. */
#include "flow/lease_keeper.h"

#include "core/err.h"
#include "flow/database.h"
#include "os/os.h"
#include "os/thread.h"

#include <assert.h>
#include <time.h>

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
    int64_t lease_ms = k->lease.ms;
    pthread_mutex_unlock(&k->lock);
    bool fenced = false;
    once_time asked = once_os_lease_ms();
    once_result r = flow_renew(k->db, grant, lease_ms, &fenced, NULL);
    pthread_mutex_lock(&k->lock);
    k->busy = false;
    once_lease_renewed(&k->lease,
                       r != ONCE_OK ? ONCE_RENEWAL_FAILED
                       : fenced     ? ONCE_RENEWAL_FENCED
                                    : ONCE_RENEWAL_DONE,
                       asked, once_os_lease_ms());
    pthread_cond_broadcast(&k->changed);
}

static void *keep(void *arg)
{
    struct flow_lease_keeper *k = arg;
    pthread_setname_np(pthread_self(), "once-flow");
    pthread_mutex_lock(&k->lock);
    while (!k->stopping) {
        once_time due = k->active ? k->lease.renew_at : INT64_MAX;
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
    assert(!k->active);
    once_lease_granted(&k->lease, lease_ms, asked);
}

once_result flow_lease_keeper_start(struct flow_lease_keeper *k, struct once_grant grant, struct once_error *err)
{
    once_result r = ONCE_OK;
    pthread_mutex_lock(&k->lock);
    assert(!k->active);
    if (!k->running && once_thread_start(&k->thread, keep, k) != 0)
        r = once_fail(err, ONCE_UNAVAILABLE, "cannot start the thread that renews leases");
    if (r == ONCE_OK) {
        k->running = k->active = true;
        k->grant = grant;
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
    return once_lease_is_held(&k->lease, once_os_lease_ms() + ms);
}
