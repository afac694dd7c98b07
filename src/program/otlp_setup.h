/*
 * otlp_setup.h - the options for exporting spans: --otlp, --otlp-header, --otlp-ratio.
 *
 * A verb adds OTLP_OPTIONS to its options, passes them to otlp_setup_option(), and calls
 * otlp_setup_start() before it works, otlp_setup_stop() after. Without --otlp both do nothing, and the tracer is off.
 */
#ifndef ONCE_PROGRAM_OTLP_SETUP_H
#define ONCE_PROGRAM_OTLP_SETUP_H

#include "program/cli.h"
#include "trace/tracer.h"

enum otlp_option { OTLP_OPTION_URL, OTLP_OPTION_HEADER, OTLP_OPTION_RATIO, OTLP_OPTION_COUNT };

/* clang-format off */
#define OTLP_OPTIONS(first)                                         \
    { "otlp", required_argument, NULL, (first) + OTLP_OPTION_URL }, \
    { "otlp-header", required_argument, NULL, (first) + OTLP_OPTION_HEADER }
/* For verbs that begin traces. */
#define OTLP_OPTIONS_RATIO(first) { "otlp-ratio", required_argument, NULL, (first) + OTLP_OPTION_RATIO }
/* clang-format on */

#define OTLP_HELP                                                                                                      \
    "  --otlp URL         send spans there: OTLP over HTTP, as JSON; without a path, /v1/traces\n"                     \
    "  --otlp-header H    'NAME: VALUE' to send with them, or @FILE with such lines, which\n"                          \
    "                     others must not be able to read; up to 16 times\n"
#define OTLP_HELP_RATIO                                                                                                \
    "  --otlp-ratio R     the share of operations without a trace that begin one; 0 to 1,\n"                           \
    "                     default 1\n"

struct otlp_setup {
    const struct once_cli *cli;
    struct exporter_options options; /* url NULL: off */
    bool ratio_given;
    struct tracer tracer;
};

void otlp_setup_init(struct otlp_setup *setup, const struct once_cli *cli, const char *service);
/* Takes `optarg`. False: the mistake was reported. */
bool otlp_setup_option(struct otlp_setup *setup, enum otlp_option option);
bool otlp_setup_check(const struct otlp_setup *setup);
/* Returns an exit code. Call it after http_call_init(), with the signals blocked. */
int otlp_setup_start(struct otlp_setup *setup);
void otlp_setup_stop(struct otlp_setup *setup);

#endif
