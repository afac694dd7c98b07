/*
 * test_operation.c - flows and a person's verdicts: which operation a fenced holder is answered for, and what
 * stays known after "not done".
 */
#include "../test.h"
#include "flow/flow.h"
#include "once_flow.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

static char path[200], url[220];
static sqlite3 *db;
static struct once_flow_db *flows;
static struct once_error err;
static struct once_flow_report report;
static int calls, phase_fails;

static once_step_end insert(struct once_local *local, void *arg)
{
    (void)arg;
    return once_local_next(local, ONCE_LIT("state"));
}

static once_step_end charge(struct once_call *call, void *arg)
{
    (void)arg;
    calls++;
    return once_call_answered(call, ONCE_LIT("answer"));
}

static once_step_end confirm(struct once_local *local, void *arg)
{
    (void)arg;
    if (phase_fails > 0) {
        phase_fails--;
        return once_local_fail(local, "not now");
    }
    struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED, .status = 201, .body = local->request };
    return once_local_finish(local, &outcome);
}

static const struct once_flow flow = {
    .name = "test",
    .steps = { ONCE_LOCAL("first", insert), ONCE_CALL("charge", charge, .callee = ONCE_CALLEE_OPAQUE),
               ONCE_LOCAL("second", confirm) },
    .lease_ms = 60000,
    .backoff_ms = 1,
    .backoff_ms_max = 1,
    .attempts_max = 2,
};

static void set_up(void)
{
    calls = phase_fails = 0;
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/once-operation-XXXXXX", tmp != NULL ? tmp : "/tmp");
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    snprintf(url, sizeof url, "sqlite:%s", path);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(once_flow_open_sqlite(db, &flows, &err) == ONCE_OK);
}

static void tear_down(void)
{
    static const char *const ends[] = { "", "-wal", "-shm", "-lock", "-reserve" };
    once_flow_close(flows);
    sqlite3_close(db);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char name[220];
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
}

static void resolve(enum once_verdict verdict)
{
    struct once *once = NULL;
    struct once_options options = { .shared = true };
    struct once_resolve word = { .key = ONCE_LIT("k"), .verdict = verdict, .reason = ONCE_LIT("a person looked") };
    struct once_reply reply;
    CHECK(once_open(url, &options, &once, &err) == ONCE_OK);
    CHECK(once_resolve(once, &word, &reply, &err) == ONCE_OK);
    EXPECT(reply.arm == ONCE_ARM_DONE);
    once_reply_release(&reply);
    once_close(once);
}

static enum once_arm run(const char *request, struct once_reply *reply)
{
    struct once_flow_input input = { .key = ONCE_LIT("k"), .request = { (const uint8_t *)request, strlen(request) } };
    struct once_flow_report own;
    CHECK(once_flow_run(&flow, flows, &input, NULL, &own, reply, &err) == ONCE_OK);
    return reply->arm;
}

/* K3, K5, K6: somebody is slow; meanwhile its key is ended by another. */
static void fenced__is_answered_for_its_own_operation_only(void)
{
    static const struct {
        const char *name;
        bool released;
        const char *request;
        enum once_arm arm;
    } rows[] = {
        { "taken over", false, "alice", ONCE_ARM_REPLAY },
        { "another request", true, "bob", ONCE_ARM_FENCED },
        { "the same request in another life", true, "alice", ONCE_ARM_FENCED },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        set_up();
        struct once_flow brief = flow;
        brief.lease_ms = 1;
        struct attempt a;
        struct once_reply late = { .arm = ONCE_ARM_NONE }, other;
        once_result r = ONCE_OK;
        report = (struct once_flow_report){ .executed = false };
        attempt_init(&a, &brief, flows, NULL, &report);
        a.key = ONCE_LIT("k");
        CHECK(attempt_enter(&a, &(struct attempt_entry){ .request = ONCE_LIT("alice") }, &r, &late, &err) ==
              ATTEMPT_CONTINUES);
        usleep(3000); /* its lease of a millisecond */
        if (rows[i].released)
            resolve(ONCE_VERDICT_RELEASE);
        EXPECT_ROW(rows[i].name, run(rows[i].request, &other) == ONCE_ARM_REPLAY && other.record.status == 201);
        once_reply_release(&other);
        EXPECT_ROW(rows[i].name, attempt_drive(&a, &late, &err) == ONCE_OK && report.fenced);
        EXPECT_ROW(rows[i].name, late.arm == rows[i].arm);
        EXPECT_ROW(rows[i].name, late.record.state == (rows[i].released ? ONCE_STATE_NONE : ONCE_STATE_SUCCEEDED));
        EXPECT_ROW(rows[i].name, late.record.body.len == (rows[i].released ? 0 : 5) && calls == 1);
        once_reply_release(&late);
        attempt_release(&a);
        tear_down();
    }
}

/* K10: that a call was answered is known, also after "not done" of the whole: its callee is not called again. */
static void escalated__a_kept_answer_stays(void)
{
    set_up();
    struct once_reply reply;
    phase_fails = 2;
    EXPECT(run("alice", &reply) == ONCE_ARM_IN_PROGRESS && calls == 1);
    once_reply_release(&reply);
    uint32_t escalated = 0;
    for (int i = 0; i < 1000 && escalated == 0; i++) {
        struct once_flow_round round = { .before = 0 };
        struct once_flow_step_report swept;
        usleep(2000);
        CHECK(once_flow_complete(&flow, flows, NULL, &round, &swept, &err) == ONCE_OK);
        escalated += swept.escalated;
    }
    EXPECT(escalated == 1 && calls == 1);
    EXPECT(run("alice", &reply) == ONCE_ARM_UNKNOWN);
    once_reply_release(&reply);
    resolve(ONCE_VERDICT_NOT_DONE);
    EXPECT(run("alice", &reply) == ONCE_ARM_REPLAY && reply.record.status == 201);
    once_reply_release(&reply);
    EXPECT(calls == 1);
    tear_down();
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(fenced__is_answered_for_its_own_operation_only),
        TEST(escalated__a_kept_answer_stays),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
