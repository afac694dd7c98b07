/*
 * test_sqlite_index.c - the key index of the embedded store over its sizes: segments, tail
 * and gap, in RAM and on disk, by turns on one file.
 *
 * Enough records to seal segments, so these are the largest tests of the unit suite.
 */
#include "once.h"
#include "store/sqlite/index.h"

#include "../test.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 2 * SQLITE_SEGMENT_LEN + 3000 };

static char dir[] = "/tmp/once-index-XXXXXX";
static char path[64], url[80];
static once_time now_ms;

static once_time test_now(void *arg)
{
    (void)arg;
    return now_ms;
}

static void test_boot(void *arg, uint8_t id[16])
{
    (void)arg;
    memset(id, 9, 16);
}

static const struct once_clock test_clock = { .wall = test_now, .steady = test_now, .boot = test_boot };

static void fresh_path(void)
{
    static int n;
    snprintf(path, sizeof path, "%s/%d.db", dir, n++);
    snprintf(url, sizeof url, "sqlite:%s", path);
    now_ms = 1700000000000;
}

static struct once *open_as(bool shared)
{
    struct once_options options = { .shared = shared, .clock = &test_clock, .queue_len = 65536 };
    struct once *once = NULL;
    struct once_error err;
    if (once_open(url, &options, &once, &err) != ONCE_OK)
        printf("# %s\n", err.text);
    return once;
}

static struct once_claim claim_of(int n, int64_t retention_ms, char key[24])
{
    int len = snprintf(key, 24, "key-%d", n);
    return (struct once_claim){ .key = { (const uint8_t *)key, (size_t)len }, .retention_ms = retention_ms };
}

static void on_finish(void *arg, once_result r, struct once_reply *reply, const struct once_error *err)
{
    (void)err;
    *(int *)arg += r == ONCE_OK && reply->arm == ONCE_ARM_DONE;
    once_reply_release(reply);
}

struct writing {
    struct once *once;
    int done;
};

static void on_claim(void *arg, once_result r, struct once_reply *reply, const struct once_error *err)
{
    (void)err;
    struct writing *w = arg;
    if (r == ONCE_OK && reply->arm == ONCE_ARM_EXECUTE) {
        struct once_request finish = { .verb = ONCE_VERB_FINISH,
                                       .grant = reply->record.grant,
                                       .outcome = { .state = ONCE_STATE_SUCCEEDED, .status = 7 } };
        if (once_submit(w->once, &finish, on_finish, &w->done, NULL) != ONCE_OK)
            abort();
    }
    once_reply_release(reply);
}

/* Claims and finishes the keys [from, to). Returns how many finishes were acknowledged. */
static int write_keys(bool shared, int from, int to, int64_t retention_ms)
{
    struct writing w = { .once = open_as(shared) };
    if (w.once == NULL)
        return -1;
    for (int n = from; n < to; n++) {
        char key[24];
        struct once_request request = { .verb = ONCE_VERB_CLAIM, .claim = claim_of(n, retention_ms, key) };
        while (once_submit(w.once, &request, on_claim, &w, NULL) == ONCE_BUSY)
            usleep(100);
    }
    once_close(w.once);
    return w.done;
}

/* Every `step`-th of the keys [from, to) is finished with what was stored. */
static bool all_replay(bool shared, int from, int to, int step)
{
    struct once *once = open_as(shared);
    bool good = once != NULL;
    for (int n = from; good && n < to; n += step) {
        char key[24];
        struct once_claim claim = claim_of(n, 0, key);
        struct once_reply reply;
        good = once_claim(once, &claim, &reply, NULL) == ONCE_OK && reply.arm == ONCE_ARM_REPLAY &&
               reply.record.status == 7;
        if (!good)
            printf("# key %d: %s\n", n, once_arm_name(reply.arm));
        once_reply_release(&reply);
    }
    once_close(once);
    return good;
}

static void print_problem(void *arg, const struct once_problem *p)
{
    (void)arg;
    printf("# %s fence %llu: %s\n", p->invariant, (unsigned long long)p->fence, p->text);
}

static uint64_t check_records(void)
{
    struct once *once = open_as(true);
    struct once_check_report report = { .problems = 1 };
    once_result r = once_check(once, print_problem, NULL, &report, NULL);
    once_close(once);
    return r == ONCE_OK && report.problems == 0 ? report.records : UINT64_MAX;
}

static long long ask(const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    long long value = -1;
    if (sqlite3_open(path, &db) == SQLITE_OK && sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        value = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return value;
}

static void index__what_an_owner_wrote_is_found_on_disk(void)
{
    fresh_path();
    CHECK(write_keys(false, 0, MANY, 0) == MANY);
    EXPECT(ask("SELECT count(*) FROM once_segment") == 2);
    EXPECT(ask("SELECT count(*) FROM once_tail") == 0);
    EXPECT(all_replay(true, 0, MANY, 97));
    EXPECT(all_replay(false, 0, MANY, 97));
    EXPECT(check_records() == MANY);
}

static void index__sharing_processes_take_the_gap_into_the_tail_and_seal_it(void)
{
    fresh_path();
    CHECK(write_keys(false, 0, 5000, 0) == 5000);
    CHECK(write_keys(true, 5000, 5100, 0) == 100);
    EXPECT(ask("SELECT count(*) FROM once_tail") == 5100);
    CHECK(write_keys(true, 5100, SQLITE_SEGMENT_LEN + 100, 0) == SQLITE_SEGMENT_LEN - 5000);
    EXPECT(ask("SELECT count(*) FROM once_segment") == 1);
    EXPECT(all_replay(true, 0, SQLITE_SEGMENT_LEN + 100, 61));
    EXPECT(all_replay(false, 0, SQLITE_SEGMENT_LEN + 100, 61));
    EXPECT(check_records() == SQLITE_SEGMENT_LEN + 100);
}

static void index__owner_killed_leaves_nothing_unfound(void)
{
    fresh_path();
    int pipe_fds[2];
    CHECK(pipe(pipe_fds) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) { /* writes, tells how much was acknowledged, and dies without closing */
        struct writing w = { .once = open_as(false) };
        for (int n = 0; n < 20000; n++) {
            char key[24];
            struct once_request request = { .verb = ONCE_VERB_CLAIM, .claim = claim_of(n, 0, key) };
            while (once_submit(w.once, &request, on_claim, &w, NULL) == ONCE_BUSY)
                usleep(100);
        }
        struct once_reply reply; /* answered after all before it */
        char key[24];
        struct once_claim last = claim_of(19999, 0, key);
        last.wait_ms = 60000;
        if (once_claim(w.once, &last, &reply, NULL) != ONCE_OK || write(pipe_fds[1], &w.done, sizeof w.done) < 0)
            _exit(1);
        kill(getpid(), SIGKILL);
    }
    int done = 0;
    CHECK(read(pipe_fds[0], &done, sizeof done) == sizeof done);
    waitpid(pid, NULL, 0);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    EXPECT(done == 20000);
    EXPECT(all_replay(true, 0, done, 37));
    EXPECT(check_records() == 20000);
    EXPECT(all_replay(false, 0, done, 37));
}

static void index__expiry_shrinks_segments_and_keeps_what_lives(void)
{
    fresh_path();
    CHECK(write_keys(false, 0, 12000, 1000) == 12000);
    CHECK(write_keys(false, 12000, SQLITE_SEGMENT_LEN + 3000, ONCE_NEVER) > 0);
    CHECK(write_keys(true, 30000, 30010, 1000) == 10);
    now_ms += 1000;
    for (int turn = 0; turn < 2; turn++) { /* first sharing, then owning */
        struct once *once = open_as(turn == 0);
        uint64_t total = 0, removed = 0;
        bool more = true;
        while (more && (turn == 1 || total < 6000)) {
            CHECK(once_expire(once, 1000, &removed, &more, NULL) == ONCE_OK);
            total += removed;
        }
        EXPECT(total == (turn == 0 ? 6000 : 6010));
        once_close(once);
        EXPECT(check_records() == SQLITE_SEGMENT_LEN + 3000 - 12000);
    }
    EXPECT(ask("SELECT count(*) FROM once_segment") == 1);
    EXPECT(all_replay(true, 12000, SQLITE_SEGMENT_LEN + 3000, 41));
    EXPECT(all_replay(false, 12000, SQLITE_SEGMENT_LEN + 3000, 41));
    /* K2: an expired key comes back with a larger fence than any before. */
    struct once *once = open_as(true);
    char key[24];
    struct once_claim claim = claim_of(0, 0, key);
    struct once_reply reply;
    CHECK(once_claim(once, &claim, &reply, NULL) == ONCE_OK);
    EXPECT(reply.arm == ONCE_ARM_EXECUTE);
    EXPECT(reply.record.attempt == 1);
    EXPECT(reply.record.grant.fence == SQLITE_SEGMENT_LEN + 3000 + 10 + 1);
    once_reply_release(&reply);
    once_close(once);
}

static void index__segments_disappear_when_all_of_them_expired(void)
{
    fresh_path();
    CHECK(write_keys(false, 0, SQLITE_SEGMENT_LEN + 10, 1000) == SQLITE_SEGMENT_LEN + 10);
    EXPECT(ask("SELECT count(*) FROM once_segment") == 1);
    now_ms += 1000;
    struct once *once = open_as(false);
    uint64_t removed = 0;
    for (bool more = true; more;)
        CHECK(once_expire(once, 10000, &removed, &more, NULL) == ONCE_OK);
    once_close(once);
    EXPECT(ask("SELECT count(*) FROM once_segment") == 0);
    EXPECT(ask("SELECT count(*) FROM once_segment_data") == 0);
    EXPECT(ask("SELECT count(*) FROM once_claim") == 0);
    EXPECT(check_records() == 0);
}

static void expire_all(bool shared)
{
    struct once *once = open_as(shared);
    uint64_t removed = 0;
    for (bool more = true; more;)
        CHECK(once_expire(once, 10000, &removed, &more, NULL) == ONCE_OK);
    once_close(once);
}

/* An owner that lives long: what expires before its segment is full never enters one. */
static void index__what_expired_before_it_was_sealed_leaves_nothing(void)
{
    fresh_path();
    struct writing w = { .once = open_as(false) };
    for (int turn = 0; turn < 3; turn++) {
        for (int n = 0; n < 8000; n++) {
            char key[24];
            struct once_request request = { .verb = ONCE_VERB_CLAIM, .claim = claim_of(turn * 8000 + n, 1000, key) };
            while (once_submit(w.once, &request, on_claim, &w, NULL) == ONCE_BUSY)
                usleep(100);
        }
        struct once_check_report report; /* answered after all that came before, but not the last finishes */
        CHECK(once_check(w.once, NULL, NULL, &report, NULL) == ONCE_OK);
        CHECK(once_check(w.once, NULL, NULL, &report, NULL) == ONCE_OK);
        now_ms += 1000;
        uint64_t removed = 0;
        for (bool more = true; more;)
            CHECK(once_expire(w.once, 10000, &removed, &more, NULL) == ONCE_OK);
    }
    once_close(w.once);
    EXPECT(w.done == 24000);
    expire_all(true);
    EXPECT(ask("SELECT count(*) FROM once_claim") == 0);
    EXPECT(ask("SELECT count(*) FROM once_segment") == 0);
    EXPECT(ask("SELECT count(*) FROM once_segment_data") == 0);
}

/* FAULT-14: a damaged bucket would hide its records. */
static void index__damaged_bucket_is_told_not_believed(void)
{
    fresh_path();
    CHECK(write_keys(false, 0, SQLITE_SEGMENT_LEN + 10, 0) == SQLITE_SEGMENT_LEN + 10);
    sqlite3 *db = NULL;
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "UPDATE once_segment_data SET entries = CAST(entries || x'00' AS BLOB)", NULL, NULL, NULL) ==
          SQLITE_OK);
    sqlite3_close(db);
    struct once *once = open_as(true);
    char key[24];
    struct once_claim claim = claim_of(7, 0, key);
    struct once_reply reply;
    EXPECT(once_claim(once, &claim, &reply, NULL) == ONCE_CORRUPT);
    once_reply_release(&reply);
    once_close(once);
}

static uint64_t attempts_by(bool shared)
{
    struct once *once = open_as(shared);
    struct once_stats stats = { .attempts = 0 };
    once_result r = once_stats(once, &stats, NULL);
    once_close(once);
    return r == ONCE_OK ? stats.attempts : UINT64_MAX;
}

/* Asked for with every look at the metrics. Where no record has two of them it is exact, also after expiry. */
static void index__attempts_are_counted_by_segment(void)
{
    fresh_path();
    CHECK(write_keys(false, 0, SQLITE_SEGMENT_LEN + 1000, 1000) == SQLITE_SEGMENT_LEN + 1000);
    CHECK(write_keys(false, SQLITE_SEGMENT_LEN + 1000, MANY, 0) == MANY - SQLITE_SEGMENT_LEN - 1000);
    EXPECT(ask("SELECT count(*) FROM once_segment") == 2);
    EXPECT(attempts_by(false) == MANY);
    EXPECT(attempts_by(true) == MANY);
    now_ms += 1000;
    struct once *once = open_as(false);
    uint64_t removed = 0;
    bool more = false;
    CHECK(once_expire(once, 5000, &removed, &more, NULL) == ONCE_OK && removed == 5000);
    once_close(once);
    EXPECT(attempts_by(false) == MANY - 5000);
    EXPECT(attempts_by(true) == MANY - 5000);
    /* It is the segments' word: a walk would find these gone. */
    sqlite3 *db = NULL;
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "DELETE FROM once_claim WHERE fence BETWEEN 6000 AND 6999", NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
    EXPECT(attempts_by(false) == MANY - 5000);
}

/* What is unknown is asked for again and again, by whoever has to be told: it must not take a walk of the store. */
static void index__what_is_unknown_is_listed_without_a_walk(void)
{
    fresh_path();
    struct once *once = open_as(false);
    char key[24];
    struct once_claim claim = claim_of(-1, 0, key);
    struct once_reply reply;
    CHECK(once_claim(once, &claim, &reply, NULL) == ONCE_OK && reply.arm == ONCE_ARM_EXECUTE);
    struct once_grant grant = reply.record.grant;
    once_reply_release(&reply);
    struct once_outcome unknown = { .state = ONCE_STATE_UNKNOWN };
    CHECK(once_finish(once, grant, &unknown, &reply, NULL) == ONCE_OK);
    once_reply_release(&reply);
    once_close(once);
    CHECK(write_keys(false, 0, MANY, 0) == MANY); /* more than one listing looks at */
    once = open_as(false);
    struct once_filter filter = { .states = 1u << ONCE_STATE_UNKNOWN };
    struct once_page page = { 0 };
    CHECK(once_list(once, &filter, &page, NULL) == ONCE_OK);
    EXPECT(page.count == 1);
    EXPECT(page.next == 0);
    once_page_release(&page);
    once_close(once);
    EXPECT(check_records() == MANY + 1);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(index__what_an_owner_wrote_is_found_on_disk),
        TEST(index__sharing_processes_take_the_gap_into_the_tail_and_seal_it),
        TEST(index__owner_killed_leaves_nothing_unfound),
        TEST(index__expiry_shrinks_segments_and_keeps_what_lives),
        TEST(index__segments_disappear_when_all_of_them_expired),
        TEST(index__what_expired_before_it_was_sealed_leaves_nothing),
        TEST(index__damaged_bucket_is_told_not_believed),
        TEST(index__what_is_unknown_is_listed_without_a_walk),
        TEST(index__attempts_are_counted_by_segment),
    };
    if (mkdtemp(dir) == NULL)
        return 1;
    int result = test_main(argc, argv, tests, sizeof tests / sizeof *tests);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) != 0 || result != 0;
}
