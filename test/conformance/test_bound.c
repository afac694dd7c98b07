/*
 * test_bound.c - once_sqlite_*: key, work and outcome in one transaction of the caller's.
 *
 * The effect is a row in the caller's own table. Whatever happens, there is one per key, or
 * none and no outcome either.
 */
#include "once.h"

#include "../test.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

static char directory[200], path[230];
static sqlite3 *db;
static struct once_sqlite *bound;
static struct once_error err;

static once_time now_ms;

static once_time read_clock(void *arg)
{
    (void)arg;
    return now_ms;
}

static void read_boot(void *arg, uint8_t id[16])
{
    (void)arg;
    memset(id, 7, 16);
}

static const struct once_clock test_clock = { .wall = read_clock, .steady = read_clock, .boot = read_boot };

/* ------------------------------------------------------------------ the caller's program */

static int sql(sqlite3 *handle, const char *text)
{
    return sqlite3_exec(handle, text, NULL, NULL, NULL);
}

static int count(sqlite3 *handle, const char *query)
{
    sqlite3_stmt *st = NULL;
    int n = -1;
    if (sqlite3_prepare_v2(handle, query, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        n = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return n;
}

static int effects(void)
{
    return count(db, "SELECT count(*) FROM orders");
}

static void remove_all(void)
{
    static const char *const suffixes[] = { "", "-journal", "-wal", "-shm", "-lock", "-reserve" };
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char name[260];
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        unlink(name);
    }
    rmdir(directory);
}

static void tear_down(void)
{
    once_sqlite_unbind(bound);
    sqlite3_close(db);
    bound = NULL;
    db = NULL;
    remove_all();
}

static void set_up(const char *journal_mode)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/once-bound-XXXXXX", tmp != NULL ? tmp : "/tmp");
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/shop.db", directory);
    now_ms = 1700000000000;
    char pragma[64];
    snprintf(pragma, sizeof pragma, "PRAGMA journal_mode = %s", journal_mode);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sql(db, pragma) == SQLITE_OK);
    CHECK(sql(db, "CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT)") == SQLITE_OK);
    CHECK(once_sqlite_bind(db, &test_clock, &bound, &err) == ONCE_OK);
}

static enum once_arm claim_with(struct once_sqlite *b, const char *key, struct once_grant *grant)
{
    struct once_claim claim = { .key = { (const uint8_t *)key, strlen(key) }, .lease_ms = 1000 };
    struct once_reply reply;
    CHECK(once_sqlite_claim(b, &claim, &reply, &err) == ONCE_OK);
    enum once_arm arm = reply.arm;
    if (grant != NULL)
        *grant = reply.record.grant;
    once_reply_release(&reply);
    return arm;
}

static enum once_arm finish_with(struct once_sqlite *b, struct once_grant grant, const char *body)
{
    struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED,
                                    .status = 200,
                                    .body = { (const uint8_t *)body, strlen(body) } };
    struct once_reply reply;
    CHECK(once_sqlite_finish(b, grant, &outcome, &reply, &err) == ONCE_OK);
    enum once_arm arm = reply.arm;
    once_reply_release(&reply);
    return arm;
}

static enum once_arm look(const char *key)
{
    struct once_reply reply;
    CHECK(once_sqlite_lookup(bound, (once_span){ NULL, 0 }, (once_span){ (const uint8_t *)key, strlen(key) }, &reply,
                             &err) == ONCE_OK);
    enum once_arm arm = reply.arm;
    once_reply_release(&reply);
    return arm;
}

/* One whole order: in a transaction of its own, up to its end. */
static enum once_arm order(const char *key, const char *end)
{
    struct once_grant grant;
    CHECK(sql(db, "BEGIN IMMEDIATE") == SQLITE_OK);
    enum once_arm arm = claim_with(bound, key, &grant);
    if (arm == ONCE_ARM_EXECUTE) {
        CHECK(sql(db, "INSERT INTO orders (what) VALUES ('book')") == SQLITE_OK);
        CHECK(finish_with(bound, grant, "ordered") == ONCE_ARM_DONE);
    }
    CHECK(sql(db, end) == SQLITE_OK);
    return arm;
}

/* ------------------------------------------------------------------ cases */

static void bound__key_work_and_outcome_commit_together(void)
{
    set_up("WAL");
    EXPECT(order("a", "COMMIT") == ONCE_ARM_EXECUTE);
    EXPECT(effects() == 1);
    for (int i = 0; i < 5; i++)
        EXPECT(order("a", "COMMIT") == ONCE_ARM_REPLAY);
    EXPECT(effects() == 1);
    EXPECT(order("b", "COMMIT") == ONCE_ARM_EXECUTE);
    EXPECT(effects() == 2);
    tear_down();
}

static void bound__key_work_and_outcome_roll_back_together(void)
{
    set_up("WAL");
    for (int i = 0; i < 3; i++) {
        EXPECT(order("a", "ROLLBACK") == ONCE_ARM_EXECUTE);
        EXPECT(effects() == 0);
    }
    EXPECT(sql(db, "BEGIN") == SQLITE_OK);
    EXPECT(look("a") == ONCE_ARM_ABSENT);
    EXPECT(sql(db, "COMMIT") == SQLITE_OK);
    EXPECT(order("a", "COMMIT") == ONCE_ARM_EXECUTE);
    EXPECT(order("a", "COMMIT") == ONCE_ARM_REPLAY);
    EXPECT(effects() == 1);
    tear_down();
}

static void K2__fence_of_a_rolled_back_claim_leaves_no_gap_in_the_promise(void)
{
    set_up("WAL");
    struct once_grant grants[2];
    CHECK(sql(db, "BEGIN IMMEDIATE") == SQLITE_OK);
    claim_with(bound, "a", &grants[0]);
    CHECK(sql(db, "COMMIT; BEGIN IMMEDIATE") == SQLITE_OK);
    now_ms += 1000;
    CHECK(claim_with(bound, "b", &grants[1]) == ONCE_ARM_EXECUTE);
    EXPECT(grants[1].fence > grants[0].fence);
    CHECK(sql(db, "ROLLBACK") == SQLITE_OK);
    CHECK(sql(db, "BEGIN IMMEDIATE") == SQLITE_OK);
    EXPECT(claim_with(bound, "b", &grants[1]) == ONCE_ARM_EXECUTE);
    EXPECT(grants[1].fence > grants[0].fence);
    CHECK(sql(db, "COMMIT") == SQLITE_OK);
    tear_down();
}

static void bound__nothing_works_outside_of_a_transaction(void)
{
    set_up("WAL");
    struct once_claim claim = { .key = ONCE_LIT("a") };
    struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED };
    struct once_grant grant = { .fence = 1 };
    struct once_reply reply;
    EXPECT(once_sqlite_claim(bound, &claim, &reply, &err) == ONCE_INVALID);
    once_reply_release(&reply);
    EXPECT(once_sqlite_finish(bound, grant, &outcome, &reply, &err) == ONCE_INVALID);
    once_reply_release(&reply);
    EXPECT(once_sqlite_advance(bound, grant, ONCE_LIT("p"), ONCE_LIT(""), &reply, &err) == ONCE_INVALID);
    once_reply_release(&reply);
    EXPECT(once_sqlite_release(bound, grant, &reply, &err) == ONCE_INVALID);
    once_reply_release(&reply);
    EXPECT(once_sqlite_lookup(bound, (once_span){ NULL, 0 }, ONCE_LIT("a"), &reply, &err) == ONCE_INVALID);
    once_reply_release(&reply);
    CHECK(sql(db, "BEGIN") == SQLITE_OK);
    struct once_sqlite *second = NULL;
    EXPECT(once_sqlite_bind(db, &test_clock, &second, &err) == ONCE_INVALID && second == NULL);
    CHECK(sql(db, "COMMIT") == SQLITE_OK);
    tear_down();
}

static void bound__claim_cannot_wait(void)
{
    set_up("WAL");
    CHECK(sql(db, "BEGIN IMMEDIATE") == SQLITE_OK);
    struct once_claim claim = { .key = ONCE_LIT("a"), .wait_ms = 1 };
    struct once_reply reply;
    EXPECT(once_sqlite_claim(bound, &claim, &reply, &err) == ONCE_INVALID);
    once_reply_release(&reply);
    CHECK(sql(db, "COMMIT") == SQLITE_OK);
    tear_down();
}

static void check_second_connection(const char *journal_mode)
{
    set_up(journal_mode);
    sqlite3 *other = NULL;
    struct once_sqlite *other_bound = NULL;
    CHECK(sqlite3_open(path, &other) == SQLITE_OK);
    CHECK(once_sqlite_bind(other, &test_clock, &other_bound, &err) == ONCE_OK);
    struct once_grant grant;
    CHECK(sql(db, "BEGIN IMMEDIATE") == SQLITE_OK);
    CHECK(claim_with(bound, "a", &grant) == ONCE_ARM_EXECUTE);
    EXPECT(sql(other, "BEGIN IMMEDIATE") == SQLITE_BUSY);
    CHECK(sql(db, "INSERT INTO orders (what) VALUES ('book')") == SQLITE_OK);
    CHECK(finish_with(bound, grant, "ordered") == ONCE_ARM_DONE);
    EXPECT(sql(other, "BEGIN IMMEDIATE") == SQLITE_BUSY);
    CHECK(sql(db, "COMMIT") == SQLITE_OK);
    CHECK(sql(other, "BEGIN IMMEDIATE") == SQLITE_OK);
    struct once_claim claim = { .key = ONCE_LIT("a") };
    struct once_reply reply;
    EXPECT(once_sqlite_claim(other_bound, &claim, &reply, &err) == ONCE_OK);
    EXPECT(reply.arm == ONCE_ARM_REPLAY && reply.record.grant.fence == grant.fence);
    EXPECT(reply.record.body.len == 7 && memcmp(reply.record.body.ptr, "ordered", 7) == 0);
    once_reply_release(&reply);
    struct once_grant later;
    EXPECT(claim_with(other_bound, "b", &later) == ONCE_ARM_EXECUTE && later.fence > grant.fence);
    CHECK(sql(other, "COMMIT") == SQLITE_OK);
    CHECK(sql(db, "BEGIN IMMEDIATE") == SQLITE_OK);
    EXPECT(claim_with(bound, "b", NULL) == ONCE_ARM_IN_PROGRESS);
    CHECK(sql(db, "COMMIT") == SQLITE_OK);
    once_sqlite_unbind(other_bound);
    sqlite3_close(other);
    tear_down();
}

static void K1__second_connection_is_kept_out_until_the_commit_then_replays(void)
{
    check_second_connection("WAL");
    check_second_connection("DELETE");
}

/* Plain BEGIN: two have read, one wrote. The other is refused, and nothing of it stays. */
static void K1__deferred_transactions_cannot_both_execute(void)
{
    set_up("WAL");
    sqlite3 *other = NULL;
    struct once_sqlite *other_bound = NULL;
    CHECK(sqlite3_open(path, &other) == SQLITE_OK);
    CHECK(once_sqlite_bind(other, &test_clock, &other_bound, &err) == ONCE_OK);
    CHECK(sql(db, "BEGIN") == SQLITE_OK && sql(other, "BEGIN") == SQLITE_OK);
    CHECK(count(other, "SELECT count(*) FROM orders") == 0);
    struct once_grant grant;
    CHECK(claim_with(bound, "a", &grant) == ONCE_ARM_EXECUTE);
    CHECK(finish_with(bound, grant, "ordered") == ONCE_ARM_DONE);
    CHECK(sql(db, "COMMIT") == SQLITE_OK);
    struct once_claim claim = { .key = ONCE_LIT("a") };
    struct once_reply reply;
    EXPECT(once_sqlite_claim(other_bound, &claim, &reply, &err) == ONCE_BUSY);
    once_reply_release(&reply);
    CHECK(sql(other, "ROLLBACK; BEGIN IMMEDIATE") == SQLITE_OK);
    EXPECT(claim_with(other_bound, "a", NULL) == ONCE_ARM_REPLAY);
    CHECK(sql(other, "COMMIT") == SQLITE_OK);
    once_sqlite_unbind(other_bound);
    sqlite3_close(other);
    tear_down();
}

static void bound__callers_transaction_survives_a_failing_call(void)
{
    set_up("WAL");
    struct once_grant grant;
    CHECK(sql(db, "BEGIN IMMEDIATE; INSERT INTO orders (what) VALUES ('before')") == SQLITE_OK);
    CHECK(claim_with(bound, "a", &grant) == ONCE_ARM_EXECUTE);
    int tables_before = count(db, "SELECT (SELECT count(*) FROM once_claim) + (SELECT count(*) FROM once_tail)");
    /* Fails on its second row, and leaves the first behind unless that is undone. */
    CHECK(sql(db, "CREATE TRIGGER trip BEFORE INSERT ON once_tail BEGIN SELECT RAISE(FAIL, 'tripped'); END") ==
          SQLITE_OK);
    struct once_claim claim = { .key = ONCE_LIT("b") };
    struct once_reply reply;
    err = (struct once_error){ .result = ONCE_OK };
    EXPECT(once_sqlite_claim(bound, &claim, &reply, &err) != ONCE_OK);
    EXPECT(err.result != ONCE_OK && reply.arm == ONCE_ARM_NONE);
    once_reply_release(&reply);
    EXPECT(!sqlite3_get_autocommit(db));
    EXPECT(count(db, "SELECT (SELECT count(*) FROM once_claim) + (SELECT count(*) FROM once_tail)") == tables_before);
    CHECK(sql(db, "DROP TRIGGER trip") == SQLITE_OK);
    EXPECT(look("b") == ONCE_ARM_ABSENT);
    /* Refusals that need no undoing. */
    EXPECT(once_sqlite_advance(bound, grant, ONCE_LIT("one"), ONCE_LIT(""), &reply, &err) == ONCE_OK);
    once_reply_release(&reply);
    EXPECT(once_sqlite_advance(bound, grant, ONCE_LIT("two"), ONCE_LIT(""), &reply, &err) == ONCE_OK);
    once_reply_release(&reply);
    EXPECT(once_sqlite_advance(bound, grant, ONCE_LIT("one"), ONCE_LIT(""), &reply, &err) == ONCE_INVALID);
    once_reply_release(&reply);
    struct once_outcome bad = { .state = ONCE_STATE_SUCCEEDED, .headers = ONCE_LIT("not a line") };
    EXPECT(once_sqlite_finish(bound, grant, &bad, &reply, &err) == ONCE_INVALID);
    once_reply_release(&reply);
    EXPECT(claim_with(bound, "b", NULL) == ONCE_ARM_EXECUTE);
    EXPECT(finish_with(bound, grant, "x") == ONCE_ARM_DONE);
    CHECK(sql(db, "COMMIT") == SQLITE_OK);
    EXPECT(effects() == 1);
    EXPECT(order("a", "COMMIT") == ONCE_ARM_REPLAY);
    EXPECT(sql(db, "PRAGMA integrity_check") == SQLITE_OK);
    tear_down();
}

static void bound__savepoint_of_the_callers_own_may_undo_a_call(void)
{
    set_up("WAL");
    CHECK(sql(db, "BEGIN IMMEDIATE; SAVEPOINT mine") == SQLITE_OK);
    CHECK(claim_with(bound, "a", NULL) == ONCE_ARM_EXECUTE);
    CHECK(claim_with(bound, "b", NULL) == ONCE_ARM_EXECUTE);
    CHECK(sql(db, "ROLLBACK TO mine") == SQLITE_OK);
    EXPECT(look("a") == ONCE_ARM_ABSENT);
    EXPECT(claim_with(bound, "a", NULL) == ONCE_ARM_EXECUTE);
    CHECK(sql(db, "RELEASE mine; COMMIT") == SQLITE_OK);
    CHECK(sql(db, "BEGIN") == SQLITE_OK);
    EXPECT(look("a") == ONCE_ARM_FOUND && look("b") == ONCE_ARM_ABSENT);
    CHECK(sql(db, "COMMIT") == SQLITE_OK);
    tear_down();
}

static void bound__phases_of_one_key_commit_one_by_one(void)
{
    set_up("WAL");
    struct once_grant grant;
    struct once_reply reply;
    CHECK(sql(db, "BEGIN IMMEDIATE") == SQLITE_OK);
    CHECK(claim_with(bound, "a", &grant) == ONCE_ARM_EXECUTE);
    CHECK(sql(db, "INSERT INTO orders (what) VALUES ('phase 1')") == SQLITE_OK);
    CHECK(once_sqlite_advance(bound, grant, ONCE_LIT("one"), ONCE_LIT("cp"), &reply, &err) == ONCE_OK);
    EXPECT(reply.arm == ONCE_ARM_DONE);
    once_reply_release(&reply);
    CHECK(sql(db, "COMMIT") == SQLITE_OK);
    CHECK(sql(db, "BEGIN IMMEDIATE; INSERT INTO orders (what) VALUES ('phase 2')") == SQLITE_OK);
    CHECK(once_sqlite_advance(bound, grant, ONCE_LIT("two"), ONCE_LIT(""), &reply, &err) == ONCE_OK);
    once_reply_release(&reply);
    CHECK(sql(db, "ROLLBACK") == SQLITE_OK); /* crashed: the point goes with the work (K11) */
    now_ms += 1000;
    CHECK(sql(db, "BEGIN IMMEDIATE") == SQLITE_OK);
    struct once_claim claim = { .key = ONCE_LIT("a"), .takeover = ONCE_TAKEOVER_RERUN };
    CHECK(once_sqlite_claim(bound, &claim, &reply, &err) == ONCE_OK);
    EXPECT(reply.arm == ONCE_ARM_EXECUTE && reply.record.attempt == 2);
    EXPECT(reply.record.recovery_point.len == 3 && memcmp(reply.record.recovery_point.ptr, "one", 3) == 0);
    EXPECT(reply.record.checkpoint.len == 2);
    once_reply_release(&reply);
    EXPECT(finish_with(bound, grant, "late") == ONCE_ARM_FENCED); /* K3 */
    CHECK(sql(db, "COMMIT") == SQLITE_OK);
    EXPECT(effects() == 1);
    tear_down();
}

static enum once_arm take_over_with(struct once_grant seen, struct once_grant *grant)
{
    struct once_take_over take_over = { .seen = seen };
    struct once_reply reply;
    CHECK(once_sqlite_take_over(bound, &take_over, &reply, &err) == ONCE_OK);
    enum once_arm arm = reply.arm;
    *grant = reply.record.grant;
    once_reply_release(&reply);
    return arm;
}

/* The takeover, the phase's work and the end commit together, or not at all. */
static void bound__taken_over_just_as_it_was_seen(void)
{
    set_up("WAL");
    struct once_grant seen, taken;
    struct once_claim claim = { .key = ONCE_LIT("a"), .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN };
    struct once_reply reply;
    CHECK(sql(db, "BEGIN IMMEDIATE") == SQLITE_OK);
    CHECK(once_sqlite_claim(bound, &claim, &reply, &err) == ONCE_OK);
    seen = reply.record.grant;
    once_reply_release(&reply);
    EXPECT(take_over_with(seen, &taken) == ONCE_ARM_FENCED);
    CHECK(sql(db, "COMMIT") == SQLITE_OK);
    now_ms += 1000;
    for (int i = 0; i < 2; i++) {
        CHECK(sql(db, "BEGIN IMMEDIATE") == SQLITE_OK);
        EXPECT(take_over_with(seen, &taken) == ONCE_ARM_EXECUTE && taken.fence > seen.fence);
        EXPECT(finish_with(bound, taken, "done") == ONCE_ARM_DONE);
        CHECK(sql(db, i == 0 ? "ROLLBACK" : "COMMIT") == SQLITE_OK);
    }
    CHECK(sql(db, "BEGIN IMMEDIATE") == SQLITE_OK);
    EXPECT(take_over_with(seen, &taken) == ONCE_ARM_FENCED);
    CHECK(sql(db, "COMMIT") == SQLITE_OK);
    tear_down();
}

static void bound__release_frees_the_key(void)
{
    set_up("WAL");
    struct once_grant grant;
    struct once_reply reply;
    CHECK(sql(db, "BEGIN IMMEDIATE") == SQLITE_OK);
    CHECK(claim_with(bound, "a", &grant) == ONCE_ARM_EXECUTE);
    EXPECT(once_sqlite_release(bound, grant, &reply, &err) == ONCE_OK && reply.arm == ONCE_ARM_DONE);
    once_reply_release(&reply);
    EXPECT(look("a") == ONCE_ARM_ABSENT);
    EXPECT(claim_with(bound, "a", NULL) == ONCE_ARM_EXECUTE);
    CHECK(sql(db, "COMMIT") == SQLITE_OK);
    tear_down();
}

static void bound__callers_own_tables_and_marks_are_left_alone(void)
{
    set_up("DELETE");
    CHECK(sql(db, "PRAGMA application_id = 77; PRAGMA user_version = 5; INSERT INTO orders (what) VALUES ('mine')") ==
          SQLITE_OK);
    once_sqlite_unbind(bound);
    bound = NULL;
    CHECK(once_sqlite_bind(db, &test_clock, &bound, &err) == ONCE_OK); /* again: nothing to create */
    EXPECT(order("a", "COMMIT") == ONCE_ARM_EXECUTE);
    EXPECT(count(db, "PRAGMA application_id") == 77);
    EXPECT(count(db, "PRAGMA user_version") == 5);
    EXPECT(effects() == 2);
    EXPECT(count(db, "SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE 'once_%' AND name NOT LIKE "
                     "'sqlite_%' AND name != 'orders'") == 0);
    EXPECT(count(db, "SELECT count(*) FROM pragma_journal_mode WHERE journal_mode = 'delete'") == 1);
    tear_down();
}

static void bound__newer_tables_are_refused(void)
{
    set_up("WAL");
    CHECK(sql(db, "UPDATE once_meta SET value = 999 WHERE name = 'schema'") == SQLITE_OK);
    struct once_sqlite *second = NULL;
    EXPECT(once_sqlite_bind(db, &test_clock, &second, &err) == ONCE_INVALID && second == NULL);
    tear_down();
}

/* A caller's database is no file of our own: once_open() must refuse it, or work over it
 * while its owner goes on writing. What it must never do is give a key away that the
 * caller's transaction has (K1), or a fence twice (K2). */
static void check_opened_as_own_file(bool shared)
{
    set_up("WAL");
    CHECK(order("before", "COMMIT") == ONCE_ARM_EXECUTE);
    char url[300];
    snprintf(url, sizeof url, "sqlite:%s", path);
    struct once *once = NULL;
    struct once_options options = { .shared = shared, .lock_wait_ms = 1, .clock = &test_clock };
    once_result r = once_open(url, &options, &once, &err);
    if (r != ONCE_OK) {
        EXPECT(r == ONCE_INVALID && err.text[0] != '\0'); /* refused clearly */
        tear_down();
        return;
    }
    struct once_claim claim = { .key = ONCE_LIT("before") };
    struct once_reply reply;
    EXPECT(once_claim(once, &claim, &reply, &err) == ONCE_OK && reply.arm == ONCE_ARM_REPLAY);
    once_reply_release(&reply);
    CHECK(order("meanwhile", "COMMIT") == ONCE_ARM_EXECUTE);
    claim.key = ONCE_LIT("meanwhile");
    EXPECT(once_claim(once, &claim, &reply, &err) == ONCE_OK);
    EXPECT(reply.arm == ONCE_ARM_REPLAY);
    once_reply_release(&reply);
    claim.key = ONCE_LIT("theirs");
    EXPECT(once_claim(once, &claim, &reply, &err) == ONCE_OK && reply.arm == ONCE_ARM_EXECUTE);
    once_reply_release(&reply);
    EXPECT(order("theirs", "COMMIT") == ONCE_ARM_IN_PROGRESS);
    once_close(once);
    tear_down();
}

static void K1__database_of_a_caller_is_not_opened_as_an_own_file_by_an_owner(void)
{
    check_opened_as_own_file(false);
}

static void K1__database_of_a_caller_is_not_opened_as_an_own_file_by_a_sharer(void)
{
    check_opened_as_own_file(true);
}

/* The same the other way round: a store that an owner has in its memory. */
static void K1__store_of_an_owner_is_not_bound_meanwhile(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/once-bound-XXXXXX", tmp != NULL ? tmp : "/tmp");
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/shop.db", directory);
    now_ms = 1700000000000;
    char url[300];
    snprintf(url, sizeof url, "sqlite:%s", path);
    struct once *once = NULL;
    struct once_options options = { .clock = &test_clock };
    CHECK(once_open(url, &options, &once, &err) == ONCE_OK);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    once_result r = once_sqlite_bind(db, &test_clock, &bound, &err);
    if (r == ONCE_OK) { /* then it has to be right */
        CHECK(sql(db, "BEGIN IMMEDIATE") == SQLITE_OK);
        CHECK(claim_with(bound, "a", NULL) == ONCE_ARM_EXECUTE);
        CHECK(sql(db, "COMMIT") == SQLITE_OK);
        struct once_claim claim = { .key = ONCE_LIT("a") };
        struct once_reply reply;
        EXPECT(once_claim(once, &claim, &reply, &err) == ONCE_OK);
        EXPECT(reply.arm == ONCE_ARM_IN_PROGRESS);
        once_reply_release(&reply);
    }
    once_close(once);
    tear_down();
}

/* K3: what a worker that was only thought dead wrote is refused with it. */
static void K3__guard_fails_when_the_grant_is_not_the_newest(void)
{
    set_up("WAL");
    struct once_grant stale, newer;
    struct once_claim again = { .key = ONCE_LIT("k"), .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN };
    struct once_reply reply;
    EXPECT(once_sqlite_guard(bound, (struct once_grant){ .fence = 1 }, &err) == ONCE_INVALID); /* no transaction */
    CHECK(sql(db, "BEGIN IMMEDIATE") == SQLITE_OK);
    CHECK(claim_with(bound, "k", &stale) == ONCE_ARM_EXECUTE);
    EXPECT(once_sqlite_guard(bound, stale, &err) == ONCE_OK);
    now_ms += 1001; /* a lease that is over is still held, until somebody takes over */
    EXPECT(once_sqlite_guard(bound, stale, &err) == ONCE_OK);
    CHECK(once_sqlite_claim(bound, &again, &reply, &err) == ONCE_OK && reply.arm == ONCE_ARM_EXECUTE);
    newer = reply.record.grant;
    once_reply_release(&reply);
    EXPECT(once_sqlite_guard(bound, stale, &err) == ONCE_INVALID && strncmp(err.text, "fenced: ", 8) == 0);
    EXPECT(once_sqlite_guard(bound, newer, &err) == ONCE_OK);
    CHECK(finish_with(bound, newer, "x") == ONCE_ARM_DONE);
    EXPECT(once_sqlite_guard(bound, newer, &err) == ONCE_INVALID && strncmp(err.text, "fenced: ", 8) == 0);
    memset(newer.record, 7, sizeof newer.record);
    EXPECT(once_sqlite_guard(bound, newer, &err) == ONCE_INVALID && strncmp(err.text, "fenced: ", 8) == 0);
    CHECK(sql(db, "COMMIT") == SQLITE_OK);
    tear_down();
}

static void bound__extend_and_list(void)
{
    set_up("DELETE");
    struct once_grant grant;
    struct once_reply reply;
    struct once_page page;
    EXPECT(once_sqlite_list(bound, NULL, &page, &err) == ONCE_INVALID); /* no transaction */
    CHECK(sql(db, "BEGIN IMMEDIATE") == SQLITE_OK);
    CHECK(claim_with(bound, "a", &grant) == ONCE_ARM_EXECUTE);
    CHECK(finish_with(bound, grant, "x") == ONCE_ARM_DONE);
    CHECK(claim_with(bound, "b", &grant) == ONCE_ARM_EXECUTE);
    now_ms += 900;
    CHECK(once_sqlite_extend(bound, grant, 5000, &reply, &err) == ONCE_OK && reply.arm == ONCE_ARM_DONE);
    EXPECT(reply.record.lease_until == now_ms + 5000);
    once_reply_release(&reply);
    EXPECT(once_sqlite_extend(bound, grant, -1, &reply, &err) == ONCE_INVALID);
    struct once_filter running = { .states = 1u << ONCE_STATE_RUNNING };
    CHECK(once_sqlite_list(bound, &running, &page, &err) == ONCE_OK);
    EXPECT(page.count == 1 && page.next == 0 && page.records[0].grant.fence == grant.fence &&
           page.records[0].lease_live);
    once_page_release(&page);
    struct once_filter first = { .limit = 1 }, much = { .limit = ONCE_LIST_LIMIT_MAX + 1 };
    CHECK(once_sqlite_list(bound, &first, &page, &err) == ONCE_OK);
    EXPECT(page.count == 1 && page.next != 0);
    once_page_release(&page);
    EXPECT(once_sqlite_list(bound, &much, &page, &err) == ONCE_INVALID);
    CHECK(sql(db, "COMMIT") == SQLITE_OK);
    tear_down();
}

/* The same database opened as a store derives the same keys. */
static void bound__child_key_is_the_stores(void)
{
    set_up("WAL");
    struct once_grant grant;
    char ours[ONCE_CHILD_KEY_LEN + 1], theirs[ONCE_CHILD_KEY_LEN + 1], url[250];
    CHECK(sql(db, "BEGIN IMMEDIATE") == SQLITE_OK);
    CHECK(claim_with(bound, "k", &grant) == ONCE_ARM_EXECUTE);
    CHECK(sql(db, "COMMIT") == SQLITE_OK);
    once_sqlite_child_key(bound, &grant, ONCE_LIT("charge"), ours);
    struct once *once = NULL;
    snprintf(url, sizeof url, "sqlite:%s", path);
    CHECK(once_open(url, &(struct once_options){ .shared = true }, &once, &err) == ONCE_OK);
    once_child_key(once, &grant, ONCE_LIT("charge"), theirs);
    EXPECT(strcmp(ours, theirs) == 0 && strlen(ours) == ONCE_CHILD_KEY_LEN);
    once_sqlite_child_key(bound, &grant, ONCE_LIT("refund"), ours);
    EXPECT(strcmp(ours, theirs) != 0);
    once_close(once);
    tear_down();
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(bound__key_work_and_outcome_commit_together),
        TEST(bound__key_work_and_outcome_roll_back_together),
        TEST(K2__fence_of_a_rolled_back_claim_leaves_no_gap_in_the_promise),
        TEST(bound__nothing_works_outside_of_a_transaction),
        TEST(bound__claim_cannot_wait),
        TEST(K1__second_connection_is_kept_out_until_the_commit_then_replays),
        TEST(K1__deferred_transactions_cannot_both_execute),
        TEST(bound__callers_transaction_survives_a_failing_call),
        TEST(bound__savepoint_of_the_callers_own_may_undo_a_call),
        TEST(bound__phases_of_one_key_commit_one_by_one),
        TEST(bound__taken_over_just_as_it_was_seen),
        TEST(bound__release_frees_the_key),
        TEST(bound__callers_own_tables_and_marks_are_left_alone),
        TEST(bound__newer_tables_are_refused),
        TEST(K1__database_of_a_caller_is_not_opened_as_an_own_file_by_an_owner),
        TEST(K1__database_of_a_caller_is_not_opened_as_an_own_file_by_a_sharer),
        TEST(K1__store_of_an_owner_is_not_bound_meanwhile),
        TEST(K3__guard_fails_when_the_grant_is_not_the_newest),
        TEST(bound__extend_and_list),
        TEST(bound__child_key_is_the_stores),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
