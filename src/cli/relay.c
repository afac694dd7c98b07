/* relay.c - `once relay`: publishes the messages of an outbox, until it is told to stop. */
#include "messages/relay_loop.h"

#include "cli/relay_setup.h"
#include "cli/verbs.h"
#include "core/json/out.h"
#include "daemon/api/api.h"
#include "os/os.h"
#include "os/signals.h"
#include "os/stderr_log.h"
#include "program/cli.h"
#include "program/otlp_setup.h"
#include "program/text.h"
#include "store/url.h"

#include <inttypes.h>

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
    "  --crashes N        crashes of relays after which a message is dead; default 5\n"
    "  --backoff DUR      wait up to that after a failure, doubled each time; default 500ms\n"
    "  --backoff-max DUR  but no longer than this; default 10m\n"
    "  --batch N          messages to take at a time, up to 1000; default 500\n"
    "  --lease DUR        after which messages of a relay that died are taken over; at least\n"
    "                     twice the timeout; default 30s\n"
    "  --drain            end when nothing is due any more\n"
    "  --report DUR       print a report every DUR; default 1m\n"
    "  --json             the reports are JSON, one object per line\n"
    "  --metrics ADDR     serve the same and more for Prometheus at http://ADDR/metrics, on\n"
    "                     loopback; and /healthz\n"
    OTLP_HELP
    ONCE_CLI_HELP_STORE
    "  --quiet            no reports, only errors\n"
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0 drained, or ended by INT or TERM after settling its messages; 64 usage;\n"
    "      69 the database was not reached at the start\n"
    "\n"
    "example: once relay --store postgresql://db/shop --route '*=https://hooks.example/in'\n";
/* clang-format on */

enum {
    OPTION_DRAIN = ONCE_CLI_OWN,
    OPTION_REPORT,
    OPTION_METRICS,
    OPTION_OTLP,                                    /* the first of otlp_setup.h's */
    OPTION_RELAY = OPTION_OTLP + OTLP_OPTION_COUNT, /* the first of relay_setup.h's */
};

static const struct option options[] = {
    ONCE_CLI_OPTION_HELP,
    ONCE_CLI_OPTION_STORE,
    ONCE_CLI_OPTION_JSON,
    ONCE_CLI_OPTION_QUIET,
    RELAY_OPTIONS("route", "", OPTION_RELAY),
    { "drain", no_argument, NULL, OPTION_DRAIN },
    { "report", required_argument, NULL, OPTION_REPORT },
    { "metrics", required_argument, NULL, OPTION_METRICS },
    OTLP_OPTIONS(OPTION_OTLP),
    { 0 },
};

struct job {
    struct once_cli cli;
    struct relay_setup setup;
    struct relay_counters counters;
    struct otlp_setup otlp;
    struct relay_loop loop;
    struct once_signals signals;
    const char *metrics; /* the address to listen on; NULL: none */
    int stop;            /* the signal that came */
    int64_t report_ms;
    once_time report_at;
    uint64_t reported; /* how many were published at the last report */
    once_time reported_ms;
};

/* ------------------------------------------------------------------ the command line */

static bool parse_option(struct job *job, int option)
{
    enum { DAY_MS = 86400000, REPORT_MS_MIN = 100 };
    switch (option) {
    case OPTION_DRAIN:
        job->loop.drain = true;
        return true;
    case OPTION_METRICS:
        job->metrics = optarg;
        return true;
    case OPTION_REPORT:
        if (!once_cli_duration(&job->cli, "--report", false, &job->report_ms))
            return false;
        if (job->report_ms >= REPORT_MS_MIN && job->report_ms <= DAY_MS)
            return true;
        once_cli_usage(&job->cli, "--report: '%s' is too %s", optarg, job->report_ms < DAY_MS ? "short" : "long");
        return false;
    case OPTION_OTLP + OTLP_OPTION_URL:
    case OPTION_OTLP + OTLP_OPTION_HEADER:
        return otlp_setup_option(&job->otlp, (enum otlp_option)(option - OPTION_OTLP));
    default:
        return relay_setup_option(&job->setup, (enum relay_option)(option - OPTION_RELAY));
    }
}

static bool check(struct job *job, int argc, char **argv)
{
    if (optind < argc)
        return once_cli_usage(&job->cli, "unexpected argument '%s'", argv[optind]), false;
    return otlp_setup_check(&job->otlp) && relay_setup_check(&job->setup);
}

/* ------------------------------------------------------------------ reports */

static void report_text(const struct job *job, const struct relay_sums *c, double rate)
{
    const struct relay_counters *now = &job->counters;
    char lag[ONCE_TEXT_TIME_LEN], stalled[ONCE_TEXT_TIME_LEN];
    once_text_about(now->lag_ms, lag);
    once_text_about(now->stalled_lag_ms, stalled);
    printf("published %" PRIu64 " (%.0f/s), refused %" PRIu64 ", unreached %" PRIu64 ", given up %" PRIu64
           "; waiting %" PRId64 ", the oldest for %s; held %" PRId64 ", the oldest for %s; later %" PRId64
           ", dead letters %" PRId64 "\n",
           c->published, rate, c->refused, c->unreached, c->dead, now->pending, lag, now->stalled, stalled,
           now->scheduled, now->dead);
}

static void report_json(const struct job *job, const struct relay_sums *c, double rate)
{
    const struct relay_counters *now = &job->counters;
    struct once_json json = { .file = stdout };
    once_json_open(&json, NULL, '{');
    once_json_uint(&json, "batches", now->batches);
    once_json_uint(&json, "published", c->published);
    once_json_uint(&json, "refused", c->refused);
    once_json_uint(&json, "unreached", c->unreached);
    once_json_uint(&json, "crashed", c->crashed);
    once_json_uint(&json, "given_up", c->dead);
    once_json_uint(&json, "unsettled", now->unsettled);
    once_json_uint(&json, "rate", (uint64_t)rate);
    once_json_int(&json, "waiting", now->pending);
    once_json_int(&json, "lag_ms", now->lag_ms);
    once_json_int(&json, "stalled", now->stalled);
    once_json_int(&json, "stalled_lag_ms", now->stalled_lag_ms);
    once_json_int(&json, "scheduled", now->scheduled);
    once_json_int(&json, "dead_letters", now->dead);
    once_json_close(&json);
}

static void report(struct job *job)
{
    struct relay_sums sums;
    struct once_error err;
    once_time now = once_os_monotonic_ms();
    if (job->cli.quiet || relay_loop_count(&job->loop, &err) != ONCE_OK)
        return;
    relay_counters_sum(&job->counters, &sums);
    double seconds = (double)(now - job->reported_ms) / 1000;
    double rate = seconds > 0 ? (double)(sums.published - job->reported) / seconds : 0;
    (job->cli.json ? report_json : report_text)(job, &sums, rate);
    fflush(stdout);
    job->reported = sums.published;
    job->reported_ms = now;
}

static void tick(void *arg)
{
    struct job *job = arg;
    once_time now = once_os_monotonic_ms();
    if (now < job->report_at)
        return;
    job->report_at = now + job->report_ms;
    report(job);
}

/* ------------------------------------------------------------------ running */

static bool must_stop(void *arg)
{
    struct job *job = arg;
    if (job->stop == 0)
        job->stop = once_signals_take(&job->signals);
    return job->stop != 0;
}

static void say(void *arg, const char *text)
{
    struct job *job = arg;
    if (!job->cli.quiet)
        once_os_log("once relay", "%s", text);
}

static void put_numbers(void *arg, FILE *file)
{
    struct job *job = arg;
    relay_counters_put(&job->counters, job->setup.patterns, job->setup.relay.route_count, file);
    exporter_put(job->otlp.tracer.exporter, file);
}

static int serve(struct job *job)
{
    struct once_error err;
    struct once_api *api = NULL;
    struct once_api_options api_options = {
        .listen = job->metrics, .more = put_numbers, .more_arg = job, .up = &job->counters.up
    };
    if (job->metrics != NULL && once_api_start(&api_options, &api, &err) != ONCE_OK)
        return once_cli_error(&job->cli, &err, "serve metrics");
    if (api != NULL && !job->cli.quiet)
        once_os_log("once relay", "metrics at http://%s/metrics", once_api_address(api));
    job->reported_ms = once_os_monotonic_ms();
    job->report_at = job->reported_ms + job->report_ms;
    relay_loop_run(&job->loop);
    report(job);
    once_api_stop(api);
    return ONCE_EXIT_OK;
}

static int run(struct job *job)
{
    struct once_error err;
    struct relay *relay = &job->setup.relay;
    if (once_store_url(job->cli.store, false, job->cli.url, &err) != ONCE_OK)
        return once_cli_error(&job->cli, &err, "find the store");
    if (outbox_open(job->cli.url, &relay->outbox, &err) != ONCE_OK)
        return once_cli_error(&job->cli, &err, "open the outbox");
    int error = once_signals_init(&job->signals); /* before threads are started, which would take signals otherwise */
    if (error != 0)
        return once_cli_fail(&job->cli, ONCE_EXIT_OS, "cannot watch for signals: %s", strerror(error));
    if (relay_setup_open_sinks(&job->setup, &err) != ONCE_OK)
        return once_cli_error(&job->cli, &err, "open a sink");
    if (outbox_retry_now(relay->outbox, &err) != ONCE_OK)
        return once_cli_error(&job->cli, &err, "use the outbox");
    int exit = otlp_setup_start(&job->otlp);
    if (exit != ONCE_EXIT_OK)
        return exit;
    relay->exporter = job->otlp.tracer.exporter;
    job->loop.relay = relay;
    job->loop.connected = true;
    job->loop.wake = job->signals.fd;
    exit = serve(job);
    otlp_setup_stop(&job->otlp);
    once_signals_release(&job->signals);
    return exit;
}

int once_cli_relay(int argc, char **argv)
{
    struct job job = {
        .cli = { .verb = "relay", .help = help },
        .report_ms = 60000,
    };
    int exit = ONCE_EXIT_OK;
    relay_setup_init(&job.setup, &job.cli, false);
    otlp_setup_init(&job.otlp, &job.cli, "once-relay");
    job.setup.relay.counters = &job.counters;
    job.setup.relay.must_stop = must_stop;
    job.setup.relay.say = say;
    job.setup.relay.arg = &job;
    job.loop = (struct relay_loop){ .tick = tick, .arg = &job };
    for (int c; exit == ONCE_EXIT_OK && (c = once_cli_next(&job.cli, argc, argv, "", options)) != -1;) {
        if (c == '?')
            exit = job.cli.exit;
        else if (!parse_option(&job, c))
            exit = ONCE_EXIT_USAGE;
        if (c == '?' && exit == ONCE_EXIT_OK) { /* --help */
            relay_setup_release(&job.setup);
            return exit;
        }
    }
    if (exit == ONCE_EXIT_OK && !check(&job, argc, argv))
        exit = ONCE_EXIT_USAGE;
    if (exit == ONCE_EXIT_OK)
        exit = run(&job);
    relay_setup_release(&job.setup);
    outbox_close(job.setup.relay.outbox);
    return once_cli_finish(&job.cli, exit);
}
