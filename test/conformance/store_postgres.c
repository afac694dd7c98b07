/*
 * store_postgres.c - PostgreSQL under test, in the cluster that ONCE_TEST_POSTGRES names
 * (test/pg/with-postgres makes one).
 *
 * "postgres", with wrappers before it ("fault+postgres"). Each case has a store as `once migrate`
 * leaves it, with a secret of its own, listening to the suite's clock: in a database that was
 * copied from a migrated one, or in one that an earlier case used and that was put back (to copy
 * and to drop some three hundred files for each case costs more than the cases do).
 * "postgres-ring" turns the ring of generations whenever once_expire() is called: everything
 * the suite knows has to hold while records are moved and slots are emptied.
 * With ONCE_TEST_POOLED (test/pg/pgbouncer.py) the suite reaches its stores through that pooler.
 */
#include "suite.h"

#include <libpq-fe.h>
#include <stdarg.h>
#include <unistd.h>

struct store_under_test sut;

static char wrappers[32]; /* "trace+fault+" */
static char trace_path[200];
static bool fast_ring;
static PGconn *admin;
static const char *pooled; /* NULL: the store is reached directly */
static char direct[300];   /* URL of the store of the running case, past any pooler */
static int made;           /* databases that are there: store_0 ... */
static int dropped;        /* the first of them are not any more: a pooler knows them by name */
static int used;           /* by the running case */

/* ------------------------------------------------------------------ databases */

static _Noreturn void bail(const char *what, const char *why)
{
    printf("Bail out! %s: %s\n", what, why);
    exit(2);
}

/* Many statements at once; the first value of the last. */
static void run_on(PGconn *conn, char *value, size_t len, const char *sql)
{
    PGresult *r = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(r);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        bail(sql, PQerrorMessage(conn));
    if (value != NULL)
        snprintf(value, len, "%s", PQntuples(r) > 0 ? PQgetvalue(r, 0, 0) : "");
    PQclear(r);
}

__attribute__((format(printf, 1, 2))) static void administer(const char *format, ...)
{
    char sql[300];
    va_list args;
    va_start(args, format);
    vsnprintf(sql, sizeof sql, format, args);
    va_end(args);
    run_on(admin, NULL, 0, sql);
}

/* A URL of the superuser with another database: postgresql:///NAME?host=... */
static void url_with(const char *base, const char *name, char *url, size_t len)
{
    static const char before[] = "postgresql:///postgres?";
    if (strncmp(base, before, sizeof before - 1) != 0)
        bail("a URL is not as with-postgres makes it", base);
    /* The store's own limit for connecting, 10 s, is for servers that are not there. */
    snprintf(url, len, "postgresql:///%s?%s&connect_timeout=300", name, base + sizeof before - 1);
}

/* The cluster's own. */
static void url_of(const char *name, char *url, size_t len)
{
    url_with(getenv("ONCE_TEST_POSTGRES"), name, url, len);
}

/* The store's, for the suite: through the pooler where there is one. */
static void store_url_of(const char *name, char *url, size_t len)
{
    char plain[300];
    url_with(pooled != NULL ? pooled : getenv("ONCE_TEST_POSTGRES"), name, plain, sizeof plain);
    snprintf(url, len, "%s%s", wrappers, plain);
}

static PGconn *connect_to(const char *url)
{
    PGconn *conn = PQconnectdb(url);
    if (PQstatus(conn) != CONNECTION_OK)
        bail(url, PQerrorMessage(conn));
    return conn;
}

/* SQL in the store of the running case; the first value of its last statement. */
static void in_store(char *value, size_t len, const char *sql)
{
    PGconn *conn = connect_to(direct);
    run_on(conn, value, len, sql);
    PQfinish(conn);
}

static long count_in_store(const char *sql)
{
    char value[32];
    in_store(value, sizeof value, sql);
    return strtol(value, NULL, 10);
}

/* What a migrated store has in its tables, whatever tables there are. */
static const char remember_sql[] =
    "CREATE SCHEMA pristine;"
    "DO $$ DECLARE t regclass; "
    "BEGIN"
    "  FOR t IN SELECT oid FROM pg_class WHERE relnamespace = 'once'::regnamespace AND relkind = 'r'"
    "           AND pg_relation_size(oid) > 0 LOOP"
    "    EXECUTE format('CREATE TABLE pristine.%I AS TABLE %s', (SELECT relname FROM pg_class WHERE oid = t), t);"
    "  END LOOP;"
    "END $$";

/* And back to it, with nobody left who was at it. What is empty is left alone. */
static const char put_back_sql[] =
    "SELECT pg_terminate_backend(pid, 300000) FROM pg_stat_activity"
    "  WHERE datname = current_database() AND pid <> pg_backend_pid();"
    "DO $$ DECLARE t record; "
    "BEGIN"
    "  FOR t IN SELECT oid::regclass AS name, relname, to_regclass(format('pristine.%I', relname)) AS was FROM pg_class"
    "           WHERE relnamespace = 'once'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0 LOOP"
    "    IF t.was IS NULL THEN"
    "      EXECUTE format('TRUNCATE %s', t.name);"
    "    ELSE"
    "      EXECUTE format('DELETE FROM %s', t.name);"
    "      EXECUTE format('INSERT INTO %s OVERRIDING SYSTEM VALUE TABLE %s', t.name, t.was);"
    "    END IF;"
    "  END LOOP;"
    "  PERFORM setval(oid::regclass, (SELECT seqstart FROM pg_sequence WHERE seqrelid = oid), false)"
    "    FROM pg_class WHERE relnamespace = 'once'::regnamespace AND relkind = 'S';"
    "END $$";

static void make_template(void)
{
    char url[300];
    struct once_error err;
    url_of("once_template", url, sizeof url);
    administer("CREATE DATABASE once_template");
    if (once_migrate(url, NULL, &err) != ONCE_OK)
        bail("once_migrate", err.text);
    PGconn *conn = connect_to(url);
    run_on(conn, NULL, 0, "UPDATE once.store SET test_clock = true");
    run_on(conn, NULL, 0,
           fast_ring ? "UPDATE once.ring SET opened_at = 0, period_ms = 1"
                     : "UPDATE once.ring SET opened_at = 1700000000000");
    run_on(conn, NULL, 0, remember_sql);
    PQfinish(conn);
}

/* ------------------------------------------------------------------ the suite's side */

bool sut_choose(const char *name)
{
    static const char kind[] = "postgres", ring[] = "-ring";
    size_t len = strlen(name);
    fast_ring = len > sizeof ring - 1 && strcmp(name + len - (sizeof ring - 1), ring) == 0;
    if (fast_ring)
        len -= sizeof ring - 1;
    if (len < sizeof kind - 1 || memcmp(name + len - (sizeof kind - 1), kind, sizeof kind - 1) != 0 ||
        len - (sizeof kind - 1) >= sizeof wrappers)
        return false;
    memcpy(wrappers, name, len - (sizeof kind - 1));
    wrappers[len - (sizeof kind - 1)] = '\0';
    sut = (struct store_under_test){ .shared = true,
                                     .loses_answers = strstr(wrappers, "fault+") != NULL,
                                     .reopens = true,
                                     .expires_later = true,
                                     .compact = wrappers[0] == '\0' && !fast_ring,
                                     .foreign_clock = true };
    unsetenv("ONCE_FAULT"); /* the default plan */
    const char *url = getenv("ONCE_TEST_POSTGRES");
    if (url == NULL) {
        printf("1..0 # SKIP ONCE_TEST_POSTGRES is not set; test/pg/with-postgres sets it\n");
        exit(0);
    }
    pooled = getenv("ONCE_TEST_POOLED");
    admin = connect_to(url);
    run_on(admin, NULL, 0, "SET client_min_messages = error");
    make_template();
    const char *tmp = getenv("TMPDIR");
    snprintf(trace_path, sizeof trace_path, "%s/once-conformance-trace-XXXXXX", tmp != NULL ? tmp : "/tmp");
    int fd = mkstemp(trace_path);
    if (fd >= 0)
        close(fd);
    setenv("ONCE_TRACE", trace_path, 1);
    return true;
}

/* A store's secret, made like the first one. */
static const char new_secret[] =
    "DO $$ DECLARE s bytea := sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));"
    "  i bytea := decode(repeat('36', 64), 'hex'); o bytea := decode(repeat('5c', 64), 'hex'); "
    "BEGIN"
    "  FOR n IN 0 .. 31 LOOP"
    "    i := set_byte(i, n, get_byte(s, n) # 54); o := set_byte(o, n, get_byte(s, n) # 92);"
    "  END LOOP;"
    "  UPDATE once.store SET secret = s, inner_pad = i, outer_pad = o;"
    "END $$";

void sut_fresh(char *url, size_t len)
{
    char name[32];
    bool again = used < made;
    snprintf(name, sizeof name, "store_%d", used++);
    url_of(name, direct, sizeof direct);
    if (!again) {
        made = used;
        administer("CREATE DATABASE %s TEMPLATE once_template STRATEGY file_copy", name);
    }
    PGconn *conn = connect_to(direct);
    if (again)
        run_on(conn, NULL, 0, put_back_sql);
    run_on(conn, NULL, 0, new_secret);
    PQfinish(conn);
    store_url_of(name, url, len);
}

/* Not one that is used again. */
void sut_empty(char *url, size_t len)
{
    administer("DROP DATABASE IF EXISTS empty WITH (FORCE)");
    administer("CREATE DATABASE empty");
    store_url_of("empty", url, len);
}

void sut_restart(void)
{
}

/* Slot 0, where rows are moved to and deleted one by one. */
void sut_tidy(void)
{
    in_store(NULL, 0, "VACUUM once.claim_0");
    in_store(NULL, 0, "VACUUM once.result_0");
}

void sut_discard(void)
{
    if (pooled != NULL) /* which would hand out connections that putting back had ended */
        while (dropped < made)
            administer("DROP DATABASE store_%d WITH (FORCE)", dropped++);
    used = dropped;
    if (truncate(trace_path, 0) != 0)
        bail("truncate", trace_path);
}

__attribute__((destructor)) static void clean_up(void)
{
    PQfinish(admin);
    if (trace_path[0] != '\0')
        unlink(trace_path);
}

/* ------------------------------------------------------------------ opening */

static const struct refused_row {
    const char *name, *before, *after; /* SQL for the store's database */
    const char *said;
} refused_rows[] = {
    { "newer schema", "UPDATE once.migration SET number = 999", "UPDATE once.migration SET number = 1",
      "newer program" },
    { "older schema", "UPDATE once.migration SET number = 0", "UPDATE once.migration SET number = 1", "once migrate" },
    { "commits that do not wait for the disk", "ALTER ROLE postgres SET synchronous_commit = off",
      "ALTER ROLE postgres RESET synchronous_commit", "synchronous_commit" },
    { "read-only", "ALTER ROLE postgres SET default_transaction_read_only = on",
      "BEGIN READ WRITE; ALTER ROLE postgres RESET default_transaction_read_only; COMMIT", "read-only" },
};

static void open__what_cannot_be_trusted_is_refused_with_the_reason(void)
{
    for (size_t i = 0; i < LENGTH(refused_rows); i++) {
        if (pooled != NULL && strncmp(refused_rows[i].before, "ALTER ROLE", 10) == 0)
            continue; /* a pooler's connections were made before */
        in_store(NULL, 0, refused_rows[i].before);
        struct once *other = NULL;
        struct once_error err = { .result = ONCE_OK };
        EXPECT_ROW(refused_rows[i].name, once_open(suite.url, NULL, &other, &err) != ONCE_OK && other == NULL);
        EXPECT_ROW(refused_rows[i].name, strstr(err.text, refused_rows[i].said) != NULL);
        in_store(NULL, 0, refused_rows[i].after);
    }
    reopen();
    granted(.key = ONCE_LIT("a"));
}

static void open__database_that_is_not_there_is_refused(void)
{
    char url[300];
    url_of("nowhere", url, sizeof url);
    struct once *other = NULL;
    struct once_error err = { .result = ONCE_OK };
    EXPECT(once_open(url, NULL, &other, &err) == ONCE_UNAVAILABLE && other == NULL);
    EXPECT(strstr(err.text, "nowhere") != NULL);
}

static void open__role_that_may_not_use_the_schema_is_refused(void)
{
    in_store(NULL, 0, "CREATE ROLE stranger LOGIN");
    char url[400];
    snprintf(url, sizeof url, "%s", suite.url);
    char *user = strstr(url, "user=postgres");
    CHECK(user != NULL);
    memcpy(user, "user=stranger", 13);
    struct once *other = NULL;
    struct once_error err = { .result = ONCE_OK };
    EXPECT(once_open(url, NULL, &other, &err) != ONCE_OK && other == NULL);
    EXPECT(strstr(err.text, "once_app") != NULL);
    in_store(NULL, 0, "GRANT once_app TO stranger");
    CHECK(once_open(url, &suite.options, &other, &err) == ONCE_OK);
    struct once_claim claim = { .key = ONCE_LIT("by the stranger") };
    struct once_reply reply;
    EXPECT(once_claim(other, &claim, &reply, NULL) == ONCE_OK && reply.arm == ONCE_ARM_EXECUTE);
    once_reply_release(&reply);
    once_close(other);
    in_store(NULL, 0, "REVOKE once_app FROM stranger; DROP ROLE stranger");
}

/* ------------------------------------------------------------------ sharing */

/* Somebody's own transaction claims a key and takes its time. */
static void busy__key_held_by_a_transaction_fails_alone(void)
{
    PGconn *conn = connect_to(direct);
    run_on(conn, NULL, 0, "BEGIN; SELECT once.claim('', 'held')");
    reopen_with((struct once_options){ .poll = true });
    struct once_claim held = { .key = ONCE_LIT("held") };
    struct once_request other = { .verb = ONCE_VERB_CLAIM, .claim = { .key = ONCE_LIT("free") } };
    CHECK(once_submit(suite.once, &other, forget_answer, NULL, NULL) == ONCE_OK);
    struct once_reply reply;
    once_result r = once_claim(suite.once, &held, &reply, NULL);
    EXPECT(r == ONCE_BUSY || (sut.loses_answers && r == ONCE_UNKNOWN));
    once_reply_release(&reply);
    EXPECT(do_lookup(ONCE_LIT("free"))->arm == ONCE_ARM_FOUND);
    run_on(conn, NULL, 0, "ROLLBACK");
    PQfinish(conn);
    granted(.key = ONCE_LIT("held"));
}

/* The server ends the connection between two steps, and in the middle of none. */
static void K10__lost_connection_is_settled_and_made_again(void)
{
    for (int i = 0; i < 5; i++) {
        struct once_grant grant = granted(.key = numbered("k", i));
        in_store(NULL, 0,
                 "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                 "WHERE application_name = 'once' AND datname = current_database()");
        succeed(grant, numbered("body", i));
        EXPECT(span_equal(do_claim(.key = numbered("k", i))->record.body, numbered("body", i)));
    }
    if (!sut.loses_answers && pooled == NULL) /* a pooler replaces what is lost between two steps */
        EXPECT(do_stats().recovered >= 5);
}

/* ------------------------------------------------------------------ the ring */

#define SLOT_MS (6 * 3600 * 1000LL)

/* As often as it takes to come round. */
static void turn_ring(void)
{
    for (int i = 0; i < 8; i++) {
        do_expire_all(0);
        granted(.key = numbered("filler", i)); /* an empty slot is not worth turning */
        do_release(do_lookup(numbered("filler", i))->record.grant);
        clock_advance(SLOT_MS);
    }
    do_expire_all(0);
}

static void K7__what_is_wanted_outlives_the_ring(void)
{
    for (int i = 0; i < 20; i++)
        succeed(granted(.key = numbered("short", i), .retention_ms = 1000), ONCE_LIT("x"));
    succeed(granted(.key = ONCE_LIT("never"), .retention_ms = ONCE_NEVER), ONCE_LIT("kept"));
    struct once_grant failed = granted(.key = ONCE_LIT("retried"), .retention_ms = ONCE_NEVER);
    do_finish(failed, .state = ONCE_STATE_FAILED, .retryable = true, .status = 503);
    do_finish(granted(.key = ONCE_LIT("unknown"), .retention_ms = 1), .state = ONCE_STATE_UNKNOWN);
    struct once_grant running = granted(.key = ONCE_LIT("running"), .lease_ms = 1000);
    do_advance(running, ONCE_LIT("p1"), ONCE_LIT("cp1"));
    clock_advance(1000);
    struct once_grant second = granted(.key = ONCE_LIT("running"), .takeover = ONCE_TAKEOVER_RERUN);
    do_advance(second, ONCE_LIT("p2"), ONCE_LIT("cp2"));
    static const char *const kept[] = { "never", "retried", "unknown", "running" };
    const struct once_record *before[LENGTH(kept)];
    for (size_t i = 0; i < LENGTH(kept); i++)
        before[i] = &do_lookup(span_str(kept[i]))->record;
    size_t told = do_history(ONCE_LIT("running"))->count;

    turn_ring();
    for (size_t i = 0; i < LENGTH(kept); i++) {
        struct once_record now = do_lookup(span_str(kept[i]))->record;
        now.lease_live = before[i]->lease_live; /* that is over */
        EXPECT_ROW(kept[i], same_record(before[i], &now));
    }
    EXPECT(do_history(ONCE_LIT("running"))->count == told);
    EXPECT(count_in_store("SELECT count(*) FROM once.claim WHERE slot = 0") == 5);
    EXPECT(count_in_store("SELECT count(*) FROM once.claim WHERE key LIKE 'short%'") == 0);

    /* and works there as before */
    EXPECT(do_advance(second, ONCE_LIT("p3"), ONCE_LIT(""))->arm == ONCE_ARM_DONE);
    EXPECT(do_extend(running, 0)->arm == ONCE_ARM_FENCED);
    succeed(second, ONCE_LIT("at last"));
    EXPECT(do_claim(.key = ONCE_LIT("running"))->arm == ONCE_ARM_REPLAY);
    EXPECT(do_claim(.key = ONCE_LIT("unknown"))->arm == ONCE_ARM_UNKNOWN);
    EXPECT(do_claim(.key = ONCE_LIT("retried"))->record.attempt == 2);
    clock_advance(ONCE_RETENTION_MS_DEFAULT);
    do_expire_all(0);
    EXPECT(do_lookup(ONCE_LIT("running"))->arm == ONCE_ARM_ABSENT);
    EXPECT(count_in_store("SELECT count(*) FROM once.claim WHERE key = 'running'") == 0);
}

/* A key that comes back every day must not leave a row for each. */
static void K8__lives_of_a_key_leave_nothing_behind(void)
{
    uint64_t last = 0;
    for (int life = 0; life < 30; life++) {
        struct once_grant grant = granted(.key = ONCE_LIT("daily"), .retention_ms = 7 * SLOT_MS);
        EXPECT(grant.fence > last);
        last = grant.fence;
        succeed(grant, numbered("life", life));
        for (int i = 0; i < 7; i++) {
            EXPECT(span_equal(do_claim(.key = ONCE_LIT("daily"))->record.body, numbered("life", life)));
            clock_advance(SLOT_MS);
            do_expire_all(0);
        }
        EXPECT(do_lookup(ONCE_LIT("daily"))->arm == ONCE_ARM_ABSENT);
    }
    EXPECT(count_in_store("SELECT count(*) FROM once.claim") <= 3);
}

/* Headers and bodies that are over when their slot is emptied are left behind there; later ones go row by row. */
static void K8__bodies_do_not_outlive_their_time_and_the_ring(void)
{
    once_span big = bytes_of(20000, true);
    succeed(granted(.key = ONCE_LIT("day"), .retention_ms = ONCE_NEVER, .body_retention_ms = 4 * SLOT_MS), big);
    succeed(granted(.key = ONCE_LIT("weeks"), .retention_ms = ONCE_NEVER, .body_retention_ms = 100 * SLOT_MS), big);
    succeed(granted(.key = ONCE_LIT("ever"), .retention_ms = ONCE_NEVER), big);
    struct once_grant failed = granted(.key = ONCE_LIT("twice"), .retention_ms = ONCE_NEVER, .body_retention_ms = 1);
    do_finish(failed, .state = ONCE_STATE_FAILED, .retryable = true, .status = 503, .body = big);
    succeed(granted(.key = ONCE_LIT("twice"), .retention_ms = ONCE_NEVER, .body_retention_ms = 1), big);
    do_finish(granted(.key = ONCE_LIT("unknown"), .body_retention_ms = 1), .state = ONCE_STATE_UNKNOWN, .body = big);
    EXPECT(count_in_store("SELECT sum(length(body)) FROM once.result") == 6 * 20000);
    turn_ring();
    EXPECT(count_in_store("SELECT sum(length(body)) FROM once.result") == 3 * 20000);
    EXPECT(count_in_store("SELECT count(*) FROM once.result WHERE slot > 0 AND body IS NOT NULL") == 0);
    EXPECT(do_lookup(ONCE_LIT("day"))->record.body_expired);
    EXPECT(do_lookup(ONCE_LIT("twice"))->record.body_expired);
    EXPECT(span_equal(do_lookup(ONCE_LIT("weeks"))->record.body, big));
    clock_advance(100 * SLOT_MS);
    do_expire_all(0);
    EXPECT(count_in_store("SELECT sum(length(body)) FROM once.result") == 2 * 20000);
    EXPECT(do_claim(.key = ONCE_LIT("weeks"))->record.body_expired);
    EXPECT(span_equal(do_lookup(ONCE_LIT("ever"))->record.body, big));
    EXPECT(span_equal(do_lookup(ONCE_LIT("unknown"))->record.body, big));
    clock_step_wall(-200 * SLOT_MS); /* what is not there any more does not come back as an empty answer */
    EXPECT(do_lookup(ONCE_LIT("weeks"))->record.body_dropped);
}

/* An unknown outcome that was resolved stays resolved when its slot is emptied in parts. */
static void K5__earlier_turn_does_not_come_back(void)
{
    do_finish(granted(.key = ONCE_LIT("a"), .retention_ms = 1000), .state = ONCE_STATE_UNKNOWN);
    do_resolve(.key = ONCE_LIT("a"), .verdict = ONCE_VERDICT_DONE, .reason = ONCE_LIT("r"),
               .outcome = { .state = ONCE_STATE_SUCCEEDED });
    turn_ring();
    EXPECT(do_lookup(ONCE_LIT("a"))->arm == ONCE_ARM_ABSENT);
    EXPECT(do_claim(.key = ONCE_LIT("a"))->arm == ONCE_ARM_EXECUTE);
}

/* ------------------------------------------------------------------ the database's clock */

static void FAULT_30__clock_of_the_database_set_back_is_safe(void)
{
    struct once_grant first = granted(.key = ONCE_LIT("a"), .lease_ms = 1000);
    struct once_grant other = granted(.key = ONCE_LIT("b"), .lease_ms = 1000);
    clock_step_wall(-3600 * 1000);
    succeed(first, ONCE_LIT("x")); /* no negative age: once_check() after the case would tell */
    const struct once_record *stored = &do_lookup(ONCE_LIT("a"))->record;
    EXPECT(stored->finished_at >= stored->claimed_at);
    EXPECT(do_claim(.key = ONCE_LIT("b"), .takeover = ONCE_TAKEOVER_RERUN)->arm == ONCE_ARM_IN_PROGRESS);
    EXPECT(granted(.key = ONCE_LIT("c")).fence > other.fence);
    succeed(other, ONCE_LIT("y"));
}

static void FAULT_30__clock_of_the_database_set_forward_costs_a_takeover_not_an_effect(void)
{
    struct once_grant first = granted(.key = ONCE_LIT("a"), .lease_ms = 1000);
    clock_step_wall(3600 * 1000);
    struct once_grant second = granted(.key = ONCE_LIT("a"), .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(second.fence > first.fence);
    EXPECT(do_finish(first, .state = ONCE_STATE_SUCCEEDED)->arm == ONCE_ARM_FENCED);
    clock_step_wall(-3600 * 1000);
    succeed(second, ONCE_LIT("x"));
}

/* A caller's setting moves nobody's clock in a store that is not made for tests. */
static void FAULT_30__clock_is_the_databases_own(void)
{
    in_store(NULL, 0, "UPDATE once.store SET test_clock = false");
    char value[32];
    in_store(value, sizeof value, "SET once.now_ms = '1'; SELECT once.now_ms() > 1700000000000");
    EXPECT(strcmp(value, "t") == 0);
    in_store(NULL, 0, "UPDATE once.store SET test_clock = true");
}

const struct suite_case sut_cases[] = {
    CASE(open__what_cannot_be_trusted_is_refused_with_the_reason),
    CASE(open__database_that_is_not_there_is_refused),
    CASE(open__role_that_may_not_use_the_schema_is_refused),
    CASE(busy__key_held_by_a_transaction_fails_alone),
    CASE(K10__lost_connection_is_settled_and_made_again),
    CASE(K7__what_is_wanted_outlives_the_ring),
    CASE(K8__lives_of_a_key_leave_nothing_behind),
    CASE(K8__bodies_do_not_outlive_their_time_and_the_ring),
    CASE(K5__earlier_turn_does_not_come_back),
    CASE(FAULT_30__clock_of_the_database_set_back_is_safe),
    CASE(FAULT_30__clock_of_the_database_set_forward_costs_a_takeover_not_an_effect),
    CASE(FAULT_30__clock_is_the_databases_own),
    { NULL, NULL },
};
