/*
 * store_redis.c - Redis under test, the one whose socket ONCE_TEST_REDIS names (test/redis/with-redis starts one).
 *
 * "redis", with wrappers before it ("fault+redis"). Each case has a database of its own, emptied before. What this tier
 * does not promise is in sut_gaps, by the invariant that once_gaps() names.
 */
#include "suite.h"

#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <unistd.h>

struct store_under_test sut;

/* Of the suite's own cases. docs/redis.md has the same table (test/redis/gaps.py compares). */
const struct suite_gap sut_gaps[] = {
    { "K8__never_means_never", "K8", "retention 'never' is refused" },
    { "K8__reaper_removes_exactly_what_is_past_its_retention", "K8",
      "some of it is kept for ever; and no reaper is needed" },
    { "K8__reaper_works_in_bounded_steps_and_tells_of_more", "K8",
      "Redis removes by itself what expired: no reaper is needed" },
    { "K8__reaper_takes_the_longest_due_first", "K8", "Redis removes by itself what expired: no reaper is needed" },
    { "FAULT_30__wall_clock_set_back_changes_nothing", "clock",
      "the clock is Redis's, which may be set; it knows nothing of our boots" },
    { "FAULT_30__wall_clock_set_forward_changes_nothing", "clock",
      "the clock is Redis's, which may be set; it knows nothing of our boots" },
    { "FAULT_30__wall_clock_that_jitters_keeps_the_order", "clock",
      "the clock is Redis's, which may be set; it knows nothing of our boots" },
    { "FAULT_30__lease_does_not_outlive_its_boot", "clock",
      "the clock is Redis's, which may be set; it knows nothing of our boots" },
    { "FAULT_30__time_never_goes_back_over_a_boot", "clock",
      "the clock is Redis's, which may be set; it knows nothing of our boots" },
    { "FAULT_30__boot_with_a_clock_far_behind_still_serves", "clock",
      "the clock is Redis's, which may be set; it knows nothing of our boots" },
    { "FAULT_30__looking_after_a_boot_writes_nothing_and_shows_leases_over", "clock",
      "the clock is Redis's, which may be set; it knows nothing of our boots" },
    { "K8__record_for_ever_with_a_body_for_a_day", "K8", "retention 'never' is refused" },
    { "K8__body_kept_for_longer_than_a_generation", "K8", "retention 'never' is refused" },
    { "K8__bodies_go_in_bounded_steps", "K8", "Redis removes by itself what expired: no reaper is needed" },
    { "K8__mixed_claims_at_once", "K8", "retention 'never' is among them, and is refused" },
    { "claim__body_retention_is_checked", "K8", "retention 'never' is among them, and is refused" },
    { "steady__intake_leaves_the_store_as_large_as_it_is", "K8",
      "the test's clock is not Redis's, by which it removes" },
    { "K5__forgotten_is_told_and_not_executed_again", "erasure", "once_forget() is refused" },
    { "K5__an_answer_without_a_byte_is_replayed_as_ever", "erasure", "once_forget() is refused" },
    { "K4__forgetting_is_told_in_the_history_once", "erasure", "once_forget() is refused" },
    { "K7__what_is_not_finished_is_not_forgotten", "erasure", "once_forget() is refused" },
    { "K3__a_dropped_record_is_like_new_and_its_holder_is_shut_out", "erasure", "once_forget() is refused" },
    { "K5__dropping_what_is_final_lets_it_execute_again", "erasure", "once_forget() is refused" },
    { "K11__a_failure_without_a_point_is_forgotten_and_may_be_retried", "erasure", "once_forget() is refused" },
    { "K9__the_same_key_of_another_tenant_stays", "erasure", "once_forget() is refused" },
    { "look__what_a_listing_showed_can_be_forgotten_without_its_key", "erasure", "once_forget() is refused" },
    { "limits__a_word_of_forgetting", "erasure", "once_forget() is refused" },
    { "S3__what_was_sealed_is_as_it_was", "sealing", "keys are refused" },
    { "S4__a_tenant_whose_key_is_gone_is_told_and_not_executed_again", "sealing", "keys are refused" },
    { "S2__a_wrong_key_of_a_tenant_is_damage_and_nothing_is_executed", "sealing", "keys are refused" },
    { "rotation__the_last_key_seals_and_the_others_open", "sealing", "keys are refused" },
    { "open__without_its_keys_a_sealed_store_is_refused", "sealing", "keys are refused" },
    { "open__without_keys_one_can_look_and_forget_only", "sealing", "keys are refused" },
    { "limits__what_is_longest_can_be_sealed", "sealing", "keys are refused" },
    { "limits__plain_bytes_that_look_sealed_are_refused", "sealing", "keys are refused" },
    { "route__stays_with_its_record", "routes", "the record does not keep it" },
    { "route__of_the_newest_claim_counts_and_others_keep_it", "routes", "the record does not keep it" },
    { "route__there_are_so_many_and_then_other", "routes", "the record does not keep it" },
    { "route__that_is_none_is_refused", "routes", "the record does not keep it" },
    { "count__sees_what_was_there_before_the_start", "quotas", "usage is not counted by tenant" },
    { "count__sees_the_bytes", "quotas", "usage is not counted by tenant" },
    { "count__what_is_past_its_retention_makes_room", "quotas", "usage is not counted by tenant" },
    { "count__what_is_forgotten_is_no_other_tenants", "quotas", "usage is not counted by tenant" },
    { NULL, NULL, NULL },
};

enum { DATABASES = 16 };

static char wrappers[32];
static char trace_path[200];
static const char *path;
static redisContext *admin;
static int used; /* databases of the running case */

static _Noreturn void bail(const char *what, const char *why)
{
    printf("Bail out! %s: %s\n", what, why);
    exit(2);
}

/* A command to the server, in the running case's database; its reply as a number, or the length of its text. */
__attribute__((format(printf, 1, 2))) static long long in_redis(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    redisReply *reply = redisvCommand(admin, format, args);
    va_end(args);
    if (reply == NULL)
        bail(format, admin->errstr);
    if (reply->type == REDIS_REPLY_ERROR)
        bail(format, reply->str);
    long long value = reply->type == REDIS_REPLY_INTEGER  ? reply->integer
                      : reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10)
                                                          : 0;
    freeReplyObject(reply);
    return value;
}

/* "PREFIX:r:ID" of the record of a grant. */
static const char *key_of(struct once_grant grant)
{
    static char key[64];
    int len = snprintf(key, sizeof key, "once:r:");
    for (int i = 0; i < 16; i++)
        len += snprintf(key + len, sizeof key - (size_t)len, "%02x", grant.record[i]);
    return key;
}

/* ------------------------------------------------------------------ the suite's side */

bool sut_choose(const char *name)
{
    static const char kind[] = "redis";
    size_t len = strlen(name);
    if (len < sizeof kind - 1 || strcmp(name + len - (sizeof kind - 1), kind) != 0 ||
        len - (sizeof kind - 1) >= sizeof wrappers)
        return false;
    memcpy(wrappers, name, len - (sizeof kind - 1));
    sut = (struct store_under_test){ .shared = true,
                                     .loses_answers = strstr(wrappers, "fault+") != NULL,
                                     .reopens = true,
                                     .expires_later = true,
                                     .no_never = true,
                                     .unordered = true,
                                     .foreign_clock = true };
    unsetenv("ONCE_FAULT");
    path = getenv("ONCE_TEST_REDIS");
    if (path == NULL) {
        printf("1..0 # SKIP ONCE_TEST_REDIS is not set; test/redis/with-redis sets it\n");
        exit(0);
    }
    admin = redisConnectUnix(path);
    if (admin == NULL || admin->err != 0)
        bail(path, admin != NULL ? admin->errstr : "no memory");
    const char *tmp = getenv("TMPDIR");
    snprintf(trace_path, sizeof trace_path, "%s/once-conformance-trace-XXXXXX", tmp != NULL ? tmp : "/tmp");
    int fd = mkstemp(trace_path);
    if (fd >= 0)
        close(fd);
    setenv("ONCE_TRACE", trace_path, 1);
    return true;
}

void sut_fresh(char *url, size_t len)
{
    int db = used++ % DATABASES;
    in_redis("SELECT %d", db);
    in_redis("FLUSHDB");
    if (used > 1)
        in_redis("SELECT 0");
    snprintf(url, len, "%sredis+unix:%s?db=%d&tier=best-effort", wrappers, path, db);
}

void sut_empty(char *url, size_t len)
{
    sut_fresh(url, len);
}

void sut_restart(void)
{
}

void sut_tidy(void)
{
}

void sut_discard(void)
{
    used = 0;
    if (truncate(trace_path, 0) != 0)
        bail("truncate", trace_path);
}

__attribute__((destructor)) static void clean_up(void)
{
    if (admin != NULL)
        redisFree(admin);
    if (trace_path[0] != '\0')
        unlink(trace_path);
}

/* ------------------------------------------------------------------ opening */

static const struct refused_row {
    const char *name;
    const char *before, *after; /* commands */
    const char *more;           /* of the URL */
    const char *said;
} refused_rows[] = {
    { "a policy that evicts what runs", "CONFIG SET maxmemory-policy allkeys-lru",
      "CONFIG SET maxmemory-policy noeviction", "", "allkeys-lru" },
    { "a replica", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "", "replica" },
    { "a store of a newer program", "HSET once:meta version 9", "HSET once:meta version 1", "", "newer" },
    { "a store that is none", "HSET once:meta secret short", NULL, "", "not made by Once" },
    { "no such database", "PING", "PING", "&db=99", "DB index" },
    { "a password where there is none", "PING", "PING", "&user=nobody", "" },
    { "a prefix with a pattern in it", "PING", "PING", "&prefix=a*", "prefix" },
    { "wait for ever", "PING", "PING", "&wait=1&wait_ms=0", "wait_ms" },
    { "waitaof without the file", "PING", "PING", "&waitaof=1", "waitaof=1 needs" },
};

static void open__what_cannot_be_trusted_is_refused_with_the_reason(void)
{
    for (size_t i = 0; i < LENGTH(refused_rows); i++) {
        const struct refused_row *row = &refused_rows[i];
        char url[400];
        struct once *other = NULL;
        struct once_error err = { .result = ONCE_OK };
        redisReply *secret = redisCommand(admin, "HGET once:meta secret");
        freeReplyObject(redisCommand(admin, row->before));
        snprintf(url, sizeof url, "%s%s", suite.url, row->more);
        const char *more = strstr(url, "?db=0&tier=best-effort&db=");
        if (more != NULL)
            memmove(strstr(url, "?db=0") + 1, strstr(url, "tier"), strlen(strstr(url, "tier")) + 1);
        EXPECT_ROW(row->name, once_open(url, NULL, &other, &err) != ONCE_OK && other == NULL);
        EXPECT_ROW(row->name, strstr(err.text, row->said) != NULL);
        if (row->after != NULL)
            freeReplyObject(redisCommand(admin, row->after));
        else
            freeReplyObject(redisCommand(admin, "HSET once:meta secret %b", secret->str, (size_t)secret->len));
        freeReplyObject(secret);
    }
    reopen();
    granted(.key = ONCE_LIT("a"));
}

static void open__tier_must_be_said(void)
{
    static const char *const queries[] = { "", "?db=0", "?tier=full", "?tier=", "?tier=best-effort2" };
    for (size_t i = 0; i < LENGTH(queries); i++) {
        char url[300];
        snprintf(url, sizeof url, "redis+unix:%s%s", path, queries[i]);
        struct once *other = NULL;
        struct once_error err = { .result = ONCE_OK };
        EXPECT_ROW(queries[i], once_open(url, NULL, &other, &err) == ONCE_INVALID && other == NULL);
        EXPECT_ROW(queries[i], strstr(err.text, "tier=best-effort") != NULL);
    }
    EXPECT(strcmp(once_tier(suite.once), "best-effort") == 0);
    size_t count = 0;
    EXPECT(once_gaps(suite.once, &count) != NULL && count > 0);
}

static void open__password_is_in_no_message(void)
{
    static const char *const urls[] = {
        "redis://user:sekret@127.0.0.1:1/0?tier=best-effort",
        "redis://:sekret@127.0.0.1:x/0?tier=best-effort",
        "redis://:sekret%@127.0.0.1/0?tier=best-effort",
        "redis://:sekret@127.0.0.1:1/0",
        "redis://:sekret@[::1/0?tier=best-effort",
        "redis://:sekret@127.0.0.1:1/sekret2?tier=best-effort",
    };
    for (size_t i = 0; i < LENGTH(urls); i++) {
        struct once *other = NULL;
        struct once_error err = { .result = ONCE_OK };
        EXPECT_ROW(urls[i], once_open(urls[i], NULL, &other, &err) != ONCE_OK && other == NULL);
        EXPECT_ROW(urls[i], err.text[0] != '\0' && strstr(err.text, "sekret") == NULL);
    }
}

static char told[4000];

static void hear(void *arg, const char *text)
{
    (void)arg;
    snprintf(told + strlen(told), sizeof told - strlen(told), "%s\n", text);
}

static void open__what_is_not_safe_is_told(void)
{
    told[0] = '\0';
    reopen_with((struct once_options){ .warn = hear });
    EXPECT(strstr(told, "appendonly no") != NULL && strstr(told, "warning: no append-only file") != NULL);
    EXPECT(strstr(told, "maxmemory-policy noeviction") != NULL && strstr(told, "may evict") == NULL);
    in_redis("CONFIG SET maxmemory-policy volatile-ttl");
    told[0] = '\0';
    reopen_with((struct once_options){ .warn = hear });
    EXPECT(strstr(told, "may evict finished records") != NULL);
    in_redis("CONFIG SET maxmemory-policy noeviction");
}

/* ------------------------------------------------------------------ what others do to it */

static void K8__retention_never_is_refused(void)
{
    struct once_claim claim = { .key = ONCE_LIT("a"), .retention_ms = ONCE_NEVER };
    struct once_reply reply;
    EXPECT(once_claim(suite.once, &claim, &reply, &suite.err) == ONCE_INVALID);
    EXPECT(strstr(suite.err.text, "best-effort") != NULL);
    once_reply_release(&reply);
    EXPECT(do_lookup(ONCE_LIT("a"))->arm == ONCE_ARM_ABSENT);
}

static void K10__lost_connection_is_settled_and_made_again(void)
{
    for (int i = 0; i < 5; i++) {
        struct once_grant grant = granted(.key = numbered("k", i));
        in_redis("CLIENT KILL TYPE normal SKIPME yes");
        succeed(grant, numbered("body", i));
        EXPECT(span_equal(do_claim(.key = numbered("k", i))->record.body, numbered("body", i)));
    }
    EXPECT(do_stats().lost == 0 && do_stats().restarts == 0);
    if (!sut.loses_answers)
        EXPECT(do_stats().recovered >= 5);
}

static void K10__flushed_scripts_are_loaded_again(void)
{
    struct once_grant grant = granted(.key = ONCE_LIT("a"), .lease_ms = 1000);
    in_redis("SCRIPT FLUSH");
    succeed(grant, ONCE_LIT("x"));
    in_redis("SCRIPT FLUSH");
    EXPECT(do_list((struct once_filter){ .abandoned = true })->count == 0);
    EXPECT(do_claim(.key = ONCE_LIT("a"))->arm == ONCE_ARM_REPLAY);
}

static void K2__counter_that_went_back_gives_no_fence_twice(void)
{
    struct once_grant first = granted(.key = ONCE_LIT("a"));
    in_redis("SET once:fence 5");
    struct once_grant second = granted(.key = ONCE_LIT("b"));
    EXPECT(second.fence > first.fence);
    in_redis("DEL once:fence");
    EXPECT(granted(.key = ONCE_LIT("c")).fence > second.fence);
    uint64_t last = do_lookup(ONCE_LIT("c"))->record.grant.fence;
    in_redis("SET once:fence 5");
    reopen(); /* a handle that knows none of them */
    EXPECT(granted(.key = ONCE_LIT("d")).fence > last);
}

/* With the connection in place: the next write shows it, and the store is made anew with its secret. */
static void K4__flushed_store_is_noticed_and_made_again(void)
{
    told[0] = '\0';
    reopen_with((struct once_options){ .warn = hear });
    struct once_grant before = granted(.key = ONCE_LIT("a"));
    succeed(before, ONCE_LIT("x"));
    in_redis("FLUSHDB");
    struct once_grant after = granted(.key = ONCE_LIT("a"));
    EXPECT(after.fence > before.fence && memcmp(after.record, before.record, 16) == 0);
    EXPECT(do_stats().lost >= 2 && (sut.loses_answers || do_stats().lost == 2)); /* repeated ones are writes, too */
    EXPECT(strstr(told, "LOST: ") != NULL);
    succeed(after, ONCE_LIT("y"));
    EXPECT(in_redis("EXISTS once:meta") == 1);
    EXPECT(span_equal(do_claim(.key = ONCE_LIT("a"))->record.body, ONCE_LIT("y")));
}

static void K7__only_what_is_finished_has_a_time_to_live(void)
{
    struct once_grant running = granted(.key = ONCE_LIT("running"), .lease_ms = 1);
    struct once_grant unknown = granted(.key = ONCE_LIT("unknown"));
    do_finish(unknown, .state = ONCE_STATE_UNKNOWN);
    struct once_grant done = granted(.key = ONCE_LIT("done"), .retention_ms = 5000);
    succeed(done, ONCE_LIT("x"));
    struct once_grant retried = granted(.key = ONCE_LIT("retried"), .retention_ms = 5000);
    do_finish(retried, .state = ONCE_STATE_FAILED, .retryable = true);
    EXPECT(in_redis("PTTL %s", key_of(running)) == -1);
    EXPECT(in_redis("PTTL %s", key_of(unknown)) == -1);
    EXPECT(in_redis("PTTL %s", key_of(done)) > 0);
    EXPECT(in_redis("PTTL %s", key_of(retried)) > 0);
    retried = granted(.key = ONCE_LIT("retried"));
    EXPECT(in_redis("PTTL %s", key_of(retried)) == -1);
    EXPECT(in_redis("ZCARD once:open") == 2);
}

/* On Redis's own clock: gone without anybody doing anything. */
static void K8__redis_removes_what_expired(void)
{
    reopen_with_real_clock();
    struct once_grant grant = granted(.key = ONCE_LIT("a"), .retention_ms = 1);
    succeed(grant, ONCE_LIT("x"));
    for (int i = 0; i < 60000 && in_redis("EXISTS %s", key_of(grant)) != 0; i++)
        usleep(1000);
    EXPECT(in_redis("EXISTS %s", key_of(grant)) == 0);
    EXPECT(do_claim(.key = ONCE_LIT("a"))->record.attempt == 1);
}

static bool found_problem;

static void note_problem(void *arg, const struct once_problem *problem)
{
    found_problem = found_problem || strcmp(problem->invariant, arg) == 0;
}

/* Commands about the record: what comes before and after its key. */
struct command {
    const char *verb, *first, *second;
};

static void on_record(struct command c, struct once_grant grant)
{
    const char *argv[] = { c.verb, key_of(grant), c.first, c.second };
    int argc = c.first == NULL ? 2 : c.second == NULL ? 3 : 4;
    freeReplyObject(redisCommandArgv(admin, argc, argv, NULL));
}

static const struct damage_row {
    const char *invariant;
    struct command before, after; /* no verb: put its m back */
} damage_rows[] = {
    { "K7", { "PEXPIRE", "1000000", NULL }, { "PERSIST", NULL, NULL } },
    { "format", { "HSET", "m", "nonsense" }, { NULL, NULL, NULL } },
    { "K9", { "HSET", "k", "another" }, { "HSET", "k", "a" } },
};

static void check__finds_what_was_tampered_with(void)
{
    struct once_grant grant = granted(.key = ONCE_LIT("a"));
    for (size_t i = 0; i < LENGTH(damage_rows); i++) {
        redisReply *was = redisCommand(admin, "HGET %s m", key_of(grant));
        on_record(damage_rows[i].before, grant);
        found_problem = false;
        EXPECT(once_check(suite.once, note_problem, (void *)(uintptr_t)damage_rows[i].invariant, NULL, NULL) ==
               ONCE_OK);
        EXPECT_ROW(damage_rows[i].invariant, found_problem);
        if (damage_rows[i].after.verb != NULL)
            on_record(damage_rows[i].after, grant);
        else
            freeReplyObject(redisCommand(admin, "HSET %s m %b", key_of(grant), was->str, (size_t)was->len));
        freeReplyObject(was);
    }
    in_redis("HSET %s m nonsense", key_of(grant));
    struct once_reply reply;
    EXPECT(once_lookup(suite.once, (once_span){ .len = 0 }, ONCE_LIT("a"), &reply, NULL) == ONCE_CORRUPT);
    once_reply_release(&reply);
    in_redis("DEL %s", key_of(grant));
    in_redis("DEL once:open");
}

static void FAULT_14__changed_outcome_is_not_replayed(void)
{
    struct once_grant grant = granted(.key = ONCE_LIT("a"));
    succeed(grant, ONCE_LIT("the answer"));
    struct once_grant other = granted(.key = ONCE_LIT("b"));
    succeed(other, ONCE_LIT("the other answer"));
    char key[64];
    snprintf(key, sizeof key, "%s", key_of(grant));
    redisReply *own = redisCommand(admin, "HGET %s o", key),
               *stranger = redisCommand(admin, "HGET %s o", key_of(other));
    freeReplyObject(redisCommand(admin, "HSET %s o %b", key, stranger->str, (size_t)stranger->len));
    struct once_reply reply;
    struct once_claim claim = { .key = ONCE_LIT("a") };
    EXPECT(once_claim(suite.once, &claim, &reply, NULL) == ONCE_CORRUPT);
    once_reply_release(&reply);
    freeReplyObject(redisCommand(admin, "HSET %s o %b", key, own->str, (size_t)own->len));
    freeReplyObject(own);
    freeReplyObject(stranger);
    EXPECT(do_claim(.key = ONCE_LIT("a"))->arm == ONCE_ARM_REPLAY);
}

/* ------------------------------------------------------------------ what it refuses */

static once_result try_claim(once_span key)
{
    struct once_reply reply;
    struct once_claim claim = { .key = key };
    once_result r = once_claim(suite.once, &claim, &reply, &suite.err);
    once_reply_release(&reply);
    return r;
}

static void errors__are_exact_and_nothing_was_changed(void)
{
    if (sut.loses_answers) {
        skip("an answer that is lost, too, is something else");
        return;
    }
    struct once_grant grant = granted(.key = ONCE_LIT("before"));
    in_redis("CONFIG SET maxmemory 1");
    EXPECT(try_claim(ONCE_LIT("a")) == ONCE_BUSY && strstr(suite.err.text, "maxmemory") != NULL);
    EXPECT(do_lookup(ONCE_LIT("before"))->arm == ONCE_ARM_FOUND); /* reading goes on */
    in_redis("CONFIG SET maxmemory 0");
    EXPECT(do_lookup(ONCE_LIT("a"))->arm == ONCE_ARM_ABSENT);
    in_redis("CONFIG SET min-replicas-to-write 1");
    EXPECT(try_claim(ONCE_LIT("a")) == ONCE_UNAVAILABLE && strstr(suite.err.text, "min-replicas") != NULL);
    in_redis("CONFIG SET min-replicas-to-write 0");
    in_redis("REPLICAOF 127.0.0.1 1");
    EXPECT(try_claim(ONCE_LIT("a")) == ONCE_UNAVAILABLE && strstr(suite.err.text, "replica") != NULL);
    in_redis("REPLICAOF NO ONE");
    EXPECT(try_claim(ONCE_LIT("connected")) == ONCE_OK);
    in_redis("CONFIG SET busy-reply-threshold 1");
    redisContext *rude = redisConnectUnix(path);
    CHECK(rude != NULL && rude->err == 0);
    int written = 0;
    redisAppendCommand(rude, "EVAL %s 0", "while true do end");
    CHECK(redisBufferWrite(rude, &written) == REDIS_OK && written == 1);
    once_result r = ONCE_OK;
    for (int i = 0; i < 1000 && r == ONCE_OK; i++) /* until it runs */
        r = try_claim(numbered("busy", i));
    EXPECT(r == ONCE_BUSY && strstr(suite.err.text, "SCRIPT KILL") != NULL);
    in_redis("SCRIPT KILL");
    void *ended = NULL;
    EXPECT(redisGetReply(rude, &ended) == REDIS_OK);
    freeReplyObject(ended);
    redisFree(rude);
    in_redis("CONFIG SET busy-reply-threshold 5000");
    succeed(grant, ONCE_LIT("x"));
    EXPECT(try_claim(ONCE_LIT("a")) == ONCE_OK);
}

static void K4__copies_that_do_not_come_are_not_believed(void)
{
    if (sut.loses_answers) {
        skip("an answer that is lost, too, is something else");
        return;
    }
    char url[400];
    snprintf(url, sizeof url, "%s&wait=1&wait_ms=20", suite.url);
    struct once *other = NULL;
    CHECK(once_open(url, &suite.options, &other, &suite.err) == ONCE_OK);
    struct once_reply reply;
    struct once_claim claim = { .key = ONCE_LIT("a"), .nonce = { 7 } };
    EXPECT(once_claim(other, &claim, &reply, &suite.err) == ONCE_UNKNOWN);
    EXPECT(strstr(suite.err.text, "replicas") != NULL);
    once_reply_release(&reply);
    EXPECT(once_claim(other, &claim, &reply, &suite.err) == ONCE_UNAVAILABLE); /* nothing new before that */
    once_reply_release(&reply);
    once_close(other);
    EXPECT(do_claim(.key = ONCE_LIT("a"), .nonce = { 7 })->arm ==
           ONCE_ARM_EXECUTE); /* it stands here, and is told so */
}

/* ------------------------------------------------------------------ Redis's clock */

static void FAULT_30__clock_set_back_is_safe(void)
{
    struct once_grant first = granted(.key = ONCE_LIT("a"), .lease_ms = 1000);
    struct once_grant other = granted(.key = ONCE_LIT("b"), .lease_ms = 1000);
    clock_step_wall(-3600 * 1000);
    succeed(first, ONCE_LIT("x"));
    const struct once_record *stored = &do_lookup(ONCE_LIT("a"))->record;
    EXPECT(stored->finished_at >= stored->claimed_at);
    EXPECT(do_claim(.key = ONCE_LIT("b"), .takeover = ONCE_TAKEOVER_RERUN)->arm == ONCE_ARM_IN_PROGRESS);
    EXPECT(granted(.key = ONCE_LIT("c")).fence > other.fence);
    succeed(other, ONCE_LIT("y"));
}

static void FAULT_30__clock_set_forward_costs_a_takeover_not_an_effect(void)
{
    struct once_grant first = granted(.key = ONCE_LIT("a"), .lease_ms = 1000);
    clock_step_wall(3600 * 1000);
    struct once_grant second = granted(.key = ONCE_LIT("a"), .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(second.fence > first.fence);
    EXPECT(do_finish(first, .state = ONCE_STATE_SUCCEEDED)->arm == ONCE_ARM_FENCED);
    clock_step_wall(-3600 * 1000);
    succeed(second, ONCE_LIT("x"));
}

const struct suite_case sut_cases[] = {
    CASE(open__what_cannot_be_trusted_is_refused_with_the_reason),
    CASE(open__tier_must_be_said),
    CASE(open__password_is_in_no_message),
    CASE(open__what_is_not_safe_is_told),
    CASE(K8__retention_never_is_refused),
    CASE(K10__lost_connection_is_settled_and_made_again),
    CASE(K10__flushed_scripts_are_loaded_again),
    CASE(K2__counter_that_went_back_gives_no_fence_twice),
    CASE(K4__flushed_store_is_noticed_and_made_again),
    CASE(K7__only_what_is_finished_has_a_time_to_live),
    CASE(K8__redis_removes_what_expired),
    CASE(check__finds_what_was_tampered_with),
    CASE(FAULT_14__changed_outcome_is_not_replayed),
    CASE(errors__are_exact_and_nothing_was_changed),
    CASE(K4__copies_that_do_not_come_are_not_believed),
    CASE(FAULT_30__clock_set_back_is_safe),
    CASE(FAULT_30__clock_set_forward_costs_a_takeover_not_an_effect),
    { NULL, NULL },
};
