/*
 * test_threads.c - sixteen threads and asynchronous submitters on a few keys, for TSan.
 *
 * Every thread claims, extends, advances, finishes and replays at random; each key lives
 * through many lives, since its outcomes expire at once on a clock that the threads move.
 * What must hold however they interleave: a key has one holder at a time (K1), of one key
 * fences only grow (K2), a finish that was DONE is what all replay (K5).
 */
#include "once.h"

#include "../test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 16, KEYS = 8, ROUNDS = 300 };

static struct once *once;
static _Atomic int64_t now_ms = 1700000000000;
static atomic_int holders[KEYS]; /* executing right now, by their own account */
static _Atomic uint64_t newest[KEYS];
static atomic_int wrong, executions, replays, fenced, answers, submitted;

static once_time read_clock(void *arg)
{
    (void)arg;
    return atomic_load(&now_ms);
}

static void read_boot(void *arg, uint8_t id[16])
{
    (void)arg;
    memset(id, 3, 16);
}

static const struct once_clock test_clock = { .wall = read_clock, .steady = read_clock, .boot = read_boot };

static once_span key_of(int number)
{
    static const char names[KEYS][2] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    return (once_span){ (const uint8_t *)names[number], 1 };
}

static void expect(bool right)
{
    if (!right)
        atomic_fetch_add(&wrong, 1);
}

static void raise_newest(int key, uint64_t fence)
{
    uint64_t seen = atomic_load(&newest[key]);
    while (seen < fence && !atomic_compare_exchange_weak(&newest[key], &seen, fence))
        ;
}

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* The holder's part. Its lease is long and the clock moves slowly: nobody takes over. */
static void execute(int key, struct once_grant grant, unsigned *random)
{
    struct once_reply reply;
    expect(atomic_fetch_add(&holders[key], 1) == 0);
    atomic_fetch_add(&executions, 1);
    if (next_random(random) % 2 == 0) {
        expect(once_extend(once, grant, 0, &reply, NULL) == ONCE_OK && reply.arm == ONCE_ARM_DONE);
        once_reply_release(&reply);
    }
    if (next_random(random) % 2 == 0) {
        expect(once_advance(once, grant, ONCE_LIT("point"), ONCE_LIT("cp"), &reply, NULL) == ONCE_OK &&
               reply.arm == ONCE_ARM_DONE);
        once_reply_release(&reply);
    }
    expect(atomic_fetch_sub(&holders[key], 1) == 1);
    struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED,
                                    .status = (int32_t)grant.fence,
                                    .body = { (const uint8_t *)&grant.fence, sizeof grant.fence } };
    bool release = next_random(random) % 8 == 0;
    once_result r =
        release ? once_release(once, grant, &reply, NULL) : once_finish(once, grant, &outcome, &reply, NULL);
    expect(r == ONCE_OK && reply.arm == ONCE_ARM_DONE);
    once_reply_release(&reply);
    r = once_extend(once, grant, 0, &reply, NULL); /* over: the grant is worth nothing now */
    expect(r == ONCE_OK && reply.arm == ONCE_ARM_FENCED);
    atomic_fetch_add(&fenced, 1);
    once_reply_release(&reply);
}

static void *hammer(void *arg)
{
    unsigned random = (unsigned)(uintptr_t)arg * 7919u + 1;
    for (int round = 0; round < ROUNDS; round++) {
        int key = (int)(next_random(&random) % KEYS);
        uint64_t before = atomic_load(&newest[key]);
        struct once_claim claim = { .key = key_of(key),
                                    .lease_ms = ONCE_LEASE_MS_MAX,
                                    .retention_ms = 20,
                                    .wait_ms = next_random(&random) % 3 == 0 ? 50 : 0 };
        struct once_reply reply;
        if (once_claim(once, &claim, &reply, NULL) != ONCE_OK) {
            expect(false);
            continue;
        }
        if (reply.arm == ONCE_ARM_EXECUTE) {
            expect(reply.record.grant.fence > before);
            raise_newest(key, reply.record.grant.fence);
            execute(key, reply.record.grant, &random);
        } else if (reply.arm == ONCE_ARM_REPLAY) {
            uint64_t body = 0;
            expect(reply.record.body.len == sizeof body);
            if (reply.record.body.len == sizeof body)
                memcpy(&body, reply.record.body.ptr, sizeof body);
            expect(body == reply.record.grant.fence && reply.record.status == (int32_t)body);
            atomic_fetch_add(&replays, 1);
        } else {
            expect(reply.arm == ONCE_ARM_IN_PROGRESS);
        }
        once_reply_release(&reply);
        atomic_fetch_add(&now_ms, 1);
    }
    return NULL;
}

static void on_answer(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    (void)arg;
    (void)err;
    expect(result == ONCE_OK &&
           (reply->arm == ONCE_ARM_FOUND || reply->arm == ONCE_ARM_ABSENT || reply->arm == ONCE_ARM_FENCED));
    once_reply_release(reply);
    atomic_fetch_add(&answers, 1);
}

/* Looks, and finishes with grants that were never given. */
static void *submit_all(void *arg)
{
    unsigned random = (unsigned)(uintptr_t)arg + 99;
    for (int round = 0; round < 3 * ROUNDS; round++) {
        struct once_request look = { .verb = ONCE_VERB_LOOKUP,
                                     .lookup = { .key = key_of((int)(next_random(&random) % KEYS)) } };
        struct once_request finish = { .verb = ONCE_VERB_FINISH,
                                       .grant = { .record = { 1 }, .fence = 1 },
                                       .outcome = { .state = ONCE_STATE_FAILED } };
        once_result r = once_submit(once, round % 2 ? &look : &finish, on_answer, NULL, NULL);
        expect(r == ONCE_OK || r == ONCE_BUSY);
        atomic_fetch_add(&submitted, r == ONCE_OK);
        if (round % 16 == 0) {
            struct once_stats stats;
            expect(once_stats(once, &stats, NULL) == ONCE_OK);
            uint64_t removed = 0;
            bool more = false;
            expect(once_expire(once, 0, &removed, &more, NULL) == ONCE_OK);
            struct once_page page;
            expect(once_list(once, NULL, &page, NULL) == ONCE_OK && page.count <= KEYS);
            once_page_release(&page);
        }
    }
    return NULL;
}

static void hammer_over(const char *wrappers, bool shared)
{
    char directory[200], path[230], url[300];
    const char *tmp = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/once-threads-XXXXXX", tmp != NULL ? tmp : "/tmp");
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/store", directory);
    snprintf(url, sizeof url, "%ssqlite:%s?reserve=0", wrappers, path);
    struct once_options options = { .shared = shared, .clock = &test_clock, .waiter_len = 4 };
    CHECK(once_open(url, &options, &once, NULL) == ONCE_OK);
    atomic_store(&wrong, 0);
    atomic_store(&executions, 0);
    atomic_store(&replays, 0);
    atomic_store(&answers, 0);
    atomic_store(&submitted, 0);
    for (int i = 0; i < KEYS; i++)
        atomic_store(&newest[i], 0);
    pthread_t threads[THREADS + 2];
    for (int i = 0; i < THREADS + 2; i++)
        CHECK(pthread_create(&threads[i], NULL, i < THREADS ? hammer : submit_all, (void *)(uintptr_t)i) == 0);
    for (int i = 0; i < THREADS + 2; i++)
        pthread_join(threads[i], NULL);
    struct once_check_report report;
    EXPECT(once_check(once, NULL, NULL, &report, NULL) == ONCE_OK && report.problems == 0);
    once_close(once);
    EXPECT(atomic_load(&wrong) == 0);
    EXPECT(atomic_load(&executions) > KEYS && atomic_load(&replays) > 0);
    EXPECT(atomic_load(&answers) == atomic_load(&submitted));
    static const char *const suffixes[] = { "", "-wal", "-shm", "-lock", "-reserve" };
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char name[260];
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        unlink(name);
    }
    rmdir(directory);
}

static void K1__sixteen_threads_on_eight_keys_as_owner(void)
{
    hammer_over("", false);
}

static void K1__sixteen_threads_on_eight_keys_sharing_the_store(void)
{
    hammer_over("", true);
}

/* ------------------------------------------------------------------ once_run() */

enum { RUNS = 20, SHORT = 10 }; /* the first of them have leases that are renewed all the time */
static atomic_int works[RUNS];

static enum once_work do_nothing(struct once_attempt *attempt, void *arg, struct once_outcome *outcome)
{
    atomic_fetch_add((atomic_int *)arg, 1);
    bool held = once_attempt_is_held(attempt); /* of a short lease a busy machine may not let it be sure */
    expect(held || (atomic_int *)arg - works < SHORT);
    expect(once_attempt_advance(attempt, ONCE_LIT("p"), ONCE_LIT(""), NULL) == ONCE_OK);
    *outcome = (struct once_outcome){ .state = ONCE_STATE_SUCCEEDED, .status = 200 };
    return ONCE_WORK_ENDED;
}

static void *run_each(void *arg)
{
    (void)arg;
    for (int i = 0; i < RUNS; i++) {
        char key[16];
        int len = snprintf(key, sizeof key, "run%d", i);
        struct once_claim claim = { .key = { (const uint8_t *)key, (size_t)len },
                                    .lease_ms = i < SHORT ? 30 : 600000,
                                    .wait_ms = 600000 };
        struct once_reply reply;
        expect(once_run(once, &claim, NULL, do_nothing, &works[i], NULL, &reply, NULL) == ONCE_OK);
        expect(reply.arm == ONCE_ARM_REPLAY);
        once_reply_release(&reply);
    }
    return NULL;
}

static void K1__concurrent_runs_with_renewals_work_once_per_key(void)
{
    char directory[200], path[230], url[300];
    const char *tmp = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/once-threads-XXXXXX", tmp != NULL ? tmp : "/tmp");
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/store", directory);
    snprintf(url, sizeof url, "sqlite:%s?reserve=0", path);
    struct once_options options = { .clock = &test_clock };
    CHECK(once_open(url, &options, &once, NULL) == ONCE_OK);
    atomic_store(&wrong, 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, run_each, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    once_close(once);
    EXPECT(atomic_load(&wrong) == 0);
    for (int i = 0; i < RUNS; i++)
        EXPECT(atomic_load(&works[i]) == 1);
    static const char *const suffixes[] = { "", "-wal", "-shm", "-lock" };
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char name[260];
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        unlink(name);
    }
    rmdir(directory);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(K1__sixteen_threads_on_eight_keys_as_owner),
        TEST(K1__sixteen_threads_on_eight_keys_sharing_the_store),
        TEST(K1__concurrent_runs_with_renewals_work_once_per_key),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
