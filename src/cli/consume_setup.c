/* consume_setup.c - see consume_setup.h. */
#include "cli/consume_setup.h"

#include "core/err.h"
#include "core/http/url.h"
#include "core/limits.h"
#include "core/span.h"
#include "http/http_call.h"

#include <assert.h>

void consume_setup_init(struct consume_setup *setup, const struct once_cli *cli, bool prefixed)
{
    *setup = (struct consume_setup){
        .cli = cli,
        .prefixed = prefixed,
        .options = { .consumer = { .lease_ms = ONCE_LEASE_MS_DEFAULT,
                                   .retention_ms = ONCE_INBOX_RETENTION_MS_DEFAULT,
                                   .backoff_ms = 500,
                                   .backoff_ms_max = 60000,
                                   .takeover = ONCE_TAKEOVER_RERUN,
                                   .attempts_max = 10,
                                   .parallel = 8,
                                   .target = { .timeout_ms = 30000 } },
                     .source = { .timeout_ms = CONSUME_BROKER_MS } },
    };
}

void consume_setup_name(const struct consume_setup *setup, enum consume_option option, char out[32])
{
    static const struct option all[] = { CONSUME_OPTIONS("", 0) };
    static_assert(sizeof all / sizeof *all == CONSUME_OPTION_COUNT - 1, "each option but the source has a name");
    if (option == CONSUME_OPTION_SOURCE)
        snprintf(out, 32, "--consume");
    else
        snprintf(out, 32, "--%s%s", setup->prefixed && option != CONSUME_OPTION_CONSUMER ? "consume-" : "",
                 all[option - 1].name);
}

bool consume_setup_is_file(enum consume_option option)
{
    return option >= CONSUME_OPTION_CA_FILE && option <= CONSUME_OPTION_KAFKA_CONFIG;
}

/* ------------------------------------------------------------------ values */

static bool duration(const struct consume_setup *setup, const char *name, bool never, int64_t max, int64_t *ms)
{
    if (!once_cli_duration(setup->cli, name, never, ms))
        return false;
    if (*ms == ONCE_NEVER || (*ms >= 1 && *ms <= max))
        return true;
    once_cli_usage(setup->cli, "%s: '%s' is too %s", name, optarg, *ms < 1 ? "short" : "long");
    return false;
}

static bool parse_target(struct consume_setup *setup, const char *name, bool http)
{
    struct target *target = &setup->options.consumer.target;
    struct once_error err;
    if (target->deliver != NULL)
        return once_cli_usage(setup->cli, "give one --to or --exec, and only once"), false;
    if (http && http_url_check(optarg, &err) != ONCE_OK)
        return once_cli_usage(setup->cli, "%s: %s", name, err.text), false;
    target->deliver = http ? deliver_http : deliver_exec;
    *(http ? &target->url : &target->command) = optarg;
    return true;
}

static bool parse_rule(struct consume_setup *setup, const char *name)
{
    struct consume_options *o = &setup->options;
    if (o->rule_count == MESSAGE_ID_RULES_MAX)
        return once_cli_usage(setup->cli, "%s: more than %d", name, MESSAGE_ID_RULES_MAX), false;
    const char *fault = message_id_parse(optarg, &o->rules[o->rule_count++]);
    if (fault != NULL)
        once_cli_usage(setup->cli, "%s: '%s': %s", name, optarg, fault);
    return fault == NULL;
}

static bool parse_takeover(struct consume_setup *setup, const char *name)
{
    bool rerun = strcmp(optarg, "rerun") == 0;
    if (!rerun && strcmp(optarg, "escalate") != 0)
        return once_cli_usage(setup->cli, "%s: '%s' is neither 'rerun' nor 'escalate'", name, optarg), false;
    setup->options.consumer.takeover = rerun ? ONCE_TAKEOVER_RERUN : ONCE_TAKEOVER_ESCALATE;
    return true;
}

static bool parse_count(struct consume_setup *setup, const char *name, enum consume_option option)
{
    struct consumer_options *c = &setup->options.consumer;
    uint64_t n = 0;
    if (!once_cli_number(setup->cli, name, 1,
                         option == CONSUME_OPTION_ATTEMPTS   ? CONSUMER_ATTEMPTS_MAX
                         : option == CONSUME_OPTION_PARALLEL ? CONSUMER_PARALLEL_MAX
                                                             : CONSUMER_WINDOW_MAX,
                         &n))
        return false;
    if (option == CONSUME_OPTION_ATTEMPTS)
        c->attempts_max = (int32_t)n;
    else
        *(option == CONSUME_OPTION_PARALLEL ? &c->parallel : &c->window) = n;
    return true;
}

bool consume_setup_option(struct consume_setup *setup, enum consume_option option)
{
    enum { DAY_MS = 86400000, HOUR_MS = 3600000 };
    struct consume_options *o = &setup->options;
    char name[32];
    consume_setup_name(setup, option, name);
    setup->given = true;
    switch (option) {
    case CONSUME_OPTION_SOURCE:
        o->source.url = optarg;
        return true;
    case CONSUME_OPTION_CONSUMER:
        o->consumer.name = once_span_str(optarg);
        o->source.consumer = optarg;
        return true;
    case CONSUME_OPTION_TO:
    case CONSUME_OPTION_EXEC:
        return parse_target(setup, name, option == CONSUME_OPTION_TO);
    case CONSUME_OPTION_ID_FROM:
        return parse_rule(setup, name);
    case CONSUME_OPTION_DEAD_LETTER:
        o->dead_letter_topic = optarg;
        return true;
    case CONSUME_OPTION_TAKEOVER:
        return parse_takeover(setup, name);
    case CONSUME_OPTION_ATTEMPTS:
    case CONSUME_OPTION_PARALLEL:
    case CONSUME_OPTION_WINDOW:
        return parse_count(setup, name, option);
    case CONSUME_OPTION_TIMEOUT:
        return duration(setup, name, false, DAY_MS, &o->consumer.target.timeout_ms);
    case CONSUME_OPTION_LEASE:
        return duration(setup, name, false, ONCE_LEASE_MS_MAX, &o->consumer.lease_ms);
    case CONSUME_OPTION_RETENTION:
        return duration(setup, name, true, ONCE_RETENTION_MS_MAX, &o->consumer.retention_ms);
    case CONSUME_OPTION_REDELIVERY_WINDOW:
        return duration(setup, name, false, ONCE_RETENTION_MS_MAX, &o->redelivery_window_ms);
    case CONSUME_OPTION_BACKOFF:
        return duration(setup, name, false, HOUR_MS, &o->consumer.backoff_ms);
    case CONSUME_OPTION_BACKOFF_MAX:
        return duration(setup, name, false, DAY_MS, &o->consumer.backoff_ms_max);
    case CONSUME_OPTION_CA_FILE:
        o->source.ca_file = optarg;
        return true;
    case CONSUME_OPTION_NATS_CREDS:
        o->source.nats_creds = optarg;
        return true;
    case CONSUME_OPTION_AMQP_LOGIN:
        o->source.amqp_login = optarg;
        return true;
    case CONSUME_OPTION_KAFKA_CONFIG:
        o->source.kafka_conf = optarg;
        return true;
    case CONSUME_OPTION_COUNT:
        break;
    }
    return false;
}

/* ------------------------------------------------------------------ all together */

bool consume_setup_check(struct consume_setup *setup)
{
    struct consume_options *o = &setup->options;
    const char *prefix = setup->prefixed ? "consume-" : "";
    const char *fault = o->source.url != NULL ? source_fault(o->source.url) : NULL;
    char shown[ONCE_URL_SHOWN_LEN];
    once_url_shown(o->source.url != NULL ? o->source.url : "", shown);
    if (o->source.url == NULL)
        once_cli_usage(setup->cli, "SOURCE is missing");
    else if (fault != NULL)
        once_cli_usage(setup->cli, "'%s': %s; sources are %s", shown, fault, source_schemes());
    else if (o->consumer.name.len == 0 || o->consumer.name.len > ONCE_TENANT_LEN_MAX)
        once_cli_usage(setup->cli, "--consumer NAME of 1 to %d bytes is missing", ONCE_TENANT_LEN_MAX);
    else if (o->consumer.target.deliver == NULL)
        once_cli_usage(setup->cli, "--%sto URL or --%sexec COMMAND is missing", prefix, prefix);
    else if (o->dead_letter_topic != NULL &&
             (o->dead_letter_topic[0] == '\0' || strlen(o->dead_letter_topic) > ONCE_TOPIC_LEN_MAX))
        once_cli_usage(setup->cli, "--%sdead-letter: a topic has 1 to %d bytes", prefix, ONCE_TOPIC_LEN_MAX);
    else {
        struct consumer_options *c = &o->consumer;
        if (c->window == 0)
            c->window = 8 * c->parallel;
        if (c->window < c->parallel)
            c->window = c->parallel;
        if (o->rule_count == 0)
            o->rule_count = 1; /* MESSAGE_ID_NATIVE is 0 */
        o->source.window = c->window;
        o->source.lease_ms = c->lease_ms;
        return true;
    }
    return false;
}
