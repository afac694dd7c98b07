/*
 * console_setup.h - the web console as command lines describe it: --console and what begins with it.
 *
 * `once daemon` starts it; `once serve` checks the same words and hands them to its daemon. A verb adds CONSOLE_OPTIONS
 * to its options, hands those that it meets to console_setup_option(), and asks console_setup_check() at the end.
 */
#ifndef ONCE_CLI_CONSOLE_SETUP_H
#define ONCE_CLI_CONSOLE_SETUP_H

#include "daemon/console/console.h"
#include "program/cli.h"

enum console_option {
    CONSOLE_OPTION_LISTEN,
    CONSOLE_OPTION_TOKEN,
    CONSOLE_OPTION_OUTBOX,
    CONSOLE_OPTION_TRACES,
    CONSOLE_OPTION_ORIGIN,
    CONSOLE_OPTION_ANY, /* the daemon's only */
    CONSOLE_OPTION_COUNT,
};

/* clang-format off */
#define CONSOLE_OPTIONS(first)                                                         \
    { "console", required_argument, NULL, (first) + CONSOLE_OPTION_LISTEN },           \
    { "console-token-file", required_argument, NULL, (first) + CONSOLE_OPTION_TOKEN }, \
    { "console-outbox", required_argument, NULL, (first) + CONSOLE_OPTION_OUTBOX },    \
    { "console-traces", required_argument, NULL, (first) + CONSOLE_OPTION_TRACES },    \
    { "console-origin", required_argument, NULL, (first) + CONSOLE_OPTION_ORIGIN }
#define CONSOLE_OPTIONS_ANY(first) { "console-any-address", no_argument, NULL, (first) + CONSOLE_OPTION_ANY }
/* clang-format on */

#define CONSOLE_HELP                                                                                                   \
    "  --console ADDR     serve the web console there, e.g. 127.0.0.1:7413, or at the unix\n"                          \
    "                     socket /PATH; default: off. The log says where to sign in\n"                                 \
    "  --console-token-file FILE\n"                                                                                    \
    "                     the token to sign in with, 16 to 512 bytes, not readable by others;\n"                       \
    "                     default: one is made and printed, good once; then the next\n"                                \
    "  --console-outbox URL\n"                                                                                         \
    "                     the database whose outbox it shows; default $ONCE_CONSOLE_OUTBOX,\n"                         \
    "                     else that of --relay, else a PostgreSQL store's own\n"                                       \
    "  --console-traces URL\n"                                                                                         \
    "                     where a key's traces are found, for a link on its page; {key_hash} in\n"                     \
    "                     it is the key hash; default: no link\n"                                                      \
    "  --console-origin https://NAME[:PORT]\n"                                                                         \
    "                     where browsers find it, if a proxy with TLS is before it; default:\n"                        \
    "                     at this machine's addresses only\n"
#define CONSOLE_HELP_ANY                                                                                               \
    "  --console-any-address\n"                                                                                        \
    "                     ADDR may be one that other machines can reach. There is no TLS: put\n"                       \
    "                     something before it that has\n"

/* Takes `optarg`. False: the mistake was reported. */
bool console_setup_option(const struct once_cli *cli, struct console_options *console, enum console_option option);
bool console_setup_check(const struct once_cli *cli, const struct console_options *console);

#endif
