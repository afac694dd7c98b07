/* relay_thread.c - see relay_thread.h. */
#include "daemon/relay_thread.h"

#include "core/err.h"
#include "messages/relay_loop.h"
#include "os/stderr_log.h"
#include "os/thread.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct relay_thread {
    struct relay_loop loop;
    pthread_t thread;
    _Atomic bool stopping;
};

static bool must_stop(void *arg)
{
    struct relay_thread *r = arg;
    return atomic_load(&r->stopping);
}

static void say(void *arg, const char *text)
{
    (void)arg;
    once_os_log("once daemon", "relay: %s", text);
}

static void *run(void *arg)
{
    struct relay_thread *r = arg;
    pthread_setname_np(pthread_self(), "once-relay");
    relay_loop_run(&r->loop);
    atomic_store(&r->loop.relay->counters->up, false);
    return NULL;
}

once_result relay_thread_start(struct relay *relay, struct relay_thread **out, struct once_error *err)
{
    struct relay_thread *r = calloc(1, sizeof *r);
    if (r == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the relay");
    relay->must_stop = must_stop;
    relay->say = say;
    relay->arg = r;
    r->loop = (struct relay_loop){ .relay = relay, .arg = r };
    r->loop.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = r->loop.wake >= 0 ? once_thread_start(&r->thread, run, r) : -1;
    if (error != 0) {
        if (r->loop.wake >= 0)
            close(r->loop.wake);
        free(r);
        return once_fail(err, ONCE_UNAVAILABLE, "cannot start the relay's thread");
    }
    *out = r;
    return ONCE_OK;
}

void relay_thread_end(struct relay_thread *r)
{
    if (r == NULL)
        return;
    atomic_store(&r->stopping, true);
    eventfd_write(r->loop.wake, 1); /* stays readable: every wait ends */
}

void relay_thread_stop(struct relay_thread *r)
{
    if (r == NULL)
        return;
    relay_thread_end(r);
    pthread_join(r->thread, NULL);
    close(r->loop.wake);
    free(r);
}
