/*
 * health.c - /healthz: whether the store answers; /readyz: whether the daemon should get requests.
 *
 * /healthz looks up a record as every other operation does: through the queue, the writer, the store. After
 * API_HEALTH_MS without an answer it is 503. A full queue is healthy: restarting a busy daemon would make it worse.
 * `once relay`, which has no store, reports whether its outbox is connected.
 *
 * /readyz calls nothing: it reports the last result of observers/health.h, at most a second old.
 */
#include "daemon/observers/health.h"
#include "daemon/api/call.h"
#include "os/thread.h"

#include <stdlib.h>

/* Shared by the request and the callback; the last of the two frees it. */
struct probe {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int users;
    bool answered;
    once_result result;
    struct once_error err;
};

static struct probe *probe_create(void)
{
    struct probe *probe = calloc(1, sizeof *probe);
    if (probe == NULL)
        return NULL;
    pthread_mutex_init(&probe->lock, NULL);
    once_cond_init(&probe->changed);
    probe->users = 2;
    return probe;
}

/* Called with the lock held. */
static void probe_leave(struct probe *probe)
{
    bool last = --probe->users == 0;
    pthread_mutex_unlock(&probe->lock);
    if (!last)
        return;
    pthread_cond_destroy(&probe->changed);
    pthread_mutex_destroy(&probe->lock);
    free(probe);
}

static void on_done(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    struct probe *probe = arg;
    once_reply_release(reply);
    pthread_mutex_lock(&probe->lock);
    probe->answered = true;
    probe->result = result;
    if (result != ONCE_OK)
        probe->err = *err;
    pthread_cond_signal(&probe->changed);
    probe_leave(probe);
}

/* The store's answer, or ONCE_UNAVAILABLE after API_HEALTH_MS. */
static once_result ask(struct once *once, struct probe *probe, struct once_error *err)
{
    struct once_request request = { .verb = ONCE_VERB_LOOKUP, .lookup = { .key = ONCE_LIT("once health") } };
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += API_HEALTH_MS / 1000;
    once_result result = once_submit(once, &request, on_done, probe, err);
    pthread_mutex_lock(&probe->lock);
    if (result != ONCE_OK) {
        probe->users--; /* the callback will not come */
        probe_leave(probe);
        return result;
    }
    while (!probe->answered && pthread_cond_timedwait(&probe->changed, &probe->lock, &until) == 0)
        ;
    result = probe->answered ? probe->result : ONCE_UNAVAILABLE;
    if (probe->answered)
        *err = probe->err;
    else
        *err = (struct once_error){ ONCE_UNAVAILABLE, "the store has not answered for 2 s" };
    probe_leave(probe);
    return result;
}

static void answer_health(struct api_call *call, const char *status)
{
    struct once_json json = { .file = api_answer_begin(&call->answer, 200, "application/json") };
    if (json.file == NULL)
        return;
    once_json_open(&json, NULL, '{');
    once_json_text(&json, "status", status);
    once_json_close(&json);
    api_answer_end(&call->answer);
}

void api_health(struct api_call *call)
{
    struct once_error err = { 0 };
    if (call->once == NULL) {
        if (atomic_load(call->counters->up))
            answer_health(call, "ok");
        else
            api_answer_problem(&call->answer, API_PROBLEM_UNAVAILABLE, NULL, "the outbox is not connected");
        return;
    }
    struct probe *probe = probe_create();
    if (probe == NULL) {
        api_answer_problem(&call->answer, API_PROBLEM_NO_MEMORY, NULL, "out of memory");
        return;
    }
    once_result result = ask(call->once, probe, &err);
    if (result != ONCE_OK && result != ONCE_BUSY) {
        api_answer_problem(&call->answer, API_PROBLEM_UNAVAILABLE, NULL, "%s", err.text);
        return;
    }
    answer_health(call, result == ONCE_OK ? "ok" : "busy");
}

void api_ready(struct api_call *call)
{
    struct health_view view;
    if (call->counters->health == NULL) {
        api_health(call);
        return;
    }
    health_read(call->counters->health, &view);
    if (view.ready)
        answer_health(call, "ready");
    else
        api_answer_problem(&call->answer, API_PROBLEM_UNAVAILABLE, NULL, "%s", view.reason);
}
