/*
 * test_flow.c - once_flow.h itself: what a table may be, what the assertions stop, and what an attempt does
 * after each way in which the one before it ended. On an SQLite database; the shop's tests have both.
 */
#include "once_flow.h"

#include "../test.h"

#include "flow/flow.h"

#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[200];
static sqlite3 *db;
static struct once_flow_db *flows;
static struct once_error err;
static struct once_flow_report report;

/* ------------------------------------------------------------------ memory */

static atomic_long fail_at; /* the allocation that fails; 0: none */
static atomic_long allocations;

static bool fails(void)
{
    return fail_at != 0 && atomic_fetch_add(&allocations, 1) + 1 == fail_at;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t number, size_t size)
{
    return fails() ? NULL : __real_calloc(number, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

/* ------------------------------------------------------------------ time */

static atomic_long slept_s; /* the machine's sleep, which only CLOCK_BOOTTIME counts */

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    int rc = __real_clock_gettime(id, out);
    if (rc == 0 && id == CLOCK_BOOTTIME)
        out->tv_sec += atomic_load(&slept_s);
    return rc;
}

/* ------------------------------------------------------------------ a program with flows */

/* What the steps do next, and have done. */
static struct {
    int phase_fails, call_loses, call_refuses; /* so many times */
    int probe_says;                            /* 1 it happened, 2 it did not, 3 cannot tell */
    int phases, calls, probes, effects;
    bool held, held_after_sleep;
    char key[ONCE_CHILD_KEY_LEN + 1];
    char answer[40], state[40];
} world;

static once_span text(const char *s)
{
    return (once_span){ (const uint8_t *)s, strlen(s) };
}

static void exec(const char *sql)
{
    CHECK(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK);
}

static int count(const char *query)
{
    sqlite3_stmt *st = NULL;
    int n = -1;
    if (sqlite3_prepare_v2(db, query, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        n = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return n;
}

static once_step_end insert(struct once_local *local, void *arg)
{
    (void)arg;
    world.phases++;
    sqlite3_exec(local->sqlite, "INSERT INTO effect VALUES ('first')", NULL, NULL, NULL);
    return once_local_next(local, text("state 1"));
}

static once_step_end charge(struct once_call *call, void *arg)
{
    (void)arg;
    world.calls++;
    EXPECT(world.key[0] == '\0' || strcmp(world.key, call->key) == 0);
    world.held = once_call_is_held(call);
    atomic_store(&slept_s, 3600);
    world.held_after_sleep = once_call_is_held(call);
    atomic_store(&slept_s, 0);
    snprintf(world.key, sizeof world.key, "%s", call->key);
    if (world.call_refuses > 0) {
        world.call_refuses--;
        return once_call_not_sent(call, "refused");
    }
    world.effects++;
    if (world.call_loses > 0) {
        world.call_loses--;
        return once_call_lost(call, "lost");
    }
    return once_call_answered(call, text("answer 1"));
}

static once_step_end probe(struct once_call *call, void *arg)
{
    (void)arg;
    world.probes++;
    if (world.probe_says == 1)
        return once_call_answered(call, text("answer of the probe"));
    return world.probe_says == 2 ? once_call_not_sent(call, "not there") : once_call_lost(call, "cannot tell");
}

static once_step_end confirm(struct once_local *local, void *arg)
{
    (void)arg;
    world.phases++;
    sqlite3_exec(local->sqlite, "INSERT INTO effect VALUES ('second')", NULL, NULL, NULL);
    if (world.phase_fails > 0) {
        world.phase_fails--;
        return once_local_fail(local, "not now");
    }
    snprintf(world.answer, sizeof world.answer, "%.*s", (int)local->answer.len, (const char *)local->answer.ptr);
    snprintf(world.state, sizeof world.state, "%.*s", (int)local->state.len, (const char *)local->state.ptr);
    struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED, .status = 201, .body = local->request };
    return once_local_finish(local, &outcome);
}

static struct once_flow flow_of(enum once_callee callee, bool intent)
{
    return (struct once_flow){
        .name = "test",
        .steps = { ONCE_LOCAL("first", insert),
                   ONCE_CALL("charge", charge, .callee = callee, .intent = intent,
                             .probe = callee == ONCE_CALLEE_PROBEABLE ? probe : NULL),
                   ONCE_LOCAL("second", confirm) },
        .lease_ms = 60000,
        .backoff_ms = 1,
        .backoff_ms_max = 1,
    };
}

static enum once_arm run(const struct once_flow *flow, struct once_reply *reply)
{
    struct once_flow_input input = { .key = ONCE_LIT("k"), .request = ONCE_LIT("request") };
    once_result r = once_flow_run(flow, flows, &input, NULL, &report, reply, &err);
    if (r != ONCE_OK)
        printf("# %s\n", err.text);
    CHECK(r == ONCE_OK);
    return reply->arm;
}

/* Runs it to an arm, and forgets the rest. */
static enum once_arm run_once(const struct once_flow *flow)
{
    struct once_reply reply;
    enum once_arm arm = run(flow, &reply);
    once_reply_release(&reply);
    return arm;
}

/* As often as it takes. */
static enum once_arm run_to_end(const struct once_flow *flow)
{
    for (int i = 0; i < 1000; i++) {
        struct once_reply reply;
        enum once_arm arm = run(flow, &reply);
        bool later = arm == ONCE_ARM_IN_PROGRESS || (arm == ONCE_ARM_REPLAY && reply.record.retryable);
        once_reply_release(&reply);
        if (!later)
            return arm;
        usleep(1000);
    }
    return ONCE_ARM_NONE;
}

static struct once_record *look(void)
{
    static struct once_reply reply;
    once_reply_release(&reply);
    exec("BEGIN");
    CHECK(flows->ops->lookup(flows, (once_span){ NULL, 0 }, ONCE_LIT("k"), &reply, &err) == ONCE_OK);
    exec("ROLLBACK");
    return &reply.record;
}

static void set_up(void)
{
    memset(&world, 0, sizeof world);
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/once-flow-XXXXXX", tmp != NULL ? tmp : "/tmp");
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    exec("PRAGMA synchronous = OFF; CREATE TABLE effect (what TEXT)");
    CHECK(once_flow_open_sqlite(db, &flows, &err) == ONCE_OK);
}

static void tear_down(void)
{
    once_flow_close(flows);
    sqlite3_close(db);
    unlink(path);
    flows = NULL;
}

/* An attempt that ends without a word: a child that dies in a step. */
static void die_in(const struct once_flow *flow)
{
    once_flow_close(flows);
    sqlite3_close(db);
    pid_t child = fork();
    if (child == 0) {
        sqlite3_open(path, &db);
        struct once_reply reply;
        struct once_flow_input input = { .key = ONCE_LIT("k"), .request = ONCE_LIT("request") };
        struct once_flow brief = *flow;
        brief.lease_ms = 1;
        if (once_flow_open_sqlite(db, &flows, &err) == ONCE_OK &&
            once_flow_run(&brief, flows, &input, NULL, NULL, &reply, &err) == ONCE_OK)
            _exit(1);
        _exit(2);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT(WIFSIGNALED(status) || WEXITSTATUS(status) == 9);
    usleep(2000); /* its lease of a millisecond */
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(once_flow_open_sqlite(db, &flows, &err) == ONCE_OK);
}

static once_step_end die_in_call(struct once_call *call, void *arg)
{
    (void)call, (void)arg;
    _exit(9);
}

static once_step_end die_in_phase(struct once_local *local, void *arg)
{
    (void)local, (void)arg;
    _exit(9);
}

/* ------------------------------------------------------------------ the table */

static void table__is_checked(void)
{
    static const struct {
        const char *name;
        bool good;
        struct once_flow flow;
    } rows[] = {
        { "plain", true, { .name = "f", .steps = { ONCE_LOCAL("a", insert) } } },
        { "no name", false, { .steps = { ONCE_LOCAL("a", insert) } } },
        { "no steps", false, { .name = "f" } },
        { "a name in capitals", false, { .name = "F", .steps = { ONCE_LOCAL("a", insert) } } },
        { "a step's name with a slash", false, { .name = "f", .steps = { ONCE_LOCAL("a/b", insert) } } },
        { "a step without a name's letters", false, { .name = "f", .steps = { ONCE_LOCAL("", insert) } } },
        { "a name that is too long",
          false,
          { .name = "abcdefghijklmnopqrstuvwxyz01234", .steps = { ONCE_LOCAL("a", insert) } } },
        { "the longest names",
          true,
          { .name = "abcdefghijklmnopqrstuvwxyz0123",
            .steps = { ONCE_LOCAL("abcdefghijklmnopqrstuvwxyz0123", insert) } } },
        { "the beginning's name", false, { .name = "f", .steps = { ONCE_LOCAL("received", insert) } } },
        { "two of a name", false, { .name = "f", .steps = { ONCE_LOCAL("a", insert), ONCE_LOCAL("a", insert) } } },
        { "neither", false, { .name = "f", .steps = { { .name = "a" } } } },
        { "both", false, { .name = "f", .steps = { { .name = "a", .local = insert, .call = charge } } } },
        { "a call at the end", false, { .name = "f", .steps = { ONCE_CALL("a", charge) } } },
        { "call after call",
          false,
          { .name = "f", .steps = { ONCE_CALL("a", charge), ONCE_CALL("b", charge), ONCE_LOCAL("c", insert) } } },
        { "a call first",
          true,
          { .name = "f", .steps = { ONCE_CALL("a", charge, .intent = true), ONCE_LOCAL("b", insert) } } },
        { "probeable without a probe",
          false,
          { .name = "f",
            .steps = { ONCE_CALL("a", charge, .callee = ONCE_CALLEE_PROBEABLE), ONCE_LOCAL("b", insert) } } },
        { "a probe that is not asked",
          false,
          { .name = "f", .steps = { ONCE_CALL("a", charge, .probe = probe), ONCE_LOCAL("b", insert) } } },
        { "a local phase with intent",
          false,
          { .name = "f", .steps = { { .name = "a", .local = insert, .intent = true } } } },
        { "a lease of less than nothing",
          false,
          { .name = "f", .lease_ms = -1, .steps = { ONCE_LOCAL("a", insert) } } },
        { "a lease of days",
          false,
          { .name = "f", .lease_ms = ONCE_LEASE_MS_MAX + 1, .steps = { ONCE_LOCAL("a", insert) } } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        once_result r = once_flow_check(&rows[i].flow, &err);
        EXPECT_ROW(rows[i].name, (r == ONCE_OK) == rows[i].good);
        EXPECT_ROW(rows[i].name, r == ONCE_OK || (r == ONCE_INVALID && err.text[0] != '\0'));
    }
}

static void table__has_a_limit(void)
{
    static char names[ONCE_FLOW_STEPS_MAX + 1][8];
    struct once_flow flow = { .name = "f" };
    for (int i = 0; i <= ONCE_FLOW_STEPS_MAX; i++) {
        EXPECT_ROW(names[i], i == 0 || once_flow_check(&flow, &err) == ONCE_OK);
        snprintf(names[i], sizeof names[i], "s%d", i);
        flow.steps[i] = (struct once_flow_step)ONCE_LOCAL(names[i], insert);
    }
    EXPECT(once_flow_check(&flow, &err) == ONCE_INVALID);
}

static void backoff__doubles_within_bounds(void)
{
    struct once_flow flow = { .name = "f", .backoff_ms = 1000, .backoff_ms_max = 60000 };
    uint8_t record[16];
    for (int r = 0; r < 256; r++) {
        memset(record, r, sizeof record);
        int64_t full = 1000;
        for (uint32_t next = 2; next < 40; next++, full = full * 2 < 60000 ? full * 2 : 60000) {
            int64_t ms = flow_backoff_ms(&flow, record, next);
            EXPECT(ms <= full);
            EXPECT(ms >= full / 2);
        }
    }
}

static void kept__what_is_not_is_refused(void)
{
    struct once_buf buf;
    struct flow_checkpoint flow_checkpoint = {
        .flags = FLOW_CHECKPOINT_SENT, .crashes = 3, .request = text("r"), .state = text("st"), .answer = text("a")
    };
    struct flow_checkpoint back;
    once_buf_init(&buf, ONCE_CHECKPOINT_LEN_MAX);
    CHECK(flow_checkpoint_encode(&flow_checkpoint, &buf, &err) == ONCE_OK);
    CHECK(flow_checkpoint_decode(once_buf_span(&buf), &back));
    EXPECT(back.flags == FLOW_CHECKPOINT_SENT && back.crashes == 3 && back.state.len == 2 && back.answer.ptr[0] == 'a');
    for (size_t len = 0; len < buf.len; len++)
        EXPECT(!flow_checkpoint_decode((once_span){ buf.ptr, len }, &back));
    buf.ptr[7] = 0xff;
    EXPECT(!flow_checkpoint_decode(once_buf_span(&buf), &back));
    once_buf_release(&buf);
    static uint8_t much[ONCE_CHECKPOINT_LEN_MAX];
    flow_checkpoint.request = (once_span){ much, sizeof much };
    once_buf_init(&buf, ONCE_CHECKPOINT_LEN_MAX);
    EXPECT(flow_checkpoint_encode(&flow_checkpoint, &buf, &err) == ONCE_LIMIT);
    once_buf_release(&buf);
}

/* ------------------------------------------------------------------ assertions */

/* Runs it in a child: does it stop, and say this? */
static bool aborts(const struct once_flow *flow, const char *saying)
{
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], STDERR_FILENO);
        struct once_reply reply;
        struct once_flow_input input = { .key = ONCE_LIT("k"), .request = ONCE_LIT("request") };
        sqlite3 *own = NULL;
        sqlite3_open(":memory:", &own);
        sqlite3_exec(own, "CREATE TABLE effect (what TEXT)", NULL, NULL, NULL);
        if (once_flow_open_sqlite(own, &flows, &err) == ONCE_OK &&
            once_flow_run(flow, flows, &input, own, NULL, &reply, &err) == ONCE_OK)
            _exit(1);
        _exit(2);
    }
    close(pipes[1]);
    char said[4096] = "";
    size_t len = 0;
    for (ssize_t n; len < sizeof said - 1 && (n = read(pipes[0], said + len, sizeof said - 1 - len)) > 0;)
        len += (size_t)n;
    close(pipes[0]);
    int status = 0;
    waitpid(child, &status, 0);
    said[len] = '\0';
    if (strstr(said, saying) == NULL)
        printf("# it said: %s\n", said);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(said, saying) != NULL;
}

static once_step_end make_up(struct once_local *local, void *arg)
{
    (void)local, (void)arg;
    return (once_step_end){ 0 };
}

static once_step_end make_up_a_call(struct once_call *call, void *arg)
{
    (void)call, (void)arg;
    return (once_step_end){ 1 };
}

static once_step_end end_twice(struct once_local *local, void *arg)
{
    (void)arg;
    once_step_end ignored = once_local_next(local, text(""));
    (void)ignored;
    return once_local_next(local, text(""));
}

static once_step_end commit_by_itself(struct once_local *local, void *arg)
{
    (void)arg;
    sqlite3_exec(local->sqlite, "COMMIT", NULL, NULL, NULL);
    return once_local_next(local, text(""));
}

static once_step_end open_a_transaction(struct once_call *call, void *arg)
{
    sqlite3_exec(arg, "BEGIN", NULL, NULL, NULL);
    return once_call_answered(call, text(""));
}

static once_step_end finish_retryable(struct once_local *local, void *arg)
{
    (void)arg;
    return once_local_finish(local, &(struct once_outcome){ .state = ONCE_STATE_FAILED, .retryable = true });
}

static void assertions__stop_the_program(void)
{
    const struct {
        const char *saying;
        struct once_flow flow;
    } rows[] = {
        { "did not return what a once_local", { .name = "f", .steps = { ONCE_LOCAL("a", make_up) } } },
        { "ended twice", { .name = "f", .steps = { ONCE_LOCAL("a", end_twice), ONCE_LOCAL("b", confirm) } } },
        { "ended the transaction that it was given",
          { .name = "f", .steps = { ONCE_LOCAL("a", commit_by_itself), ONCE_LOCAL("b", confirm) } } },
        { "without an outcome", { .name = "f", .steps = { ONCE_LOCAL("a", insert) } } },
        { "must be final", { .name = "f", .steps = { ONCE_LOCAL("a", finish_retryable) } } },
        { "did not return what a once_call",
          { .name = "f", .steps = { ONCE_CALL("a", make_up_a_call), ONCE_LOCAL("b", confirm) } } },
        { "left a transaction open",
          { .name = "f", .steps = { ONCE_CALL("a", open_a_transaction), ONCE_LOCAL("b", confirm) } } },
        { "a flow needs a name", { .name = NULL } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        EXPECT_ROW(rows[i].saying, aborts(&rows[i].flow, rows[i].saying));
}

static void transaction__must_not_be_open_at_the_beginning(void)
{
    set_up();
    struct once_flow flow = flow_of(ONCE_CALLEE_IDEMPOTENT, false);
    struct once_flow_input input = { .key = ONCE_LIT("k") };
    struct once_reply reply;
    exec("BEGIN");
    EXPECT(once_flow_run(&flow, flows, &input, NULL, NULL, &reply, &err) == ONCE_INVALID);
    struct once_flow_round round = { 0 };
    struct once_flow_step_report swept;
    EXPECT(once_flow_complete(&flow, flows, NULL, &round, &swept, &err) == ONCE_INVALID);
    exec("ROLLBACK");
    static uint8_t much[ONCE_FLOW_CHECKPOINT_LEN_MAX + 1];
    input.request = (once_span){ much, sizeof much };
    EXPECT(once_flow_run(&flow, flows, &input, NULL, NULL, &reply, &err) == ONCE_LIMIT);
    input.request.len--;
    EXPECT(once_flow_run(&flow, flows, &input, NULL, NULL, &reply, &err) == ONCE_OK);
    once_reply_release(&reply);
    tear_down();
}

/* ------------------------------------------------------------------ attempts */

static void run__to_its_end_and_replayed(void)
{
    set_up();
    struct once_flow flow = flow_of(ONCE_CALLEE_OPAQUE, false);
    struct once_reply reply;
    CHECK(run(&flow, &reply) == ONCE_ARM_REPLAY);
    EXPECT(report.executed && report.phases == 2 && report.calls == 1 && report.reason[0] == '\0');
    EXPECT(reply.record.status == 201 && reply.record.body.len == 7);
    once_reply_release(&reply);
    EXPECT(strcmp(world.answer, "answer 1") == 0 && strcmp(world.state, "state 1") == 0);
    EXPECT(world.held && !world.held_after_sleep); /* FAULT-38 */
    EXPECT(run_once(&flow) == ONCE_ARM_REPLAY);
    EXPECT(!report.executed && world.calls == 1 && count("SELECT count(*) FROM effect") == 2);
    struct once_flow_input other = { .key = ONCE_LIT("k"), .request = ONCE_LIT("another") };
    CHECK(once_flow_run(&flow, flows, &other, NULL, NULL, &reply, &err) == ONCE_OK);
    EXPECT(reply.arm == ONCE_ARM_MISMATCH);
    once_reply_release(&reply);
    tear_down();
}

static void phase_fails__answer_is_kept(void)
{
    set_up();
    struct once_flow flow = flow_of(ONCE_CALLEE_OPAQUE, false);
    world.phase_fails = 2;
    EXPECT(run_once(&flow) == ONCE_ARM_IN_PROGRESS);
    EXPECT(strcmp(report.reason, "not now") == 0 && look()->state == ONCE_STATE_RUNNING);
    EXPECT(run_to_end(&flow) == ONCE_ARM_REPLAY);
    EXPECT(world.calls == 1 && strcmp(world.answer, "answer 1") == 0);
    EXPECT(count("SELECT count(*) FROM effect") == 2);
    tear_down();
}

static void call_refused__is_a_retryable_failure(void)
{
    set_up();
    struct once_flow flow = flow_of(ONCE_CALLEE_OPAQUE, true);
    world.call_refuses = 2;
    EXPECT(run_once(&flow) == ONCE_ARM_REPLAY);
    EXPECT(look()->state == ONCE_STATE_FAILED && look()->retryable && look()->status == 503);
    EXPECT(run_to_end(&flow) == ONCE_ARM_REPLAY);
    EXPECT(look()->state == ONCE_STATE_SUCCEEDED && world.calls == 3 && world.effects == 1);
    tear_down();
}

/* How the call before ended, and what the next attempt does about it. */
static void attempt__after_each_end_of_the_one_before(void)
{
    enum { LOST, DIED, LOST_THEN_REFUSED };
    static const struct {
        const char *name;
        enum once_callee callee;
        bool intent;
        int before, probe_says;
        enum once_arm arm;
        int effects, probes; /* of those that are counted here, not in the one that died */
    } rows[] = {
        { "idempotent, lost", ONCE_CALLEE_IDEMPOTENT, false, LOST, 0, ONCE_ARM_REPLAY, 2, 0 },
        { "idempotent, died", ONCE_CALLEE_IDEMPOTENT, false, DIED, 0, ONCE_ARM_REPLAY, 1, 0 },
        { "idempotent, intent, died", ONCE_CALLEE_IDEMPOTENT, true, DIED, 0, ONCE_ARM_REPLAY, 1, 0 },
        { "idempotent, lost, refused", ONCE_CALLEE_IDEMPOTENT, false, LOST_THEN_REFUSED, 0, ONCE_ARM_REPLAY, 2, 0 },
        { "probeable, lost, happened", ONCE_CALLEE_PROBEABLE, false, LOST, 1, ONCE_ARM_REPLAY, 1, 1 },
        { "probeable, lost, did not", ONCE_CALLEE_PROBEABLE, false, LOST, 2, ONCE_ARM_REPLAY, 2, 1 },
        { "probeable, died, happened", ONCE_CALLEE_PROBEABLE, false, DIED, 1, ONCE_ARM_REPLAY, 0, 1 },
        { "probeable, died, did not", ONCE_CALLEE_PROBEABLE, true, DIED, 2, ONCE_ARM_REPLAY, 1, 1 },
        { "opaque, lost", ONCE_CALLEE_OPAQUE, false, LOST, 0, ONCE_ARM_UNKNOWN, 1, 0 },
        { "opaque, died", ONCE_CALLEE_OPAQUE, false, DIED, 0, ONCE_ARM_UNKNOWN, 0, 0 },
        { "opaque, intent, died", ONCE_CALLEE_OPAQUE, true, DIED, 0, ONCE_ARM_UNKNOWN, 0, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        set_up();
        struct once_flow flow = flow_of(rows[i].callee, rows[i].intent);
        world.probe_says = rows[i].probe_says;
        if (rows[i].before == DIED) {
            struct once_flow dying = flow;
            dying.steps[1].call = die_in_call;
            die_in(&dying);
        } else {
            world.call_loses = 1;
            enum once_arm arm = run_once(&flow);
            EXPECT_ROW(rows[i].name,
                       arm == (rows[i].arm == ONCE_ARM_UNKNOWN ? ONCE_ARM_UNKNOWN : ONCE_ARM_IN_PROGRESS));
        }
        if (rows[i].before == LOST_THEN_REFUSED) {
            world.call_refuses = 1;
            usleep(2000);
            EXPECT_ROW(rows[i].name, run_once(&flow) == ONCE_ARM_IN_PROGRESS);
            EXPECT_ROW(rows[i].name, look()->state == ONCE_STATE_RUNNING); /* something is out there: K7 */
        }
        EXPECT_ROW(rows[i].name, run_to_end(&flow) == rows[i].arm);
        EXPECT_ROW(rows[i].name, world.effects == rows[i].effects);
        EXPECT_ROW(rows[i].name, world.probes == rows[i].probes);
        EXPECT_ROW(rows[i].name, run_once(&flow) == rows[i].arm);
        EXPECT_ROW(rows[i].name, world.effects == rows[i].effects);
        tear_down();
    }
}

static void probe__that_cannot_tell_is_asked_again(void)
{
    set_up();
    struct once_flow flow = flow_of(ONCE_CALLEE_PROBEABLE, false);
    world.call_loses = 1;
    world.probe_says = 3;
    EXPECT(run_once(&flow) == ONCE_ARM_IN_PROGRESS);
    for (int i = 0; i < 3; i++) {
        usleep(2000);
        EXPECT(run_once(&flow) == ONCE_ARM_IN_PROGRESS);
    }
    world.probe_says = 1;
    EXPECT(run_to_end(&flow) == ONCE_ARM_REPLAY);
    EXPECT(world.calls == 1 && world.probes == 4 && strcmp(world.answer, "answer of the probe") == 0);
    tear_down();
}

static void intent__before_it_nothing_was_sent(void)
{
    set_up();
    struct once_flow flow = flow_of(ONCE_CALLEE_OPAQUE, true), dying = flow;
    dying.steps[0].local = die_in_phase;
    die_in(&dying);
    EXPECT(run_to_end(&flow) == ONCE_ARM_REPLAY);
    EXPECT(world.calls == 1 && look()->attempt == 2);
    tear_down();
}

static void crashes__have_a_limit(void)
{
    set_up();
    struct once_flow flow = flow_of(ONCE_CALLEE_IDEMPOTENT, false), dying = flow;
    flow.crashes_max = 3;
    dying.crashes_max = 100;
    dying.steps[0].local = die_in_phase;
    for (int i = 0; i < 3; i++)
        die_in(&dying);
    EXPECT(run_once(&flow) == ONCE_ARM_UNKNOWN);
    EXPECT(world.phases == 0);
    tear_down();
}

/* FAULT-7: the n-th allocation fails, n = 1, 2, 3 ... Whatever an attempt does then, the next one comes to an end, and
 * the call was made once. */
static void memory__fails_at_every_place(void)
{
    long n = 1, replays = 0, unknowns = 0;
    for (bool failed = true; failed && n < 1000; n++) {
        set_up();
        struct once_flow flow = flow_of(ONCE_CALLEE_OPAQUE, n % 2 == 0);
        struct once_flow_input input = { .key = ONCE_LIT("k"), .request = ONCE_LIT("request") };
        struct once_reply reply;
        flow.lease_ms = 1; /* what is left behind is not held for long */
        allocations = 0;
        fail_at = n;
        once_result r = once_flow_run(&flow, flows, &input, NULL, NULL, &reply, &err);
        failed = allocations >= fail_at;
        fail_at = 0;
        once_reply_release(&reply);
        EXPECT(r == ONCE_OK || r == ONCE_NO_MEMORY);
        EXPECT(sqlite3_get_autocommit(db));
        usleep(2000);
        flow.lease_ms = 60000;
        enum once_arm arm = run_to_end(&flow);
        EXPECT(arm == ONCE_ARM_REPLAY || arm == ONCE_ARM_UNKNOWN);
        EXPECT(world.effects <= 1);
        EXPECT(arm == ONCE_ARM_UNKNOWN || (world.effects == 1 && count("SELECT count(*) FROM effect") == 2));
        replays += arm == ONCE_ARM_REPLAY;
        unknowns += arm == ONCE_ARM_UNKNOWN;
        tear_down();
    }
    printf("# %ld places: %ld times replayed, %ld times unknown\n", n - 1, replays, unknowns);
    EXPECT(n > 10 && n < 1000);
}

/* ------------------------------------------------------------------ completing */

static struct once_flow_step_report sweep(const struct once_flow *flow)
{
    struct once_flow_round round = { 0 };
    struct once_flow_step_report swept;
    CHECK(once_flow_complete(flow, flows, NULL, &round, &swept, &err) == ONCE_OK);
    EXPECT(!swept.more);
    return swept;
}

static void complete__what_died_and_nothing_else(void)
{
    set_up();
    struct once_flow flow = flow_of(ONCE_CALLEE_IDEMPOTENT, false), dying = flow, other = flow;
    other.name = "other";
    EXPECT(sweep(&flow).looked == 0); /* never inserts */
    dying.steps[1].call = die_in_call;
    die_in(&dying);
    EXPECT(sweep(&other).looked == 0); /* another flow's */
    struct once_flow_step_report swept = sweep(&flow);
    EXPECT(swept.looked == 1 && swept.taken == 1 && swept.ended == 1);
    EXPECT(look()->state == ONCE_STATE_SUCCEEDED && look()->attempt == 2);
    swept = sweep(&flow);
    EXPECT(swept.looked == 0 && world.calls == 1);
    tear_down();
}

static void complete__waits_for_its_time(void)
{
    set_up();
    struct once_flow flow = flow_of(ONCE_CALLEE_IDEMPOTENT, false);
    flow.backoff_ms = flow.backoff_ms_max = 3600 * 1000;
    world.call_refuses = 1;
    EXPECT(run_once(&flow) == ONCE_ARM_REPLAY);
    struct once_flow_step_report swept = sweep(&flow);
    EXPECT(swept.looked == 1 && swept.taken == 0);
    flow.backoff_ms = flow.backoff_ms_max = 1;
    usleep(2000);
    swept = sweep(&flow);
    EXPECT(swept.ended == 1);
    tear_down();
}

static void complete__gives_up(void)
{
    set_up();
    struct once_flow flow = flow_of(ONCE_CALLEE_IDEMPOTENT, false);
    flow.attempts_max = 3;
    world.call_refuses = 100;
    EXPECT(run_once(&flow) == ONCE_ARM_REPLAY);
    uint32_t postponed = 0, escalated = 0;
    for (int i = 0; i < 10; i++) {
        usleep(2000);
        struct once_flow_step_report swept = sweep(&flow);
        postponed += swept.postponed;
        escalated += swept.escalated;
    }
    EXPECT(postponed == 2 && escalated == 1 && world.calls == 3);
    EXPECT(look()->state == ONCE_STATE_UNKNOWN);
    tear_down();
}

/* Finished records, more than one step looks at. */
static void add_finished(int number)
{
    struct once_sqlite *bound = NULL;
    CHECK(once_sqlite_bind(db, NULL, &bound, &err) == ONCE_OK);
    exec("BEGIN IMMEDIATE");
    for (int i = 0; i < number; i++) {
        char name[20];
        struct once_reply reply, finished;
        snprintf(name, sizeof name, "other %d", i);
        struct once_outcome done = { .state = ONCE_STATE_SUCCEEDED };
        CHECK(once_sqlite_claim(bound, &(struct once_claim){ .key = text(name) }, &reply, &err) == ONCE_OK);
        CHECK(once_sqlite_finish(bound, reply.record.grant, &done, &finished, &err) == ONCE_OK);
        once_reply_release(&reply);
        once_reply_release(&finished);
    }
    exec("COMMIT");
    once_sqlite_unbind(bound);
}

static int steps_of_round(const struct once_flow *flow, struct once_flow_round *round, uint32_t *looked)
{
    struct once_flow_step_report swept = { .more = true };
    int steps = 0;
    for (*looked = 0; swept.more; steps++, *looked += swept.looked)
        CHECK(once_flow_complete(flow, flows, NULL, round, &swept, &err) == ONCE_OK);
    return steps;
}

static void complete__goes_back_as_far_as_there_is_something(void)
{
    set_up();
    struct once_flow flow = flow_of(ONCE_CALLEE_IDEMPOTENT, false);
    struct once_flow_round round = { 0 };
    uint32_t looked = 0;
    flow.backoff_ms = flow.backoff_ms_max = 3600 * 1000;
    world.call_refuses = 1;
    EXPECT(run_once(&flow) == ONCE_ARM_REPLAY); /* the oldest, and not due */
    add_finished(10500);
    EXPECT(steps_of_round(&flow, &round, &looked) == 2 && looked == 1);
    round.settled = 10000; /* ten minutes later */
    EXPECT(steps_of_round(&flow, &round, &looked) == 2 && looked == 1);
    EXPECT(round.floor == 1);
    EXPECT(steps_of_round(&flow, &round, &looked) == 2 && looked == 1);
    flow.backoff_ms = flow.backoff_ms_max = 1;
    EXPECT(steps_of_round(&flow, &round, &looked) == 2 && looked == 1);
    EXPECT(look()->state == ONCE_STATE_SUCCEEDED);
    EXPECT(steps_of_round(&flow, &round, &looked) == 2 && looked == 0); /* nothing was found: from now on */
    EXPECT(steps_of_round(&flow, &round, &looked) == 1 && looked == 0);
    EXPECT(round.floor == 10000);
    round.whole_at = 0; /* an hour later */
    EXPECT(steps_of_round(&flow, &round, &looked) == 2 && looked == 0);
    tear_down();
}

/* Taken over just as it was seen: a record that went on since is somebody else's. */
static void complete__compares_with_what_it_saw(void)
{
    set_up();
    struct once_flow flow = flow_of(ONCE_CALLEE_IDEMPOTENT, false), dying = flow;
    dying.steps[1].call = die_in_call;
    die_in(&dying);
    struct once_record seen = *look();
    EXPECT(run_once(&flow) == ONCE_ARM_REPLAY); /* a client is faster */
    struct attempt a;
    struct once_reply reply = { .arm = ONCE_ARM_NONE };
    once_result r = ONCE_OK;
    attempt_init(&a, &flow, flows, NULL, &report);
    report = (struct once_flow_report){ 0 };
    a.key = ONCE_LIT("k");
    EXPECT(attempt_enter(&a, &(struct attempt_entry){ .seen = &seen }, &r, &reply, &err) == ATTEMPT_ENDED);
    EXPECT(r == ONCE_OK && reply.arm == ONCE_ARM_FENCED && !report.executed);
    once_reply_release(&reply);
    attempt_release(&a);
    EXPECT(world.calls == 1);
    tear_down();
}

static void renamed_step__is_refused(void)
{
    set_up();
    struct once_flow flow = flow_of(ONCE_CALLEE_IDEMPOTENT, false), dying = flow;
    dying.steps[1].call = die_in_call;
    die_in(&dying);
    flow.steps[0].name = "renamed";
    struct once_flow_input input = { .key = ONCE_LIT("k"), .request = ONCE_LIT("request") };
    struct once_reply reply;
    EXPECT(once_flow_run(&flow, flows, &input, NULL, NULL, &reply, &err) == ONCE_CORRUPT);
    EXPECT(strstr(err.text, "test/first") != NULL);
    once_reply_release(&reply);
    struct once_flow_step_report swept = sweep(&flow);
    EXPECT(swept.stuck == 1 && swept.taken == 0 && strstr(swept.reason, "test/first") != NULL);
    EXPECT(look()->attempt == 1);
    tear_down();
}

/* ------------------------------------------------------------------ the guard, in SQL */

static void guard__fails_the_statement(void)
{
    set_up();
    struct once_flow flow = flow_of(ONCE_CALLEE_IDEMPOTENT, false), dying = flow;
    dying.steps[1].call = die_in_call;
    die_in(&dying);
    struct once_record seen = *look();
    char sql[200], hex[33];
    for (int i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", seen.grant.record[i]);
    snprintf(sql, sizeof sql, "INSERT INTO effect SELECT 'guarded' WHERE once_guard(x'%s', %llu)", hex,
             (unsigned long long)seen.grant.fence);
    exec("CREATE TABLE ledger (record BLOB, fence INTEGER);"
         "CREATE TRIGGER guarded BEFORE INSERT ON ledger BEGIN SELECT once_guard(new.record, new.fence); END");
    EXPECT(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK);
    EXPECT(count("SELECT count(*) FROM effect WHERE what = 'guarded'") == 1);
    EXPECT(run_once(&flow) == ONCE_ARM_REPLAY);
    EXPECT(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_ERROR);
    EXPECT(strncmp(sqlite3_errmsg(db), "fenced: ", 8) == 0);
    snprintf(sql, sizeof sql, "INSERT INTO ledger VALUES (x'%s', %llu)", hex, (unsigned long long)seen.grant.fence);
    EXPECT(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_ERROR);
    EXPECT(sqlite3_exec(db, "SELECT once_guard('no record', 1)", NULL, NULL, NULL) == SQLITE_ERROR);
    EXPECT(count("SELECT count(*) FROM effect WHERE what = 'guarded'") == 1);
    EXPECT(count("SELECT count(*) FROM ledger") == 0);
    tear_down();
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(table__is_checked),
        TEST(table__has_a_limit),
        TEST(backoff__doubles_within_bounds),
        TEST(kept__what_is_not_is_refused),
        TEST(assertions__stop_the_program),
        TEST(transaction__must_not_be_open_at_the_beginning),
        TEST(run__to_its_end_and_replayed),
        TEST(phase_fails__answer_is_kept),
        TEST(call_refused__is_a_retryable_failure),
        TEST(attempt__after_each_end_of_the_one_before),
        TEST(probe__that_cannot_tell_is_asked_again),
        TEST(intent__before_it_nothing_was_sent),
        TEST(crashes__have_a_limit),
        TEST(memory__fails_at_every_place),
        TEST(complete__what_died_and_nothing_else),
        TEST(complete__waits_for_its_time),
        TEST(complete__gives_up),
        TEST(complete__goes_back_as_far_as_there_is_something),
        TEST(complete__compares_with_what_it_saw),
        TEST(renamed_step__is_refused),
        TEST(guard__fails_the_statement),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
