/*
 * test_fault.c - a flow on an SQLite database whose memory and disk fail: the n-th call, n = 1, 2, 3 ...
 *
 * Whatever the attempt says then: after the database was opened anew, a later one comes to an end; each phase's
 * writes are there once, or not and nothing after them either; an opaque callee was called once at most; and
 * what was acknowledged is what is replayed (K4, K5, K10, FACT-2, FAULT-7, FAULT-12, FAULT-13).
 */
#include "once_flow.h"

#include "../fault/inject.h"
#include "../test.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[200], path[230];
static sqlite3 *db;
static struct once_flow_db *flows;
static struct once_error err;
static int calls;

static once_step_end first(struct once_local *local, void *arg)
{
    (void)arg;
    if (sqlite3_exec(local->sqlite, "INSERT INTO effect VALUES ('first')", NULL, NULL, NULL) != SQLITE_OK)
        return once_local_fail(local, sqlite3_errmsg(local->sqlite));
    return once_local_next(local, local->request);
}

static once_step_end charge(struct once_call *call, void *arg)
{
    (void)arg;
    calls++;
    return once_call_answered(call, ONCE_LIT("paid"));
}

static once_step_end second(struct once_local *local, void *arg)
{
    (void)arg;
    if (sqlite3_exec(local->sqlite, "INSERT INTO effect VALUES ('second')", NULL, NULL, NULL) != SQLITE_OK)
        return once_local_fail(local, sqlite3_errmsg(local->sqlite));
    struct once_outcome done = { .state = ONCE_STATE_SUCCEEDED, .status = 201, .body = local->answer };
    return once_local_finish(local, &done);
}

static struct once_flow flow = {
    .name = "test",
    .steps = { ONCE_LOCAL("first", first), ONCE_CALL("charge", charge, .intent = true), ONCE_LOCAL("second", second) },
    .backoff_ms = 1,
    .backoff_ms_max = 1,
    .crashes_max = 255,
};

static int count(const char *what)
{
    sqlite3_stmt *st = NULL;
    int n = -1;
    if (sqlite3_prepare_v2(db, "SELECT count(*) FROM effect WHERE what = ?", -1, &st, NULL) == SQLITE_OK &&
        sqlite3_bind_text(st, 1, what, -1, SQLITE_STATIC) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        n = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return n;
}

static void open_all(const char *journal)
{
    char pragma[100];
    snprintf(pragma, sizeof pragma, "PRAGMA journal_mode = %s; PRAGMA synchronous = FULL", journal);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, pragma, NULL, NULL, NULL) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "CREATE TABLE IF NOT EXISTS effect (what TEXT)", NULL, NULL, NULL) == SQLITE_OK);
    CHECK(once_flow_open_sqlite(db, &flows, &err) == ONCE_OK);
}

static void close_all(void)
{
    once_flow_close(flows);
    sqlite3_close(db);
}

static void remove_all(void)
{
    static const char *const suffixes[] = { "", "-journal", "-wal", "-shm" };
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char name[250];
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        unlink(name);
    }
}

/* True if it was acknowledged as done. */
static bool run(enum once_arm *arm)
{
    struct once_flow_input input = { .key = ONCE_LIT("k"), .request = ONCE_LIT("request") };
    struct once_reply reply;
    once_result r = once_flow_run(&flow, flows, &input, NULL, NULL, &reply, &err);
    *arm = r == ONCE_OK ? reply.arm : ONCE_ARM_NONE;
    bool done = *arm == ONCE_ARM_REPLAY && reply.record.state == ONCE_STATE_SUCCEEDED;
    EXPECT(!done || (reply.record.status == 201 && reply.record.body.len == 4));
    once_reply_release(&reply);
    return done;
}

static enum once_arm run_to_end(void)
{
    enum once_arm arm = ONCE_ARM_NONE;
    for (long i = 0; i < 100000; i++)
        if (run(&arm) || arm == ONCE_ARM_UNKNOWN)
            return arm;
    return ONCE_ARM_NONE;
}

struct ends {
    int places, done, unknown, acknowledged;
};

/* One attempt with the n-th call failing, then those after it. False: there was no n-th. */
static bool fail_once(const char *journal, const struct inject_plan *plan, struct ends *ends)
{
    char row[100];
    snprintf(row, sizeof row, "%s, kind %d, error %d, n = %lu", journal, (int)plan->kind, plan->error, plan->nth);
    open_all(journal);
    calls = 0;
    enum once_arm arm = ONCE_ARM_NONE;
    flow.lease_ms = 1; /* what is left behind is not held for long */
    inject_arm(plan);
    inject_begin();
    bool acknowledged = run(&arm);
    inject_end();
    bool reached = inject_disarm();
    EXPECT_ROW(row, arm != ONCE_ARM_UNKNOWN || calls > 0);
    close_all();
    open_all(journal);
    int before = calls;
    flow.lease_ms = 60000;
    arm = run_to_end();
    EXPECT_ROW(row, arm == ONCE_ARM_REPLAY || arm == ONCE_ARM_UNKNOWN);
    EXPECT_ROW(row, calls <= 1);
    EXPECT_ROW(row, count("first") == 1);
    EXPECT_ROW(row, count("second") == (arm == ONCE_ARM_REPLAY));
    EXPECT_ROW(row, arm == ONCE_ARM_UNKNOWN || calls == 1);
    EXPECT_ROW(row, !acknowledged || (arm == ONCE_ARM_REPLAY && calls == before));
    ends->places++;
    ends->done += arm == ONCE_ARM_REPLAY;
    ends->unknown += arm == ONCE_ARM_UNKNOWN;
    ends->acknowledged += acknowledged;
    close_all();
    remove_all();
    return reached;
}

static void sweep(enum inject_kind kind, int error, unsigned long step)
{
    const char *tmp = getenv("TMPDIR"), *size = getenv("SIZE");
    static const char *const journals[] = { "DELETE", "WAL" };
    step = size != NULL && strtoul(size, NULL, 10) > 1 ? 1 : step;
    snprintf(folder, sizeof folder, "%s/once-flow-fault-XXXXXX", tmp != NULL ? tmp : "/tmp");
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/shop.db", folder);
    for (int i = 0; i < 2; i++) {
        struct ends ends = { 0 };
        struct inject_plan plan = { .kind = kind, .nth = 1, .span = INJECT_ONE, .error = error };
        while (fail_once(journals[i], &plan, &ends) && plan.nth < 10000)
            plan.nth += step;
        printf("# %s: %d places, %d done, %d unknown, %d acknowledged by the attempt itself\n", journals[i],
               ends.places, ends.done, ends.unknown, ends.acknowledged);
        EXPECT(ends.places > 3);
    }
    rmdir(folder);
}

static void memory__fails(void)
{
    sweep(INJECT_ALLOC, ENOMEM, 13);
}

static void sync__fails(void)
{
    sweep(INJECT_SYNC, EIO, 1);
}

static void write__fails(void)
{
    sweep(INJECT_WRITE, EIO, 1);
}

static void write__finds_the_disk_full(void)
{
    sweep(INJECT_WRITE, ENOSPC, 1);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(memory__fails),
        TEST(sync__fails),
        TEST(write__fails),
        TEST(write__finds_the_disk_full),
    };
    inject_init();
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
