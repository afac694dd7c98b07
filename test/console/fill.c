/*
 * fill.c - a store with many finished records, for the console's tests.
 *
 *     fill STORE COUNT      keys key-000001 to key-COUNT, each claimed and finished
 */
#include "core/span.h"
#include "once.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum { UNDER_WAY_MAX = 1000 };

struct fill {
    struct once *once;
    long next, count, done;
};

struct caller {
    struct fill *fill;
    bool finishing;
};

static void fail(const char *text)
{
    fprintf(stderr, "fill: %s\n", text);
    exit(1);
}

static void on_done(void *arg, once_result result, struct once_reply *reply, const struct once_error *err);

static bool claim_next(struct caller *caller)
{
    struct fill *f = caller->fill;
    char key[32];
    struct once_error err;
    if (f->next > f->count)
        return false;
    int len = snprintf(key, sizeof key, "key-%06ld", f->next++);
    struct once_request request = { .verb = ONCE_VERB_CLAIM,
                                    .claim = { .key = once_span_of(key, (size_t)len), .tenant = ONCE_LIT("bulk") } };
    caller->finishing = false;
    if (once_submit(f->once, &request, on_done, caller, &err) != ONCE_OK)
        fail(err.text);
    return true;
}

static void on_done(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    struct caller *caller = arg;
    struct once_error own;
    if (result != ONCE_OK)
        fail(err->text);
    struct once_request finish = { .verb = ONCE_VERB_FINISH,
                                   .grant = reply->record.grant,
                                   .outcome = {
                                       .state = ONCE_STATE_SUCCEEDED, .status = 200, .body = ONCE_LIT("ok") } };
    bool claimed = !caller->finishing;
    once_reply_release(reply);
    caller->fill->done += !claimed;
    caller->finishing = true;
    if (claimed && once_submit(caller->fill->once, &finish, on_done, caller, &own) != ONCE_OK)
        fail(own.text);
    if (!claimed)
        claim_next(caller);
}

int main(int argc, char **argv)
{
    static struct caller callers[UNDER_WAY_MAX];
    struct fill f = { .next = 1, .count = argc == 3 ? strtol(argv[2], NULL, 10) : 0 };
    struct once_options options = { .poll = true };
    struct once_error err;
    if (f.count <= 0)
        fail("usage: fill STORE COUNT");
    if (once_open(argv[1], &options, &f.once, &err) != ONCE_OK)
        fail(err.text);
    for (size_t i = 0; i < UNDER_WAY_MAX; i++) {
        callers[i].fill = &f;
        claim_next(&callers[i]);
    }
    struct pollfd ready = { .fd = once_eventfd(f.once), .events = POLLIN };
    while (f.done < f.count) {
        (void)poll(&ready, 1, -1);
        once_dispatch(f.once, SIZE_MAX);
    }
    once_close(f.once);
    return 0;
}
