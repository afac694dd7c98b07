/* unknown_count.c - see unknown_count.h. */
#include "daemon/observers/unknown_count.h"

#include "core/err.h"
#include "daemon/observers/quota_count.h"
#include "os/os.h"
#include "os/thread.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

enum { FAILED_MS = 5000 }; /* the store was not there */

struct unknown_count {
    struct once *once;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t wake;
    bool stopping;
    once_time asked_ms; /* monotonic, as all of these: when /metrics was last read */
    bool known;
    uint64_t count;
    once_time as_of_ms; /* when the walk began that found it */

    /* the thread's own, of the walk under way */
    uint64_t before; /* where it goes on; 0: at the newest */
    uint64_t found;
    once_time began_ms;
    once_time worked_ms;
};

static void begin_walk(struct unknown_count *q)
{
    q->before = q->found = 0;
    q->worked_ms = 0;
    q->began_ms = once_os_monotonic_ms();
}

static void end_walk(struct unknown_count *q)
{
    pthread_mutex_lock(&q->lock);
    q->known = true;
    q->count = q->found;
    q->as_of_ms = q->began_ms;
    pthread_mutex_unlock(&q->lock);
}

/* One step; *over: it was the walk's last. How long to rest after it. */
static once_time step(struct unknown_count *q, bool *over)
{
    struct once_filter filter = { .states = 1u << ONCE_STATE_UNKNOWN,
                                  .before = q->before,
                                  .limit = ONCE_LIST_LIMIT_MAX };
    struct once_page page = { 0 };
    once_time start = once_os_monotonic_ms();
    once_result r = once_list(q->once, &filter, &page, NULL);
    once_time took = once_os_monotonic_ms() - start;
    q->worked_ms += took;
    q->found += page.count;
    q->before = page.next;
    once_page_release(&page);
    *over = r != ONCE_OK || q->before == 0;
    if (r != ONCE_OK)
        return FAILED_MS;
    if (!*over)
        return quota_count_rest_ms(took, false);
    end_walk(q);
    return quota_count_pause_ms(q->worked_ms);
}

/* Between two walks it waits for somebody who wants to know. True: stop. */
static bool wait(struct unknown_count *q, once_time ms, bool for_reader)
{
    once_time until = once_os_monotonic_ms() + ms;
    struct timespec at = { .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };
    pthread_mutex_lock(&q->lock);
    while (!q->stopping && pthread_cond_timedwait(&q->wake, &q->lock, &at) == 0)
        ;
    while (!q->stopping && for_reader &&
           (q->asked_ms == 0 || once_os_monotonic_ms() - q->asked_ms > UNKNOWN_COUNT_ASKED_MS))
        pthread_cond_wait(&q->wake, &q->lock);
    bool stopping = q->stopping;
    pthread_mutex_unlock(&q->lock);
    return stopping;
}

static void *work(void *arg)
{
    struct unknown_count *q = arg;
    pthread_setname_np(pthread_self(), "once-unknowns");
    bool over = true;
    once_time rest_ms = 0;
    for (bool first = true; !wait(q, rest_ms, over && !first); first = false) {
        if (over)
            begin_walk(q);
        rest_ms = step(q, &over);
    }
    return NULL;
}

once_result unknown_count_start(struct once *once, struct unknown_count **out, struct once_error *err)
{
    struct unknown_count *q = calloc(1, sizeof *q);
    if (q == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the daemon");
    q->once = once;
    pthread_mutex_init(&q->lock, NULL);
    once_cond_init(&q->wake);
    if (once_thread_start(&q->thread, work, q) != 0) {
        pthread_cond_destroy(&q->wake);
        pthread_mutex_destroy(&q->lock);
        free(q);
        return once_fail(err, ONCE_UNAVAILABLE, "cannot start a thread");
    }
    *out = q;
    return ONCE_OK;
}

void unknown_count_stop(struct unknown_count *q)
{
    if (q == NULL)
        return;
    pthread_mutex_lock(&q->lock);
    q->stopping = true;
    pthread_cond_signal(&q->wake);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->wake);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

void unknown_count_put(struct unknown_count *q, FILE *file)
{
    if (q == NULL)
        return;
    pthread_mutex_lock(&q->lock);
    once_time now = once_os_monotonic_ms(), age = now - q->as_of_ms;
    bool known = q->known;
    uint64_t count = q->count;
    q->asked_ms = now;
    pthread_cond_signal(&q->wake);
    pthread_mutex_unlock(&q->lock);
    if (!known)
        return;
    fprintf(file,
            "# HELP once_unknown_records Records of the store that were unknown when they were last counted.\n"
            "# TYPE once_unknown_records gauge\n"
            "once_unknown_records %" PRIu64 "\n"
            "# HELP once_unknown_records_age_seconds Time since that count began.\n"
            "# TYPE once_unknown_records_age_seconds gauge\n"
            "once_unknown_records_age_seconds %" PRId64 ".%03d\n",
            count, age / 1000, (int)(age % 1000));
}
