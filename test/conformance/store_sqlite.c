/*
 * store_sqlite.c - the sqlite: store, alone and wrapped: see store_under_test.h.
 *
 * Each store is a file in a directory of its own under TMPDIR. What only a store in a file
 * promises is tested here; this is the only file of the suite that knows SQLite.
 */
#include "suite.h"

#include <dirent.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

struct store_under_test sut;

static char wrappers[32]; /* "trace+fault+" */
static char directory[200];
static int made; /* stores in the directory */

bool sut_choose(const char *name)
{
    size_t len = strlen(name);
    static const char shared[] = "-shared";
    bool is_shared = len > sizeof shared - 1 && strcmp(name + len - (sizeof shared - 1), shared) == 0;
    if (is_shared)
        len -= sizeof shared - 1;
    if (len < 6 || memcmp(name + len - 6, "sqlite", 6) != 0 || len - 6 >= sizeof wrappers)
        return false;
    memcpy(wrappers, name, len - 6);
    wrappers[len - 6] = '\0';
    sut = (struct store_under_test){ .shared = is_shared,
                                     .loses_answers = strstr(wrappers, "fault+") != NULL,
                                     .reopens = true,
                                     .compact = wrappers[0] == '\0' && !is_shared };
    unsetenv("ONCE_FAULT"); /* the default plan */
    return true;
}

static void path_of(const char *name, char *path, size_t len)
{
    snprintf(path, len, "%s/%s", directory, name);
}

static void url_of(const char *rest, char *url, size_t len)
{
    snprintf(url, len, "%ssqlite:%s/%s", wrappers, directory, rest);
}

void sut_fresh(char *url, size_t len)
{
    if (directory[0] == '\0') {
        const char *tmp = getenv("TMPDIR");
        snprintf(directory, sizeof directory, "%s/once-conformance-XXXXXX", tmp != NULL ? tmp : "/tmp");
        if (mkdtemp(directory) == NULL) {
            printf("Bail out! cannot make a directory: %m\n");
            exit(2);
        }
        char trace[300];
        path_of("trace", trace, sizeof trace);
        setenv("ONCE_TRACE", trace, 1);
    }
    char name[32];
    snprintf(name, sizeof name, "store-%d", made++);
    url_of(name, url, len);
}

void sut_empty(char *url, size_t len)
{
    sut_fresh(url, len);
}

void sut_tidy(void)
{
}

void sut_restart(void)
{
}

void sut_discard(void)
{
    DIR *dir = opendir(directory);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(dir), entry->d_name, entry->d_type == DT_DIR ? AT_REMOVEDIR : 0);
    if (dir != NULL)
        closedir(dir);
    rmdir(directory);
    directory[0] = '\0';
    made = 0;
}

/* ------------------------------------------------------------------ files */

static once_span read_whole(const char *path)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return (once_span){ .len = 0 };
    static uint8_t bytes[8 << 20];
    size_t len = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    return (once_span){ bytes, len };
}

static void write_whole(const char *path, const void *bytes, size_t len)
{
    FILE *file = fopen(path, "we");
    CHECK(file != NULL && fwrite(bytes, 1, len, file) == len);
    fclose(file);
}

/* Is this text in any file of the directory? */
static bool is_in_a_file(const char *text)
{
    bool found = false;
    DIR *dir = opendir(directory);
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (entry->d_type != DT_REG)
            continue;
        once_span bytes = read_whole(path);
        found = found || (bytes.len > 0 && memmem(bytes.ptr, bytes.len, text, strlen(text)) != NULL);
    }
    closedir(dir);
    return found;
}

static once_result open_named(const char *rest, struct once **out)
{
    char url[400];
    url_of(rest, url, sizeof url);
    struct once_options options = { .shared = sut.shared, .lock_wait_ms = 1, .seal_keys = suite.options.seal_keys };
    suite.err = (struct once_error){ .result = ONCE_OK };
    return once_open(url, &options, out, &suite.err);
}

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    sqlite3_close(db);
    CHECK(rc == SQLITE_OK);
}

/* ------------------------------------------------------------------ cases */

static void file__all_of_a_store_can_be_read_by_its_owner_only(void)
{
    mode_t before = umask(0);
    struct once *once = NULL;
    once_result r = open_named("private", &once);
    umask(before);
    CHECK(r == ONCE_OK);
    struct once_claim claim = { .key = ONCE_LIT("a") };
    struct once_reply reply;
    EXPECT(once_claim(once, &claim, &reply, NULL) == ONCE_OK);
    once_reply_release(&reply);
    DIR *dir = opendir(directory);
    CHECK(dir != NULL);
    int files = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct stat st;
        if (strncmp(entry->d_name, "private", 7) != 0)
            continue;
        CHECK(fstatat(dirfd(dir), entry->d_name, &st, 0) == 0);
        EXPECT_ROW(entry->d_name, (st.st_mode & 07777) == 0600);
        files++;
    }
    closedir(dir);
    EXPECT(files >= 3); /* the database, its log, its lock */
    once_close(once);
}

static const struct refused_row {
    const char *name, *rest;
    once_result result;
} refused_rows[] = {
    { "directory that is not there", "nowhere/store", ONCE_UNAVAILABLE },
    { "directory as path", "", ONCE_UNAVAILABLE },
    { "file as directory", "garbage/store", ONCE_UNAVAILABLE },
    { "symbolic link", "link", ONCE_UNAVAILABLE },
    { "not a database", "garbage", ONCE_INVALID },
    { "unknown parameter", "new?cache=shared", ONCE_INVALID },
    { "keytext that is neither", "new?keytext=maybe", ONCE_INVALID },
    { "reserve that is no size", "new?reserve=much", ONCE_INVALID },
};

static void file__what_cannot_be_a_store_is_refused_and_left_as_it_is(void)
{
    char path[300], link[300];
    static uint8_t garbage[5000];
    memset(garbage, 'g', sizeof garbage);
    path_of("garbage", path, sizeof path);
    path_of("link", link, sizeof link);
    write_whole(path, garbage, sizeof garbage);
    CHECK(symlink("elsewhere", link) == 0);
    for (size_t i = 0; i < LENGTH(refused_rows); i++) {
        struct once *once = NULL;
        EXPECT_ROW(refused_rows[i].name, open_named(refused_rows[i].rest, &once) == refused_rows[i].result);
        EXPECT_ROW(refused_rows[i].name, once == NULL);
        EXPECT_ROW(refused_rows[i].name, suite.err.result == refused_rows[i].result && suite.err.text[0] != '\0');
    }
    EXPECT(span_equal(read_whole(path), (once_span){ garbage, sizeof garbage }));
    path_of("new", path, sizeof path);
    EXPECT(access(path, F_OK) != 0); /* a wrong parameter makes no file */
    path_of("elsewhere", path, sizeof path);
    EXPECT(access(path, F_OK) != 0);
    struct once *once = NULL;
    snprintf(path, sizeof path, "%ssqlite:", wrappers);
    EXPECT(once_open(path, NULL, &once, NULL) == ONCE_INVALID);
}

/* Opens it, expects a refusal, and that not a byte of it changed. */
static void expect_left_alone(const char *name, const char *sql, const char *said)
{
    char path[300];
    path_of(name, path, sizeof path);
    run_sql(path, sql);
    once_span bytes = read_whole(path);
    uint8_t *before = malloc(bytes.len + 1);
    CHECK(before != NULL && bytes.len > 0);
    memcpy(before, bytes.ptr, bytes.len);
    struct once *once = NULL;
    EXPECT_ROW(name, open_named(name, &once) == ONCE_INVALID);
    EXPECT_ROW(name, once == NULL);
    EXPECT_ROW(name, strstr(suite.err.text, said) != NULL);
    EXPECT_ROW(name, span_equal(read_whole(path), (once_span){ before, bytes.len }));
    free(before);
}

static void file__databases_of_other_programs_are_left_byte_identical(void)
{
    expect_left_alone("tables", "CREATE TABLE orders (id); INSERT INTO orders VALUES (1)", "another program");
    expect_left_alone("marked", "PRAGMA application_id = 77; VACUUM", "another program");
    expect_left_alone("wal", "PRAGMA journal_mode = WAL; CREATE TABLE orders (id)", "another program");
}

static void file__newer_schema_is_refused_and_left_byte_identical(void)
{
    struct once *once = NULL;
    CHECK(open_named("newer", &once) == ONCE_OK);
    once_close(once);
    expect_left_alone("newer",
                      "UPDATE once_meta SET value = 999 WHERE name = 'schema'; "
                      "PRAGMA wal_checkpoint(TRUNCATE)",
                      "newer program");
}

static void file__empty_one_becomes_a_store(void)
{
    char path[300];
    path_of("empty", path, sizeof path);
    write_whole(path, "", 0);
    struct once *once = NULL;
    EXPECT(open_named("empty", &once) == ONCE_OK);
    once_close(once);
    EXPECT(open_named("empty", &once) == ONCE_OK);
    once_close(once);
}

static void file__keytext_off_keeps_no_key_anywhere(void)
{
    once_close(suite.once);
    suite.once = NULL;
    url_of("store-0?keytext=off", suite.url, sizeof suite.url);
    reopen();
    once_span secret = ONCE_LIT("a-very-secret-key-of-somebody");
    struct once_grant grant = granted(.key = secret, .lease_ms = 1000);
    do_advance(grant, ONCE_LIT("p"), ONCE_LIT("cp"));
    do_extend(grant, 1000);
    clock_advance(1000);
    do_claim(.key = secret);
    do_resolve(.key = secret, .verdict = ONCE_VERDICT_NOT_DONE, .reason = ONCE_LIT("r"));
    succeed(granted(.key = secret), ONCE_LIT("x"));
    EXPECT(do_claim(.key = secret)->arm == ONCE_ARM_REPLAY);
    EXPECT(do_lookup(secret)->record.key.len == 0);
    EXPECT(do_list((struct once_filter){ 0 })->count == 1);
    EXPECT(do_list((struct once_filter){ .key_prefix = ONCE_LIT("a-very") })->count == 0);
    EXPECT(!is_in_a_file("a-very-secret-key"));
    reopen();
    EXPECT(!is_in_a_file("a-very-secret-key"));
    EXPECT(do_claim(.key = secret)->arm == ONCE_ARM_REPLAY);
}

static void file__keytext_on_keeps_the_key_but_no_trace_shows_it(void)
{
    granted(.key = ONCE_LIT("a-key-for-people"));
    reopen();
    EXPECT(is_in_a_file("a-key-for-people"));
    char path[300];
    path_of("trace", path, sizeof path);
    once_span trace = read_whole(path);
    EXPECT((trace.len > 0) == (strstr(wrappers, "trace+") != NULL));
    EXPECT(trace.len == 0 || memmem(trace.ptr, trace.len, "a-key-for", 9) == NULL);
}

static void file__reserve_is_as_large_as_asked_for(void)
{
    struct once *once = NULL;
    struct stat st;
    char path[300];
    CHECK(open_named("r?reserve=65536", &once) == ONCE_OK);
    once_close(once);
    path_of("r-reserve", path, sizeof path);
    EXPECT(stat(path, &st) == 0 && st.st_size == 65536);
    CHECK(open_named("none?reserve=0", &once) == ONCE_OK);
    once_close(once);
    path_of("none-reserve", path, sizeof path);
    EXPECT(stat(path, &st) != 0);
}

static void FACT_4__second_owner_is_refused(void)
{
    if (sut.shared) {
        skip("the handles of a store that is shared work together");
        return;
    }
    struct once *second = NULL;
    struct once_options options = { .lock_wait_ms = 1, .clock = &suite_clock };
    struct once_error err = { .result = ONCE_OK };
    EXPECT(once_open(suite.url, &options, &second, &err) == ONCE_UNAVAILABLE);
    EXPECT(second == NULL && err.text[0] != '\0');
    granted(.key = ONCE_LIT("a")); /* and the first goes on */
}

/* An owner keeps its index in RAM, sharers on disk: each goes on from what the other left. */
static void FACT_4__owners_and_sharers_take_turns(void)
{
    bool shared = sut.shared;
    uint64_t last = 0;
    for (int turn = 0; turn < 6; turn++) {
        sut.shared = turn % 2 != 0;
        reopen();
        for (int i = 0; i < 3; i++) {
            struct once_grant grant = granted(.key = numbered("k", turn * 3 + i), .retention_ms = 1000 + turn);
            EXPECT(grant.fence > last);
            last = grant.fence;
            succeed(grant, numbered("body", turn * 3 + i));
        }
        for (int i = 0; i < (turn + 1) * 3; i++) {
            const struct once_reply *replay = do_claim(.key = numbered("k", i));
            EXPECT(replay->arm == ONCE_ARM_REPLAY && span_equal(replay->record.body, numbered("body", i)));
        }
        EXPECT(do_list((struct once_filter){ 0 })->count == (size_t)(turn + 1) * 3);
    }
    clock_advance(1003); /* the first four turns */
    sut.shared = !shared;
    reopen();
    EXPECT(do_expire_all(0) == 12);
    sut.shared = shared;
    reopen();
    EXPECT(do_list((struct once_filter){ 0 })->count == 6);
    EXPECT(granted(.key = numbered("k", 0)).fence > last);
}

/* What forgetting says it erases is in no file after it: neither in the log nor in free pages. */
static void file__what_was_forgotten_is_in_no_file(void)
{
    struct once_grant grant =
        granted(.tenant = ONCE_LIT("MARK-tenant"), .key = ONCE_LIT("MARK-key"), .request = ONCE_LIT("MARK-request"));
    do_advance(grant, ONCE_LIT("p"), ONCE_LIT("MARK-checkpoint"));
    do_finish(grant, .state = ONCE_STATE_FAILED, .retryable = true, .body = ONCE_LIT("MARK-first"));
    once_span body = bytes_of(100000, true); /* pages of its own */
    memcpy((uint8_t *)(uintptr_t)body.ptr + 50000, "MARK-body", 9);
    grant = granted(.tenant = ONCE_LIT("MARK-tenant"), .key = ONCE_LIT("MARK-key"));
    CHECK(
        do_finish(grant, .state = ONCE_STATE_SUCCEEDED, .headers = ONCE_LIT("X: MARK-header\r\n"), .body = body)->arm ==
        ONCE_ARM_DONE);
    EXPECT(is_in_a_file("MARK-key") && is_in_a_file("MARK-tenant"));
    EXPECT(is_in_a_file("MARK-body") == (suite_seal_keys() == NULL));
    CHECK(do_forget(.tenant = ONCE_LIT("MARK-tenant"), .key = ONCE_LIT("MARK-key"), .reason = ONCE_LIT("r"))->arm ==
          ONCE_ARM_DONE);
    EXPECT(!is_in_a_file("MARK"));
    EXPECT(do_claim(.tenant = ONCE_LIT("MARK-tenant"), .key = ONCE_LIT("MARK-key"))->arm == ONCE_ARM_REPLAY);
}

static void file__what_was_sealed_is_in_no_file(void)
{
    CHECK(reopen_with_keys(SUITE_KEYS) == ONCE_OK);
    for (int i = 0; i < 3; i++) {
        once_span tenant = i == 0 ? ONCE_LIT("") : i == 1 ? ONCE_LIT("acme") : ONCE_LIT("other");
        struct once_grant grant = granted(.tenant = tenant, .key = ONCE_LIT("k"), .request = ONCE_LIT("MARK-request"));
        do_advance(grant, ONCE_LIT("p"), ONCE_LIT("MARK-checkpoint"));
        do_finish(grant, .state = ONCE_STATE_SUCCEEDED, .headers = ONCE_LIT("X: MARK-header\r\n"),
                  .body = ONCE_LIT("MARK-body"));
        grant = granted(.tenant = tenant, .key = ONCE_LIT("u"));
        do_finish(grant, .state = ONCE_STATE_UNKNOWN, .body = ONCE_LIT("MARK-unknown"));
        do_resolve(.tenant = tenant, .key = ONCE_LIT("u"), .verdict = ONCE_VERDICT_DONE, .reason = ONCE_LIT("r"),
                   .outcome = { .state = ONCE_STATE_SUCCEEDED, .body = ONCE_LIT("MARK-resolved") });
        EXPECT(span_equal(do_lookup_in(tenant, ONCE_LIT("u"))->record.body, ONCE_LIT("MARK-resolved")));
    }
    EXPECT(!is_in_a_file("MARK"));
    reopen();
    EXPECT(!is_in_a_file("MARK"));
}

/* Records that are kept for ever, their bodies not: what grows is the records. */
static void K8__bodies_give_their_space_back(void)
{
    enum { ROUNDS = 8, RECORDS = 12, LEN = 100000 };
    once_span body = bytes_of(LEN, true);
    uint64_t first = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < RECORDS; i++)
            succeed(granted(.key = numbered("k", round * RECORDS + i), .retention_ms = ONCE_NEVER,
                            .body_retention_ms = 1000),
                    body);
        clock_advance(1000);
        do_expire_all(0);
        if (round == 0)
            first = do_stats().bytes;
    }
    EXPECT(do_stats().bytes < first + 3 * RECORDS * LEN); /* there is a log, too */
    for (int i = 0; i < ROUNDS * RECORDS; i++)
        EXPECT(do_lookup(numbered("k", i))->record.body_expired);
}

static once_result look_in(struct once *once)
{
    struct once_reply found;
    once_result r = once_lookup(once, span_str(""), ONCE_LIT("a"), &found, &suite.err);
    EXPECT(r != ONCE_OK || (found.record.body_expired && found.record.status == 200));
    once_reply_release(&found);
    return r;
}

/* How it ended is under the seal of what is dropped: a flipped bit there must not get a new one. */
static void FAULT_14__dropping_a_body_does_not_make_damage_look_right(void)
{
    char path[300];
    struct once *once = NULL;
    struct once_claim claim = { .key = ONCE_LIT("a"), .retention_ms = ONCE_NEVER, .body_retention_ms = 1 };
    struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED, .status = 200, .body = ONCE_LIT("the answer") };
    struct once_reply reply, done;
    uint64_t removed;
    bool more;
    CHECK(open_named("damaged", &once) == ONCE_OK);
    CHECK(once_claim(once, &claim, &reply, NULL) == ONCE_OK);
    CHECK(once_finish(once, reply.record.grant, &outcome, &done, NULL) == ONCE_OK);
    once_reply_release(&reply);
    once_reply_release(&done);
    once_close(once);
    path_of("damaged", path, sizeof path);
    run_sql(path, "UPDATE once_result SET status = 201");
    CHECK(open_named("damaged", &once) == ONCE_OK);
    EXPECT(look_in(once) == ONCE_CORRUPT);
    EXPECT(once_expire(once, 0, &removed, &more, NULL) == ONCE_OK && removed == 0 && !more);
    EXPECT(look_in(once) == ONCE_CORRUPT);
    once_close(once);
    run_sql(path, "UPDATE once_result SET status = 200, body_until = finished_at + 1");
    CHECK(open_named("damaged", &once) == ONCE_OK);
    EXPECT(once_expire(once, 0, &removed, &more, NULL) == ONCE_OK);
    EXPECT(look_in(once) == ONCE_OK);
    once_close(once);
}

/* An outcome that comes from another process is found by looking again. */
const struct suite_case sut_cases[] = {
    CASE(file__what_was_forgotten_is_in_no_file),
    CASE(file__what_was_sealed_is_in_no_file),
    CASE(file__all_of_a_store_can_be_read_by_its_owner_only),
    CASE(file__what_cannot_be_a_store_is_refused_and_left_as_it_is),
    CASE(file__databases_of_other_programs_are_left_byte_identical),
    CASE(file__newer_schema_is_refused_and_left_byte_identical),
    CASE(file__empty_one_becomes_a_store),
    CASE(file__keytext_off_keeps_no_key_anywhere),
    CASE(file__keytext_on_keeps_the_key_but_no_trace_shows_it),
    CASE(file__reserve_is_as_large_as_asked_for),
    CASE(FACT_4__second_owner_is_refused),
    CASE(FACT_4__owners_and_sharers_take_turns),
    CASE(K8__bodies_give_their_space_back),
    CASE(FAULT_14__dropping_a_body_does_not_make_damage_look_right),
    { NULL, NULL },
};
