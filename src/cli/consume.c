/* consume.c - `once consume`: delivers the messages of a broker to an endpoint or a command, each once. */
#include "cli/consume_setup.h"
#include "cli/verbs.h"
#include "core/err.h"
#include "core/json/out.h"
#include "http/http_call.h"
#include "os/os.h"
#include "os/signals.h"
#include "os/stderr_log.h"
#include "program/cli.h"
#include "program/otlp_setup.h"

#include <inttypes.h>

/* clang-format off */
static const char help[] =
    "usage: once consume SOURCE --consumer NAME --to URL [OPTIONS]\n"
    "       once consume SOURCE --consumer NAME --exec COMMAND [OPTIONS]\n"
    "\n"
    "Delivers each message of SOURCE to an HTTP endpoint, or to a command, until that\n"
    "succeeded. A message that comes again is recognised by its id, and not delivered again. A\n"
    "message is acknowledged after its outcome is stored. SOURCE:\n"
    "  nats://HOST[:PORT]/STREAM[/SUBJECT]        or tls://: a stream of JetStream\n"
    "  amqp[s]://HOST[:PORT][/VHOST]?queue=NAME   a queue of RabbitMQ\n"
    "  kafka[s]://HOST[:PORT][,HOST...]/TOPIC     a topic of Kafka\n"
    "\n"
    "  --consumer NAME    name of the consumer: tenant of its records, durable name or\n"
    "                     group at the broker\n"
    "  --to URL           POST it there: 2xx is done; 400, 413, 415, 422 refuse it for good;\n"
    "                     408, 425, 429, and 503 with Retry-After, ask for later; all else\n"
    "                     has failed, and is tried again\n"
    "  --exec COMMAND     for /bin/sh -c, the payload on its standard input: exit 0 is done,\n"
    "                     65 refuses it for good, 75 asks for later, all else has failed\n"
    "  --id-from HOW      the message's id: 'header' (the default: the one that 'once relay'\n"
    "                     sends), 'header:NAME', 'position' (at the broker), 'json:POINTER'\n"
    "                     (a natural key in the payload); several are tried in turn\n"
    "  --attempts N       failures after which it is a dead letter; default 10\n"
    "  --dead-letter T    publish dead letters to the topic T of the same broker; default: a\n"
    "                     table of the store, see 'once inbox'\n"
    "  --takeover HOW     what to do with a message whose last attempt was cut off: 'rerun'\n"
    "                     (default) delivers it again, under the same key; 'escalate' does not,\n"
    "                     and makes it a dead letter, as after any lost answer\n"
    "  --parallel N       messages to deliver at a time, up to 256; default 8\n"
    "  --window N         messages to read ahead at most, up to 10000; default 8 per parallel\n"
    "  --timeout DUR      of one delivery; default 30s\n"
    "  --lease DUR        after which others take over from a crashed consumer; default 60s\n"
    "  --retention DUR    how long ids are remembered, or 'never' to forget; default 7d\n"
    "  --redelivery-window DUR\n"
    "                     how long the broker may deliver a message again; default: as the\n"
    "                     broker tells; a retention that is shorter is refused\n"
    "  --backoff DUR      wait up to that after a failure, doubled each time; default 500ms\n"
    "  --backoff-max DUR  but no longer than this; default 1m\n"
    "  --ca-file F        trust the certificates in F for the broker instead of the system's\n"
    "  --nats-creds F     the credentials for NATS\n"
    "  --amqp-login F     for RabbitMQ: F has a line USER:PASSWORD; default guest:guest\n"
    "  --kafka-config F   for Kafka: F has lines NAME=VALUE, how to log in and the like\n"
    OTLP_HELP
    OTLP_HELP_RATIO
    "  --drain            end when the source has no more messages\n"
    "  --report DUR       print a report every DUR; default 1m\n"
    "  --json             the reports are JSON, one object per line\n"
    ONCE_CLI_HELP_STORE
    "  --quiet            no reports, only errors\n"
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0 drained, or ended by INT or TERM after its deliveries; 64 usage; 69 store or\n"
    "      broker were not reached at the start\n"
    "\n"
    "example: once consume nats://mq/ORDERS --consumer billing --to http://127.0.0.1:9000/in\n";
/* clang-format on */

enum {
    OPTION_DRAIN = ONCE_CLI_OWN,
    OPTION_REPORT,
    OPTION_OTLP,                                      /* the first of otlp_setup.h's */
    OPTION_CONSUME = OPTION_OTLP + OTLP_OPTION_COUNT, /* the first of consume_setup.h's */
};

static const struct option options[] = {
    ONCE_CLI_OPTION_HELP,
    ONCE_CLI_OPTION_STORE,
    ONCE_CLI_OPTION_JSON,
    ONCE_CLI_OPTION_QUIET,
    { "drain", no_argument, NULL, OPTION_DRAIN },
    { "report", required_argument, NULL, OPTION_REPORT },
    OTLP_OPTIONS(OPTION_OTLP),
    OTLP_OPTIONS_RATIO(OPTION_OTLP),
    CONSUME_OPTIONS("", OPTION_CONSUME),
    { 0 },
};

struct job {
    struct once_cli cli;
    struct consume_setup setup;
    struct consume_counters counters;
    struct otlp_setup otlp;
    struct once_signals signals;
    int stop; /* the signal that ended it, or 0 */
    once_time reported_ms;
    uint64_t reported;
};

/* ------------------------------------------------------------------ the command line */

static bool parse_option(struct job *job, int option)
{
    enum { DAY_MS = 86400000 };
    int64_t *report_ms = &job->setup.options.report_ms;
    switch (option) {
    case OPTION_REPORT:
        if (!once_cli_duration(&job->cli, "--report", false, report_ms))
            return false;
        if (*report_ms >= 1 && *report_ms <= DAY_MS)
            return true;
        once_cli_usage(&job->cli, "--report: '%s' is too %s", optarg, *report_ms < 1 ? "short" : "long");
        return false;
    case OPTION_DRAIN:
        job->setup.options.drain = true;
        return true;
    default:
        return option >= OPTION_CONSUME
                   ? consume_setup_option(&job->setup, (enum consume_option)(option - OPTION_CONSUME))
                   : otlp_setup_option(&job->otlp, (enum otlp_option)(option - OPTION_OTLP));
    }
}

static bool check(struct job *job, int argc, char **argv)
{
    if (optind + 1 < argc)
        return once_cli_usage(&job->cli, "unexpected argument '%s'", argv[optind + 1]), false;
    if (optind < argc)
        job->setup.options.source.url = argv[optind];
    return consume_setup_check(&job->setup) && otlp_setup_check(&job->otlp);
}

/* ------------------------------------------------------------------ reports */

static void report_text(const struct consume_counters *c, double rate)
{
    printf("done %" PRIu64 " (%.0f/s), of these duplicates %" PRIu64 "; failed %" PRIu64 ", put off %" PRIu64
           ", given up %" PRIu64 "; here %" PRId64,
           c->done, rate, c->duplicates, c->failed, c->delayed, c->dead, c->open_count);
    if (c->lag >= 0)
        printf(", waiting %" PRId64, c->lag);
    if (c->dead_letters >= 0)
        printf(", dead letters %" PRId64, c->dead_letters);
    putchar('\n');
}

static void report_json(const struct consume_counters *c, double rate)
{
    struct once_json json = { .file = stdout };
    once_json_open(&json, NULL, '{');
    once_json_uint(&json, "received", c->received);
    once_json_uint(&json, "done", c->done);
    once_json_uint(&json, "duplicates", c->duplicates);
    once_json_uint(&json, "failed", c->failed);
    once_json_uint(&json, "put_off", c->delayed);
    once_json_uint(&json, "given_up", c->dead);
    once_json_uint(&json, "rate", (uint64_t)rate);
    once_json_int(&json, "here", c->open_count);
    if (c->lag >= 0)
        once_json_int(&json, "waiting", c->lag);
    if (c->dead_letters >= 0)
        once_json_int(&json, "dead_letters", c->dead_letters);
    once_json_close(&json);
}

static void report(void *arg)
{
    struct job *job = arg;
    once_time now = once_os_monotonic_ms();
    if (job->cli.quiet)
        return;
    double seconds = (double)(now - job->reported_ms) / 1000;
    double rate = seconds > 0 ? (double)(job->counters.done - job->reported) / seconds : 0;
    (job->cli.json ? report_json : report_text)(&job->counters, rate);
    fflush(stdout);
    job->reported = job->counters.done;
    job->reported_ms = now;
}

/* ------------------------------------------------------------------ running */

/* A second signal does not wait for the deliveries that are under way. */
static bool must_stop(void *arg)
{
    struct job *job = arg;
    int came = once_signals_take(&job->signals);
    if (came != 0 && job->stop != 0)
        once_signals_die(&job->signals, job->stop);
    if (came != 0)
        job->stop = came;
    return job->stop != 0;
}

static void say(void *arg, const char *text)
{
    const struct job *job = arg;
    if (!job->cli.quiet)
        once_os_log("once consume", "%s", text);
}

static int fail(struct job *job, const struct once_error *err, const char *what)
{
    return err->result == ONCE_INVALID ? once_cli_usage(&job->cli, "%s", err->text)
                                       : once_cli_error(&job->cli, err, what);
}

static int consume(struct job *job)
{
    struct once_error err;
    struct consume_options *o = &job->setup.options;
    struct consume_loop *loop = NULL;
    int exit = ONCE_EXIT_OK;
    o->wake = job->signals.fd;
    o->consumer.tracer = &job->otlp.tracer;
    o->consumer.target.mask = job->signals.mask;
    job->reported_ms = once_os_monotonic_ms();
    if (consume_loop_open(o, &loop, &err) != ONCE_OK || consume_loop_connect(loop, &err) != ONCE_OK)
        exit = fail(job, &err, "open the source");
    else
        exit = otlp_setup_start(&job->otlp);
    if (exit == ONCE_EXIT_OK && consume_loop_run(loop, &err) != ONCE_OK)
        exit = once_cli_error(&job->cli, &err, "start");
    consume_loop_close(loop);
    otlp_setup_stop(&job->otlp);
    return exit;
}

static int run(struct job *job)
{
    struct once_error err;
    if (http_call_init(&err) != ONCE_OK)
        return once_cli_error(&job->cli, &err, "start");
    int exit = once_cli_open(&job->cli, ONCE_CLI_CREATE, &job->setup.options.consumer.once);
    if (exit != ONCE_EXIT_OK)
        return exit;
    job->setup.options.store_url = job->cli.url;
    int error = once_signals_init(&job->signals); /* before the broker's library starts threads */
    if (error != 0)
        exit = once_cli_fail(&job->cli, ONCE_EXIT_OS, "cannot watch for signals: %s", strerror(error));
    else
        exit = consume(job);
    once_signals_release(&job->signals);
    once_close(job->setup.options.consumer.once);
    return exit;
}

int once_cli_consume(int argc, char **argv)
{
    struct job job = { .cli = { .verb = "consume", .help = help }, .signals = { .fd = -1 } };
    struct consume_options *o = &job.setup.options;
    int exit = ONCE_EXIT_OK;
    consume_setup_init(&job.setup, &job.cli, false);
    otlp_setup_init(&job.otlp, &job.cli, "once-consume");
    o->report_ms = 60000;
    o->counters = &job.counters;
    o->must_stop = must_stop;
    o->say = say;
    o->report = report;
    o->arg = &job;
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
    return once_cli_finish(&job.cli, exit);
}
