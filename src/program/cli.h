/*
 * cli.h - what the verbs of `once` have in common: options, messages, the store.
 *
 * A verb is a function `int once_cli_VERB(int argc, char **argv)` that returns an exit
 * code (exits.h). Its shape:
 *
 *     struct once_cli cli = { .verb = "key", .help = help };
 *     static const struct option options[] = { ONCE_CLI_OPTION_HELP, { 0 } };
 *     for (int c; (c = once_cli_next(&cli, argc, argv, "", options)) != -1;)
 *         switch (c) {
 *         case OPTION_MINE: ...
 *         default: return cli.exit;     (--help was printed, or a mistake reported)
 *         }
 *
 * The common options are dealt with inside once_cli_next(); a verb sees its own only.
 */
#ifndef ONCE_PROGRAM_CLI_H
#define ONCE_PROGRAM_CLI_H

#include "core/buf.h"
#include "core/limits.h"
#include "once.h"
#include "program/exits.h"

#include <getopt.h>

struct once_cli {
    const char *program; /* named in messages; NULL: "once" */
    const char *verb;    /* "run", "keys list": likewise */
    const char *help;
    const char *letters; /* short options, as getopt(3) takes them, besides -h; NULL: none */
    const char *store;   /* --store; NULL: the default */
    once_span tenant;
    bool tenant_given;
    bool json, quiet;
    bool seal_given;                /* --seal-keys or --seal-keys-command */
    uint32_t lock_wait_ms;          /* how long to wait for a turn at the store; 0: 10 s */
    int exit;                       /* after once_cli_next() returned '?' */
    char url[ONCE_URL_LEN_MAX + 1]; /* of the open store, its path absolute */
};

enum {
    ONCE_CLI_HELP = 256,
    ONCE_CLI_STORE,
    ONCE_CLI_TENANT,
    ONCE_CLI_JSON,
    ONCE_CLI_QUIET,
    ONCE_CLI_SEAL_KEYS,
    ONCE_CLI_SEAL_COMMAND,
    ONCE_CLI_OWN, /* the verb's own begin here */
};

/* clang-format off */
#define ONCE_CLI_OPTION_HELP   { "help", no_argument, NULL, ONCE_CLI_HELP }
#define ONCE_CLI_OPTION_STORE  { "store", required_argument, NULL, ONCE_CLI_STORE }
#define ONCE_CLI_OPTION_TENANT { "tenant", required_argument, NULL, ONCE_CLI_TENANT }
#define ONCE_CLI_OPTION_JSON   { "json", no_argument, NULL, ONCE_CLI_JSON }
#define ONCE_CLI_OPTION_QUIET  { "quiet", no_argument, NULL, ONCE_CLI_QUIET }
#define ONCE_CLI_OPTION_SEAL   { "seal-keys", required_argument, NULL, ONCE_CLI_SEAL_KEYS }, \
                               { "seal-keys-command", required_argument, NULL, ONCE_CLI_SEAL_COMMAND }
/* clang-format on */

/* The lines of a help text for them. */
#define ONCE_CLI_HELP_STORE                                                                                            \
    "  --store URL        the store; default $ONCE_STORE, else the file\n"                                             \
    "                     once/once.db in $XDG_STATE_HOME or ~/.local/state\n"
#define ONCE_CLI_HELP_SEAL                                                                                             \
    "  --seal-keys FILE   seal what is stored with the keys in FILE, mode 0600\n"                                      \
    "                     (docs/sealing.md); default $ONCE_SEAL_KEYS, else not at all\n"                               \
    "  --seal-keys-command CMD   the same, with the keys that CMD prints; default\n"                                   \
    "                     $ONCE_SEAL_KEYS_COMMAND\n"
#define ONCE_CLI_HELP_KEY "  --key KEY          the same as KEY alone, as other verbs have it; one of them\n"
#define ONCE_CLI_HELP_TENANT "  --tenant T         whose key it is; default: the single tenant, ''\n"
/* clang-format off */
#define ONCE_CLI_HELP_QUOTA                                                                                            \
    "  --quota KIND=N,... what each tenant may have: records, bytes (e.g. 1G), in-flight,\n"                           \
    "                     waiters. Over that, new keys are refused (429); what is there is\n"                          \
    "                     not. Default: no limits\n"                                                                   \
    "  --quota-tenant TENANT:KIND=N,...\n"                                                                             \
    "                     what this one may have instead; KIND=none: no limit; up to 256 times\n"
/* clang-format on */
#define ONCE_CLI_HELP_QUIET "  --quiet            no remarks, only errors\n"
#define ONCE_CLI_HELP_HELP "  --help, -h         this text\n"

/* The next option of the verb, -1 after the last, '?' when the verb is to return
 * cli->exit. `flags` is "" or "+" (stop at the first argument that is no option). */
int once_cli_next(struct once_cli *cli, int argc, char **argv, const char *flags, const struct option *options);

/* "once VERB: ..." on stderr. Return `exit`, and ONCE_EXIT_USAGE with a hint at --help. */
__attribute__((format(printf, 3, 4))) int once_cli_fail(const struct once_cli *cli, int exit, const char *format, ...);
__attribute__((format(printf, 2, 3))) int once_cli_usage(const struct once_cli *cli, const char *format, ...);
/* "once VERB: cannot DO: err->text"; returns the exit code of err->result. */
int once_cli_error(const struct once_cli *cli, const struct once_error *err, const char *what);

/* Option values. False: the mistake was reported, return ONCE_EXIT_USAGE. */
bool once_cli_duration(const struct once_cli *cli, const char *option, bool allow_never, int64_t *ms);
bool once_cli_number(const struct once_cli *cli, const char *option, uint64_t min, uint64_t max, uint64_t *value);
/* A VALUE, as every verb takes it: "@FILE" (its bytes), "@-" or "-" (standard input) or the text itself. Standard
 * input is read to its end, so one option of a command may have it. */
bool once_cli_bytes(const struct once_cli *cli, const char *option, struct once_buf *out);
/* A key, once: *key is {NULL, 0} before. */
bool once_cli_key_option(const struct once_cli *cli, once_span *key);
/* The one argument that is left, unless --key was given, which is the same. Neither leaves *key as it is. */
bool once_cli_key_if_any(const struct once_cli *cli, int argc, char **argv, once_span *key);
/* Likewise, and there must be one. */
bool once_cli_key(const struct once_cli *cli, int argc, char **argv, once_span *key);

enum once_cli_open {
    ONCE_CLI_CREATE,   /* a missing or older store is made ready */
    ONCE_CLI_EXISTING, /* it must be there: looking should not leave files behind */
    ONCE_CLI_IF_ANY,   /* likewise, but that the default one was not made yet is no failure */
};

/* The keys for this store: what was given, or the environment says; a daemon has its own. */
void once_cli_seal(const struct once_cli *cli, struct once_options *options);

/* Opens cli->store, or the default. 0, or the exit code after a message: 64 where no store can have that URL. *once
 * stays NULL where there is none, and need not be any; that is said unless --quiet. */
int once_cli_open(struct once_cli *cli, enum once_cli_open how, struct once **once);

/* Who is at it, for the audit trail: the user's name, or number. */
void once_cli_actor(char *out, size_t size);

/* What separates a remark on stderr from the bytes before it on stdout: a line's end where both go to one place, a
 * terminal say, and these bytes have none; else nothing. */
const char *once_cli_line_end(once_span printed);

/* Flushes stdout; what could not be written turns 0 into ONCE_EXIT_IO. */
int once_cli_finish(const struct once_cli *cli, int exit);

/* " --store 'URL' --tenant 'T'" as far as they were given: for commands shown to a person. */
void once_cli_add_context(const struct once_cli *cli, struct once_buf *out);

/* optarg of --quota, or of --quota-tenant. False: it was said what is wrong. */
struct quota_rules;
bool once_cli_quota(const struct once_cli *cli, struct quota_rules *rules, bool tenant);

#endif
