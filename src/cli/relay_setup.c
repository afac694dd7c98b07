/* relay_setup.c - see relay_setup.h. */
#include "cli/relay_setup.h"

#include "core/http/url.h"
#include "core/span.h"
#include "program/text.h"

#include <assert.h>
#include <stdlib.h>

void relay_setup_init(struct relay_setup *setup, const struct once_cli *cli, bool prefixed)
{
    *setup = (struct relay_setup){
        .cli = cli,
        .prefixed = prefixed,
        .relay = { .lease_ms = 30000,
                   .backoff_ms = 500,
                   .backoff_ms_max = 600000,
                   .batch_len = 500,
                   .attempts_max = 20,
                   .crashes_max = 5 },
        .sink = { .timeout_ms = 10000 },
    };
}

void relay_setup_release(struct relay_setup *setup)
{
    for (size_t i = 0; i < setup->relay.breaker_count; i++)
        sink_close(setup->relay.breakers[i].sink);
    setup->relay.breaker_count = 0;
    for (size_t i = 0; i < setup->relay.route_count; i++)
        free(setup->routes[i]);
    setup->relay.route_count = 0;
}

void relay_setup_name(const struct relay_setup *setup, enum relay_option option, char out[32])
{
    static const struct option all[] = { RELAY_OPTIONS("route", "", 0) };
    static_assert(sizeof all / sizeof *all == RELAY_OPTION_COUNT, "each option has a name");
    if (option == RELAY_OPTION_ROUTE)
        snprintf(out, 32, setup->prefixed ? "--relay" : "--route");
    else
        snprintf(out, 32, "--%s%s", setup->prefixed ? "relay-" : "", all[option].name);
}

bool relay_setup_is_file(enum relay_option option)
{
    return option == RELAY_OPTION_SECRET_FILE || option == RELAY_OPTION_CA_FILE || option == RELAY_OPTION_NATS_CREDS ||
           option == RELAY_OPTION_AMQP_LOGIN || option == RELAY_OPTION_KAFKA_CONFIG;
}

/* ------------------------------------------------------------------ values */

static bool number(const struct relay_setup *setup, const char *name, uint64_t max, int32_t *out)
{
    uint64_t value;
    if (!once_cli_number(setup->cli, name, 1, max, &value))
        return false;
    *out = (int32_t)value;
    return true;
}

static bool duration(const struct relay_setup *setup, const char *name, int64_t min, int64_t max, int64_t *ms)
{
    if (!once_cli_duration(setup->cli, name, false, ms))
        return false;
    if (*ms >= min && *ms <= max)
        return true;
    once_cli_usage(setup->cli, "%s: '%s' is too %s", name, optarg, *ms < min ? "short" : "long");
    return false;
}

/* Patterns are labels of the metrics, so each may be given only once. */
static bool is_given(const struct relay_setup *setup, const char *pattern, size_t len)
{
    for (size_t i = 0; i < setup->relay.route_count; i++)
        if (strlen(setup->patterns[i]) == len && memcmp(setup->patterns[i], pattern, len) == 0)
            return true;
    return false;
}

static bool add_route(struct relay_setup *setup, const char *name)
{
    struct relay *relay = &setup->relay;
    if (relay->route_count == RELAY_ROUTES_MAX)
        return once_cli_usage(setup->cli, "%s: more than %d", name, RELAY_ROUTES_MAX), false;
    char *equals = strchr(optarg, '=');
    if (equals == NULL || equals == optarg)
        return once_cli_usage(setup->cli, "%s: '%s' is not PATTERN=SINK", name, optarg), false;
    if (equals - optarg > ONCE_TOPIC_LEN_MAX)
        return once_cli_usage(setup->cli, "%s: a pattern has %d characters at most", name, ONCE_TOPIC_LEN_MAX), false;
    if (is_given(setup, optarg, (size_t)(equals - optarg)))
        return once_cli_usage(setup->cli, "%s: '%.*s' is given twice", name, (int)(equals - optarg), optarg), false;
    char *copy = strdup(optarg);
    if (copy == NULL)
        return once_cli_fail(setup->cli, ONCE_EXIT_OS, "out of memory"), false;
    copy[equals - optarg] = '\0';
    const char *url = copy + (equals - optarg) + 1;
    setup->routes[relay->route_count] = copy;
    setup->patterns[relay->route_count] = copy;
    setup->urls[relay->route_count] = url;
    relay->routes[relay->route_count++].pattern = copy;
    const char *fault = sink_fault(url);
    char shown[ONCE_URL_SHOWN_LEN];
    once_url_shown(url, shown);
    if (fault != NULL)
        once_cli_usage(setup->cli, "%s: '%s': %s; sinks are %s", name, shown, fault, sink_schemes());
    return fault == NULL;
}

bool relay_setup_option(struct relay_setup *setup, enum relay_option option)
{
    enum { DAY_MS = 86400000, HOUR_MS = 3600000 };
    struct relay *relay = &setup->relay;
    char name[32];
    relay_setup_name(setup, option, name);
    setup->given = true;
    switch (option) {
    case RELAY_OPTION_ROUTE:
        return add_route(setup, name);
    case RELAY_OPTION_SECRET_FILE:
        setup->sink.secret_file = optarg;
        return true;
    case RELAY_OPTION_CA_FILE:
        setup->sink.ca_file = optarg;
        return true;
    case RELAY_OPTION_NATS_CREDS:
        setup->sink.nats_creds = optarg;
        return true;
    case RELAY_OPTION_AMQP_LOGIN:
        setup->sink.amqp_login = optarg;
        return true;
    case RELAY_OPTION_KAFKA_CONFIG:
        setup->sink.kafka_conf = optarg;
        return true;
    case RELAY_OPTION_TIMEOUT:
        return duration(setup, name, 1, HOUR_MS / 2, &setup->sink.timeout_ms);
    case RELAY_OPTION_ATTEMPTS:
        return number(setup, name, 1000000, &relay->attempts_max);
    case RELAY_OPTION_CRASHES:
        return number(setup, name, 1000, &relay->crashes_max);
    case RELAY_OPTION_BACKOFF:
        return duration(setup, name, 1, HOUR_MS, &relay->backoff_ms);
    case RELAY_OPTION_BACKOFF_MAX:
        return duration(setup, name, 1, DAY_MS, &relay->backoff_ms_max);
    case RELAY_OPTION_BATCH:
        return number(setup, name, MESSAGE_BATCH_MAX, &relay->batch_len);
    case RELAY_OPTION_LEASE:
        return duration(setup, name, OUTBOX_LEASE_MS_MIN, OUTBOX_LEASE_MS_MAX, &relay->lease_ms);
    case RELAY_OPTION_COUNT:
        break;
    }
    return false;
}

bool relay_setup_check(const struct relay_setup *setup)
{
    const char *prefix = setup->prefixed ? "relay-" : "";
    if (setup->relay.route_count == 0)
        once_cli_usage(setup->cli, "--%s 'PATTERN=SINK' is missing", setup->prefixed ? "relay" : "route");
    else if (setup->relay.lease_ms < 2 * setup->sink.timeout_ms)
        once_cli_usage(setup->cli,
                       "--%slease must be at least twice --%stimeout, so that messages in flight end within it", prefix,
                       prefix);
    else
        return true;
    return false;
}

/* ------------------------------------------------------------------ sinks */

/* Routes with the same URL share a sink. */
once_result relay_setup_open_sinks(struct relay_setup *setup, struct once_error *err)
{
    struct relay *relay = &setup->relay;
    for (size_t i = 0; i < relay->route_count; i++) {
        for (size_t j = 0; j < i && relay->routes[i].sink == NULL; j++)
            if (strcmp(setup->urls[i], setup->urls[j]) == 0)
                relay->routes[i].sink = relay->routes[j].sink;
        if (relay->routes[i].sink != NULL)
            continue;
        struct sink_options o = setup->sink;
        o.url = setup->urls[i];
        o.done = relay_done;
        o.arg = relay;
        once_result r = sink_open(&o, &relay->routes[i].sink, err);
        if (r != ONCE_OK)
            return r;
        relay->breakers[relay->breaker_count++].sink = relay->routes[i].sink;
    }
    return ONCE_OK;
}
