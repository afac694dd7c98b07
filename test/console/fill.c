/*
 * fill.c - a store with many finished records, for the console's tests.
 *
 *     fill STORE COUNT      keys key-000001 to key-COUNT, each claimed and finished
 *     fill STORE request    the key resend, as a gateway left it that died: with its request
 */
#include "core/http/resend.h"
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

static void leave_request(const char *store)
{
    struct once *once = NULL;
    struct once_error err;
    struct once_reply reply;
    struct once_buf bytes;
    struct once_resend request = { .upstream = ONCE_LIT("service"),
                                   .method = ONCE_LIT("POST"),
                                   .target = ONCE_LIT("/orders?secret=1"),
                                   .headers = ONCE_LIT(
                                       "Content-Type: application/json\r\n"
                                       "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"),
                                   .body = ONCE_LIT("{\"eur\": 25}"),
                                   .max_response = 1 << 20,
                                   .needs_identity = true };
    once_buf_init(&bytes, ONCE_REQUEST_LEN_MAX);
    once_resend_put(&bytes, &request);
    struct once_claim claim = { .tenant = ONCE_LIT("acme"),
                                .key = ONCE_LIT("resend"),
                                .lease_ms = 1,
                                .takeover = ONCE_TAKEOVER_RERUN,
                                .request = once_buf_span(&bytes) };
    if (once_open(store, NULL, &once, &err) != ONCE_OK || once_claim(once, &claim, &reply, &err) != ONCE_OK)
        fail(err.text);
    once_reply_release(&reply);
    once_close(once);
    once_buf_release(&bytes);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[2], "request") == 0) {
        leave_request(argv[1]);
        return 0;
    }
    static struct caller callers[UNDER_WAY_MAX];
    struct fill f = { .next = 1, .count = argc == 3 ? strtol(argv[2], NULL, 10) : 0 };
    struct once_options options = { .poll = true };
    struct once_error err;
    if (f.count <= 0)
        fail("usage: fill STORE COUNT|request");
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
