/*
 * test_flip.c - one bit of the stored file changes (FAULT-14).
 *
 * A store with records in every state, at rest. Many times: one bit of a copy is flipped,
 * anywhere; `once check` looks at it, then every key is looked up and claimed. Each answer
 * may be the right one, or an error. Never is a stored outcome replayed with other bytes
 * or another status; and any other answer that is not the right one (an execution, above
 * all) must have been announced by the check.
 *
 * A flipped bit in the log cannot be told from the end of the log, there SQLite cuts it
 * off: what was in it is lost, and no check can know. That is counted and shown only.
 *
 *     test_flip [CASE...]    SEED=N SIZE=N: other flips, more of them
 *     FLIP=FILE:OFFSET:BIT   this one, with all it does; FILE: 0 the database, 1 the log
 */
#include "core/span.h"
#include "inject.h"
#include "once.h"

#include "../test.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

enum { KEYS = 36, PAGE = 4096, PAGES_MAX = 512, SHOWN_MAX = 2, BODY_LEN_MAX = 9000 };

/* What became of a flip; the worst counts. */
enum end { HARMLESS, REFUSED, REPORTED, AN_ERROR, SILENT, EXECUTED, WRONG_REPLAY, CRASHED, ENDS };

static const char *const end_names[ENDS] = {
    "harmless",
    "the store was refused",
    "reported by the check",
    "an error instead of an answer",
    "ANOTHER ANSWER, UNREPORTED",
    "EXECUTED AGAIN, UNREPORTED",
    "A WRONG REPLAY",
    "CRASHED",
};

static char folder[256];
static uint64_t seed;
static once_time now;
static const char *parameters; /* of the URL */

static uint64_t random_next(void)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed;
}

static once_time clock_ms(void *arg)
{
    (void)arg;
    return now;
}

static void clock_boot(void *arg, uint8_t id[16])
{
    (void)arg;
    memset(id, 1, 16);
}

static const struct once_clock test_clock = { clock_ms, clock_ms, clock_boot, NULL };

/* ------------------------------------------------------------------ the store */

static struct once *open_store(bool shared, struct once_error *err)
{
    char url[400];
    snprintf(url, sizeof url, "sqlite:%s/once.db?reserve=0%s", folder, parameters);
    struct once *once = NULL;
    if (once_open(url, &(struct once_options){ .shared = shared, .clock = &test_clock }, &once, err) != ONCE_OK)
        return NULL;
    return once;
}

static struct once_claim claim_of(unsigned number, char key[32])
{
    snprintf(key, 32, "key %u", number);
    struct once_claim claim = { .key = once_span_str(key), .retention_ms = 3600000, .takeover = ONCE_TAKEOVER_RERUN };
    memset(&claim.fingerprint, 9, sizeof claim.fingerprint);
    return claim;
}

static once_span body_of(unsigned number)
{
    static uint8_t bytes[BODY_LEN_MAX];
    size_t len = number % 5 == 0 ? BODY_LEN_MAX : number * 97 % 1500;
    uint64_t x = number * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < len; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        bytes[i] = number % 2 == 0 ? (uint8_t)("flip flop "[i % 10]) : (uint8_t)x;
    }
    return once_span_of(bytes, len);
}

static struct once_grant claim(struct once *once, unsigned number)
{
    char key[32];
    struct once_claim claim = claim_of(number, key);
    struct once_reply reply;
    CHECK(once_claim(once, &claim, &reply, NULL) == ONCE_OK);
    CHECK(reply.arm == ONCE_ARM_EXECUTE);
    struct once_grant grant = reply.record.grant;
    once_reply_release(&reply);
    return grant;
}

static void finish(struct once *once, unsigned number, struct once_grant grant, enum once_state state, bool retryable)
{
    struct once_outcome outcome = { .state = state,
                                    .retryable = retryable,
                                    .status = (int32_t)number,
                                    .headers = ONCE_LIT("Content-Type: text/plain\r\n"),
                                    .body = body_of(number) };
    struct once_reply reply;
    CHECK(once_finish(once, grant, &outcome, &reply, NULL) == ONCE_OK);
    once_reply_release(&reply);
}

static void advance(struct once *once, unsigned number, struct once_grant grant)
{
    struct once_reply reply;
    CHECK(once_advance(once, grant, ONCE_LIT("half-way"), body_of(number), &reply, NULL) == ONCE_OK);
    once_reply_release(&reply);
}

/* One of the states a record can be in. */
static void make_record(struct once *once, unsigned number)
{
    struct once_grant grant = claim(once, number);
    struct once_reply reply;
    switch (number % 9) {
    case 0:
    case 1:
        finish(once, number, grant, ONCE_STATE_SUCCEEDED, false);
        break;
    case 2:
        finish(once, number, grant, ONCE_STATE_FAILED, false);
        break;
    case 3:
        finish(once, number, grant, ONCE_STATE_FAILED, true);
        break;
    case 4: /* running */
        break;
    case 5: /* running, with a recovery point */
        advance(once, number, grant);
        break;
    case 6:
        finish(once, number, grant, ONCE_STATE_UNKNOWN, false);
        break;
    case 7: /* the second attempt, from the first one's recovery point */
        advance(once, number, grant);
        finish(once, number, grant, ONCE_STATE_FAILED, true);
        finish(once, number, claim(once, number), ONCE_STATE_SUCCEEDED, false);
        break;
    default:
        CHECK(once_release(once, grant, &reply, NULL) == ONCE_OK);
        once_reply_release(&reply);
    }
}

/* ------------------------------------------------------------------ answers */

struct answer {
    once_result result;
    enum once_arm arm;
    uint64_t outcome; /* what a caller gets to see of the outcome */
    uint64_t all;
};

static uint64_t hash(uint64_t sofar, const void *bytes, size_t len)
{
    return XXH64(bytes, len, sofar ^ len);
}

static uint64_t hash_span(uint64_t sofar, once_span s)
{
    return hash(sofar, s.len > 0 ? (const void *)s.ptr : "", s.len);
}

static struct answer answer_of(once_result r, struct once_reply *reply)
{
    const struct once_record *record = &reply->record;
    struct answer a = { .result = r, .arm = reply->arm };
    if (r == ONCE_OK) {
        a.outcome = hash(0, &record->status, sizeof record->status);
        a.outcome = hash(a.outcome, &record->state, sizeof record->state);
        a.outcome = hash_span(hash_span(a.outcome, record->headers), record->body);
        bool granted = reply->arm == ONCE_ARM_EXECUTE; /* then its fence is new */
        a.all = hash(a.outcome, &record->attempt, sizeof record->attempt);
        a.all = hash(a.all, &record->grant.fence, granted ? 0 : sizeof record->grant.fence);
        a.all = hash_span(hash_span(a.all, record->recovery_point), record->checkpoint);
    }
    once_reply_release(reply);
    return a;
}

static void ask_all(struct once *once, struct answer answers[2 * KEYS])
{
    for (unsigned i = 0; i < KEYS; i++) {
        char key[32];
        struct once_claim claim = claim_of(i, key);
        struct once_reply reply;
        once_result r = once_lookup(once, claim.tenant, claim.key, &reply, NULL);
        answers[2 * i] = answer_of(r, &reply);
        r = once_claim(once, &claim, &reply, NULL);
        answers[2 * i + 1] = answer_of(r, &reply);
    }
}

static bool tells_outcome(enum once_arm arm)
{
    return arm == ONCE_ARM_REPLAY;
}

static enum end compare(const struct answer right[2 * KEYS], const struct answer got[2 * KEYS], bool reported,
                        char text[200])
{
    enum end worst = reported ? REPORTED : HARMLESS;
    for (unsigned i = 0; i < 2 * KEYS; i++) {
        enum end end = HARMLESS;
        if (got[i].result != ONCE_OK)
            end = reported ? REPORTED : AN_ERROR;
        else if (tells_outcome(got[i].arm) && (got[i].arm != right[i].arm || got[i].outcome != right[i].outcome))
            end = WRONG_REPLAY;
        else if (got[i].arm != right[i].arm && got[i].arm == ONCE_ARM_EXECUTE)
            end = reported ? REPORTED : EXECUTED;
        else if (got[i].arm != right[i].arm || got[i].all != right[i].all)
            end = reported ? REPORTED : SILENT;
        if (end > worst) {
            worst = end;
            snprintf(text, 200, "%s of key %u: %s instead of %s%s", i % 2 == 0 ? "lookup" : "claim", i / 2,
                     got[i].result != ONCE_OK ? once_result_name(got[i].result) : once_arm_name(got[i].arm),
                     once_arm_name(right[i].arm), got[i].arm == right[i].arm ? " with other contents" : "");
        }
    }
    return worst;
}

/* ------------------------------------------------------------------ files */

static uint8_t *stored[2]; /* the database and its log, as they were left */
static size_t stored_len[2];
static const char *const stored_names[2] = { "once.db", "once.db-wal" };

static void clean(void)
{
    static const char *const names[] = { "once.db",      "once.db-wal",     "once.db-shm",
                                         "once.db-lock", "once.db-reserve", "once.db-journal" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
}

static void files_keep(void)
{
    for (int f = 0; f < 2; f++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, stored_names[f]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct stat st = { .st_size = 0 };
        if (fd >= 0)
            fstat(fd, &st);
        free(stored[f]);
        stored_len[f] = (size_t)st.st_size;
        stored[f] = malloc(stored_len[f] + 1);
        CHECK(fd < 0 || read(fd, stored[f], stored_len[f]) == st.st_size);
        if (fd >= 0)
            close(fd);
    }
}

static void files_restore(void)
{
    clean();
    for (int f = 0; f < 2; f++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, stored_names[f]);
        if (stored_len[f] == 0)
            continue;
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, stored[f], stored_len[f]) != (ssize_t)stored_len[f])
            abort();
        close(fd);
    }
}

/* Which table a page belongs to: for messages. */
static char page_names[PAGES_MAX][32];
static int page_shown[PAGES_MAX]; /* messages about the table that begins here */

static bool is_shown(size_t page)
{
    for (size_t i = 1; i < PAGES_MAX; i++)
        if (page < PAGES_MAX && strcmp(page_names[i], page_names[page]) == 0)
            return page_shown[i]++ < SHOWN_MAX;
    return true;
}

static void pages_name(void)
{
    memset(page_names, 0, sizeof page_names);
    memset(page_shown, 0, sizeof page_shown);
    char path[400];
    snprintf(path, sizeof path, "%s/once.db", folder);
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(db, "SELECT pageno, name FROM dbstat", -1, &st, NULL) == SQLITE_OK)
        while (sqlite3_step(st) == SQLITE_ROW)
            if (sqlite3_column_int(st, 0) < PAGES_MAX)
                snprintf(page_names[sqlite3_column_int(st, 0)], sizeof page_names[0], "%s",
                         (const char *)sqlite3_column_text(st, 1));
    sqlite3_finalize(st);
    sqlite3_close(db);
}

/* ------------------------------------------------------------------ one flip */

struct flip {
    int file;
    size_t offset;
    int bit;
};

static bool verbose;

static void on_problem(void *arg, const struct once_problem *problem)
{
    (void)arg;
    if (verbose)
        printf("# check: %s at %llu: %s\n", problem->invariant, (unsigned long long)problem->fence, problem->text);
}

/* As a process of its own sees it. */
static enum end look(const struct answer right[2 * KEYS], bool shared, char text[200])
{
    struct once_error err = { .text = "" };
    struct once *once = open_store(true, &err);
    bool reported = true;
    if (once != NULL) {
        struct once_check_report report;
        once_result r = once_check(once, on_problem, NULL, &report, &err);
        reported = r != ONCE_OK || report.problems > 0;
        if (verbose)
            printf("# check: %s, %llu problems %s\n", once_result_name(r), (unsigned long long)report.problems,
                   r != ONCE_OK ? err.text : "");
        once_close(once);
    } else if (verbose) {
        printf("# open: %s\n", err.text);
    }
    once = open_store(shared, &err);
    if (once == NULL) {
        snprintf(text, 200, "%.190s", err.text);
        return REFUSED;
    }
    struct answer got[2 * KEYS];
    ask_all(once, got);
    once_close(once);
    return compare(right, got, reported, text);
}

static enum end try_flip(const struct flip *flip, const struct answer right[2 * KEYS], bool shared, char text[200])
{
    stored[flip->file][flip->offset] ^= (uint8_t)(1 << flip->bit);
    files_restore();
    stored[flip->file][flip->offset] ^= (uint8_t)(1 << flip->bit);
    int ends[2];
    if (pipe(ends) != 0)
        abort();
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(300); /* it hangs */
        char said[200] = "";
        enum end end = look(right, shared, said);
        fflush(stdout);
        if (write(ends[1], said, sizeof said) != sizeof said)
            _exit(CRASHED);
        _exit((int)end);
    }
    close(ends[1]);
    if (read(ends[0], text, 200) <= 0)
        snprintf(text, 200, "no word");
    close(ends[0]);
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? (enum end)WEXITSTATUS(status) : CRASHED;
}

/* Pages evenly, so that small tables get their share; of a page, the bytes in use. */
static struct flip choose(int file)
{
    struct flip flip = { .file = file, .bit = (int)(random_next() % 8) };
    size_t page = random_next() % (stored_len[file] / PAGE);
    for (int i = 0; i < 200; i++) {
        flip.offset = page * PAGE + random_next() % PAGE;
        if (stored[file][flip.offset] != 0 || i == 199 || random_next() % 16 == 0)
            break;
    }
    return flip;
}

static unsigned long env_number(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoul(text, NULL, 10) : otherwise;
}

struct tally {
    unsigned long ends[ENDS];
    const struct answer *right;
    bool must_hold;
    unsigned long count;
};

static void flip_one(struct tally *tally, const struct flip *flip)
{
    bool shared = tally->count++ % 2 == 0;
    char text[200];
    enum end end = try_flip(flip, tally->right, shared, text);
    tally->ends[end]++;
    size_t page = flip->offset / PAGE + 1;
    if (verbose || (end >= SILENT && tally->must_hold && is_shown(page)))
        printf("# FLIP=%d:%zu:%d in %s (%s): %s: %s\n", flip->file, flip->offset, flip->bit,
               flip->file == 0 && page < PAGES_MAX ? page_names[page] : "the log", shared ? "shared" : "owned",
               end_names[end], text);
}

static void report(const struct tally *tally)
{
    for (int e = 0; e < ENDS; e++)
        if (tally->ends[e] > 0)
            printf("# %lu: %s\n", tally->ends[e], end_names[e]);
    EXPECT(tally->ends[WRONG_REPLAY] == 0);
    EXPECT(tally->ends[CRASHED] == 0);
    EXPECT(!tally->must_hold || tally->ends[SILENT] == 0);
    EXPECT(!tally->must_hold || tally->ends[EXECUTED] == 0);
    EXPECT(verbose || tally->ends[HARMLESS] > 0);
    EXPECT(verbose || !tally->must_hold || tally->ends[REPORTED] > 0);
}

/* Every bit in use of the tables of which everything else hangs. */
static void flip_small_tables(struct tally *tally)
{
    for (size_t offset = 0; offset < stored_len[0]; offset++) {
        const char *name = offset / PAGE + 1 < PAGES_MAX ? page_names[offset / PAGE + 1] : "";
        bool small =
            strcmp(name, "once_meta") == 0 || strcmp(name, "once_boot") == 0 || strcmp(name, "once_index") == 0;
        for (int bit = 0; small && stored[0][offset] != 0 && bit < 8; bit++)
            flip_one(tally, &(struct flip){ 0, offset, bit });
    }
}

/* A store made by an owner is at rest in its database, one made by those who share it, in its log. */
static void flip_bits(const char *with, bool shared, int file, unsigned long count, bool must_hold)
{
    parameters = with;
    now = 1700000000000;
    clean();
    struct once_error err = { .text = "" };
    struct once *once = open_store(shared, &err);
    CHECK(once != NULL);
    for (unsigned i = 0; i < KEYS; i++)
        make_record(once, i);
    once_close(once);
    now += 1000;
    files_keep();
    pages_name();
    CHECK(stored_len[file] > 8 * PAGE);
    files_restore();
    struct answer right[2 * KEYS];
    once = open_store(true, &err);
    CHECK(once != NULL);
    ask_all(once, right);
    once_close(once);
    struct tally tally = { .right = right, .must_hold = must_hold };
    struct flip one;
    const char *only = getenv("FLIP");
    verbose = only != NULL && sscanf(only, "%d:%zu:%d", &one.file, &one.offset, &one.bit) == 3;
    if (verbose && one.file == file) {
        flip_one(&tally, &one);
        flip_one(&tally, &one);
    } else if (!verbose && count == 0) {
        flip_small_tables(&tally);
    }
    for (unsigned long i = 0; !verbose && i < count; i++) {
        struct flip flip = choose(file);
        flip_one(&tally, &flip);
    }
    report(&tally);
}

static void database__never_a_wrong_answer_unreported(void)
{
    flip_bits("", false, 0, 100 * env_number("SIZE", 1), true);
}

static void database_without_key_texts__the_same(void)
{
    flip_bits("&keytext=off", false, 0, 40 * env_number("SIZE", 1), true);
}

static void small_tables__every_bit(void)
{
    flip_bits("&keytext=off", false, 0, 0, true);
}

static void log__never_a_wrong_replay(void)
{
    flip_bits("", true, 1, 15 * env_number("SIZE", 1), false);
}

int main(int argc, char **argv)
{
    inject_init();
    seed = env_number("SEED", 1) * 0x9e3779b97f4a7c15u + 88172645463325252u;
    printf("# SEED=%lu SIZE=%lu\n", env_number("SEED", 1), env_number("SIZE", 1));
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/once-flip.XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(folder) == NULL)
        abort();
    static const struct test tests[] = {
        TEST(database__never_a_wrong_answer_unreported),
        TEST(database_without_key_texts__the_same),
        TEST(small_tables__every_bit),
        TEST(log__never_a_wrong_replay),
    };
    int failed = test_main(argc, argv, tests, sizeof tests / sizeof *tests);
    clean();
    rmdir(folder);
    free(stored[0]);
    free(stored[1]);
    return failed;
}
