/* conns.c - see api/conns.h. */
#include "daemon/api/conns.h"

#include "core/err.h"
#include "os/os.h"
#include "os/thread.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* With the lock held; returns early if something changed. */
static void wait_ms(struct api_conns *conns, int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_cond_timedwait(&conns->changed, &conns->lock, &until);
}

/* Ends the input of late connections, which wakes their threads. */
static void close_late(struct api_conns *conns, once_time now)
{
    for (struct api_conn *conn = conns->first; conn != NULL; conn = conn->next) {
        if (conn->deadline == ONCE_NEVER || conn->deadline > now)
            continue;
        shutdown(conn->fd, SHUT_RDWR);
        conn->deadline = ONCE_NEVER;
        atomic_fetch_add(&conns->counters->timed_out, 1);
    }
}

/* After this process was suspended: the time does not count for clients, because what they sent has not been read. No
 * deadline becomes later than that of a request that begins now. */
static void postpone(struct api_conns *conns, once_time now, int64_t ms)
{
    once_time last = now + (conns->request_ms > conns->answer_ms ? conns->request_ms : conns->answer_ms);
    for (struct api_conn *conn = conns->first; conn != NULL; conn = conn->next) {
        if (conn->deadline != ONCE_NEVER)
            conn->deadline = conn->deadline + ms < last ? conn->deadline + ms : last;
    }
}

static void *watch(void *arg)
{
    struct api_conns *conns = arg;
    int64_t step_ms = conns->request_ms < conns->answer_ms ? conns->request_ms / 8 : conns->answer_ms / 8;
    if (step_ms > 1000)
        step_ms = 1000;
    if (step_ms < 10)
        step_ms = 10;
    pthread_mutex_lock(&conns->lock);
    while (!conns->ending) {
        once_time next = once_os_monotonic_ms() + step_ms;
        for (int64_t left = step_ms; left > 0 && !conns->ending; left = next - once_os_monotonic_ms())
            wait_ms(conns, left);
        once_time now = once_os_monotonic_ms();
        if (now - next > step_ms)
            postpone(conns, now, now - next);
        close_late(conns, now);
    }
    pthread_mutex_unlock(&conns->lock);
    return NULL;
}

once_result api_conns_init(struct api_conns *conns, struct once_error *err)
{
    pthread_mutex_init(&conns->lock, NULL);
    once_cond_init(&conns->changed);
    int error = once_thread_start(&conns->watcher, watch, conns);
    if (error == 0)
        return ONCE_OK;
    pthread_cond_destroy(&conns->changed);
    pthread_mutex_destroy(&conns->lock);
    return once_fail(err, ONCE_UNAVAILABLE, "cannot start a thread: %s", strerror(error));
}

void api_conns_release(struct api_conns *conns)
{
    pthread_mutex_lock(&conns->lock);
    conns->ending = true;
    pthread_cond_broadcast(&conns->changed);
    pthread_mutex_unlock(&conns->lock);
    pthread_join(conns->watcher, NULL);
    assert(conns->first == NULL);
    pthread_cond_destroy(&conns->changed);
    pthread_mutex_destroy(&conns->lock);
}

bool api_conns_admit(struct api_conns *conns)
{
    pthread_mutex_lock(&conns->lock);
    while (conns->open == conns->open_max && !conns->shut)
        pthread_cond_wait(&conns->changed, &conns->lock);
    bool admitted = !conns->shut;
    conns->open += admitted;
    pthread_mutex_unlock(&conns->lock);
    return admitted;
}

void api_conns_leave(struct api_conns *conns)
{
    pthread_mutex_lock(&conns->lock);
    assert(conns->open > 0);
    conns->open--;
    pthread_cond_broadcast(&conns->changed);
    pthread_mutex_unlock(&conns->lock);
}

void api_conns_shut(struct api_conns *conns)
{
    pthread_mutex_lock(&conns->lock);
    conns->shut = true;
    pthread_cond_broadcast(&conns->changed);
    pthread_mutex_unlock(&conns->lock);
}

void api_conns_pause(struct api_conns *conns)
{
    pthread_mutex_lock(&conns->lock);
    if (!conns->shut)
        wait_ms(conns, 50);
    pthread_mutex_unlock(&conns->lock);
}

struct api_conn *api_conns_add(struct api_conns *conns, int fd)
{
    struct api_conn *conn = calloc(1, sizeof *conn);
    if (conn == NULL)
        return NULL;
    conn->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (conn->fd < 0) {
        free(conn);
        return NULL;
    }
    conn->deadline = once_os_monotonic_ms() + conns->request_ms;
    pthread_mutex_lock(&conns->lock);
    conn->next = conns->first;
    conn->link = &conns->first;
    if (conn->next != NULL)
        conn->next->link = &conn->next;
    conns->first = conn;
    pthread_mutex_unlock(&conns->lock);
    return conn;
}

void api_conns_remove(struct api_conns *conns, struct api_conn *conn)
{
    pthread_mutex_lock(&conns->lock);
    *conn->link = conn->next;
    if (conn->next != NULL)
        conn->next->link = conn->link;
    pthread_mutex_unlock(&conns->lock);
    close(conn->fd);
    free(conn);
}

static void set_deadline(struct api_conns *conns, struct api_conn *conn, int64_t ms, int working)
{
    once_time now = once_os_monotonic_ms();
    pthread_mutex_lock(&conns->lock);
    conn->deadline = ms == ONCE_NEVER ? ONCE_NEVER : now + ms;
    conns->working += (size_t)working;
    if (working < 0)
        pthread_cond_broadcast(&conns->changed);
    pthread_mutex_unlock(&conns->lock);
}

void api_conns_begin(struct api_conns *conns, struct api_conn *conn)
{
    set_deadline(conns, conn, ONCE_NEVER, 1);
}

void api_conns_answer(struct api_conns *conns, struct api_conn *conn)
{
    set_deadline(conns, conn, conns->answer_ms, 0);
}

void api_conns_end(struct api_conns *conns, struct api_conn *conn)
{
    set_deadline(conns, conn, conns->request_ms, -1);
}

void api_conns_drain(struct api_conns *conns, int64_t ms)
{
    once_time until = once_os_monotonic_ms() + ms;
    pthread_mutex_lock(&conns->lock);
    for (int64_t left = ms; conns->working > 0 && left > 0; left = until - once_os_monotonic_ms())
        wait_ms(conns, left);
    pthread_mutex_unlock(&conns->lock);
}
