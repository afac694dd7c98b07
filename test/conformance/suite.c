/* suite.c - see suite.h. The runner: TAP on stdout, one line per case. */
#include "suite.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

struct suite suite;

static atomic_int failures; /* of the running case; threads count too */
static jmp_buf escape;

/* What lives until the case is over. */
static struct kept {
    struct once_reply reply;
    struct once_page page;
    struct once_history history;
    uint8_t *bytes;
    struct kept *next;
} * kept_first;

static struct kept *keep(void)
{
    struct kept *k = calloc(1, sizeof *k);
    if (k == NULL)
        abort();
    k->next = kept_first;
    kept_first = k;
    return k;
}

static void kept_release(void)
{
    while (kept_first != NULL) {
        struct kept *k = kept_first;
        kept_first = k->next;
        once_reply_release(&k->reply);
        once_page_release(&k->page);
        once_history_release(&k->history);
        free(k->bytes);
        free(k);
    }
}

/* ------------------------------------------------------------------ failing */

void suite_failed(const char *file, int line, const char *row, const char *what)
{
    const char *slash = strrchr(file, '/');
    atomic_fetch_add(&failures, 1);
    printf("# %s:%d: %s%s%s\n", slash != NULL ? slash + 1 : file, line, row != NULL ? row : "", row != NULL ? ": " : "",
           what);
}

void suite_leave(void)
{
    if (suite.in_callback) {
        printf("Bail out! a check failed inside of once_run(), whose handle is lost with that\n");
        exit(1);
    }
    longjmp(escape, 1);
}

static void must(once_result r, const char *what)
{
    if (r == ONCE_OK)
        return;
    printf("# %s: %s: %s\n", what, once_result_name(r), suite.err.text);
    suite_failed(what, 0, NULL, "the call did not work");
    suite_leave();
}

/* ------------------------------------------------------------------ the clock */

/* Shared with every process that the suite starts: a daemon under test has the same time. */
static struct clock {
    _Atomic int64_t wall_ms, steady_ms;
    atomic_int boot_number;
} * time_of;

static void clock_make(void)
{
    time_of = mmap(NULL, sizeof *time_of, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (time_of == MAP_FAILED)
        abort();
}

static once_time read_wall(void *arg)
{
    (void)arg;
    return atomic_load(&time_of->wall_ms);
}

static once_time read_steady(void *arg)
{
    (void)arg;
    return atomic_load(&time_of->steady_ms);
}

static void read_boot(void *arg, uint8_t id[16])
{
    (void)arg;
    memset(id, atomic_load(&time_of->boot_number), 16);
}

const struct once_clock suite_clock = { .wall = read_wall, .steady = read_steady, .boot = read_boot };

static void clock_reset(void)
{
    atomic_store(&time_of->wall_ms, 1700000000000);
    atomic_store(&time_of->steady_ms, 5000000);
    atomic_store(&time_of->boot_number, 1);
}

void clock_advance(int64_t ms)
{
    atomic_fetch_add(&time_of->wall_ms, ms);
    atomic_fetch_add(&time_of->steady_ms, ms);
}

void clock_step_wall(int64_t ms)
{
    atomic_fetch_add(&time_of->wall_ms, ms);
}

void clock_reboot(int64_t off_ms)
{
    atomic_fetch_add(&time_of->wall_ms, off_ms);
    atomic_store(&time_of->steady_ms, 1000);
    atomic_fetch_add(&time_of->boot_number, 1);
}

/* ------------------------------------------------------------------ the handle */

static char seal_path[] = "/tmp/once-keys-XXXXXX";
static bool seal_path_made;

static void remove_keys(void)
{
    unlink(seal_path);
}

static void write_keys(const char *text)
{
    int fd = seal_path_made ? open(seal_path, O_WRONLY | O_TRUNC | O_CLOEXEC) : mkstemp(seal_path);
    if (!seal_path_made)
        atexit(remove_keys);
    seal_path_made = true;
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        printf("Bail out! cannot write keys: %m\n");
        exit(2);
    }
    close(fd);
}

const char *suite_seal_keys(void)
{
    static bool asked, sealed;
    if (!asked) {
        sealed = getenv("ONCE_TEST_SEAL") != NULL;
        asked = true;
        if (sealed)
            write_keys(SUITE_KEYS);
    }
    return sealed ? seal_path : NULL;
}

static void open_again(void)
{
    suite.options.shared = sut.shared;
    if (!suite.own_keys)
        suite.options.seal_keys = sut.served ? NULL : suite_seal_keys();
    must(once_open(suite.url, &suite.options, &suite.once, &suite.err), "once_open");
}

/* Whatever serves the store starts anew, too. */
void reopen(void)
{
    once_close(suite.once);
    suite.once = NULL;
    sut_restart();
    open_again();
}

once_result reopen_with_keys(const char *text)
{
    once_close(suite.once);
    suite.once = NULL;
    suite.own_keys = true;
    if (text != NULL)
        write_keys(text);
    suite.options.seal_keys = text != NULL ? seal_path : NULL;
    suite.options.shared = sut.shared;
    suite.err = (struct once_error){ .result = ONCE_OK };
    return once_open(suite.url, &suite.options, &suite.once, &suite.err);
}

void reopen_with(struct once_options options)
{
    suite.options = options;
    suite.options.clock = &suite_clock;
    reopen();
}

void reopen_with_real_clock(void)
{
    suite.options.clock = NULL;
    reopen();
}

size_t dispatch_some(void)
{
    struct pollfd readable = { .fd = once_eventfd(suite.once), .events = POLLIN };
    size_t count = 0;
    while (count == 0 && poll(&readable, 1, 120000) == 1) /* readable may be for what an earlier dispatch took */
        count = once_dispatch(suite.once, SIZE_MAX);
    return count;
}

void forget_answer(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    (void)arg, (void)result, (void)err;
    once_reply_release(reply);
}

/* ------------------------------------------------------------------ calls that must work */

const struct once_reply *suite_claim(const struct once_claim *claim)
{
    struct kept *k = keep();
    must(once_claim(suite.once, claim, &k->reply, &suite.err), "once_claim");
    return &k->reply;
}

const struct once_reply *suite_finish(struct once_grant grant, const struct once_outcome *outcome)
{
    struct kept *k = keep();
    must(once_finish(suite.once, grant, outcome, &k->reply, &suite.err), "once_finish");
    return &k->reply;
}

const struct once_reply *suite_resolve(const struct once_resolve *resolve)
{
    struct kept *k = keep();
    must(once_resolve(suite.once, resolve, &k->reply, &suite.err), "once_resolve");
    return &k->reply;
}

const struct once_reply *suite_forget(const struct once_forget *forget)
{
    struct kept *k = keep();
    must(once_forget(suite.once, forget, &k->reply, &suite.err), "once_forget");
    return &k->reply;
}

const struct once_reply *suite_take_over(const struct once_take_over *take_over)
{
    struct kept *k = keep();
    must(once_take_over(suite.once, take_over, &k->reply, &suite.err), "once_take_over");
    return &k->reply;
}

struct once_grant suite_granted(const char *file, int line, const struct once_claim *claim)
{
    const struct once_reply *reply = suite_claim(claim);
    if (reply->arm != ONCE_ARM_EXECUTE && reply->arm != ONCE_ARM_PROBE) {
        printf("# the claim was answered '%s'\n", once_arm_name(reply->arm));
        suite_failed(file, line, NULL, "not granted");
        suite_leave();
    }
    return reply->record.grant;
}

const struct once_reply *do_extend(struct once_grant grant, int64_t lease_ms)
{
    struct kept *k = keep();
    must(once_extend(suite.once, grant, lease_ms, &k->reply, &suite.err), "once_extend");
    return &k->reply;
}

const struct once_reply *do_advance(struct once_grant grant, once_span point, once_span checkpoint)
{
    struct kept *k = keep();
    must(once_advance(suite.once, grant, point, checkpoint, &k->reply, &suite.err), "once_advance");
    return &k->reply;
}

const struct once_reply *do_release(struct once_grant grant)
{
    struct kept *k = keep();
    must(once_release(suite.once, grant, &k->reply, &suite.err), "once_release");
    return &k->reply;
}

const struct once_reply *do_lookup_in(once_span tenant, once_span key)
{
    struct kept *k = keep();
    must(once_lookup(suite.once, tenant, key, &k->reply, &suite.err), "once_lookup");
    return &k->reply;
}

const struct once_reply *do_lookup_record(const uint8_t record[16])
{
    struct kept *k = keep();
    must(once_lookup_record(suite.once, record, &k->reply, &suite.err), "once_lookup_record");
    return &k->reply;
}

const struct once_reply *do_lookup(once_span key)
{
    return do_lookup_in((once_span){ .len = 0 }, key);
}

const struct once_page *do_list(struct once_filter filter)
{
    struct kept *k = keep();
    must(once_list(suite.once, &filter, &k->page, &suite.err), "once_list");
    return &k->page;
}

const struct once_history *do_history(once_span key)
{
    struct kept *k = keep();
    must(once_history(suite.once, (once_span){ .len = 0 }, key, &k->history, &suite.err), "once_history");
    return &k->history;
}

struct once_stats do_stats(void)
{
    struct once_stats stats;
    must(once_stats(suite.once, &stats, &suite.err), "once_stats");
    return stats;
}

uint64_t do_expire_all(uint32_t budget)
{
    uint64_t total = 0, removed = 0;
    bool more = true;
    for (int idle = 0; more;) {
        must(once_expire(suite.once, budget, &removed, &more, &suite.err), "once_expire");
        EXPECT(budget == 0 || removed <= budget);
        idle = removed > 0 ? 0 : idle + 1;
        CHECK(!more || idle < (sut.expires_later ? 1000 : 1)); /* it does not go on for nothing */
        total += removed;
    }
    return total;
}

bool do_expire(uint32_t budget, uint64_t count)
{
    uint64_t removed = do_expire_all(budget);
    return sut.expires_later ? count > 0 || removed == 0 : removed == count;
}

void succeed(struct once_grant grant, once_span body)
{
    const struct once_reply *done = do_finish(grant, .state = ONCE_STATE_SUCCEEDED, .status = 200, .body = body);
    CHECK(done->arm == ONCE_ARM_DONE);
}

/* ------------------------------------------------------------------ values */

struct once_fingerprint print_of(uint8_t seed)
{
    struct once_fingerprint print;
    memset(print.bytes, seed, sizeof print.bytes);
    return print;
}

once_span span_str(const char *text)
{
    return (once_span){ (const uint8_t *)text, strlen(text) };
}

once_span numbered(const char *prefix, int number)
{
    struct kept *k = keep();
    k->bytes = malloc(64);
    if (k->bytes == NULL)
        abort();
    snprintf((char *)k->bytes, 64, "%s%05d", prefix, number);
    return span_str((const char *)k->bytes);
}

once_span bytes_of(size_t len, bool random)
{
    struct kept *k = keep();
    k->bytes = malloc(len + 1);
    if (k->bytes == NULL)
        abort();
    uint64_t x = 88172645463325252u; /* xorshift: the same bytes every time */
    for (size_t i = 0; i < len; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        k->bytes[i] = random ? (uint8_t)x : (uint8_t)("all work and no play "[i % 21]);
    }
    return (once_span){ k->bytes, len };
}

bool span_equal(once_span a, once_span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool same_grant(struct once_grant a, struct once_grant b)
{
    return a.fence == b.fence && memcmp(a.record, b.record, sizeof a.record) == 0;
}

bool same_record(const struct once_record *a, const struct once_record *b)
{
    return same_grant(a->grant, b->grant) && span_equal(a->tenant, b->tenant) && span_equal(a->key, b->key) &&
           memcmp(&a->fingerprint, &b->fingerprint, sizeof a->fingerprint) == 0 && a->state == b->state &&
           a->retryable == b->retryable && a->undelivered == b->undelivered && a->body_dropped == b->body_dropped &&
           a->body_expired == b->body_expired && a->body_retention_ms == b->body_retention_ms &&
           a->lease_live == b->lease_live && a->takeover == b->takeover && a->attempt == b->attempt &&
           a->status == b->status && a->retention_ms == b->retention_ms && a->created_at == b->created_at &&
           a->claimed_at == b->claimed_at && a->lease_until == b->lease_until && a->finished_at == b->finished_at &&
           a->expires_at == b->expires_at && span_equal(a->recovery_point, b->recovery_point) &&
           span_equal(a->checkpoint, b->checkpoint) && span_equal(a->headers, b->headers) &&
           span_equal(a->body, b->body);
}

size_t times_listed(const struct once_page *page, once_span key)
{
    size_t times = 0;
    for (size_t i = 0; i < page->count; i++)
        times += span_equal(page->records[i].key, key);
    return times;
}

/* ------------------------------------------------------------------ the runner */

static void print_problem(void *arg, const struct once_problem *problem)
{
    printf("# %s: %s at fence %llu: %s\n", (const char *)arg, problem->invariant, (unsigned long long)problem->fence,
           problem->text);
}

static struct once_check_report verify(const char *when)
{
    struct once_check_report report = { 0 };
    must(once_check(suite.once, print_problem, (void *)(uintptr_t)when, &report, &suite.err), "once_check");
    EXPECT_ROW(when, report.problems == 0);
    return report;
}

static void verify_all(void)
{
    if (suite.once == NULL)
        open_again();
    struct once_check_report before = verify("after the case");
    if (!sut.reopens)
        return;
    reopen();
    struct once_check_report after = verify("after reopening");
    EXPECT(before.records == after.records);
    EXPECT(before.attempts == after.attempts);
}

static const char *skipped; /* why the running case says nothing about this store */

void skip(const char *why)
{
    skipped = why;
}

static const struct suite_gap *gap_of(const char *name)
{
    for (const struct suite_gap *gap = sut_gaps; gap != NULL && gap->name != NULL; gap++)
        if (strcmp(gap->name, name) == 0)
            return gap;
    return NULL;
}

/* --gaps: what is left out over this store, for docs to be held against. */
static int print_gaps(void)
{
    for (const struct suite_gap *gap = sut_gaps; gap != NULL && gap->name != NULL; gap++)
        printf("%s\t%s\t%s\n", gap->name, gap->invariant, gap->why);
    return 0;
}

static bool run_case(const struct suite_case *c)
{
    atomic_store(&failures, 0);
    skipped = NULL;
    if (gap_of(c->name) != NULL) {
        skip(gap_of(c->name)->why);
        return true;
    }
    clock_reset();
    suite = (struct suite){ .options.clock = &suite_clock };
    sut_fresh(suite.url, sizeof suite.url);
    if (setjmp(escape) == 0) {
        open_again();
        c->run();
    }
    if (setjmp(escape) == 0)
        verify_all();
    once_close(suite.once);
    suite.once = NULL;
    kept_release();
    sut_discard();
    if (skipped != NULL && sut_gaps != NULL && !sut.loses_answers) /* a store that promises less lists all of it */
        suite_failed(__FILE__, __LINE__, c->name, "left out, and not in sut_gaps");
    return atomic_load(&failures) == 0;
}

static bool is_wanted(const char *name, int argc, char **argv)
{
    bool any = false;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) == 0)
            continue;
        any = true;
        if (strstr(name, argv[i]) != NULL)
            return true;
    }
    return !any;
}

int main(int argc, char **argv)
{
    static const struct suite_case *const groups[] = {
        claim_cases, finish_cases,    progress_cases, resolve_cases, take_over_cases, time_cases,
        name_cases,  look_cases,      async_cases,    run_cases,     shared_cases,    forget_cases,
        seal_cases,  retention_cases, quota_cases,    sut_cases,     steady_cases,
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    clock_make();
    if (argc == 2 && strcmp(argv[1], "--gaps") == 0)
        return print_gaps();
    const char *store = getenv("ONCE_TEST_STORE");
    int part = 1, parts = 1; /* --part=2/3: the second third of the cases */
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--store=", 8) == 0)
            store = argv[i] + 8;
        else if (strncmp(argv[i], "--part=", 7) == 0 && sscanf(argv[i] + 7, "%d/%d", &part, &parts) != 2)
            return 2;
    }
    if (!sut_choose(store != NULL ? store : "sqlite")) {
        printf("Bail out! there is no store '%s' to test\n", store);
        return 2;
    }
    int number = 0, failed = 0, seen = 0;
    for (size_t g = 0; g < LENGTH(groups); g++) {
        for (const struct suite_case *c = groups[g]; c->name != NULL; c++) {
            if (!is_wanted(c->name, argc, argv) || seen++ % parts != part - 1)
                continue;
            bool ok = run_case(c);
            printf("%sok %d - %s%s%s\n", ok ? "" : "not ", ++number, c->name, skipped != NULL ? " # SKIP " : "",
                   skipped != NULL ? skipped : "");
            failed += !ok;
        }
    }
    printf("1..%d\n", number);
    return failed != 0;
}
