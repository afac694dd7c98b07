/*
 * relay_setup.h - the options of a relay: routes, sinks, limits.
 *
 * `once relay` has these options by their names; `once daemon` and `once serve` have them with "relay-" before the
 * name, and --relay for --route. A verb adds RELAY_OPTIONS to its options, passes each that it meets to
 * relay_setup_option(), checks them together with relay_setup_check(), and opens the sinks.
 */
#ifndef ONCE_CLI_RELAY_SETUP_H
#define ONCE_CLI_RELAY_SETUP_H

#include "messages/relay.h"
#include "program/cli.h"

enum relay_option {
    RELAY_OPTION_ROUTE,
    RELAY_OPTION_SECRET_FILE,
    RELAY_OPTION_CA_FILE,
    RELAY_OPTION_NATS_CREDS,
    RELAY_OPTION_AMQP_LOGIN,
    RELAY_OPTION_KAFKA_CONFIG,
    RELAY_OPTION_TIMEOUT,
    RELAY_OPTION_ATTEMPTS,
    RELAY_OPTION_CRASHES,
    RELAY_OPTION_BACKOFF,
    RELAY_OPTION_BACKOFF_MAX,
    RELAY_OPTION_BATCH,
    RELAY_OPTION_LEASE,
    RELAY_OPTION_COUNT,
};

/* For getopt: `first` is the number of the first option, `route` the name of the option for routes. */
/* clang-format off */
#define RELAY_OPTIONS(route, prefix, first)                                          \
    { route, required_argument, NULL, (first) + RELAY_OPTION_ROUTE },                \
    { prefix "secret-file", required_argument, NULL, (first) + RELAY_OPTION_SECRET_FILE }, \
    { prefix "ca-file", required_argument, NULL, (first) + RELAY_OPTION_CA_FILE },   \
    { prefix "nats-creds", required_argument, NULL, (first) + RELAY_OPTION_NATS_CREDS }, \
    { prefix "amqp-login", required_argument, NULL, (first) + RELAY_OPTION_AMQP_LOGIN }, \
    { prefix "kafka-config", required_argument, NULL, (first) + RELAY_OPTION_KAFKA_CONFIG }, \
    { prefix "timeout", required_argument, NULL, (first) + RELAY_OPTION_TIMEOUT },   \
    { prefix "attempts", required_argument, NULL, (first) + RELAY_OPTION_ATTEMPTS }, \
    { prefix "crashes", required_argument, NULL, (first) + RELAY_OPTION_CRASHES },   \
    { prefix "backoff", required_argument, NULL, (first) + RELAY_OPTION_BACKOFF },   \
    { prefix "backoff-max", required_argument, NULL, (first) + RELAY_OPTION_BACKOFF_MAX }, \
    { prefix "batch", required_argument, NULL, (first) + RELAY_OPTION_BATCH },       \
    { prefix "lease", required_argument, NULL, (first) + RELAY_OPTION_LEASE }
/* clang-format on */

/* Their lines of a help text, without that for routes. */
#define RELAY_HELP(prefix)                                                                                             \
    "  --" prefix "secret-file F\n"                                                                                    \
    "  --" prefix "ca-file F\n"                                                                                        \
    "  --" prefix "nats-creds F\n"                                                                                     \
    "  --" prefix "amqp-login F\n"                                                                                     \
    "  --" prefix "kafka-config F\n"                                                                                   \
    "  --" prefix "timeout DUR\n"                                                                                      \
    "  --" prefix "attempts N\n"                                                                                       \
    "  --" prefix "crashes N\n"                                                                                        \
    "  --" prefix "backoff DUR\n"                                                                                      \
    "  --" prefix "backoff-max DUR\n"                                                                                  \
    "  --" prefix "batch N\n"                                                                                          \
    "  --" prefix "lease DUR\n"                                                                                        \
    "                     as the options of 'once relay' by these names\n"

struct relay_setup {
    const struct once_cli *cli;
    bool prefixed;      /* the names begin with "relay-" */
    bool given;         /* at least one of the options was given */
    struct relay relay; /* the defaults, changed by the options */
    struct sink_options sink;
    char *routes[RELAY_ROUTES_MAX]; /* PATTERN=SINK, with a NUL in the place of = */
    const char *urls[RELAY_ROUTES_MAX];
    const char *patterns[RELAY_ROUTES_MAX];
};

void relay_setup_init(struct relay_setup *setup, const struct once_cli *cli, bool prefixed);
void relay_setup_release(struct relay_setup *setup); /* also closes the sinks */

/* "--relay-timeout". */
void relay_setup_name(const struct relay_setup *setup, enum relay_option option, char out[32]);
/* Whether its value is the name of a file. */
bool relay_setup_is_file(enum relay_option option);

/* Takes `optarg`. False: the mistake was reported. */
bool relay_setup_option(struct relay_setup *setup, enum relay_option option);
bool relay_setup_check(const struct relay_setup *setup);

/* Does not connect: a receiver may be down now. */
once_result relay_setup_open_sinks(struct relay_setup *setup, struct once_error *err);

#endif
