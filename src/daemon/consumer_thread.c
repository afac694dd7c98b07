/* consumer_thread.c - see consumer_thread.h. */
#include "daemon/consumer_thread.h"

#include "core/err.h"
#include "os/stderr_log.h"
#include "os/thread.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { RETRY_MS = 1000, REPORT_MS = 2000 };

struct consumer_thread {
    struct consume_options *options;
    struct once_options store;
    pthread_t thread;
    _Atomic bool stopping;
};

static bool must_stop(void *arg)
{
    struct consumer_thread *t = arg;
    return atomic_load(&t->stopping);
}

static void say(void *arg, const char *text)
{
    (void)arg;
    once_os_log("once daemon", "consume: %s", text);
}

/* Opens store, source and dead letters, and consumes until it must stop. */
static once_result consume(struct consumer_thread *t, struct once_error *err)
{
    struct consume_loop *loop = NULL;
    struct consume_options *o = t->options;
    once_result r = once_open(o->store_url, &t->store, &o->consumer.once, err);
    if (r == ONCE_OK)
        r = consume_loop_open(o, &loop, err);
    if (r == ONCE_OK)
        r = consume_loop_connect(loop, err);
    if (r == ONCE_OK)
        r = consume_loop_run(loop, err);
    consume_loop_close(loop);
    once_close(o->consumer.once);
    o->consumer.once = NULL;
    return r;
}

static void *run(void *arg)
{
    struct consumer_thread *t = arg;
    struct once_error err, said = { .text = "" };
    struct pollfd wake = { .fd = t->options->wake, .events = POLLIN };
    pthread_setname_np(pthread_self(), "once-consume");
    while (!must_stop(t) && consume(t, &err) != ONCE_OK) {
        bool wrong = err.result == ONCE_INVALID;
        if (strcmp(err.text, said.text) != 0) /* an outage may be long */
            once_os_log("once daemon", "consume: %s; %s", err.text, wrong ? "consuming has ended" : "trying again");
        said = err;
        if (wrong)
            break;
        poll(&wake, 1, RETRY_MS);
    }
    return NULL;
}

once_result consumer_thread_start(struct consume_options *options, const struct once_options *store,
                                  struct consumer_thread **out, struct once_error *err)
{
    struct consumer_thread *t = calloc(1, sizeof *t);
    if (t == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the consumer");
    t->options = options;
    t->store = *store;
    t->store.shared = true; /* with `once inbox`, and the table of dead letters */
    options->must_stop = must_stop;
    options->say = say;
    options->arg = t;
    options->report_ms = REPORT_MS;
    options->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = options->wake >= 0 ? once_thread_start(&t->thread, run, t) : -1;
    if (error != 0) {
        if (options->wake >= 0)
            close(options->wake);
        free(t);
        return once_fail(err, ONCE_UNAVAILABLE, "cannot start the consumer's thread");
    }
    *out = t;
    return ONCE_OK;
}

void consumer_thread_end(struct consumer_thread *t)
{
    if (t == NULL)
        return;
    atomic_store(&t->stopping, true);
    eventfd_write(t->options->wake, 1); /* stays readable: every wait ends */
}

void consumer_thread_stop(struct consumer_thread *t)
{
    if (t == NULL)
        return;
    consumer_thread_end(t);
    pthread_join(t->thread, NULL);
    close(t->options->wake);
    free(t);
}
