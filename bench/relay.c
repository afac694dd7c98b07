/*
 * relay.c - `once-bench relay`: what the relay does on this machine, as ratios.
 *
 * Three designs on one database and one sink, in turn, several rounds, medians (as bench/store.c). Each is measured
 * twice: how many messages a second it publishes of a backlog, and how long after its COMMIT a message is confirmed
 * while few come in. That time begins when the writer's COMMIT was answered: nobody but the writer knows that moment.
 */
#include "bench.h"
#include "cli/relay_setup.h"
#include "core/duration.h"
#include "core/span.h"
#include "histogram.h"
#include "messages/relay_loop.h"
#include "naive_outbox.h"
#include "os/os.h"
#include "os/thread.h"
#include "program/cli.h"
#include "store/url.h"

#include <inttypes.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* clang-format off */
static const char help[] =
    "usage: once-bench relay --store postgresql://... --sink URL [OPTIONS]\n"
    "\n"
    "Measures the relay against two home-made ones on the same database, with the same sink,\n"
    "in the same run: one that polls 100 messages every 500 ms, one that publishes and marks\n"
    "message by message. Ratios are to the latter. The outbox has to be empty, and nobody else\n"
    "may enqueue meanwhile: all that is there goes to the sink. The role has to own the schema.\n"
    "\n"
    "  --sink URL         where to, as 'once relay --route' takes it; topics are once.bench\n"
    "  --messages N       of a backlog for the relay; default 20000\n"
    "  --seconds S        for each of the others, and for each measurement of latency;\n"
    "                     default 5\n"
    "  --rate N           messages a second that come in while latency is measured;\n"
    "                     default 100\n"
    "  --rounds N         of which the median is reported; default 3\n"
    "  --keys N           message keys; default 1000\n"
    "  --body SIZE        of a payload; default 200\n"
    RELAY_HELP("")
    "  --store URL        the database; default $ONCE_STORE\n"
    "  --json             one JSON object per line\n"
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0; 64 usage; 69 database or sink unavailable; 70 messages were not published\n"
    "\n"
    "example: once-bench relay --store postgresql://db/bench --sink nats://127.0.0.1\n";
/* clang-format on */

enum { ROUNDS_MAX = 25, DESIGNS = 3, RELAY = 2, BODY_LEN_MIN = 24, SAMPLES_MAX = 1 << 20 };
enum {
    OPTION_MESSAGES = ONCE_CLI_OWN,
    OPTION_SECONDS,
    OPTION_RATE,
    OPTION_ROUNDS,
    OPTION_KEYS,
    OPTION_BODY,
    OPTION_RELAY, /* the first of relay_setup.h's */
};

static const char *const names[DESIGNS] = { "poll 100 every 500 ms", "publish and mark each", "relay" };

struct measured {
    double rate, p50_us, p99_us;
};

struct bench {
    struct once_cli cli;
    struct relay_setup setup;
    struct relay_counters counters;
    struct relay_loop loop;
    struct naive_outbox *naive;
    PGconn *conn; /* the writer's */
    char route[ONCE_URL_LEN_MAX + 8];
    uint64_t messages, seconds, rate, rounds, keys, body_len;
    uint64_t next; /* number of the next message */
    /* Of the run at hand. */
    unsigned design;
    bool drain;
    atomic_bool stop, ended;
    atomic_uint_fast64_t confirmed;
    uint64_t first;                   /* number of the first message whose latency is measured */
    uint64_t *committed_ns, *done_ns; /* by number, from `first` on */
    once_result result;
    struct once_error err;
    int exit;
};

/* ------------------------------------------------------------------ one run of a design */

static void on_done(void *arg, const struct message *m, enum sink_result result, int64_t retry_after_ms,
                    const char *reason)
{
    struct bench *b = arg;
    if (result == SINK_CONFIRMED) {
        char text[BODY_LEN_MIN + 1];
        snprintf(text, sizeof text, "%.*s", (int)(m->payload.len < BODY_LEN_MIN ? m->payload.len : BODY_LEN_MIN),
                 (const char *)m->payload.ptr);
        uint64_t number = strtoull(text, NULL, 10);
        atomic_fetch_add(&b->confirmed, 1);
        if (b->done_ns != NULL && number >= b->first && number - b->first < SAMPLES_MAX)
            b->done_ns[number - b->first] = once_os_monotonic_ns();
    }
    if (b->design == RELAY)
        relay_done(&b->setup.relay, m, result, retry_after_ms, reason);
    else
        naive_outbox_done(b->naive, result, reason);
}

static bool must_stop(void *arg)
{
    struct bench *b = arg;
    return atomic_load(&b->stop);
}

static void say(void *arg, const char *text)
{
    const struct bench *b = arg;
    once_cli_fail(&b->cli, 0, "%s", text);
}

static void *run_design(void *arg)
{
    struct bench *b = arg;
    b->result = ONCE_OK;
    if (b->design != RELAY) {
        b->result = naive_outbox_run(b->naive, b->design == 0 ? NAIVE_POLL : NAIVE_ROWS, b->setup.relay.routes[0].sink,
                                     b->drain, &b->stop, &b->err);
    } else {
        b->loop.drain = b->drain;
        relay_loop_run(&b->loop);
    }
    atomic_store(&b->ended, true);
    return NULL;
}

static bool start_design(struct bench *b, unsigned design, bool drain, pthread_t *thread)
{
    b->design = design;
    b->drain = drain;
    atomic_store(&b->stop, false);
    atomic_store(&b->ended, false);
    atomic_store(&b->confirmed, 0);
    if (once_thread_start(thread, run_design, b) == 0)
        return true;
    b->exit = once_cli_fail(&b->cli, ONCE_EXIT_OS, "cannot start a thread");
    return false;
}

static bool end_design(struct bench *b, pthread_t thread)
{
    pthread_join(thread, NULL);
    eventfd_t ignored;
    eventfd_read(b->loop.wake, &ignored);
    if (b->result != ONCE_OK)
        b->exit = once_cli_error(&b->cli, &b->err, "measure");
    return b->result == ONCE_OK;
}

/* ------------------------------------------------------------------ the writer */

static bool write_sql(struct bench *b, const char *sql)
{
    PGresult *r = PQexec(b->conn, sql);
    bool good = PQresultStatus(r) == PGRES_COMMAND_OK || PQresultStatus(r) == PGRES_TUPLES_OK;
    if (!good)
        b->exit = once_cli_fail(&b->cli, ONCE_EXIT_UNAVAILABLE, "cannot enqueue: %s", PQresultErrorMessage(r));
    PQclear(r);
    return good;
}

static bool fill(struct bench *b, unsigned design)
{
    struct once_error err;
    char sql[500];
    uint64_t first = b->next, count = b->messages;
    b->next += count;
    if (design != RELAY) {
        if (naive_outbox_fill(b->naive, first, count, b->body_len, b->keys, &err) == ONCE_OK)
            return true;
        b->exit = once_cli_error(&b->cli, &err, "fill the naive outbox");
        return false;
    }
    snprintf(sql, sizeof sql,
             "SELECT count(once.enqueue('once.bench', 'k' || n %% %" PRIu64 ", convert_to(rpad(n::text || ' ', %" PRIu64
             ", 'x'), 'UTF8'), content_type => 'text/plain')) FROM generate_series(%" PRIu64 "::bigint, %" PRIu64 ") n",
             b->keys, b->body_len, first, first + count - 1);
    return write_sql(b, sql);
}

static bool enqueue_one(struct bench *b, unsigned design, uint64_t number)
{
    char sql[400];
    snprintf(sql, sizeof sql,
             design == RELAY ? "SELECT once.enqueue('once.bench', 'k%" PRIu64 "', convert_to(rpad('%" PRIu64
                               " ', %" PRIu64 ", 'x'), 'UTF8'), content_type => 'text/plain')"
                             : "INSERT INTO once_bench.outbox (topic, message_key, payload) VALUES ('once.bench', "
                               "'k%" PRIu64 "', convert_to(rpad('%" PRIu64 " ', %" PRIu64 ", 'x'), 'UTF8'))",
             number % b->keys, number, b->body_len);
    return write_sql(b, sql);
}

/* ------------------------------------------------------------------ measuring */

static bool measure_rate(struct bench *b, unsigned design, struct measured *out)
{
    pthread_t thread;
    if (!fill(b, design))
        return false;
    uint64_t start = once_os_monotonic_ns();
    if (!start_design(b, design, true, &thread))
        return false;
    /* The relay empties its outbox; the others may have too much for one measurement. A rate is one of a message at
     * least, however long that took: others are told as parts of it. */
    enum { LOOK_US = 1000 };
    while (!atomic_load(&b->ended) && atomic_load(&b->confirmed) < b->messages &&
           (atomic_load(&b->confirmed) == 0 || once_os_monotonic_ns() - start < b->seconds * 1000000000ULL))
        usleep(LOOK_US);
    if (design != RELAY)
        atomic_store(&b->stop, true);
    uint64_t count = atomic_load(&b->confirmed), end = once_os_monotonic_ns();
    bool good = end_design(b, thread);
    if (design == RELAY) { /* to its end, marks included */
        count = atomic_load(&b->confirmed);
        end = once_os_monotonic_ns();
    }
    if (good && count < b->messages && design == RELAY) {
        b->exit = once_cli_fail(&b->cli, ONCE_EXIT_UNKNOWN, "%" PRIu64 " of %" PRIu64 " messages were not published",
                                b->messages - count, b->messages);
        return false;
    }
    out->rate = (double)count / ((double)(end - start) / 1e9);
    return good;
}

/* Messages at a steady rate, each a transaction of its own. */
static bool write_steadily(struct bench *b, unsigned design, uint64_t count)
{
    uint64_t start = once_os_monotonic_ns();
    for (uint64_t i = 0; i < count; i++) {
        uint64_t due = start + i * 1000000000ULL / b->rate, now = once_os_monotonic_ns();
        if (due > now)
            usleep((useconds_t)((due - now) / 1000));
        if (!enqueue_one(b, design, b->first + i))
            return false;
        b->committed_ns[i] = once_os_monotonic_ns();
    }
    return true;
}

static void take_latencies(struct bench *b, uint64_t count, struct measured *out)
{
    struct histogram *h = calloc(1, sizeof *h);
    for (uint64_t i = 0; h != NULL && i < count; i++)
        /* What is confirmed before the writer heard of its COMMIT took no time. */
        histogram_add(h, b->done_ns[i] > b->committed_ns[i] ? b->done_ns[i] - b->committed_ns[i] : 0);
    if (h != NULL) {
        out->p50_us = histogram_quantile_us(h, 0.5);
        out->p99_us = histogram_quantile_us(h, 0.99);
    }
    free(h);
}

static bool measure_latency(struct bench *b, unsigned design, struct measured *out)
{
    enum { LOOK_US = 1000, PATIENCE_S = 60 };
    uint64_t count = b->seconds * b->rate < SAMPLES_MAX ? b->seconds * b->rate : SAMPLES_MAX;
    pthread_t thread;
    struct once_error err;
    if (design != RELAY && naive_outbox_fill(b->naive, 0, 0, b->body_len, b->keys, &err) != ONCE_OK) {
        b->exit = once_cli_error(&b->cli, &err, "empty the naive outbox");
        return false;
    }
    b->first = b->next;
    b->next += count;
    b->committed_ns = calloc(count, sizeof *b->committed_ns);
    b->done_ns = calloc(SAMPLES_MAX, sizeof *b->done_ns);
    bool good = b->committed_ns != NULL && b->done_ns != NULL && start_design(b, design, false, &thread);
    if (good) {
        good = write_steadily(b, design, count);
        uint64_t end = once_os_monotonic_ns() + PATIENCE_S * 1000000000ULL;
        while (good && atomic_load(&b->confirmed) < count && once_os_monotonic_ns() < end)
            usleep(LOOK_US);
        atomic_store(&b->stop, true);
        eventfd_write(b->loop.wake, 1);
        good = end_design(b, thread) && good;
        if (good && atomic_load(&b->confirmed) < count) {
            b->exit = once_cli_fail(&b->cli, ONCE_EXIT_UNKNOWN, "messages were not published within a minute");
            good = false;
        }
    }
    if (good)
        take_latencies(b, count, out);
    free(b->committed_ns);
    free(b->done_ns);
    b->committed_ns = b->done_ns = NULL;
    return good;
}

/* ------------------------------------------------------------------ telling */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const struct measured *all, uint64_t count, size_t offset)
{
    double values[ROUNDS_MAX];
    for (uint64_t i = 0; i < count; i++)
        values[i] = *(const double *)(const void *)((const char *)&all[i] + offset);
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

static void tell(const struct bench *b, unsigned design, const struct measured *m, double base)
{
    if (b->cli.json)
        printf("{\"design\":\"%s\",\"messages_per_s\":%.0f,\"ratio\":%.2f,\"p50_ms\":%.2f,\"p99_ms\":%.2f}\n",
               names[design], m->rate, m->rate / base, m->p50_us / 1000, m->p99_us / 1000);
    else
        printf("%-24s %10.0f  %8.2f  %8.2f  %8.2f\n", names[design], m->rate, m->rate / base, m->p50_us / 1000,
               m->p99_us / 1000);
    fflush(stdout);
}

static void bench_relay(struct bench *b)
{
    struct measured all[DESIGNS][ROUNDS_MAX], m[DESIGNS];
    for (uint64_t round = 0; round < b->rounds; round++)
        for (unsigned d = 0; d < DESIGNS; d++) {
            if (!measure_rate(b, d, &all[d][round]) || !measure_latency(b, d, &all[d][round]))
                return;
        }
    if (!b->cli.json)
        printf("to %s\n%-24s %10s  %8s  %8s  %8s\n", b->setup.urls[0], "design", "messages/s", "ratio", "p50 ms",
               "p99 ms");
    for (unsigned d = 0; d < DESIGNS; d++)
        m[d] = (struct measured){ median(all[d], b->rounds, offsetof(struct measured, rate)),
                                  median(all[d], b->rounds, offsetof(struct measured, p50_us)),
                                  median(all[d], b->rounds, offsetof(struct measured, p99_us)) };
    for (unsigned d = 0; d < DESIGNS; d++)
        tell(b, d, &m[d], m[NAIVE_ROWS].rate);
}

/* ------------------------------------------------------------------ the verb */

static bool parse_option(struct bench *b, int c)
{
    struct once_error err;
    switch (c) {
    case OPTION_MESSAGES:
        return once_cli_number(&b->cli, "--messages", 100, 10000000, &b->messages);
    case OPTION_SECONDS:
        return once_cli_number(&b->cli, "--seconds", 1, 600, &b->seconds);
    case OPTION_RATE:
        return once_cli_number(&b->cli, "--rate", 1, 10000, &b->rate);
    case OPTION_ROUNDS:
        return once_cli_number(&b->cli, "--rounds", 1, ROUNDS_MAX, &b->rounds);
    case OPTION_KEYS:
        return once_cli_number(&b->cli, "--keys", 1, 10000000, &b->keys);
    case OPTION_BODY:
        if (once_size_parse(once_span_str(optarg), &b->body_len, &err) == ONCE_OK && b->body_len >= BODY_LEN_MIN &&
            b->body_len <= 1 << 20)
            return true;
        once_cli_usage(&b->cli, "--body takes a size from %d to 1M", BODY_LEN_MIN);
        return false;
    case OPTION_RELAY + RELAY_OPTION_ROUTE:
        if (b->setup.relay.route_count > 0)
            return once_cli_usage(&b->cli, "--sink: one, please"), false;
        snprintf(b->route, sizeof b->route, "*=%s", optarg);
        optarg = b->route;
        return relay_setup_option(&b->setup, RELAY_OPTION_ROUTE);
    default:
        return relay_setup_option(&b->setup, (enum relay_option)(c - OPTION_RELAY));
    }
}

/* Nobody's real messages go to the sink of a benchmark. */
static bool is_empty(struct bench *b)
{
    struct outbox_counts counts;
    struct once_error err;
    struct outbox *o = b->setup.relay.outbox;
    if (outbox_counts(o, &counts, &err) != ONCE_OK) {
        b->exit = once_cli_error(&b->cli, &err, "look into the outbox");
        return false;
    }
    if (counts.pending + counts.stalled + counts.scheduled == 0)
        return true;
    b->exit = once_cli_usage(&b->cli, "there are messages in the outbox, which this would publish: take a database "
                                      "of its own");
    return false;
}

static bool set_up(struct bench *b)
{
    struct once_error err;
    struct relay *relay = &b->setup.relay;
    if (once_store_url(b->cli.store, false, b->cli.url, &err) != ONCE_OK)
        b->exit = once_cli_error(&b->cli, &err, "find the store");
    else if (strncmp(b->cli.url, "postgres", 8) != 0)
        b->exit = once_cli_usage(&b->cli, "--store: this is measured on PostgreSQL");
    else if (outbox_open(b->cli.url, &relay->outbox, &err) != ONCE_OK)
        b->exit = once_cli_error(&b->cli, &err, "open the outbox");
    else if (!is_empty(b))
        return false;
    else if (relay_setup_open_sinks(&b->setup, &err) != ONCE_OK)
        b->exit = once_cli_error(&b->cli, &err, "open the sink");
    else if (naive_outbox_open(b->cli.url, &b->naive, &err) != ONCE_OK)
        b->exit = once_cli_error(&b->cli, &err, "set up the yardstick");
    else if ((b->conn = PQconnectdb(b->cli.url)) == NULL || PQstatus(b->conn) != CONNECTION_OK)
        b->exit = once_cli_fail(&b->cli, ONCE_EXIT_UNAVAILABLE, "cannot connect: %s", PQerrorMessage(b->conn));
    else if ((b->loop.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        b->exit = once_cli_fail(&b->cli, ONCE_EXIT_OS, "cannot make an eventfd");
    if (b->exit != ONCE_EXIT_OK)
        return false;
    relay->routes[0].sink->options.done = on_done;
    relay->routes[0].sink->options.arg = b;
    b->loop.relay = relay;
    b->loop.connected = true;
    return true;
}

static void tear_down(struct bench *b)
{
    if (b->conn != NULL && b->exit != ONCE_EXIT_OK && b->next > 1) /* what was not published is nobody's */
        PQclear(PQexec(b->conn, "DELETE FROM once.outbox WHERE topic = 'once.bench'"));
    PQfinish(b->conn);
    naive_outbox_close(b->naive);
    relay_setup_release(&b->setup);
    outbox_close(b->setup.relay.outbox);
    if (b->loop.wake >= 0)
        close(b->loop.wake);
}

int bench_relay_main(int argc, char **argv)
{
    static const struct option options[] = {
        ONCE_CLI_OPTION_HELP,
        ONCE_CLI_OPTION_STORE,
        ONCE_CLI_OPTION_JSON,
        { "messages", required_argument, NULL, OPTION_MESSAGES },
        { "seconds", required_argument, NULL, OPTION_SECONDS },
        { "rate", required_argument, NULL, OPTION_RATE },
        { "rounds", required_argument, NULL, OPTION_ROUNDS },
        { "keys", required_argument, NULL, OPTION_KEYS },
        { "body", required_argument, NULL, OPTION_BODY },
        RELAY_OPTIONS("sink", "", OPTION_RELAY),
        { 0 },
    };
    struct bench b = { .cli = { .program = "once-bench", .verb = "relay", .help = help },
                       .messages = 20000,
                       .seconds = 5,
                       .rate = 100,
                       .rounds = 3,
                       .keys = 1000,
                       .body_len = 200,
                       .next = 1,
                       .loop = { .wake = -1 } };
    relay_setup_init(&b.setup, &b.cli, false);
    b.setup.relay.counters = &b.counters;
    b.setup.relay.must_stop = must_stop;
    b.setup.relay.say = say;
    b.setup.relay.arg = &b;
    for (int c; b.exit == ONCE_EXIT_OK && (c = once_cli_next(&b.cli, argc, argv, "", options)) != -1;) {
        if (c == '?') {
            relay_setup_release(&b.setup);
            return b.cli.exit;
        }
        if (!parse_option(&b, c))
            b.exit = ONCE_EXIT_USAGE;
    }
    if (b.exit == ONCE_EXIT_OK && optind < argc)
        b.exit = once_cli_usage(&b.cli, "'%s' is too much", argv[optind]);
    else if (b.exit == ONCE_EXIT_OK && b.setup.relay.route_count == 0)
        b.exit = once_cli_usage(&b.cli, "--sink URL is missing: where to?");
    else if (b.exit == ONCE_EXIT_OK && !relay_setup_check(&b.setup))
        b.exit = ONCE_EXIT_USAGE;
    if (b.exit == ONCE_EXIT_OK && set_up(&b))
        bench_relay(&b);
    tear_down(&b);
    return once_cli_finish(&b.cli, b.exit);
}
