/* relayer.c - see relayer.h. */
#include "daemon/relayer.h"

#include "core/err.h"
#include "messages/relay_loop.h"
#include "os/remark.h"
#include "os/thread.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct relayer {
    struct relay_loop loop;
    pthread_t thread;
    _Atomic bool stopping;
};

static bool must_stop(void *arg)
{
    struct relayer *r = arg;
    return atomic_load(&r->stopping);
}

static void say(void *arg, const char *text)
{
    (void)arg;
    once_os_remark("once daemon", "relay: %s", text);
}

static void *run(void *arg)
{
    struct relayer *r = arg;
    pthread_setname_np(pthread_self(), "once-relay");
    relay_loop_run(&r->loop);
    atomic_store(&r->loop.relay->numbers->up, false);
    return NULL;
}

once_result relayer_start(struct relay *relay, struct relayer **out, struct once_error *err)
{
    struct relayer *r = calloc(1, sizeof *r);
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

void relayer_end(struct relayer *r)
{
    if (r == NULL)
        return;
    atomic_store(&r->stopping, true);
    eventfd_write(r->loop.wake, 1); /* stays readable: every wait ends */
}

void relayer_stop(struct relayer *r)
{
    if (r == NULL)
        return;
    relayer_end(r);
    pthread_join(r->thread, NULL);
    close(r->loop.wake);
    free(r);
}
