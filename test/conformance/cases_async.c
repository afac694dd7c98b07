/*
 * cases_async.c - submitted requests: who calls back, in which order, what a full queue
 * says, what closing does; and claims that wait for another's outcome.
 */
#include "suite.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const once_span A = { (const uint8_t *)"a", 1 };
enum { FOR_EVER_MS = 3600 * 1000, PATIENCE_S = 120 };

/* ------------------------------------------------------------------ hearing */

/* Everything that was called back, in its order. */
static struct heard {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t count;
    struct answer {
        once_result result;
        enum once_arm arm;
        uint64_t fence;
        uint64_t body_sum;
        size_t body_len;
        pthread_t thread;
        int tag;
    } answers[256];
} heard = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* Tags are handed over as pointers into this. */
static int tags[256];

static void heard_reset(void)
{
    pthread_mutex_lock(&heard.lock);
    heard.count = 0;
    memset(heard.answers, 0, sizeof heard.answers);
    pthread_mutex_unlock(&heard.lock);
    for (int i = 0; i < (int)LENGTH(tags); i++)
        tags[i] = i;
}

static void hear(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    (void)err;
    pthread_mutex_lock(&heard.lock);
    struct answer *a = &heard.answers[heard.count];
    *a = (struct answer){ .result = result,
                          .arm = reply->arm,
                          .fence = reply->record.grant.fence,
                          .body_len = reply->record.body.len,
                          .thread = pthread_self(),
                          .tag = *(int *)arg };
    for (size_t i = 0; i < reply->record.body.len; i++)
        a->body_sum = a->body_sum * 31 + reply->record.body.ptr[i];
    heard.count++;
    pthread_cond_broadcast(&heard.changed);
    pthread_mutex_unlock(&heard.lock);
    once_reply_release(reply);
}

static size_t heard_count(void)
{
    pthread_mutex_lock(&heard.lock);
    size_t count = heard.count;
    pthread_mutex_unlock(&heard.lock);
    return count;
}

/* Waits until that many came; false if they do not. */
static bool heard_all(size_t count)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&heard.lock);
    int rc = 0;
    while (heard.count < count && rc == 0)
        rc = pthread_cond_timedwait(&heard.changed, &heard.lock, &until);
    bool all = heard.count >= count;
    pthread_mutex_unlock(&heard.lock);
    return all;
}

static once_result submit(const struct once_request *request, int tag)
{
    return once_submit(suite.once, request, hear, &tags[tag], NULL);
}

static once_result submit_claim(once_span key, int64_t wait_ms, int tag)
{
    struct once_request request = { .verb = ONCE_VERB_CLAIM, .claim = { .key = key, .wait_ms = wait_ms } };
    return submit(&request, tag);
}

static size_t count_arm(enum once_arm arm)
{
    pthread_mutex_lock(&heard.lock);
    size_t count = 0;
    for (size_t i = 0; i < heard.count; i++)
        count += heard.answers[i].result == ONCE_OK && heard.answers[i].arm == arm;
    pthread_mutex_unlock(&heard.lock);
    return count;
}

/* ------------------------------------------------------------------ a gate on the engine's thread */

/* A callback that does what it must not, and blocks: the writer stands still meanwhile, so
 * that what is submitted then makes a full queue, or one batch. */
static struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool entered, open;
} gate = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void stand_still(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    (void)arg, (void)result, (void)err;
    once_reply_release(reply);
    pthread_mutex_lock(&gate.lock);
    gate.entered = true;
    pthread_cond_broadcast(&gate.changed);
    while (!gate.open)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void gate_close(void)
{
    gate.entered = gate.open = false;
    struct once_request look = { .verb = ONCE_VERB_LOOKUP, .lookup = { .key = ONCE_LIT("gate") } };
    CHECK(once_submit(suite.once, &look, stand_still, NULL, NULL) == ONCE_OK);
    pthread_mutex_lock(&gate.lock);
    while (!gate.entered)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void gate_open(void)
{
    pthread_mutex_lock(&gate.lock);
    gate.open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

/* ------------------------------------------------------------------ submitting */

static void async__every_verb_is_answered_on_the_engines_thread(void)
{
    heard_reset();
    struct once_grant grant = granted(.key = A, .lease_ms = 1000), other = granted(.key = ONCE_LIT("b"));
    const struct once_request requests[] = {
        { .verb = ONCE_VERB_CLAIM, .claim = { .key = ONCE_LIT("c") } },
        { .verb = ONCE_VERB_EXTEND, .grant = grant, .extend = { 5000 } },
        { .verb = ONCE_VERB_ADVANCE, .grant = grant, .advance = { ONCE_LIT("p"), ONCE_LIT("cp") } },
        { .verb = ONCE_VERB_FINISH, .grant = grant, .outcome = { .state = ONCE_STATE_UNKNOWN } },
        { .verb = ONCE_VERB_RELEASE, .grant = other },
        { .verb = ONCE_VERB_LOOKUP, .lookup = { .key = A } },
        { .verb = ONCE_VERB_RESOLVE,
          .resolve = { .key = A, .verdict = ONCE_VERDICT_NOT_DONE, .reason = ONCE_LIT("r") } },
    };
    static const enum once_arm arms[] = { ONCE_ARM_EXECUTE, ONCE_ARM_DONE,  ONCE_ARM_DONE, ONCE_ARM_DONE,
                                          ONCE_ARM_DONE,    ONCE_ARM_FOUND, ONCE_ARM_DONE };
    for (int i = 0; i < (int)LENGTH(requests); i++) {
        CHECK(submit(&requests[i], i) == ONCE_OK);
        CHECK(heard_all((size_t)i + 1)); /* one by one: each is a step of its own */
        EXPECT(heard.answers[i].result == ONCE_OK);
        EXPECT(heard.answers[i].arm == arms[i]);
        EXPECT(heard.answers[i].tag == i);
        EXPECT(!pthread_equal(heard.answers[i].thread, pthread_self()));
        EXPECT(pthread_equal(heard.answers[i].thread, heard.answers[0].thread));
    }
}

static void async__bytes_are_copied_when_submitted(void)
{
    heard_reset();
    uint8_t key[] = "key-1", tenant[] = "tenant-1", body[2000], point[] = "point", checkpoint[] = "checkpoint";
    memset(body, 'b', sizeof body);
    gate_close();
    struct once_request claim = { .verb = ONCE_VERB_CLAIM, .claim = { .tenant = { tenant, 8 }, .key = { key, 5 } } };
    once_result r = submit(&claim, 0);
    memset(key, 'x', 5);
    memset(tenant, 'x', 8);
    gate_open();
    CHECK(r == ONCE_OK && heard_all(1));
    const struct once_reply *found = do_lookup_in(ONCE_LIT("tenant-1"), ONCE_LIT("key-1"));
    CHECK(found->arm == ONCE_ARM_FOUND);
    struct once_grant grant = found->record.grant;
    gate_close();
    struct once_request advance = { .verb = ONCE_VERB_ADVANCE,
                                    .grant = grant,
                                    .advance = { { point, 5 }, { checkpoint, 10 } } };
    r = submit(&advance, 1);
    memset(point, 'x', 5);
    memset(checkpoint, 'x', 10);
    gate_open();
    CHECK(r == ONCE_OK && heard_all(2));
    gate_close();
    struct once_request finish = { .verb = ONCE_VERB_FINISH,
                                   .grant = grant,
                                   .outcome = { .state = ONCE_STATE_UNKNOWN, .body = { body, sizeof body } } };
    r = submit(&finish, 2);
    memset(body, 'x', sizeof body);
    gate_open();
    CHECK(r == ONCE_OK && heard_all(3));
    found = do_lookup_in(ONCE_LIT("tenant-1"), ONCE_LIT("key-1"));
    EXPECT(span_equal(found->record.recovery_point, ONCE_LIT("point")));
    EXPECT(span_equal(found->record.checkpoint, ONCE_LIT("checkpoint")));
    EXPECT(found->record.body.len == sizeof body && found->record.body.ptr[0] == 'b');
}

static void async__answers_come_in_the_order_of_submission(void)
{
    enum { COUNT = 24 };
    heard_reset();
    gate_close();
    once_result r = ONCE_OK;
    for (int i = 0; i < COUNT; i++)
        r = r == ONCE_OK ? submit_claim(numbered("k", i), 0, i) : r;
    gate_open();
    CHECK(r == ONCE_OK && heard_all(COUNT));
    for (int i = 0; i < COUNT; i++) {
        EXPECT(heard.answers[i].tag == i);
        EXPECT(heard.answers[i].arm == ONCE_ARM_EXECUTE);
    }
}

static void K1__of_many_submitted_at_once_one_executes(void)
{
    enum { COUNT = 24 };
    heard_reset();
    gate_close();
    once_result r = ONCE_OK;
    for (int i = 0; i < COUNT; i++)
        r = r == ONCE_OK ? submit_claim(A, 0, i) : r;
    gate_open();
    CHECK(r == ONCE_OK && heard_all(COUNT));
    EXPECT(count_arm(ONCE_ARM_EXECUTE) == 1);
    EXPECT(count_arm(ONCE_ARM_IN_PROGRESS) == COUNT - 1);
}

/* What one holder submits without waiting in between takes effect in that order, and each
 * is told so, also where the step they were in has to be settled (K10). */
static void K10__advances_and_finish_of_one_batch_are_each_done(void)
{
    for (int round = 0; round < 6; round++) { /* a store that loses answers loses some of these */
        heard_reset();
        once_span key = numbered("k", round);
        struct once_grant grant = granted(.key = key);
        for (int i = 0; i < round % 3; i++)
            do_lookup(key); /* another step is the third one */
        gate_close();
        struct once_request requests[] = {
            { .verb = ONCE_VERB_ADVANCE, .grant = grant, .advance = { ONCE_LIT("one"), ONCE_LIT("1") } },
            { .verb = ONCE_VERB_ADVANCE, .grant = grant, .advance = { ONCE_LIT("two"), ONCE_LIT("2") } },
            { .verb = ONCE_VERB_FINISH, .grant = grant, .outcome = { .state = ONCE_STATE_SUCCEEDED, .status = 7 } },
        };
        once_result r = ONCE_OK;
        for (int i = 0; i < (int)LENGTH(requests); i++)
            r = r == ONCE_OK ? submit(&requests[i], i) : r;
        gate_open();
        CHECK(r == ONCE_OK && heard_all(LENGTH(requests)));
        for (size_t i = 0; i < LENGTH(requests); i++) {
            EXPECT(heard.answers[i].result == ONCE_OK);
            EXPECT(heard.answers[i].arm == ONCE_ARM_DONE);
        }
        EXPECT(do_lookup(key)->record.status == 7);
    }
}

static void K10__release_and_the_next_claim_of_one_batch_both_work(void)
{
    for (int round = 0; round < 6; round++) {
        heard_reset();
        once_span key = numbered("k", round);
        struct once_grant grant = granted(.key = key);
        for (int i = 0; i < round % 3; i++)
            do_lookup(key); /* another step is the third one */
        gate_close();
        once_result r = submit(&(struct once_request){ .verb = ONCE_VERB_RELEASE, .grant = grant }, 0);
        if (r == ONCE_OK)
            r = submit_claim(key, 0, 1);
        gate_open();
        CHECK(r == ONCE_OK && heard_all(2));
        EXPECT(heard.answers[0].arm == ONCE_ARM_DONE);
        EXPECT(heard.answers[1].arm == ONCE_ARM_EXECUTE);
    }
}

static void K10__release_into_doubt_and_the_next_claim_of_one_batch_both_work(void)
{
    for (int round = 0; round < 6; round++) {
        heard_reset();
        once_span key = numbered("k", round);
        granted(.key = key, .lease_ms = 1000);
        clock_advance(1000);
        struct once_grant grant = granted(.key = key, .takeover = ONCE_TAKEOVER_RERUN);
        for (int i = 0; i < round % 3; i++)
            do_lookup(key);
        gate_close();
        once_result r = submit(&(struct once_request){ .verb = ONCE_VERB_RELEASE, .grant = grant }, 0);
        struct once_request claim = { .verb = ONCE_VERB_CLAIM,
                                      .claim = { .key = key, .takeover = ONCE_TAKEOVER_PROBE } };
        if (r == ONCE_OK)
            r = submit(&claim, 1);
        gate_open();
        CHECK(r == ONCE_OK && heard_all(2));
        EXPECT(heard.answers[0].arm == ONCE_ARM_DONE);
        EXPECT(heard.answers[1].arm == ONCE_ARM_PROBE);
    }
}

static void async__full_queue_says_busy_and_nothing_is_called_back(void)
{
    enum { ROOM = 4 };
    heard_reset();
    reopen_with((struct once_options){ .queue_len = ROOM });
    gate_close();
    once_result fits = ONCE_OK;
    for (int i = 0; i < ROOM; i++)
        fits = fits == ONCE_OK ? submit_claim(numbered("k", i), 0, i) : fits;
    struct once_error err = { .result = ONCE_OK };
    struct once_request over = { .verb = ONCE_VERB_CLAIM, .claim = { .key = ONCE_LIT("over") } };
    once_result full = once_submit(suite.once, &over, hear, &tags[99], &err);
    struct once_claim claim = { .key = ONCE_LIT("over") };
    struct once_reply reply;
    once_result sync = once_claim(suite.once, &claim, &reply, NULL);
    once_reply_release(&reply);
    gate_open();
    EXPECT(fits == ONCE_OK && full == ONCE_BUSY && sync == ONCE_BUSY && err.result == ONCE_BUSY);
    CHECK(heard_all(ROOM));
    EXPECT(do_lookup(ONCE_LIT("over"))->arm == ONCE_ARM_ABSENT);
    EXPECT(do_stats().busy == 2);
    EXPECT(heard_count() == ROOM);
    EXPECT(submit_claim(ONCE_LIT("over"), 0, 0) == ONCE_OK); /* there is room again */
    CHECK(heard_all(ROOM + 1));
}

static void async__invalid_requests_are_refused_and_not_called_back(void)
{
    heard_reset();
    struct once_grant grant = granted(.key = A);
    const struct once_request requests[] = {
        { .verb = 0 },
        { .verb = (enum once_verb)(ONCE_VERB_FORGET + 1) },
        { .verb = ONCE_VERB_CLAIM },
        { .verb = ONCE_VERB_EXTEND, .grant = grant, .extend = { -1 } },
        { .verb = ONCE_VERB_ADVANCE, .grant = grant },
        { .verb = ONCE_VERB_FINISH, .grant = grant },
        { .verb = ONCE_VERB_LOOKUP },
        { .verb = ONCE_VERB_RESOLVE, .resolve = { .key = A, .verdict = ONCE_VERDICT_RELEASE } },
        { .verb = ONCE_VERB_FORGET, .forget = { .key = A } },
    };
    for (size_t i = 0; i < LENGTH(requests); i++)
        EXPECT(submit(&requests[i], (int)i) == ONCE_INVALID);
    do_lookup(A);
    EXPECT(heard_count() == 0);
}

static void finish_it(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    (void)arg, (void)result, (void)err;
    struct once_request finish = { .verb = ONCE_VERB_FINISH,
                                   .grant = reply->record.grant,
                                   .outcome = { .state = ONCE_STATE_SUCCEEDED } };
    EXPECT(submit(&finish, 0) == ONCE_OK);
    once_reply_release(reply);
}

static void async__callback_may_submit_more(void)
{
    heard_reset();
    struct once_request claim = { .verb = ONCE_VERB_CLAIM, .claim = { .key = A } };
    CHECK(once_submit(suite.once, &claim, finish_it, NULL, NULL) == ONCE_OK);
    CHECK(heard_all(1));
    EXPECT(heard.answers[0].arm == ONCE_ARM_DONE);
    EXPECT(do_claim(.key = A)->arm == ONCE_ARM_REPLAY);
}

/* ------------------------------------------------------------------ polling */

static bool is_readable(void)
{
    struct pollfd fd = { .fd = once_eventfd(suite.once), .events = POLLIN };
    return poll(&fd, 1, 0) == 1;
}

static void async__polled_completions_wait_for_dispatch(void)
{
    enum { COUNT = 5 };
    heard_reset();
    reopen_with((struct once_options){ .poll = true });
    EXPECT(once_eventfd(suite.once) >= 0 && !is_readable());
    EXPECT(once_dispatch(suite.once, 10) == 0);
    for (int i = 0; i < COUNT; i++)
        CHECK(submit_claim(numbered("k", i), 0, i) == ONCE_OK);
    do_lookup(A);
    do_lookup(A); /* in a later step than they were: they are answered */
    EXPECT(heard_count() == 0);
    EXPECT(is_readable());
    EXPECT(once_dispatch(suite.once, 1) == 1 && heard_count() == 1);
    EXPECT(is_readable()); /* there is more */
    EXPECT(once_dispatch(suite.once, 0) == 0 && heard_count() == 1);
    EXPECT(is_readable());
    EXPECT(once_dispatch(suite.once, 100) == COUNT - 1 && heard_count() == COUNT);
    EXPECT(!is_readable());
    for (int i = 0; i < COUNT; i++) {
        EXPECT(heard.answers[i].tag == i && heard.answers[i].arm == ONCE_ARM_EXECUTE);
        EXPECT(pthread_equal(heard.answers[i].thread, pthread_self()));
    }
}

static void async__exact_dispatch_leaves_no_stale_readiness_for_long(void)
{
    heard_reset();
    reopen_with((struct once_options){ .poll = true });
    CHECK(submit_claim(A, 0, 0) == ONCE_OK);
    do_lookup(A);
    do_lookup(A);
    EXPECT(once_dispatch(suite.once, 1) == 1);
    EXPECT(once_dispatch(suite.once, 1) == 0);
    EXPECT(!is_readable());
}

static void async__what_a_dispatch_submitted_is_taken_up_when_it_ends(void)
{
    enum { COUNT = 5 };
    heard_reset();
    reopen_with((struct once_options){ .poll = true });
    for (int i = 0; i < COUNT; i++) {
        struct once_request claim = { .verb = ONCE_VERB_CLAIM, .claim = { .key = numbered("k", i) } };
        CHECK(once_submit(suite.once, &claim, finish_it, NULL, NULL) == ONCE_OK);
    }
    for (size_t count = 1; heard_count() < COUNT && count > 0;) /* nobody else wakes the engine */
        count = dispatch_some();
    EXPECT(heard_count() == COUNT && count_arm(ONCE_ARM_DONE) == COUNT);
}

static void claim_another(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    (void)result, (void)err;
    int number = *(const int *)arg;
    once_result r = ONCE_BUSY;
    for (int tries = 0; r == ONCE_BUSY && tries < 120000; tries++) {
        if (tries > 0)
            usleep(1000);
        r = submit_claim(numbered("more", number), 0, number);
    }
    EXPECT(r == ONCE_OK);
    once_reply_release(reply);
}

/* Who finds the queue full may try again: somebody is at work on it, also while the callbacks of a dispatch run. */
static void async__a_dispatch_may_submit_more_than_the_queue_holds(void)
{
    enum { QUEUE = 4, COUNT = 3 * QUEUE };
    int numbers[COUNT];
    heard_reset();
    reopen_with((struct once_options){ .poll = true, .queue_len = QUEUE });
    for (int i = 0; i < COUNT; i++) {
        numbers[i] = i;
        struct once_request claim = { .verb = ONCE_VERB_CLAIM, .claim = { .key = numbered("k", i) } };
        CHECK(once_submit(suite.once, &claim, claim_another, &numbers[i], NULL) == ONCE_OK);
        do_lookup(A);
        do_lookup(A); /* in a later step than it was: it is answered, and waits for the dispatch */
    }
    for (size_t count = 1; heard_count() < COUNT && count > 0;)
        count = dispatch_some();
    EXPECT(heard_count() == COUNT && count_arm(ONCE_ARM_EXECUTE) == COUNT);
}

/* ------------------------------------------------------------------ closing */

static void close_and_forget(void)
{
    once_close(suite.once);
    suite.once = NULL;
}

static void async__close_answers_everything(void)
{
    enum { COUNT = 40 };
    heard_reset();
    gate_close();
    once_result r = ONCE_OK;
    for (int i = 0; i < COUNT; i++)
        r = r == ONCE_OK ? submit_claim(numbered("k", i), 0, i) : r;
    gate_open();
    close_and_forget();
    CHECK(r == ONCE_OK);
    EXPECT(heard_count() == COUNT && count_arm(ONCE_ARM_EXECUTE) == COUNT);
    reopen();
    for (int i = 0; i < COUNT; i++)
        EXPECT(do_lookup(numbered("k", i))->arm == ONCE_ARM_FOUND);
}

static void async__close_dispatches_what_nobody_polled(void)
{
    enum { COUNT = 20 };
    heard_reset();
    reopen_with((struct once_options){ .poll = true });
    for (int i = 0; i < COUNT; i++)
        CHECK(submit_claim(numbered("k", i), 0, i) == ONCE_OK);
    close_and_forget();
    EXPECT(heard_count() == COUNT && count_arm(ONCE_ARM_EXECUTE) == COUNT);
}

static void async__close_answers_claims_that_wait(void)
{
    heard_reset();
    granted(.key = A);
    for (int i = 0; i < 5; i++)
        CHECK(submit_claim(A, FOR_EVER_MS, i) == ONCE_OK);
    do_lookup(A); /* they are waiting now */
    EXPECT(heard_count() == 0);
    close_and_forget();
    EXPECT(heard_count() == 5 && count_arm(ONCE_ARM_IN_PROGRESS) == 5);
}

static void submit_again(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    (void)result, (void)err;
    once_reply_release(reply);
    struct once_request look = { .verb = ONCE_VERB_LOOKUP, .lookup = { .key = ONCE_LIT("a") } };
    if (once_submit(*(struct once **)arg, &look, hear, &tags[0], NULL) != ONCE_OK)
        tags[1] = 1000; /* refused: fine as well */
}

/* In a process of its own, since it may end badly: a callback that does what callbacks are
 * for must not bring the program down only because the handle is being closed. */
static void async__callback_may_submit_while_the_handle_is_closed(void)
{
    heard_reset();
    close_and_forget();
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        struct once *once = NULL;
        struct once_options options = { .poll = true, .shared = sut.shared, .seal_keys = suite.options.seal_keys };
        struct once_request look = { .verb = ONCE_VERB_LOOKUP, .lookup = { .key = ONCE_LIT("a") } };
        if (once_open(suite.url, &options, &once, NULL) != ONCE_OK ||
            once_submit(once, &look, submit_again, &once, NULL) != ONCE_OK)
            _exit(2);
        once_close(once);
        _exit(heard_count() == 1 || tags[1] == 1000 ? 0 : 3);
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ------------------------------------------------------------------ waiting claims */

static void wait__gets_the_outcome_when_the_holder_finishes(void)
{
    heard_reset();
    struct once_grant grant = granted(.key = A);
    for (int i = 0; i < 4; i++)
        CHECK(submit_claim(A, FOR_EVER_MS, i) == ONCE_OK);
    do_lookup(A);
    EXPECT(heard_count() == 0);
    do_extend(grant, 0); /* not an end */
    EXPECT(heard_count() == 0);
    succeed(grant, ONCE_LIT("body"));
    CHECK(heard_all(4));
    EXPECT(count_arm(ONCE_ARM_REPLAY) == 4);
    for (int i = 0; i < 4; i++) {
        EXPECT(heard.answers[i].fence == grant.fence && heard.answers[i].body_len == 4);
        EXPECT(heard.answers[i].body_sum == heard.answers[0].body_sum);
    }
}

/* The claim is told to wait and the outcome comes, both in one step. */
static void wait__hears_of_an_outcome_in_the_same_batch(void)
{
    heard_reset();
    struct once_grant grant = granted(.key = A);
    gate_close();
    once_result r = submit_claim(A, FOR_EVER_MS, 0);
    struct once_request finish = { .verb = ONCE_VERB_FINISH,
                                   .grant = grant,
                                   .outcome = { .state = ONCE_STATE_SUCCEEDED, .body = ONCE_LIT("body") } };
    if (r == ONCE_OK)
        r = submit(&finish, 1);
    gate_open();
    CHECK(r == ONCE_OK && heard_all(2));
    EXPECT(count_arm(ONCE_ARM_DONE) == 1 && count_arm(ONCE_ARM_REPLAY) == 1);
}

static void wait__becomes_the_executor_when_the_holder_releases(void)
{
    heard_reset();
    struct once_grant grant = granted(.key = A);
    for (int i = 0; i < 5; i++)
        CHECK(submit_claim(A, FOR_EVER_MS, i) == ONCE_OK);
    do_lookup(A);
    CHECK(do_release(grant)->arm == ONCE_ARM_DONE);
    CHECK(heard_all(1));
    EXPECT(count_arm(ONCE_ARM_EXECUTE) == 1);
    do_lookup(A);
    EXPECT(heard_count() == 1); /* the others wait for that one */
    struct once_grant next = do_lookup(A)->record.grant;
    EXPECT(next.fence > grant.fence);
    succeed(next, ONCE_LIT("x"));
    CHECK(heard_all(5));
    EXPECT(count_arm(ONCE_ARM_EXECUTE) == 1 && count_arm(ONCE_ARM_REPLAY) == 4);
}

static void wait__becomes_the_next_attempt_after_a_retryable_failure(void)
{
    heard_reset();
    struct once_grant grant = granted(.key = A);
    CHECK(submit_claim(A, FOR_EVER_MS, 0) == ONCE_OK);
    do_lookup(A);
    do_finish(grant, .state = ONCE_STATE_FAILED, .retryable = true, .status = 1);
    CHECK(heard_all(1));
    EXPECT(count_arm(ONCE_ARM_EXECUTE) == 1 && heard.answers[0].fence > grant.fence);
}

static void wait__gets_the_word_of_an_operator(void)
{
    heard_reset();
    granted(.key = A, .lease_ms = FOR_EVER_MS);
    CHECK(submit_claim(A, FOR_EVER_MS, 0) == ONCE_OK);
    do_lookup(A);
    EXPECT(heard_count() == 0);
    gate_close(); /* so that the waiting claim does not look in between */
    clock_advance(FOR_EVER_MS);
    struct once_request verdict = { .verb = ONCE_VERB_RESOLVE,
                                    .resolve = { .key = A,
                                                 .verdict = ONCE_VERDICT_DONE,
                                                 .reason = ONCE_LIT("r"),
                                                 .outcome = { .state = ONCE_STATE_SUCCEEDED } } };
    once_result r = submit(&verdict, 1);
    gate_open();
    CHECK(r == ONCE_OK && heard_all(2));
    if (!sut.shared) { /* there it may have come first, and escalated */
        EXPECT(count_arm(ONCE_ARM_DONE) == 1);
        EXPECT(count_arm(ONCE_ARM_REPLAY) == 1);
    }
}

static void wait__gives_up_and_says_in_progress(void)
{
    granted(.key = A);
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    const struct once_reply *reply = do_claim(.key = A, .wait_ms = 30);
    clock_gettime(CLOCK_MONOTONIC, &end);
    EXPECT(reply->arm == ONCE_ARM_IN_PROGRESS);
    EXPECT(reply->retry_after_ms == ONCE_LEASE_MS_DEFAULT);
    EXPECT((end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000 >= 29);
}

static void wait__takes_over_when_the_lease_ends(void)
{
    reopen_with_real_clock();
    struct once_grant grant = granted(.key = A, .lease_ms = 30);
    const struct once_reply *reply = do_claim(.key = A, .wait_ms = PATIENCE_S * 1000, .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(reply->arm == ONCE_ARM_EXECUTE && reply->record.attempt == 2);
    EXPECT(reply->record.claimed_at >= do_lookup(A)->record.created_at + 30);
    EXPECT(do_extend(grant, 0)->arm == ONCE_ARM_FENCED);
}

static void wait__is_not_for_what_can_be_answered_now(void)
{
    succeed(granted(.key = ONCE_LIT("done"), .fingerprint = print_of(1)), ONCE_LIT("x"));
    granted(.key = ONCE_LIT("running"), .fingerprint = print_of(1));
    do_finish(granted(.key = ONCE_LIT("unknown"), .fingerprint = print_of(1)), .state = ONCE_STATE_UNKNOWN);
    static const struct {
        const char *key;
        uint8_t print;
        enum once_arm arm;
    } rows[] = {
        { "done", 1, ONCE_ARM_REPLAY },     { "done", 2, ONCE_ARM_MISMATCH }, { "running", 2, ONCE_ARM_MISMATCH },
        { "unknown", 1, ONCE_ARM_UNKNOWN }, { "new", 1, ONCE_ARM_EXECUTE },
    };
    for (size_t i = 0; i < LENGTH(rows); i++)
        EXPECT_ROW(rows[i].key, do_claim(.key = span_str(rows[i].key), .fingerprint = print_of(rows[i].print),
                                         .wait_ms = PATIENCE_S * 1000)
                                        ->arm == rows[i].arm);
}

static void wait__waiters_are_bounded(void)
{
    heard_reset();
    reopen_with((struct once_options){ .waiter_len = 2 });
    struct once_grant grant = granted(.key = A);
    for (int i = 0; i < 2; i++) {
        CHECK(submit_claim(A, FOR_EVER_MS, i) == ONCE_OK);
        do_lookup(A);
    }
    EXPECT(heard_count() == 0);
    CHECK(submit_claim(A, FOR_EVER_MS, 2) == ONCE_OK);
    CHECK(heard_all(1)); /* no room to wait: answered at once */
    EXPECT(heard.answers[0].tag == 2 && heard.answers[0].arm == ONCE_ARM_IN_PROGRESS);
    succeed(grant, ONCE_LIT("x"));
    CHECK(heard_all(3));
    EXPECT(count_arm(ONCE_ARM_REPLAY) == 2);
}

static void wait__for_one_record_does_not_hear_of_another(void)
{
    heard_reset();
    struct once_grant grants[8];
    for (int i = 0; i < 8; i++) {
        grants[i] = granted(.key = numbered("k", i));
        CHECK(submit_claim(numbered("k", i), FOR_EVER_MS, i) == ONCE_OK);
        do_lookup(A); /* it is waiting now */
    }
    for (int i = 7; i >= 0; i--) {
        succeed(grants[i], ONCE_LIT("x"));
        CHECK(heard_all((size_t)(8 - i)));
        EXPECT(heard.answers[7 - i].tag == i && heard.answers[7 - i].fence == grants[i].fence);
    }
}

const struct suite_case async_cases[] = {
    CASE(async__every_verb_is_answered_on_the_engines_thread),
    CASE(async__bytes_are_copied_when_submitted),
    CASE(async__answers_come_in_the_order_of_submission),
    CASE(K1__of_many_submitted_at_once_one_executes),
    CASE(K10__advances_and_finish_of_one_batch_are_each_done),
    CASE(K10__release_and_the_next_claim_of_one_batch_both_work),
    CASE(K10__release_into_doubt_and_the_next_claim_of_one_batch_both_work),
    CASE(async__full_queue_says_busy_and_nothing_is_called_back),
    CASE(async__invalid_requests_are_refused_and_not_called_back),
    CASE(async__callback_may_submit_more),
    CASE(async__polled_completions_wait_for_dispatch),
    CASE(async__exact_dispatch_leaves_no_stale_readiness_for_long),
    CASE(async__what_a_dispatch_submitted_is_taken_up_when_it_ends),
    CASE(async__a_dispatch_may_submit_more_than_the_queue_holds),
    CASE(async__close_answers_everything),
    CASE(async__close_dispatches_what_nobody_polled),
    CASE(async__close_answers_claims_that_wait),
    CASE(async__callback_may_submit_while_the_handle_is_closed),
    CASE(wait__gets_the_outcome_when_the_holder_finishes),
    CASE(wait__hears_of_an_outcome_in_the_same_batch),
    CASE(wait__becomes_the_executor_when_the_holder_releases),
    CASE(wait__becomes_the_next_attempt_after_a_retryable_failure),
    CASE(wait__gets_the_word_of_an_operator),
    CASE(wait__gives_up_and_says_in_progress),
    CASE(wait__takes_over_when_the_lease_ends),
    CASE(wait__is_not_for_what_can_be_answered_now),
    CASE(wait__waiters_are_bounded),
    CASE(wait__for_one_record_does_not_hear_of_another),
    { NULL, NULL },
};
