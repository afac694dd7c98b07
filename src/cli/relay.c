/* relay.c - `once relay`: publishes what is in an outbox, until it is told to stop. */
#include "jobs/relay.h"

#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/store_url.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "core/json_out.h"
#include "core/span.h"
#include "os/os.h"

#include <inttypes.h>
#include <poll.h>

/* clang-format off */
static const char help[] =
    "usage: once relay --route 'PATTERN=SINK' [--route ...] [OPTIONS]\n"
    "\n"
    "Publishes the messages of an outbox, each under its id until its sink confirms it, in\n"
    "order per message key. Any number of relays may work on one PostgreSQL outbox; give all\n"
    "of them the same routes.\n"
    "\n"
    "  --route P=SINK     messages whose topic matches P go to SINK; * is any characters, the\n"
    "                     first route that matches counts. SINK: https://... or http://...,\n"
    "                     a webhook; nats://HOST[:PORT] or tls://HOST[:PORT], JetStream;\n"
    "                     amqp[s]://HOST[:PORT][/VHOST][?exchange=NAME][&routing-key=KEY],\n"
    "                     RabbitMQ; kafka[s]://HOST[:PORT][,HOST[:PORT]...][/TOPIC], Kafka\n"
    "  --secret-file F    sign webhooks with the keys in F: lines whsec_BASE64, 4 at most\n"
    "  --ca-file F        trust the certificates in F instead of the system's\n"
    "  --nats-creds F     the credentials for NATS\n"
    "  --amqp-login F     for RabbitMQ: F has a line USER:PASSWORD; default guest:guest\n"
    "  --kafka-config F   for Kafka: F has lines NAME=VALUE, how to log in and the like\n"
    "  --timeout DUR      for one publish; default 10s\n"
    "  --attempts N       refusals after which a message is dead; default 20\n"
    "  --crashes N        relays that may die of a message before it is dead; default 5\n"
    "  --backoff DUR      wait up to that after a failure, doubled each time; default 500ms\n"
    "  --backoff-max DUR  but no longer than this; default 10m\n"
    "  --batch N          messages to take at a time, up to 1000; default 500\n"
    "  --lease DUR        after which messages of a relay that died are taken over; at least\n"
    "                     twice the timeout; default 30s\n"
    "  --drain            end when nothing is due any more\n"
    "  --report DUR       say how it goes every DUR; default 1m\n"
    "  --json             the reports are JSON, one object per line\n"
    ONCE_CLI_HELP_STORE
    "  --quiet            no reports, only errors\n"
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0 drained, or ended by INT or TERM after settling what was under way; 64 usage;\n"
    "      69 the database was not reached at the start\n"
    "\n"
    "example: once relay --store postgresql://db/shop --route '*=https://hooks.example/in'\n";
/* clang-format on */

enum {
    OPTION_ROUTE = ONCE_CLI_OWN,
    OPTION_SECRET_FILE,
    OPTION_CA_FILE,
    OPTION_NATS_CREDS,
    OPTION_AMQP_LOGIN,
    OPTION_KAFKA_CONFIG,
    OPTION_TIMEOUT,
    OPTION_ATTEMPTS,
    OPTION_CRASHES,
    OPTION_BACKOFF,
    OPTION_BACKOFF_MAX,
    OPTION_BATCH,
    OPTION_LEASE,
    OPTION_DRAIN,
    OPTION_REPORT,
};

static const struct option options[] = {
    ONCE_CLI_OPTION_HELP,
    ONCE_CLI_OPTION_STORE,
    ONCE_CLI_OPTION_JSON,
    ONCE_CLI_OPTION_QUIET,
    { "route", required_argument, NULL, OPTION_ROUTE },
    { "secret-file", required_argument, NULL, OPTION_SECRET_FILE },
    { "ca-file", required_argument, NULL, OPTION_CA_FILE },
    { "nats-creds", required_argument, NULL, OPTION_NATS_CREDS },
    { "amqp-login", required_argument, NULL, OPTION_AMQP_LOGIN },
    { "kafka-config", required_argument, NULL, OPTION_KAFKA_CONFIG },
    { "timeout", required_argument, NULL, OPTION_TIMEOUT },
    { "attempts", required_argument, NULL, OPTION_ATTEMPTS },
    { "crashes", required_argument, NULL, OPTION_CRASHES },
    { "backoff", required_argument, NULL, OPTION_BACKOFF },
    { "backoff-max", required_argument, NULL, OPTION_BACKOFF_MAX },
    { "batch", required_argument, NULL, OPTION_BATCH },
    { "lease", required_argument, NULL, OPTION_LEASE },
    { "drain", no_argument, NULL, OPTION_DRAIN },
    { "report", required_argument, NULL, OPTION_REPORT },
    { 0 },
};

enum { UPKEEP_MS = 1000, RECONNECT_MS = 250 };

struct job {
    struct once_cli cli;
    struct relay relay;
    struct once_signals signals;
    char *routes[RELAY_ROUTES_MAX]; /* PATTERN=SINK, cut in two */
    const char *urls[RELAY_ROUTES_MAX];
    struct sink_options sink;
    bool drain;
    int stop; /* the signal that came */
    int64_t report_ms;
    once_time upkeep_at, report_at, started_ms;
    uint64_t reported; /* published, at the last report */
    once_time reported_ms;
};

/* ------------------------------------------------------------------ the command line */

static bool number(struct job *job, const char *name, uint64_t max, int32_t *out)
{
    uint64_t value;
    if (!once_cli_number(&job->cli, name, 1, max, &value))
        return false;
    *out = (int32_t)value;
    return true;
}

static bool duration(struct job *job, const char *name, int64_t min, int64_t max, int64_t *ms)
{
    if (!once_cli_duration(&job->cli, name, false, ms))
        return false;
    if (*ms >= min && *ms <= max)
        return true;
    once_cli_usage(&job->cli, "%s: '%s' is too %s", name, optarg, *ms < min ? "short" : "long");
    return false;
}

static bool add_route(struct job *job)
{
    struct relay *relay = &job->relay;
    if (relay->route_count == RELAY_ROUTES_MAX)
        return once_cli_usage(&job->cli, "--route: more than %d", RELAY_ROUTES_MAX), false;
    char *equals = strchr(optarg, '=');
    if (equals == NULL || equals == optarg)
        return once_cli_usage(&job->cli, "--route: '%s' is not PATTERN=SINK", optarg), false;
    char *copy = strdup(optarg);
    if (copy == NULL)
        return once_cli_fail(&job->cli, ONCE_EXIT_OS, "out of memory"), false;
    copy[equals - optarg] = '\0';
    const char *url = copy + (equals - optarg) + 1;
    const struct sink_ops *ops = sink_ops_of(url);
    job->routes[relay->route_count] = copy;
    job->urls[relay->route_count] = url;
    relay->routes[relay->route_count++].pattern = copy;
    const char *fault = ops == NULL ? "there is no such sink" : ops->fault(url);
    if (fault != NULL)
        once_cli_usage(&job->cli, "--route: '%s': %s; sinks are %s", url, fault, sink_schemes());
    return fault == NULL;
}

static bool parse_option(struct job *job, int option)
{
    struct relay *relay = &job->relay;
    enum { DAY_MS = 86400000, HOUR_MS = 3600000 };
    switch (option) {
    case OPTION_ROUTE:
        return add_route(job);
    case OPTION_SECRET_FILE:
        job->sink.secret_file = optarg;
        return true;
    case OPTION_CA_FILE:
        job->sink.ca_file = optarg;
        return true;
    case OPTION_NATS_CREDS:
        job->sink.nats_creds = optarg;
        return true;
    case OPTION_AMQP_LOGIN:
        job->sink.amqp_login = optarg;
        return true;
    case OPTION_KAFKA_CONFIG:
        job->sink.kafka_conf = optarg;
        return true;
    case OPTION_TIMEOUT:
        return duration(job, "--timeout", 1, HOUR_MS / 2, &job->sink.timeout_ms);
    case OPTION_ATTEMPTS:
        return number(job, "--attempts", 1000000, &relay->attempts_max);
    case OPTION_CRASHES:
        return number(job, "--crashes", 1000, &relay->crashes_max);
    case OPTION_BACKOFF:
        return duration(job, "--backoff", 1, HOUR_MS, &relay->backoff_ms);
    case OPTION_BACKOFF_MAX:
        return duration(job, "--backoff-max", 1, DAY_MS, &relay->backoff_ms_max);
    case OPTION_BATCH:
        return number(job, "--batch", OUTBOX_BATCH_MAX, &relay->batch_len);
    case OPTION_LEASE:
        return duration(job, "--lease", OUTBOX_LEASE_MS_MIN, OUTBOX_LEASE_MS_MAX, &relay->lease_ms);
    case OPTION_REPORT:
        return duration(job, "--report", 100, DAY_MS, &job->report_ms);
    default:
        job->drain = true;
        return true;
    }
}

static bool check(struct job *job, int argc, char **argv)
{
    struct relay *relay = &job->relay;
    if (optind < argc)
        once_cli_usage(&job->cli, "'%s' is too much", argv[optind]);
    else if (relay->route_count == 0)
        once_cli_usage(&job->cli, "--route 'PATTERN=SINK' is missing: where to?");
    else if (relay->lease_ms < 2 * job->sink.timeout_ms)
        once_cli_usage(&job->cli, "--lease is not twice --timeout: what is started would outlive it");
    else
        return true;
    return false;
}

/* ------------------------------------------------------------------ sinks */

/* Routes with the same URL share a sink. */
static once_result open_sinks(struct job *job, struct once_error *err)
{
    struct relay *relay = &job->relay;
    for (size_t i = 0; i < relay->route_count; i++) {
        for (size_t j = 0; j < i && relay->routes[i].sink == NULL; j++)
            if (strcmp(job->urls[i], job->urls[j]) == 0)
                relay->routes[i].sink = relay->routes[j].sink;
        if (relay->routes[i].sink != NULL)
            continue;
        struct sink_options o = job->sink;
        o.url = job->urls[i];
        o.done = relay_done;
        o.arg = relay;
        once_result r = sink_ops_of(o.url)->open(&o, &relay->routes[i].sink, err);
        if (r != ONCE_OK)
            return r;
        relay->breakers[relay->breaker_count++].sink = relay->routes[i].sink;
    }
    return ONCE_OK;
}

/* ------------------------------------------------------------------ reports */

static void report_text(const struct job *job, const struct outbox_counts *now, double rate)
{
    const struct relay_counts *c = &job->relay.counts;
    char lag[ONCE_TEXT_TIME_LEN];
    once_text_about(now->lag_ms, lag);
    printf("published %" PRIu64 " (%.0f/s), refused %" PRIu64 ", unreached %" PRIu64 ", given up %" PRIu64
           "; waiting %" PRId64 ", the oldest for %s; held %" PRId64 ", later %" PRId64 ", dead letters %" PRId64 "\n",
           c->published, rate, c->refused, c->unreached, c->dead, now->pending, lag, now->held, now->later, now->dead);
}

static void report_json(const struct job *job, const struct outbox_counts *now, double rate)
{
    const struct relay_counts *c = &job->relay.counts;
    struct once_json json = { .file = stdout };
    once_json_open(&json, NULL, '{');
    once_json_uint(&json, "batches", c->batches);
    once_json_uint(&json, "published", c->published);
    once_json_uint(&json, "refused", c->refused);
    once_json_uint(&json, "unreached", c->unreached);
    once_json_uint(&json, "given_up", c->dead);
    once_json_uint(&json, "unsettled", c->unsettled);
    once_json_uint(&json, "rate", (uint64_t)rate);
    once_json_int(&json, "waiting", now->pending);
    once_json_int(&json, "lag_ms", now->lag_ms);
    once_json_int(&json, "held", now->held);
    once_json_int(&json, "later", now->later);
    once_json_int(&json, "dead_letters", now->dead);
    once_json_close(&json);
}

static void report(struct job *job)
{
    struct outbox_counts counts;
    struct once_error err;
    once_time now = once_os_monotonic_ms();
    if (job->cli.quiet || job->relay.outbox->ops->counts(job->relay.outbox, &counts, &err) != ONCE_OK)
        return;
    double seconds = (double)(now - job->reported_ms) / 1000;
    double rate = seconds > 0 ? (double)(job->relay.counts.published - job->reported) / seconds : 0;
    (job->cli.json ? report_json : report_text)(job, &counts, rate);
    fflush(stdout);
    job->reported = job->relay.counts.published;
    job->reported_ms = now;
}

/* ------------------------------------------------------------------ the loop */

static bool must_stop(void *arg)
{
    struct job *job = arg;
    if (job->stop == 0)
        job->stop = once_signals_take(&job->signals);
    return job->stop != 0;
}

/* The database went away: nothing is lost, so go on when it is back. */
static void reconnect(struct job *job, const struct once_error *why)
{
    struct once_error err;
    struct pollfd signals = { .fd = job->signals.fd, .events = POLLIN };
    struct outbox *o = job->relay.outbox;
    if (!job->cli.quiet)
        fprintf(stderr, "once relay: %s; trying again\n", why->text);
    while (!must_stop(job) && o->ops->connect(o, &err) != ONCE_OK)
        poll(&signals, 1, RECONNECT_MS);
}

static once_result upkeep_when_due(struct job *job, struct once_error *err)
{
    once_time now = once_os_monotonic_ms();
    if (now < job->upkeep_at)
        return ONCE_OK;
    job->upkeep_at = now + UPKEEP_MS;
    once_result r = job->relay.outbox->ops->upkeep(job->relay.outbox, err);
    if (r == ONCE_OK && now >= job->report_at) {
        job->report_at = now + job->report_ms;
        report(job);
    }
    return r;
}

/* Nothing to do. Who says that it sleeps looks once more before it does: what was enqueued in
 * between would not have woken it. */
static once_result rest(struct job *job, bool *slept, struct once_error *err)
{
    const struct outbox_ops *ops = job->relay.outbox->ops;
    if (!*slept) {
        *slept = true;
        return ops->sleeps(job->relay.outbox, true, err);
    }
    ops->wait(job->relay.outbox, job->signals.fd, OUTBOX_POLL_MS);
    return ops->sleeps(job->relay.outbox, true, err);
}

static void loop(struct job *job)
{
    struct once_error err;
    const struct outbox_ops *ops = job->relay.outbox->ops;
    bool slept = false;
    job->relay.recovered = true; /* there may be routes now that were not there before */
    while (!must_stop(job)) {
        size_t took = 0;
        once_result r = upkeep_when_due(job, &err);
        if (r == ONCE_OK)
            r = relay_step(&job->relay, &took, &err);
        if (r == ONCE_OK && took > 0) {
            slept = false;
            r = ops->sleeps(job->relay.outbox, false, &err);
        } else if (r == ONCE_OK && job->drain) {
            break;
        } else if (r == ONCE_OK) {
            r = rest(job, &slept, &err);
        }
        if (r != ONCE_OK)
            reconnect(job, &err);
    }
}

static int run(struct job *job)
{
    struct once_error err;
    if (once_store_url(job->cli.store, false, job->cli.url, &err) != ONCE_OK)
        return once_cli_error(&job->cli, &err, "find the store");
    if (outbox_open(job->cli.url, &job->relay.outbox, &err) != ONCE_OK)
        return once_cli_error(&job->cli, &err, "open the outbox");
    int error = once_signals_init(&job->signals); /* before there are threads: none may take a signal */
    if (error != 0)
        return once_cli_fail(&job->cli, ONCE_EXIT_OS, "cannot watch for signals: %s", strerror(error));
    if (open_sinks(job, &err) != ONCE_OK)
        return once_cli_error(&job->cli, &err, "open a sink");
    job->reported_ms = once_os_monotonic_ms();
    job->report_at = job->reported_ms + job->report_ms;
    if (job->relay.outbox->ops->hurry(job->relay.outbox, &err) != ONCE_OK)
        return once_cli_error(&job->cli, &err, "use the outbox");
    loop(job);
    report(job);
    once_signals_release(&job->signals);
    return ONCE_EXIT_OK;
}

int once_cli_relay(int argc, char **argv)
{
    struct job job = {
        .cli = { .verb = "relay", .help = help },
        .relay = { .lease_ms = 30000,
                   .backoff_ms = 500,
                   .backoff_ms_max = 600000,
                   .batch_len = 500,
                   .attempts_max = 20,
                   .crashes_max = 5,
                   .must_stop = must_stop },
        .sink = { .timeout_ms = 10000 },
        .report_ms = 60000,
    };
    int exit = ONCE_EXIT_OK;
    job.relay.arg = &job;
    for (int c; (c = once_cli_next(&job.cli, argc, argv, "", options)) != -1 && exit == ONCE_EXIT_OK;) {
        if (c == '?')
            return job.cli.exit;
        if (!parse_option(&job, c))
            exit = ONCE_EXIT_USAGE;
    }
    if (exit == ONCE_EXIT_OK && !check(&job, argc, argv))
        exit = ONCE_EXIT_USAGE;
    if (exit == ONCE_EXIT_OK)
        exit = run(&job);
    for (size_t i = 0; i < job.relay.breaker_count; i++)
        job.relay.breakers[i].sink->ops->close(job.relay.breakers[i].sink);
    for (size_t i = 0; i < job.relay.route_count; i++)
        free(job.routes[i]);
    outbox_close(job.relay.outbox);
    return once_cli_finish(&job.cli, exit);
}
