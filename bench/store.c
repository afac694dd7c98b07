/*
 * store.c - `once-bench store`: what a store does on this machine, as ratios.
 *
 * Everything is measured in one run on one file, the designs in turn, several rounds,
 * and the median is reported: these machines are noisy. The yardstick is the same store
 * with one commit per operation; on PostgreSQL it is the naive design (naive.h). It is a
 * tool for people, never a test of time.
 */
#include "bench.h"
#include "core/duration.h"
#include "core/span.h"
#include "load.h"
#include "naive.h"
#include "os/os.h"
#include "program/cli.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static const char help[] =
    "usage: once-bench store [--store URL] [--callers N[,N...]] [--seconds S] [--rounds N]\n"
    "                        [--body SIZE] [--grow N] [--expire] [--threads] [--json]\n"
    "\n"
    "Measures claim + finish (two durable operations a record) and replay, in a closed loop\n"
    "of N callers, against one commit per operation on the same file in the same run; on\n"
    "PostgreSQL against an INSERT and an UPDATE per request on 64 connections.\n"
    "Without --store it uses a file of its own in the current directory, and removes it.\n"
    "With --store the records stay there, under tenant 'bench', for an hour.\n"
    "\n"
    "  --callers LIST     callers with one operation under way each; default 64,256,1024\n"
    "  --seconds S        per measurement; default 2\n"
    "  --rounds N         of which the median is reported; default 3\n"
    "  --body SIZE        of a stored body; default 200\n"
    "  --grow N           also compare the speed at 10 thousand records with that at N, e.g. 5M\n"
    "  --expire           also compare intake with and without expiry of all that comes in\n"
    "  --threads          callers are threads that block, instead of completions\n"
    "  --store URL        the store to measure; default: a file of its own\n"
    "  --json             one JSON object per line\n" ONCE_CLI_HELP_HELP "\n"
    "exit: 0; 64 usage; 69 store unavailable; 70 an operation failed\n"
    "\n"
    "example: once-bench store --callers 64 --seconds 5\n";

enum { CALLERS_MAX = 8, ROUNDS_MAX = 25, SMALL = 10000, EXPIRE_PAUSE_MS = 20, EXPIRE_STEP = 5000, DRAIN_MS = 30000 };
enum {
    OPTION_CALLERS = ONCE_CLI_OWN,
    OPTION_SECONDS,
    OPTION_ROUNDS,
    OPTION_BODY,
    OPTION_GROW,
    OPTION_THREADS,
    OPTION_EXPIRE
};

struct bench {
    struct once_cli cli;
    unsigned callers[CALLERS_MAX];
    size_t callers_count;
    double seconds;
    uint64_t rounds, body_len, grow;
    bool threads, expire;
    char own_path[64]; /* of a store that is ours to remove; empty: it is not */
    uint8_t *body;
    uint64_t next_key;
    struct naive *naive; /* the yardstick on PostgreSQL; NULL: one commit per operation */
    uint64_t removed;    /* while intake went on */
    int exit;
};

/* ------------------------------------------------------------------ measuring */

static struct once *open_store(struct bench *b, bool one_by_one)
{
    struct once_options options = { .poll = !b->threads, .batch_len = one_by_one ? 1 : 0 };
    struct once *once = NULL;
    struct once_error err;
    if (once_open(b->cli.url, &options, &once, &err) != ONCE_OK) {
        b->exit = once_cli_error(&b->cli, &err, "open the store");
        return NULL;
    }
    return once;
}

static bool run_load(struct bench *b, struct once *once, struct load *load, struct load_result *result)
{
    load_run(load, once, result);
    if (result->errors > 0)
        b->exit = once_cli_fail(&b->cli, ONCE_EXIT_UNKNOWN, "%" PRIu64 " of %" PRIu64 " operations failed: %s",
                                result->errors, result->operations, result->err.text);
    return result->errors == 0;
}

static int by_rate(const void *a, const void *b)
{
    double x = load_rate(a), y = load_rate(b);
    return (x > y) - (x < y);
}

static struct load_result median(struct load_result *results, size_t count)
{
    qsort(results, count, sizeof *results, by_rate);
    return results[count / 2];
}

struct measured {
    struct load_result yardstick, grouped, replay;
    double batch; /* operations per commit, grouped */
};

/* One load on the store, opened for it. */
static bool measure_store(struct bench *b, struct load *load, bool one_by_one, struct load_result *out, double *batch)
{
    struct once *once = open_store(b, one_by_one);
    if (once == NULL)
        return false;
    bool good = run_load(b, once, load, out);
    struct once_stats stats;
    if (once_stats(once, &stats, NULL) == ONCE_OK && stats.batches > 0)
        *batch = (double)stats.operations / (double)stats.batches;
    once_close(once);
    return good;
}

static bool measure_naive(struct bench *b, struct load *load, struct load_result *out)
{
    naive_run(b->naive, load, out);
    if (out->errors > 0)
        b->exit = once_cli_fail(&b->cli, ONCE_EXIT_UNKNOWN, "the naive design failed: %s", out->err.text);
    return out->errors == 0;
}

/* One round: the yardstick, fresh keys, replays of them. */
static bool measure_round(struct bench *b, unsigned callers, struct load_result out[3], double *batch)
{
    double ignored;
    struct load load = { .callers = callers,
                         .threads = b->threads,
                         .seconds = b->seconds,
                         .first = b->next_key,
                         .next = b->next_key,
                         .body = once_span_of(b->body, b->body_len) };
    bool good = b->naive != NULL ? measure_naive(b, &load, &out[0]) : measure_store(b, &load, true, &out[0], &ignored);
    load.first = load.next;
    good = good && measure_store(b, &load, false, &out[1], batch);
    b->next_key = load.next;
    load.kind = LOAD_REPLAY;
    return good && measure_store(b, &load, false, &out[2], &ignored);
}

static bool measure_callers(struct bench *b, unsigned callers, struct measured *m)
{
    struct load_result all[3][ROUNDS_MAX];
    for (uint64_t round = 0; round < b->rounds; round++) {
        struct load_result out[3];
        if (!measure_round(b, callers, out, &m->batch))
            return false;
        for (int i = 0; i < 3; i++)
            all[i][round] = out[i];
    }
    m->yardstick = median(all[0], b->rounds);
    m->grouped = median(all[1], b->rounds);
    m->replay = median(all[2], b->rounds);
    return true;
}

/* ------------------------------------------------------------------ expiry */

struct expirer {
    struct once *once;
    atomic_bool stop;
    atomic_uint_fast64_t removed;
};

/* One step, and a pause where there is nothing to do. */
static bool expire_step(struct expirer *x)
{
    uint64_t removed = 0;
    bool more = false;
    if (once_expire(x->once, EXPIRE_STEP, &removed, &more, NULL) != ONCE_OK)
        return false;
    atomic_fetch_add(&x->removed, removed);
    if (!more)
        usleep(EXPIRE_PAUSE_MS * 1000);
    return true;
}

static void *expire_on(void *arg)
{
    struct expirer *x = arg;
    while (!atomic_load(&x->stop) && expire_step(x))
        ;
    return NULL;
}

/* Removes what came before, so that expiry then has as much to do as comes in. */
static void drain(struct expirer *x, uint64_t came)
{
    once_time end = once_os_monotonic_ms() + DRAIN_MS;
    while (atomic_load(&x->removed) < came && once_os_monotonic_ms() < end && expire_step(x))
        ;
    atomic_store(&x->removed, 0);
}

/* Fresh records that expire at once. With `expire` a second thread removes them as they come; `came` is what did
 * before. */
static bool measure_expiry(struct bench *b, unsigned callers, bool expire, uint64_t came, struct load_result *out)
{
    struct expirer x = { .once = open_store(b, false) };
    if (x.once == NULL)
        return false;
    struct load load = { .callers = callers,
                         .threads = b->threads,
                         .seconds = b->seconds,
                         .next = b->next_key,
                         .retention_ms = 1,
                         .body = once_span_of(b->body, b->body_len) };
    if (expire)
        drain(&x, came);
    pthread_t thread;
    bool started = expire && pthread_create(&thread, NULL, expire_on, &x) == 0;
    bool good = run_load(b, x.once, &load, out);
    b->next_key = load.next;
    uint64_t removed = atomic_load(&x.removed);
    atomic_store(&x.stop, true);
    if (started)
        pthread_join(thread, NULL);
    once_close(x.once);
    if (expire)
        b->removed = removed;
    return good;
}

/* ------------------------------------------------------------------ telling */

static void tell(const struct bench *b, const char *what, unsigned callers, const struct load_result *r, double ratio)
{
    if (b->cli.json)
        printf("{\"what\":\"%s\",\"callers\":%u,\"ops_per_s\":%.0f,\"ratio\":%.2f,\"p50_us\":%.0f,\"p99_us\":%.0f,"
               "\"max_us\":%.0f}\n",
               what, callers, load_rate(r), ratio, r->p50_us, r->p99_us, r->max_us);
    else
        printf("%7u  %-24s %10.0f  %8.2f  %8.2f  %8.2f  %8.2f\n", callers, what, load_rate(r), ratio, r->p50_us / 1000,
               r->p99_us / 1000, r->max_us / 1000);
    fflush(stdout);
}

static void tell_head(const struct bench *b)
{
    if (!b->cli.json)
        printf("callers  what                          ops/s     ratio    p50 ms    p99 ms    max ms\n");
}

static void tell_callers(const struct bench *b, unsigned callers, const struct measured *m)
{
    double base = load_rate(&m->yardstick);
    tell(b, b->naive != NULL ? "naive, 64 connections" : "one commit per operation", callers, &m->yardstick, 1);
    tell(b, "group commit", callers, &m->grouped, base > 0 ? load_rate(&m->grouped) / base : 0);
    tell(b, "replay", callers, &m->replay, base > 0 ? load_rate(&m->replay) / base : 0);
    if (b->cli.json)
        printf("{\"what\":\"commits\",\"callers\":%u,\"operations_per_commit\":%.1f}\n", callers, m->batch);
    else
        printf("         (%.0f operations per commit)\n", m->batch);
}

static void bench_expiry(struct bench *b, unsigned callers)
{
    struct load_result without[ROUNDS_MAX], with[ROUNDS_MAX];
    for (uint64_t round = 0; round < b->rounds; round++)
        if (!measure_expiry(b, callers, false, 0, &without[round]) ||
            !measure_expiry(b, callers, true, without[round].records, &with[round]))
            return;
    struct load_result base = median(without, b->rounds), expiring = median(with, b->rounds);
    tell(b, "intake, nothing removed", callers, &base, 1);
    tell(b, "intake, all of it removed", callers, &expiring, load_rate(&expiring) / load_rate(&base));
    if (!b->cli.json)
        printf("         (%" PRIu64 " records were removed while %" PRIu64 " came, in the last round)\n", b->removed,
               with[b->rounds - 1].records);
}

static void tell_naive_size(struct bench *b, double ours)
{
    double each = 0;
    struct once_error err;
    if (naive_size(b->naive, &each, &err) != ONCE_OK)
        b->exit = once_cli_error(&b->cli, &err, "measure the size");
    else if (b->cli.json)
        printf("{\"what\":\"size of the naive design\",\"bytes_per_record\":%.0f,\"ratio\":%.2f}\n", each, ours / each);
    else
        printf("the naive design has %.0f bytes each: %.2f of that\n", each, ours / each);
}

static void tell_size(struct bench *b)
{
    struct once *once = open_store(b, false);
    struct once_stats stats;
    if (once != NULL && once_stats(once, &stats, NULL) == ONCE_OK && stats.attempts > 0) {
        double each = (double)stats.bytes / (double)stats.attempts;
        if (b->cli.json)
            printf("{\"what\":\"size\",\"records\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"bytes_per_record\":%.0f}\n",
                   stats.attempts, stats.bytes, each);
        else
            printf("%" PRIu64 " records, %.0f bytes each with a body of %" PRIu64 "\n", stats.attempts, each,
                   b->body_len);
        if (b->naive != NULL)
            tell_naive_size(b, each);
    }
    once_close(once);
}

/* ------------------------------------------------------------------ growing */

static uint64_t records_now(struct bench *b)
{
    struct once *once = open_store(b, false);
    struct once_stats stats = { .attempts = 0 };
    if (once != NULL && once_stats(once, &stats, NULL) != ONCE_OK)
        stats.attempts = 0;
    once_close(once);
    return stats.attempts;
}

static bool grow_to(struct bench *b, uint64_t records)
{
    uint64_t now = records_now(b);
    while (b->exit == ONCE_EXIT_OK && now < records) {
        struct once *once = open_store(b, false);
        if (once == NULL)
            return false;
        uint64_t step = records - now < 500000 ? records - now : 500000;
        struct load load = { .callers = 1024,
                             .threads = false,
                             .records = step,
                             .next = b->next_key,
                             .body = once_span_of(b->body, b->body_len) };
        struct load_result result;
        run_load(b, once, &load, &result);
        b->next_key = load.next;
        once_close(once);
        now += step;
        if (!b->cli.quiet && isatty(STDERR_FILENO))
            fprintf(stderr, "\ronce bench: grown to %" PRIu64 " of %" PRIu64 " records%s", now, records,
                    now < records ? "" : "\n");
    }
    return b->exit == ONCE_EXIT_OK;
}

/* The median of fresh claim + finish as the store is, with what it takes to open it. */
static bool measure_size(struct bench *b, unsigned callers, struct load_result *out, double *open_s)
{
    struct load_result all[ROUNDS_MAX];
    for (uint64_t round = 0; round < b->rounds; round++) {
        uint64_t start = once_os_monotonic_ns();
        struct once *once = open_store(b, false);
        if (once == NULL)
            return false;
        *open_s = (double)(once_os_monotonic_ns() - start) / 1e9;
        struct load load = { .callers = callers,
                             .threads = b->threads,
                             .seconds = b->seconds,
                             .next = b->next_key,
                             .body = once_span_of(b->body, b->body_len) };
        bool good = run_load(b, once, &load, &all[round]);
        b->next_key = load.next;
        once_close(once);
        if (!good)
            return false;
    }
    *out = median(all, b->rounds);
    return true;
}

/* The small store is a file of its own beside the large one, so that both are measured at
 * the end, in the same minute. */
static void bench_growth(struct bench *b)
{
    struct bench small = *b;
    char url[sizeof small.cli.url];
    snprintf(small.own_path, sizeof small.own_path, "once-bench-small-%ld.db", (long)getpid());
    snprintf(url, sizeof url, "sqlite:%s", small.own_path);
    memcpy(small.cli.url, url, sizeof url);
    if (!grow_to(b, b->grow))
        return;
    for (size_t i = 0; i < b->callers_count && b->exit == ONCE_EXIT_OK; i++) {
        unsigned callers = b->callers[i];
        struct load_result at_small, at_large;
        double open_small = 0, open_large = 0;
        small.next_key = 0;
        if (!grow_to(&small, SMALL) || !measure_size(&small, callers, &at_small, &open_small) ||
            !measure_size(b, callers, &at_large, &open_large)) {
            b->exit = small.exit != ONCE_EXIT_OK ? small.exit : b->exit;
            break;
        }
        tell(b, "at 10 thousand records", callers, &at_small, 1);
        tell(b, "grown", callers, &at_large, load_rate(&at_large) / load_rate(&at_small));
        if (!b->cli.json)
            printf("         (%" PRIu64 " records; opened in %.2f s)\n", records_now(b), open_large);
        for (const char *const *s = (const char *const[]){ "", "-wal", "-shm", "-lock", "-reserve", NULL }; *s; s++) {
            char path[96];
            snprintf(path, sizeof path, "%s%s", small.own_path, *s);
            unlink(path);
        }
    }
}

/* ------------------------------------------------------------------ the verb */

static void remove_own(const struct bench *b)
{
    static const char *const suffixes[] = { "", "-wal", "-shm", "-lock", "-reserve" };
    for (size_t i = 0; b->own_path[0] != '\0' && i < sizeof suffixes / sizeof *suffixes; i++) {
        char path[96];
        snprintf(path, sizeof path, "%s%s", b->own_path, suffixes[i]);
        unlink(path);
    }
}

static bool parse_callers(struct bench *b, const char *text)
{
    b->callers_count = 0;
    while (b->callers_count < CALLERS_MAX) {
        char *end = NULL;
        unsigned long n = strtoul(text, &end, 10);
        if (end == text || n < 1 || n > 4096)
            break;
        b->callers[b->callers_count++] = (unsigned)n;
        if (*end == '\0')
            return true;
        if (*end != ',')
            break;
        text = end + 1;
    }
    once_cli_usage(&b->cli, "--callers takes up to %d numbers from 1 to 4096", CALLERS_MAX);
    return false;
}

static bool parse_count(const struct once_cli *cli, const char *option, const char *text, uint64_t *value)
{
    char *end = NULL;
    *value = strtoull(text, &end, 10);
    if (*end == 'M')
        *value *= 1000000, end++;
    else if (*end == 'k')
        *value *= 1000, end++;
    if (end == text || *end != '\0' || *value < SMALL) {
        once_cli_usage(cli, "%s takes a number of records from 10k on, e.g. 5M", option);
        return false;
    }
    return true;
}

static bool parse_option(struct bench *b, int c)
{
    struct once_cli *cli = &b->cli;
    uint64_t seconds = 0;
    struct once_error err;
    switch (c) {
    case OPTION_CALLERS:
        return parse_callers(b, optarg);
    case OPTION_SECONDS:
        if (!once_cli_number(cli, "--seconds", 1, 3600, &seconds))
            return false;
        b->seconds = (double)seconds;
        return true;
    case OPTION_ROUNDS:
        return once_cli_number(cli, "--rounds", 1, ROUNDS_MAX, &b->rounds);
    case OPTION_BODY:
        if (once_size_parse(once_span_str(optarg), &b->body_len, &err) == ONCE_OK && b->body_len <= ONCE_BODY_LEN_MAX)
            return true;
        once_cli_usage(cli, "--body takes a size up to 16M");
        return false;
    case OPTION_GROW:
        return parse_count(cli, "--grow", optarg, &b->grow);
    case OPTION_EXPIRE:
        b->expire = true;
        return true;
    default:
        b->threads = true;
        return true;
    }
}

static void choose_store(struct bench *b)
{
    if (b->cli.store != NULL) {
        snprintf(b->cli.url, sizeof b->cli.url, "%s", b->cli.store);
        return;
    }
    snprintf(b->own_path, sizeof b->own_path, "once-bench-%ld.db", (long)getpid());
    snprintf(b->cli.url, sizeof b->cli.url, "sqlite:%s", b->own_path);
}

/* What the rows are compared with. */
static bool choose_yardstick(struct bench *b)
{
    struct once_error err;
    if (strncmp(b->cli.url, "postgres", strlen("postgres")) != 0)
        return true;
    if (naive_open(b->cli.url, &b->naive, &err) == ONCE_OK)
        return true;
    b->exit = once_cli_error(&b->cli, &err, "set up the yardstick");
    return false;
}

static void bench_store(struct bench *b)
{
    if (!choose_yardstick(b))
        return;
    tell_head(b);
    /* First, while there is nothing that outlives it. */
    for (size_t i = 0; b->expire && i < b->callers_count && b->exit == ONCE_EXIT_OK; i++)
        bench_expiry(b, b->callers[i]);
    for (size_t i = 0; i < b->callers_count && b->exit == ONCE_EXIT_OK; i++) {
        struct measured m = { .batch = 0 };
        if (measure_callers(b, b->callers[i], &m))
            tell_callers(b, b->callers[i], &m);
    }
    if (b->exit == ONCE_EXIT_OK)
        tell_size(b);
    if (b->exit == ONCE_EXIT_OK && b->grow > 0)
        bench_growth(b);
}

int bench_store_main(int argc, char **argv)
{
    static const struct option options[] = {
        ONCE_CLI_OPTION_HELP,
        ONCE_CLI_OPTION_STORE,
        ONCE_CLI_OPTION_JSON,
        { "callers", required_argument, NULL, OPTION_CALLERS },
        { "seconds", required_argument, NULL, OPTION_SECONDS },
        { "rounds", required_argument, NULL, OPTION_ROUNDS },
        { "body", required_argument, NULL, OPTION_BODY },
        { "grow", required_argument, NULL, OPTION_GROW },
        { "threads", no_argument, NULL, OPTION_THREADS },
        { "expire", no_argument, NULL, OPTION_EXPIRE },
        { 0 },
    };
    struct bench b = { .cli = { .program = "once-bench", .verb = "store", .help = help },
                       .callers = { 64, 256, 1024 },
                       .callers_count = 3,
                       .seconds = 2,
                       .rounds = 3,
                       .body_len = 200 };
    for (int c; (c = once_cli_next(&b.cli, argc, argv, "", options)) != -1;) {
        if (c < ONCE_CLI_OWN)
            return b.cli.exit;
        if (!parse_option(&b, c))
            return ONCE_EXIT_USAGE;
    }
    if (optind < argc)
        return once_cli_usage(&b.cli, "unexpected argument '%s'", argv[optind]);
    b.body = malloc(b.body_len + 1);
    if (b.body == NULL)
        return once_cli_fail(&b.cli, ONCE_EXIT_OS, "out of memory");
    load_body(b.body, b.body_len);
    choose_store(&b);
    b.next_key = (uint64_t)once_os_clock.wall(NULL) * 1000000; /* fresh keys also in a store that has some */
    bench_store(&b);
    naive_close(b.naive);
    remove_own(&b);
    free(b.body);
    return once_cli_finish(&b.cli, b.exit);
}
