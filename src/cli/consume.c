/*
 * consume.c - `once consume`: messages of a broker are delivered to an endpoint or a command, each once.
 *
 * The loop of the main thread: it reads from the source while there is room (CONSUMER-4), hands messages to the
 * consumer's threads (messages/consumer.c), and settles what has ended: acknowledges what is done, after it is durable;
 * buries what is dead, and acknowledges it after that. A message is never acknowledged otherwise.
 */
#include "messages/consumer.h"

#include "cli/verbs.h"
#include "core/err.h"
#include "core/json_out.h"
#include "core/span.h"
#include "core/url.h"
#include "http/http_call.h"
#include "messages/dead_letters/dead_letter_sink.h"
#include "messages/message_id.h"
#include "os/crash_point.h"
#include "os/os.h"
#include "os/signals.h"
#include "os/stderr_log.h"
#include "program/cli.h"
#include "program/otlp_setup.h"
#include "program/text.h"
#include "store/url.h"

#include <inttypes.h>
#include <poll.h>
#include <unistd.h>

/* clang-format off */
static const char help[] =
    "usage: once consume SOURCE --consumer NAME --to URL [OPTIONS]\n"
    "       once consume SOURCE --consumer NAME --exec COMMAND [OPTIONS]\n"
    "\n"
    "Delivers each message of SOURCE to an HTTP endpoint, or to a command, until that\n"
    "succeeded; one that comes again is recognised by its id and not delivered again. It is\n"
    "acknowledged after its outcome is stored. SOURCE:\n"
    "  nats://HOST[:PORT]/STREAM[/SUBJECT]        or tls://: a stream of JetStream\n"
    "  amqp[s]://HOST[:PORT][/VHOST]?queue=NAME   a queue of RabbitMQ\n"
    "  kafka[s]://HOST[:PORT][,HOST...]/TOPIC     a topic of Kafka\n"
    "\n"
    "  --consumer NAME    whose messages: the tenant of the records, the durable name or\n"
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
    "  --takeover HOW     what to do with a message whose last try was cut off: 'rerun' (the\n"
    "                     default) delivers it again, under the same key; 'escalate' does not,\n"
    "                     and makes it a dead letter, as after any lost answer\n"
    "  --parallel N       messages to deliver at a time, up to 256; default 8\n"
    "  --window N         messages to have here at most, up to 10000; default 8 per parallel\n"
    "  --timeout DUR      of one delivery; default 30s\n"
    "  --lease DUR        after which others take over from one that died; default 60s\n"
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
    "  --drain            end when the source has no more\n"
    "  --report DUR       say how it goes every DUR; default 1m\n"
    "  --json             the reports are JSON, one object per line\n"
    ONCE_CLI_HELP_STORE
    "  --quiet            no reports, only errors\n"
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0 drained, or ended by INT or TERM after what was under way; 64 usage; 69 store or\n"
    "      broker were not reached at the start\n"
    "\n"
    "example: once consume nats://mq/ORDERS --consumer billing --to http://127.0.0.1:9000/in\n";
/* clang-format on */

enum {
    OPTION_CONSUMER = ONCE_CLI_OWN,
    OPTION_TO,
    OPTION_EXEC,
    OPTION_ID_FROM,
    OPTION_ATTEMPTS,
    OPTION_DEAD_LETTER,
    OPTION_TAKEOVER,
    OPTION_PARALLEL,
    OPTION_WINDOW,
    OPTION_TIMEOUT,
    OPTION_LEASE,
    OPTION_RETENTION,
    OPTION_REDELIVERY_WINDOW,
    OPTION_BACKOFF,
    OPTION_BACKOFF_MAX,
    OPTION_CA_FILE,
    OPTION_NATS_CREDS,
    OPTION_AMQP_LOGIN,
    OPTION_KAFKA_CONFIG,
    OPTION_DRAIN,
    OPTION_REPORT,
    OPTION_OTLP, /* the first of otlp_setup.h's */
};

static const struct option options[] = {
    ONCE_CLI_OPTION_HELP,
    ONCE_CLI_OPTION_STORE,
    ONCE_CLI_OPTION_JSON,
    ONCE_CLI_OPTION_QUIET,
    { "consumer", required_argument, NULL, OPTION_CONSUMER },
    { "to", required_argument, NULL, OPTION_TO },
    { "exec", required_argument, NULL, OPTION_EXEC },
    { "id-from", required_argument, NULL, OPTION_ID_FROM },
    { "attempts", required_argument, NULL, OPTION_ATTEMPTS },
    { "dead-letter", required_argument, NULL, OPTION_DEAD_LETTER },
    { "takeover", required_argument, NULL, OPTION_TAKEOVER },
    { "parallel", required_argument, NULL, OPTION_PARALLEL },
    { "window", required_argument, NULL, OPTION_WINDOW },
    { "timeout", required_argument, NULL, OPTION_TIMEOUT },
    { "lease", required_argument, NULL, OPTION_LEASE },
    { "retention", required_argument, NULL, OPTION_RETENTION },
    { "redelivery-window", required_argument, NULL, OPTION_REDELIVERY_WINDOW },
    { "backoff", required_argument, NULL, OPTION_BACKOFF },
    { "backoff-max", required_argument, NULL, OPTION_BACKOFF_MAX },
    { "ca-file", required_argument, NULL, OPTION_CA_FILE },
    { "nats-creds", required_argument, NULL, OPTION_NATS_CREDS },
    { "amqp-login", required_argument, NULL, OPTION_AMQP_LOGIN },
    { "kafka-config", required_argument, NULL, OPTION_KAFKA_CONFIG },
    { "drain", no_argument, NULL, OPTION_DRAIN },
    { "report", required_argument, NULL, OPTION_REPORT },
    OTLP_OPTIONS(OPTION_OTLP),
    OTLP_OPTIONS_RATIO(OPTION_OTLP),
    { 0 },
};

enum {
    TICK_MS = 1000,
    RECONNECT_MS = 250,
    WAIT_MS = 200,
    SHORT_WAIT_MS = 10,
    TROUBLE_MS = 5000,
    BROKER_MS = 10000,
    STUCK_MS = 1000
};

/* A message that is here. Of a dead letter it also has the bytes. */
struct item {
    struct delivery delivery;
    struct incoming dead_letter;
    char id[ONCE_KEY_LEN_MAX + 1];
    struct once_buf bytes;
    struct item *next; /* of the letters that are here, or of those that could not be settled */
};

struct job {
    struct once_cli cli;
    struct consumer_options o;
    struct source_options source_options;
    struct message_id_rule rules[MESSAGE_ID_RULES_MAX];
    size_t rule_count;
    const char *dead_topic;
    struct otlp_setup otlp;
    char sink_url[ONCE_URL_LEN_MAX + 1];
    int64_t redelivery_window_ms, report_ms;
    bool drain;
    struct once_signals signals;
    struct source *source;
    struct consumer *consumer;
    struct dead_letter_sink dead_letter_sink;
    struct item *dead_letters; /* that are being delivered */
    /* Dead, or a letter that is done, and that could not be written down yet; the next to be tried first. */
    struct item *stuck, *stuck_last;
    size_t stuck_count;
    int stop;
    once_time tick_at, report_at, reported_ms, trouble_at;
    uint64_t reported, received;
    int64_t lag, dead;
};

/* ------------------------------------------------------------------ the command line */

static bool number(struct job *job, const char *name, uint64_t max, uint64_t *out)
{
    return once_cli_number(&job->cli, name, 1, max, out);
}

static bool duration(struct job *job, const char *name, bool never, int64_t max, int64_t *ms)
{
    if (!once_cli_duration(&job->cli, name, never, ms))
        return false;
    if (*ms == ONCE_NEVER || (*ms >= 1 && *ms <= max))
        return true;
    once_cli_usage(&job->cli, "%s: '%s' is too %s", name, optarg, *ms < 1 ? "short" : "long");
    return false;
}

static bool parse_target(struct job *job, bool http)
{
    struct once_error err;
    if (job->o.target.deliver != NULL)
        return once_cli_usage(&job->cli, "one --to or --exec, please"), false;
    if (http && http_url_check(optarg, &err) != ONCE_OK)
        return once_cli_usage(&job->cli, "--to: %s", err.text), false;
    job->o.target.deliver = http ? deliver_http : deliver_exec;
    *(http ? &job->o.target.url : &job->o.target.command) = optarg;
    return true;
}

static bool parse_rule(struct job *job)
{
    if (job->rule_count == MESSAGE_ID_RULES_MAX)
        return once_cli_usage(&job->cli, "--id-from: more than %d", MESSAGE_ID_RULES_MAX), false;
    const char *fault = message_id_parse(optarg, &job->rules[job->rule_count++]);
    if (fault != NULL)
        once_cli_usage(&job->cli, "--id-from: '%s': %s", optarg, fault);
    return fault == NULL;
}

static bool parse_takeover(struct job *job)
{
    bool rerun = strcmp(optarg, "rerun") == 0;
    if (!rerun && strcmp(optarg, "escalate") != 0)
        return once_cli_usage(&job->cli, "--takeover: '%s' is neither 'rerun' nor 'escalate'", optarg), false;
    job->o.takeover = rerun ? ONCE_TAKEOVER_RERUN : ONCE_TAKEOVER_ESCALATE;
    return true;
}

static bool parse_count(struct job *job, int option)
{
    uint64_t n = 0;
    switch (option) {
    case OPTION_ATTEMPTS:
        if (!number(job, "--attempts", CONSUMER_ATTEMPTS_MAX, &n))
            return false;
        job->o.attempts_max = (int32_t)n;
        return true;
    case OPTION_PARALLEL:
        if (!number(job, "--parallel", CONSUMER_PARALLEL_MAX, &n))
            return false;
        job->o.parallel = n;
        return true;
    default:
        if (!number(job, "--window", CONSUMER_WINDOW_MAX, &n))
            return false;
        job->o.window = n;
        return true;
    }
}

static bool parse_option(struct job *job, int option)
{
    enum { DAY_MS = 86400000, HOUR_MS = 3600000 };
    switch (option) {
    case OPTION_CONSUMER:
        job->o.name = once_span_str(optarg);
        job->source_options.consumer = optarg;
        return true;
    case OPTION_TO:
    case OPTION_EXEC:
        return parse_target(job, option == OPTION_TO);
    case OPTION_ID_FROM:
        return parse_rule(job);
    case OPTION_DEAD_LETTER:
        job->dead_topic = optarg;
        return true;
    case OPTION_TAKEOVER:
        return parse_takeover(job);
    case OPTION_TIMEOUT:
        return duration(job, "--timeout", false, DAY_MS, &job->o.target.timeout_ms);
    case OPTION_LEASE:
        return duration(job, "--lease", false, ONCE_LEASE_MS_MAX, &job->o.lease_ms);
    case OPTION_RETENTION:
        return duration(job, "--retention", true, ONCE_RETENTION_MS_MAX, &job->o.retention_ms);
    case OPTION_REDELIVERY_WINDOW:
        return duration(job, "--redelivery-window", false, ONCE_RETENTION_MS_MAX, &job->redelivery_window_ms);
    case OPTION_BACKOFF:
        return duration(job, "--backoff", false, HOUR_MS, &job->o.backoff_ms);
    case OPTION_BACKOFF_MAX:
        return duration(job, "--backoff-max", false, DAY_MS, &job->o.backoff_ms_max);
    case OPTION_CA_FILE:
        job->source_options.ca_file = optarg;
        return true;
    case OPTION_NATS_CREDS:
        job->source_options.nats_creds = optarg;
        return true;
    case OPTION_AMQP_LOGIN:
        job->source_options.amqp_login = optarg;
        return true;
    case OPTION_KAFKA_CONFIG:
        job->source_options.kafka_conf = optarg;
        return true;
    case OPTION_REPORT:
        return duration(job, "--report", false, DAY_MS, &job->report_ms);
    case OPTION_DRAIN:
        job->drain = true;
        return true;
    default:
        if (option >= OPTION_OTLP)
            return otlp_setup_option(&job->otlp, (enum otlp_option)(option - OPTION_OTLP));
        return parse_count(job, option);
    }
}

static bool check(struct job *job, int argc, char **argv)
{
    const struct source_ops *ops = optind < argc ? source_ops_of(argv[optind]) : NULL;
    const char *fault = ops != NULL ? ops->fault(argv[optind]) : "there is no such source";
    char shown[ONCE_URL_SHOWN_LEN];
    once_url_shown(optind < argc ? argv[optind] : "", shown);
    if (optind == argc)
        once_cli_usage(&job->cli, "which SOURCE?");
    else if (optind + 1 < argc)
        once_cli_usage(&job->cli, "'%s' is too much", argv[optind + 1]);
    else if (fault != NULL)
        once_cli_usage(&job->cli, "'%s': %s; sources are %s", shown, fault, source_schemes());
    else if (job->o.name.len == 0 || job->o.name.len > ONCE_TENANT_LEN_MAX)
        once_cli_usage(&job->cli, "--consumer NAME of 1 to %d bytes is missing", ONCE_TENANT_LEN_MAX);
    else if (job->o.target.deliver == NULL)
        once_cli_usage(&job->cli, "--to URL or --exec COMMAND is missing: where to?");
    else if (!otlp_setup_check(&job->otlp))
        return false;
    else if (job->dead_topic != NULL && (job->dead_topic[0] == '\0' || strlen(job->dead_topic) > ONCE_TOPIC_LEN_MAX))
        once_cli_usage(&job->cli, "--dead-letter: a topic has 1 to %d bytes", ONCE_TOPIC_LEN_MAX);
    else {
        if (job->o.window == 0)
            job->o.window = 8 * job->o.parallel;
        if (job->o.window < job->o.parallel)
            job->o.window = job->o.parallel;
        if (job->rule_count == 0)
            job->rule_count = 1; /* MESSAGE_ID_NATIVE is 0 */
        job->source_options.url = argv[optind];
        job->source_options.window = job->o.window;
        job->source_options.lease_ms = job->o.lease_ms;
        return true;
    }
    return false;
}

/* ------------------------------------------------------------------ reports */

static void report_text(const struct job *job, const struct consumer_counts *c, size_t busy, double rate)
{
    printf("done %" PRIu64 " (%.0f/s), of these duplicates %" PRIu64 "; failed %" PRIu64 ", put off %" PRIu64
           ", given up %" PRIu64 "; here %zu",
           c->done, rate, c->duplicates, c->failed, c->delayed, c->dead, busy);
    if (job->lag >= 0)
        printf(", waiting %" PRId64, job->lag);
    if (job->dead_letter_sink.dead_letters != NULL)
        printf(", dead letters %" PRId64, job->dead);
    putchar('\n');
}

static void report_json(const struct job *job, const struct consumer_counts *c, size_t busy, double rate)
{
    struct once_json json = { .file = stdout };
    once_json_open(&json, NULL, '{');
    once_json_uint(&json, "received", job->received);
    once_json_uint(&json, "done", c->done);
    once_json_uint(&json, "duplicates", c->duplicates);
    once_json_uint(&json, "failed", c->failed);
    once_json_uint(&json, "put_off", c->delayed);
    once_json_uint(&json, "given_up", c->dead);
    once_json_uint(&json, "rate", (uint64_t)rate);
    once_json_uint(&json, "here", busy);
    if (job->lag >= 0)
        once_json_int(&json, "waiting", job->lag);
    if (job->dead_letter_sink.dead_letters != NULL)
        once_json_int(&json, "dead_letters", job->dead);
    once_json_close(&json);
}

static void report(struct job *job)
{
    struct consumer_counts counts;
    struct once_error err;
    once_time now = once_os_monotonic_ms();
    if (job->cli.quiet || job->consumer == NULL)
        return;
    consumer_counts(job->consumer, &counts);
    if (job->source->ops->lag(job->source, &job->lag, &err) != ONCE_OK)
        job->lag = -1;
    if (job->dead_letter_sink.dead_letters != NULL)
        (void)!job->dead_letter_sink.dead_letters->ops->count(job->dead_letter_sink.dead_letters, job->o.name,
                                                              &job->dead, &err);
    double seconds = (double)(now - job->reported_ms) / 1000;
    double rate = seconds > 0 ? (double)(counts.done - job->reported) / seconds : 0;
    (job->cli.json ? report_json : report_text)(job, &counts, consumer_busy(job->consumer) + job->stuck_count, rate);
    fflush(stdout);
    job->reported = counts.done;
    job->reported_ms = now;
}

/* Something is in the way: said, but not for every message. */
static void say(struct job *job, const char *what)
{
    once_time now = once_os_monotonic_ms();
    if (job->cli.quiet || now < job->trouble_at)
        return;
    job->trouble_at = now + TROUBLE_MS;
    once_os_log("once consume", "%s; trying again", what);
}

/* ------------------------------------------------------------------ items */

static void free_item(struct item *item)
{
    once_buf_release(&item->bytes);
    free(item);
}

static void drop_letter(struct job *job, const struct item *item)
{
    for (struct item **at = &job->dead_letters; *at != NULL; at = &(*at)->next)
        if (*at == item) {
            *at = item->next;
            return;
        }
}

static size_t here(const struct job *job)
{
    return consumer_busy(job->consumer) + job->stuck_count;
}

static size_t room_of(const struct job *job)
{
    size_t busy = here(job);
    return busy < job->o.window ? job->o.window - busy : 0;
}

/* ------------------------------------------------------------------ settling */

/* False: not now. What is settled is not the item's any more. */
static bool settle(struct job *job, struct item *item)
{
    struct delivery *d = &item->delivery;
    struct once_error err;
    bool dead_letter = item->bytes.len > 0;
    once_result r = ONCE_OK;
    if (d->verdict == CONSUMER_DEAD_LETTER)
        r = dead_letter_sink_put(&job->dead_letter_sink, d, &err);
    else if (d->verdict == CONSUMER_DONE && dead_letter)
        r = job->dead_letter_sink.dead_letters->ops->settle(job->dead_letter_sink.dead_letters,
                                                            item->dead_letter.dead_letter, &err);
    if (r != ONCE_OK) {
        say(job, err.text);
        return false;
    }
    if (d->verdict == CONSUMER_DEAD_LETTER)
        ONCE_CRASH_POINT("consume.dead_lettered");
    if (dead_letter)
        drop_letter(job, item);
    else if (d->verdict == CONSUMER_RETURN)
        job->source->ops->nack(job->source, d->message);
    else
        job->source->ops->ack(job->source, d->message);
    if (d->verdict != CONSUMER_RETURN)
        ONCE_CRASH_POINT("consume.acknowledged");
    free_item(item);
    return true;
}

static void keep(struct job *job, struct item *item)
{
    if (item->bytes.len > 0)
        drop_letter(job, item);
    item->next = NULL;
    if (job->stuck == NULL)
        job->stuck = item;
    else
        job->stuck_last->next = item;
    job->stuck_last = item;
    job->stuck_count++;
}

/* A try to bury may take as long as the topic's timeout: where others wait for it, this one waits behind them. */
static void settle_or_keep(struct job *job, struct item *item)
{
    bool behind = item->delivery.verdict == CONSUMER_DEAD_LETTER && job->stuck != NULL;
    if (behind || !settle(job, item))
        keep(job, item);
}

static void settle_ended(struct job *job, int ms)
{
    for (struct delivery *d; (d = consumer_take(job->consumer, ms)) != NULL; ms = 0)
        settle_or_keep(job, d->owner);
}

/* Each in turn, for a bounded time: meanwhile the broker hears nothing of us, and would take us for dead. */
static void settle_stuck(struct job *job)
{
    once_time until = once_os_monotonic_ms() + STUCK_MS;
    for (size_t left = job->stuck_count; left > 0 && once_os_monotonic_ms() < until; left--) {
        struct item *item = job->stuck;
        job->stuck = item->next;
        job->stuck_count--;
        if (!settle(job, item))
            keep(job, item);
    }
}

/* ------------------------------------------------------------------ admitting */

static void admit(struct job *job, struct incoming *message)
{
    struct item *item = calloc(1, sizeof *item);
    size_t len = 0;
    bool dead = false;
    if (item == NULL) {
        job->source->ops->nack(job->source, message);
        return;
    }
    job->received++;
    struct delivery *d = &item->delivery;
    d->message = message;
    d->owner = item;
    ONCE_CRASH_POINT("consume.received");
    if (message_id_find(job->rules, job->rule_count, message, item->id, &len, &dead)) {
        d->id = once_span_of(item->id, len);
        if (dead) /* from a topic of dead letters: counted anew */
            snprintf(message->dead_letter, sizeof message->dead_letter, CONSUMER_DEAD_LETTER_OF_TOPIC);
        consumer_admit(job->consumer, d);
        return;
    }
    d->verdict = CONSUMER_DEAD_LETTER;
    d->id = once_span_str(message->position);
    snprintf(d->reason, sizeof d->reason, "it has no id (--id-from)");
    settle_or_keep(job, item);
}

static void admit_dead_letter(void *arg, const char *id, once_span message_id, const struct incoming *m)
{
    struct job *job = arg;
    for (const struct item *i = job->dead_letters; i != NULL; i = i->next)
        if (strcmp(i->dead_letter.dead_letter, id) == 0)
            return;
    for (const struct item *i = job->stuck; i != NULL; i = i->next)
        if (strcmp(i->dead_letter.dead_letter, id) == 0)
            return;
    struct item *item = room_of(job) > 0 ? calloc(1, sizeof *item) : NULL;
    if (item == NULL || message_id.len > ONCE_KEY_LEN_MAX) {
        free(item);
        return;
    }
    item->dead_letter = *m;
    once_span *spans[] = { &item->dead_letter.topic, &item->dead_letter.key, &item->dead_letter.content_type,
                           &item->dead_letter.headers, &item->dead_letter.payload };
    size_t at = 1;
    once_buf_init(&item->bytes, SOURCE_PAYLOAD_LEN_MAX + (1 << 20));
    once_buf_add_byte(&item->bytes, 0); /* so that a letter has bytes */
    for (size_t i = 0; i < 5; i++)
        once_buf_add(&item->bytes, *spans[i]);
    for (size_t i = 0; i < 5 && item->bytes.result == ONCE_OK; at += spans[i]->len, i++)
        spans[i]->ptr = item->bytes.ptr + at;
    if (item->bytes.result != ONCE_OK) {
        free_item(item);
        return;
    }
    if (message_id.len == 0) /* it had none: the letter's own is as good */
        message_id = once_span_str(id);
    memcpy(item->id, message_id.ptr, message_id.len);
    item->delivery =
        (struct delivery){ .message = &item->dead_letter, .owner = item, .id = once_span_of(item->id, message_id.len) };
    item->next = job->dead_letters;
    job->dead_letters = item;
    consumer_admit(job->consumer, &item->delivery);
}

static void look_for_letters(struct job *job)
{
    struct once_error err;
    size_t room = room_of(job);
    if (job->dead_letter_sink.dead_letters == NULL || room == 0)
        return;
    /* Those that are here are due, too. */
    size_t count = 0;
    for (const struct item *i = job->dead_letters; i != NULL; i = i->next)
        count++;
    if (job->dead_letter_sink.dead_letters->ops->due(job->dead_letter_sink.dead_letters, job->o.name,
                                                     (int32_t)(room + count), admit_dead_letter, job, &err) != ONCE_OK)
        say(job, err.text);
}

/* ------------------------------------------------------------------ the loop */

static bool must_stop(struct job *job)
{
    if (job->stop == 0)
        job->stop = once_signals_take(&job->signals);
    return job->stop != 0;
}

static void reconnect(struct job *job, const struct once_error *why)
{
    struct once_error err = *why;
    struct pollfd signals = { .fd = job->signals.fd, .events = POLLIN };
    do {
        say(job, err.text);
        settle_ended(job, 0);
        poll(&signals, 1, RECONNECT_MS);
    } while (!must_stop(job) && job->source->ops->connect(job->source, &err) != ONCE_OK);
}

static void tick(struct job *job)
{
    char text[DELIVER_REASON_LEN];
    once_time now = once_os_monotonic_ms();
    if (now < job->tick_at)
        return;
    job->tick_at = now + TICK_MS;
    settle_stuck(job);
    look_for_letters(job);
    if (consumer_trouble(job->consumer, text))
        say(job, text);
    if (now >= job->report_at) {
        job->report_at = now + job->report_ms;
        report(job);
    }
}

/* Reads while there is room and something comes. *idle: nothing came. */
static once_result read_some(struct job *job, bool *idle, struct once_error *err)
{
    struct incoming *message = NULL;
    size_t room = room_of(job);
    *idle = false;
    if (room == 0) {
        settle_ended(job, WAIT_MS / 2);
        return ONCE_OK;
    }
    once_result r = job->source->ops->next(job->source, room, here(job) > 0 ? SHORT_WAIT_MS : WAIT_MS, &message, err);
    if (r == ONCE_OK && message != NULL)
        admit(job, message);
    *idle = message == NULL;
    return r;
}

static bool is_drained(struct job *job)
{
    struct once_error err;
    int64_t lag = -1;
    return job->drain && here(job) == 0 && job->source->ops->lag(job->source, &lag, &err) == ONCE_OK && lag == 0;
}

static void loop(struct job *job)
{
    struct once_error err;
    while (!must_stop(job)) {
        bool idle = false;
        tick(job);
        settle_ended(job, 0);
        once_result r = job->source->ops->keep_alive(job->source, room_of(job) == 0, &err);
        if (r == ONCE_OK)
            r = read_some(job, &idle, &err);
        if (r != ONCE_OK)
            reconnect(job, &err);
        else if (idle && is_drained(job))
            break;
    }
}

/* What is under way ends; its broker is told so, and gets the rest back. A second signal does not wait. */
static void wind_up(struct job *job)
{
    struct once_error err;
    consumer_stop(job->consumer);
    if (!job->cli.quiet && consumer_working(job->consumer) > 0)
        once_os_log("once consume", "ending after what is under way");
    while (consumer_working(job->consumer) > 0) {
        if (once_signals_take(&job->signals) != 0)
            once_signals_die(&job->signals, job->stop != 0 ? job->stop : SIGTERM);
        settle_ended(job, WAIT_MS / 2);
        (void)!job->source->ops->keep_alive(job->source, true, &err);
    }
    consumer_join(job->consumer);
    settle_ended(job, 0);
    settle_stuck(job);
    while (job->stuck != NULL) { /* not acknowledged, hence delivered again */
        struct item *item = job->stuck;
        job->stuck = item->next;
        if (item->bytes.len == 0)
            job->source->ops->nack(job->source, item->delivery.message);
        free_item(item);
    }
}

/* ------------------------------------------------------------------ start */

/* FAULT-59: an id that is forgotten while its message may still come again would be delivered twice. */
static int check_horizon(struct job *job)
{
    struct once_error err;
    int64_t redelivery_window = job->redelivery_window_ms;
    char keeps[ONCE_TEXT_TIME_LEN], needs[ONCE_TEXT_TIME_LEN];
    if (job->o.retention_ms == ONCE_NEVER)
        return ONCE_EXIT_OK;
    if (redelivery_window == 0 && job->source->ops->redelivery_window(job->source, &redelivery_window, &err) != ONCE_OK)
        return once_cli_error(&job->cli, &err, "ask the broker");
    once_text_about(job->o.retention_ms, keeps);
    if ((redelivery_window == ONCE_NEVER || redelivery_window == 0) && !job->cli.quiet)
        once_os_log("once consume",
                    "the broker %s; one that it delivers again more than %s after it was delivered is "
                    "delivered twice (--retention%s)",
                    redelivery_window == 0 ? "does not tell how long it keeps messages" : "keeps messages without end",
                    keeps, redelivery_window == 0 ? ", --redelivery-window" : "");
    if (redelivery_window == ONCE_NEVER || redelivery_window <= job->o.retention_ms)
        return ONCE_EXIT_OK;
    once_text_about(redelivery_window, needs);
    return once_cli_usage(&job->cli,
                          "--retention %s is shorter than the %s for which the broker may deliver a message again: it "
                          "would be delivered twice",
                          keeps, needs);
}

static int open_graveyard(struct job *job)
{
    struct once_error err;
    job->dead_letter_sink.consumer = job->o.name;
    if (job->dead_topic == NULL) {
        if (dead_letters_open(job->cli.url, &job->dead_letter_sink.dead_letters, &err) != ONCE_OK)
            return err.result == ONCE_INVALID ? once_cli_usage(&job->cli, "%s; give a --dead-letter topic", err.text)
                                              : once_cli_error(&job->cli, &err, "open the dead letters");
        return ONCE_EXIT_OK;
    }
    struct sink_options o = { .timeout_ms = BROKER_MS,
                              .ca_file = job->source_options.ca_file,
                              .nats_creds = job->source_options.nats_creds,
                              .amqp_login = job->source_options.amqp_login,
                              .kafka_conf = job->source_options.kafka_conf };
    job->source->ops->sink_url(job->source, job->sink_url, sizeof job->sink_url);
    if (dead_letter_sink_open_topic(&job->dead_letter_sink, job->sink_url, job->dead_topic, &o, &err) != ONCE_OK)
        return once_cli_error(&job->cli, &err, "open the dead letters");
    return ONCE_EXIT_OK;
}

static int start(struct job *job)
{
    struct once_error err;
    if (http_call_init(&err) != ONCE_OK)
        return once_cli_error(&job->cli, &err, "start");
    int exit = once_cli_open(&job->cli, ONCE_CLI_CREATE, &job->o.once);
    if (exit != ONCE_EXIT_OK)
        return exit;
    int error = once_signals_init(&job->signals); /* before the broker's library has threads, which do not block them */
    if (error != 0)
        return once_cli_fail(&job->cli, ONCE_EXIT_OS, "cannot watch for signals: %s", strerror(error));
    const char *url = job->source_options.url;
    if (source_ops_of(url)->open(&job->source_options, &job->source, &err) != ONCE_OK ||
        job->source->ops->connect(job->source, &err) != ONCE_OK)
        return once_cli_error(&job->cli, &err, "open the source");
    exit = check_horizon(job);
    if (exit == ONCE_EXIT_OK)
        exit = open_graveyard(job);
    if (exit != ONCE_EXIT_OK)
        return exit;
    exit = otlp_setup_start(&job->otlp);
    if (exit != ONCE_EXIT_OK)
        return exit;
    job->o.tracer = &job->otlp.tracer;
    job->o.target.mask = job->signals.mask;
    if (consumer_open(&job->o, &job->consumer, &err) != ONCE_OK)
        return once_cli_error(&job->cli, &err, "start");
    return ONCE_EXIT_OK;
}

static int run(struct job *job)
{
    int exit = start(job);
    if (exit == ONCE_EXIT_OK) {
        job->reported_ms = once_os_monotonic_ms();
        job->report_at = job->reported_ms + job->report_ms;
        loop(job);
        wind_up(job);
        report(job);
    }
    once_signals_release(&job->signals);
    consumer_close(job->consumer);
    otlp_setup_stop(&job->otlp);
    if (job->source != NULL)
        job->source->ops->close(job->source); /* before a sink: one library serves both */
    dead_letter_sink_close(&job->dead_letter_sink);
    once_close(job->o.once);
    return exit;
}

int once_cli_consume(int argc, char **argv)
{
    struct job job = {
        .cli = { .verb = "consume", .help = help },
        .o = { .lease_ms = ONCE_LEASE_MS_DEFAULT,
               .retention_ms = ONCE_INBOX_RETENTION_MS_DEFAULT,
               .backoff_ms = 500,
               .backoff_ms_max = 60000,
               .takeover = ONCE_TAKEOVER_RERUN,
               .attempts_max = 10,
               .parallel = 8,
               .target = { .timeout_ms = 30000 } },
        .source_options = { .timeout_ms = BROKER_MS },
        .report_ms = 60000,
        .signals = { .fd = -1 },
    };
    int exit = ONCE_EXIT_OK;
    otlp_setup_init(&job.otlp, &job.cli, "once-consume");
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
