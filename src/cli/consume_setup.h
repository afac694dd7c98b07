/*
 * consume_setup.h - the options of a consumer: source, target, limits.
 *
 * `once consume` has these options by their names; `once daemon` and `once serve` have them with "consume-" before the
 * name, except --consumer, and --consume for the source. A verb adds CONSUME_OPTIONS to its options, passes each that
 * it meets to consume_setup_option(), and checks them together with consume_setup_check().
 */
#ifndef ONCE_CLI_CONSUME_SETUP_H
#define ONCE_CLI_CONSUME_SETUP_H

#include "messages/consume_loop.h"
#include "program/cli.h"

enum consume_option {
    CONSUME_OPTION_SOURCE,
    CONSUME_OPTION_CONSUMER,
    CONSUME_OPTION_TO,
    CONSUME_OPTION_EXEC,
    CONSUME_OPTION_ID_FROM,
    CONSUME_OPTION_ATTEMPTS,
    CONSUME_OPTION_DEAD_LETTER,
    CONSUME_OPTION_TAKEOVER,
    CONSUME_OPTION_PARALLEL,
    CONSUME_OPTION_WINDOW,
    CONSUME_OPTION_TIMEOUT,
    CONSUME_OPTION_LEASE,
    CONSUME_OPTION_RETENTION,
    CONSUME_OPTION_REDELIVERY_WINDOW,
    CONSUME_OPTION_BACKOFF,
    CONSUME_OPTION_BACKOFF_MAX,
    CONSUME_OPTION_CA_FILE,
    CONSUME_OPTION_NATS_CREDS,
    CONSUME_OPTION_AMQP_LOGIN,
    CONSUME_OPTION_KAFKA_CONFIG,
    CONSUME_OPTION_COUNT,
};

/* For getopt: `first` is the number of the first option. */
/* clang-format off */
#define CONSUME_OPTIONS(prefix, first)                                                          \
    { "consumer", required_argument, NULL, (first) + CONSUME_OPTION_CONSUMER },                 \
    { prefix "to", required_argument, NULL, (first) + CONSUME_OPTION_TO },                      \
    { prefix "exec", required_argument, NULL, (first) + CONSUME_OPTION_EXEC },                  \
    { prefix "id-from", required_argument, NULL, (first) + CONSUME_OPTION_ID_FROM },            \
    { prefix "attempts", required_argument, NULL, (first) + CONSUME_OPTION_ATTEMPTS },          \
    { prefix "dead-letter", required_argument, NULL, (first) + CONSUME_OPTION_DEAD_LETTER },    \
    { prefix "takeover", required_argument, NULL, (first) + CONSUME_OPTION_TAKEOVER },          \
    { prefix "parallel", required_argument, NULL, (first) + CONSUME_OPTION_PARALLEL },          \
    { prefix "window", required_argument, NULL, (first) + CONSUME_OPTION_WINDOW },              \
    { prefix "timeout", required_argument, NULL, (first) + CONSUME_OPTION_TIMEOUT },            \
    { prefix "lease", required_argument, NULL, (first) + CONSUME_OPTION_LEASE },                \
    { prefix "retention", required_argument, NULL, (first) + CONSUME_OPTION_RETENTION },        \
    { prefix "redelivery-window", required_argument, NULL, (first) + CONSUME_OPTION_REDELIVERY_WINDOW },            \
    { prefix "backoff", required_argument, NULL, (first) + CONSUME_OPTION_BACKOFF },            \
    { prefix "backoff-max", required_argument, NULL, (first) + CONSUME_OPTION_BACKOFF_MAX },    \
    { prefix "ca-file", required_argument, NULL, (first) + CONSUME_OPTION_CA_FILE },            \
    { prefix "nats-creds", required_argument, NULL, (first) + CONSUME_OPTION_NATS_CREDS },      \
    { prefix "amqp-login", required_argument, NULL, (first) + CONSUME_OPTION_AMQP_LOGIN },      \
    { prefix "kafka-config", required_argument, NULL, (first) + CONSUME_OPTION_KAFKA_CONFIG }
/* For verbs other than `once consume`. */
#define CONSUME_OPTIONS_PREFIXED(first) \
    { "consume", required_argument, NULL, (first) + CONSUME_OPTION_SOURCE }, CONSUME_OPTIONS("consume-", first)
/* clang-format on */

/* Their lines of a help text. */
#define CONSUME_HELP_PREFIXED                                                                                          \
    "  --consume SOURCE   consume messages, as 'once consume' does, in its own thread\n"                               \
    "  --consumer NAME    name of the consumer\n"                                                                      \
    "  --consume-to URL\n"                                                                                             \
    "  --consume-exec COMMAND\n"                                                                                       \
    "  --consume-id-from HOW\n"                                                                                        \
    "  --consume-attempts N\n"                                                                                         \
    "  --consume-dead-letter T\n"                                                                                      \
    "  --consume-takeover HOW\n"                                                                                       \
    "  --consume-parallel N\n"                                                                                         \
    "  --consume-window N\n"                                                                                           \
    "  --consume-timeout DUR\n"                                                                                        \
    "  --consume-lease DUR\n"                                                                                          \
    "  --consume-retention DUR\n"                                                                                      \
    "  --consume-redelivery-window DUR\n"                                                                              \
    "  --consume-backoff DUR\n"                                                                                        \
    "  --consume-backoff-max DUR\n"                                                                                    \
    "  --consume-ca-file F\n"                                                                                          \
    "  --consume-nats-creds F\n"                                                                                       \
    "  --consume-amqp-login F\n"                                                                                       \
    "  --consume-kafka-config F\n"                                                                                     \
    "                     as the options of 'once consume' by these names\n"

struct consume_setup {
    const struct once_cli *cli;
    bool prefixed; /* the names begin with "consume-" */
    bool given;    /* at least one of the options was given */
    struct consume_options options;
};

void consume_setup_init(struct consume_setup *setup, const struct once_cli *cli, bool prefixed);
/* "--consume-timeout". */
void consume_setup_name(const struct consume_setup *setup, enum consume_option option, char out[32]);
/* Whether its value is the name of a file. */
bool consume_setup_is_file(enum consume_option option);
/* Takes `optarg`. False: the mistake was reported. */
bool consume_setup_option(struct consume_setup *setup, enum consume_option option);
bool consume_setup_check(struct consume_setup *setup);

#endif
