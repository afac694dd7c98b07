/* admin_queries.c - see admin_queries.h. */
#include "daemon/socket/admin_queries.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "daemon/reaper/reaper.h"
#include "engine/daemon_api.h"
#include "os/os.h"
#include "os/thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { JOBS_MAX = 256 };

struct admin_queries {
    struct once *once;
    struct reaper *reaper;
    int wake;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t work;
    struct admin_query *first, **last, *done, **done_last;
    size_t count;
    bool stopping;
};

/* ------------------------------------------------------------------ answers */

static once_result answer_list(struct admin_queries *s, struct admin_query *job, struct once_error *err)
{
    struct once_filter filter;
    once_span tenant;
    struct once_page page = { .count = 0 };
    once_result r = wire_get_list(once_buf_span(&job->payload), &filter, &tenant, err);
    if (r == ONCE_OK)
        r = once_list(s->once, &filter, &page, err);
    if (r == ONCE_OK)
        wire_put_page(&job->answer, job->id, &page);
    once_page_release(&page);
    return r;
}

static once_result answer_history(struct admin_queries *s, struct admin_query *job, struct once_error *err)
{
    uint8_t record[16] = { 0 };
    struct once_history history = { .count = 0 };
    once_result r = wire_get_history(once_buf_span(&job->payload), record, err);
    if (r == ONCE_OK)
        r = once_history_of(s->once, record, &history, err);
    if (r == ONCE_OK)
        wire_put_events(&job->answer, job->id, &history);
    once_history_release(&history);
    return r;
}

static once_result answer_expire(struct admin_queries *s, struct admin_query *job, struct once_error *err)
{
    uint64_t budget = 0, removed = 0;
    bool more = false;
    once_result r = wire_get_number(once_buf_span(&job->payload), &budget, err);
    if (r == ONCE_OK && budget > UINT32_MAX)
        r = once_fail(err, ONCE_INVALID, "a budget of %llu records", (unsigned long long)budget);
    if (r == ONCE_OK)
        r = once_expire(s->once, (uint32_t)budget, &removed, &more, err);
    if (r == ONCE_OK)
        reaper_accept_clock(s->reaper); /* an operator who expires by hand has checked the clock */
    if (r == ONCE_OK)
        wire_put_expired(&job->answer, job->id, removed, more);
    return r;
}

static void add_problem(void *arg, const struct once_problem *problem)
{
    wire_add_problem(arg, problem);
}

static once_result answer_check(struct admin_queries *s, struct admin_query *job, struct once_error *err)
{
    uint64_t cursor = 0;
    struct once_check_report report = { .records = 0 };
    once_result r = wire_get_number(once_buf_span(&job->payload), &cursor, err);
    if (r != ONCE_OK)
        return r;
    size_t begin = wire_begin_checked(&job->answer, job->id);
    r = once_check_step(s->once, &cursor, add_problem, &job->answer, &report, err);
    if (r == ONCE_OK)
        return wire_end_checked(&job->answer, begin, cursor, &report, err);
    once_buf_clear(&job->answer);
    return r;
}

static once_result answer_stats(struct admin_queries *s, struct admin_query *job, struct once_error *err)
{
    uint64_t unused = 0;
    struct once_stats stats;
    once_result r = wire_get_number(once_buf_span(&job->payload), &unused, err);
    if (r == ONCE_OK)
        r = once_stats(s->once, &stats, err);
    if (r == ONCE_OK)
        wire_put_counts(&job->answer, job->id, &stats);
    return r;
}

static void answer(struct admin_queries *s, struct admin_query *job)
{
    struct once_error err = { .result = ONCE_OK };
    once_result r = ONCE_OK;
    switch (job->type) {
    case WIRE_LIST:
        r = answer_list(s, job, &err);
        break;
    case WIRE_HISTORY:
        r = answer_history(s, job, &err);
        break;
    case WIRE_EXPIRE:
        r = answer_expire(s, job, &err);
        break;
    case WIRE_CHECK:
        r = answer_check(s, job, &err);
        break;
    case WIRE_STATS:
        r = answer_stats(s, job, &err);
        break;
    default:
        r = once_fail(&err, ONCE_INVALID, "a frame of type %u is not a query", job->type);
    }
    if (r == ONCE_OK && job->answer.result != ONCE_OK)
        r = once_fail(&err, job->answer.result, "the answer does not fit into a frame");
    if (r != ONCE_OK) {
        once_buf_clear(&job->answer);
        wire_put_failed(&job->answer, job->id, r, err.text);
    }
}

/* ------------------------------------------------------------------ the thread */

static void wake_server(struct admin_queries *s)
{
    uint64_t one = 1;
    ssize_t n = write(s->wake, &one, sizeof one);
    (void)n; /* a full eventfd is readable, which is enough */
}

/* The next query; NULL: stop. */
static struct admin_query *take(struct admin_queries *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->first == NULL && !s->stopping)
        pthread_cond_wait(&s->work, &s->lock);
    struct admin_query *job = s->first;
    if (job != NULL) {
        s->first = job->next;
        if (s->first == NULL)
            s->last = &s->first;
    }
    pthread_mutex_unlock(&s->lock);
    return job;
}

/* With the lock held. */
static void put_done(struct admin_queries *s, struct admin_query *job)
{
    job->next = NULL;
    *s->done_last = job;
    s->done_last = &job->next;
}

static void hand_back(struct admin_queries *s, struct admin_query *job)
{
    pthread_mutex_lock(&s->lock);
    put_done(s, job);
    pthread_mutex_unlock(&s->lock);
    wake_server(s);
}

/* With the lock held: moves the queries that were not begun to the answered ones, without an answer. NULL: of all
 * askers. */
static void drop(struct admin_queries *s, const void *asker)
{
    struct admin_query **at = &s->first;
    for (struct admin_query *job; (job = *at) != NULL;) {
        if (asker != NULL && job->asker != asker) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        put_done(s, job);
    }
    s->last = at;
}

static void *work(void *arg)
{
    struct admin_queries *s = arg;
    pthread_setname_np(pthread_self(), "once-slow");
    for (struct admin_query *job; (job = take(s)) != NULL;) {
        answer(s, job);
        hand_back(s, job);
    }
    return NULL;
}

/* ------------------------------------------------------------------ the server's side */

once_result admin_queries_submit(struct admin_queries *s, void *asker, const struct wire_frame *frame,
                                 struct once_error *err)
{
    struct admin_query *job = calloc(1, sizeof *job);
    if (job == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a query");
    *job = (struct admin_query){ .asker = asker, .id = frame->id, .type = frame->type };
    once_buf_init(&job->payload, WIRE_FRAME_LEN_MAX);
    once_buf_init(&job->answer, WIRE_FRAME_LEN_MAX);
    once_buf_add(&job->payload, frame->payload);
    pthread_mutex_lock(&s->lock);
    bool full = s->count >= JOBS_MAX, bad = job->payload.result != ONCE_OK;
    if (!full && !bad) {
        *s->last = job;
        s->last = &job->next;
        s->count++;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    if (!full && !bad)
        return ONCE_OK;
    admin_query_release(job);
    return bad ? once_fail(err, ONCE_NO_MEMORY, "no memory for a query")
               : once_fail(err, ONCE_BUSY, "%d queries are waiting already", JOBS_MAX);
}

void admin_queries_forget(struct admin_queries *s, const void *asker)
{
    pthread_mutex_lock(&s->lock);
    drop(s, asker);
    pthread_mutex_unlock(&s->lock);
    wake_server(s);
}

struct admin_query *admin_queries_next(struct admin_queries *s)
{
    pthread_mutex_lock(&s->lock);
    struct admin_query *job = s->done;
    if (job != NULL) {
        s->done = job->next;
        if (s->done == NULL)
            s->done_last = &s->done;
        s->count--;
    }
    pthread_mutex_unlock(&s->lock);
    return job;
}

void admin_query_release(struct admin_query *job)
{
    once_buf_release(&job->payload);
    once_buf_release(&job->answer);
    free(job);
}

once_result admin_queries_start(struct once *once, struct reaper *reaper, int wake, struct admin_queries **out,
                                struct once_error *err)
{
    struct admin_queries *s = calloc(1, sizeof *s);
    if (s == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the daemon");
    s->once = once;
    s->reaper = reaper;
    s->wake = wake;
    s->last = &s->first;
    s->done_last = &s->done;
    pthread_mutex_init(&s->lock, NULL);
    once_cond_init(&s->work);
    if (once_thread_start(&s->thread, work, s) != 0) {
        free(s);
        return once_fail(err, ONCE_UNAVAILABLE, "cannot start a thread");
    }
    *out = s;
    return ONCE_OK;
}

void admin_queries_stop(struct admin_queries *s)
{
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    drop(s, NULL);
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
}

void admin_queries_free(struct admin_queries *s)
{
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
