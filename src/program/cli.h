/*
 * cli.h - shared parts of the verbs of `once`: options, messages, opening the store.
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
 * once_cli_next() handles the common options; a verb gets only its own.
 */
#ifndef ONCE_PROGRAM_CLI_H
#define ONCE_PROGRAM_CLI_H

#include "core/buf.h"
#include "core/limits.h"
#include "once.h"
#include "program/exits.h"

#include <getopt.h>

struct once_cli {
    const char *program; /* its name in messages; NULL: "once" */
    const char *verb;    /* "run", "keys list": likewise */
    const char *help;
    const char *letters; /* short options besides -h, in getopt(3)'s format; NULL: none */
    const char *store;   /* --store; NULL: the default */
    once_span tenant;
    bool tenant_given;
    bool json, quiet;
    bool seal_given;                /* --seal-keys or --seal-keys-command */
    uint32_t lock_wait_ms;          /* how long to wait for the store's lock; 0: 10 s */
    int exit;                       /* after once_cli_next() returned '?' */
    char url[ONCE_URL_LEN_MAX + 1]; /* of the open store, with an absolute path */
};

enum {
    ONCE_CLI_HELP = 256,
    ONCE_CLI_STORE,
    ONCE_CLI_TENANT,
    ONCE_CLI_JSON,
    ONCE_CLI_QUIET,
    ONCE_CLI_SEAL_KEYS,
    ONCE_CLI_SEAL_COMMAND,
    ONCE_CLI_OWN, /* the first number for a verb's own options */
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

/* Their lines in help texts. */
#define ONCE_CLI_HELP_STORE                                                                                            \
    "  --store URL        the store; default $ONCE_STORE, else the file\n"                                             \
    "                     once/once.db in $XDG_STATE_HOME or ~/.local/state\n"
#define ONCE_CLI_HELP_SEAL                                                                                             \
    "  --seal-keys FILE   seal stored bytes with the keys in FILE, mode 0600\n"                                        \
    "                     (docs/sealing.md); default $ONCE_SEAL_KEYS, else not at all\n"                               \
    "  --seal-keys-command CMD   the same, with the keys that CMD prints; default\n"                                   \
    "                     $ONCE_SEAL_KEYS_COMMAND\n"
#define ONCE_CLI_HELP_KEY "  --key KEY          the same as the argument KEY; give only one of them\n"
#define ONCE_CLI_HELP_TENANT "  --tenant T         the tenant of the key; default: the single tenant, ''\n"
/* clang-format off */
#define ONCE_CLI_HELP_QUOTA                                                                                            \
    "  --quota KIND=N,... the quota of each tenant: records, bytes (e.g. 1G), in-flight,\n"                            \
    "                     waiters. Above it new keys are refused (429), existing ones are\n"                           \
    "                     served. Default: no limits\n"                                                                \
    "  --quota-tenant TENANT:KIND=N,...\n"                                                                             \
    "                     the quota of one tenant; KIND=none: no limit; up to 256 times\n"
/* clang-format on */
#define ONCE_CLI_HELP_QUIET "  --quiet            print only errors\n"
#define ONCE_CLI_HELP_HELP "  --help, -h         this text\n"

/* The next option of the verb, -1 after the last, '?' when the verb is to return
 * cli->exit. `flags` is "" or "+" (stop at the first argument that is not an option). */
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
/* The value of --key, which may be given once: *key is {NULL, 0} before. */
bool once_cli_key_option(const struct once_cli *cli, once_span *key);
/* The argument KEY, allowed only if --key was not given. Without an argument *key is not changed. */
bool once_cli_key_if_any(const struct once_cli *cli, int argc, char **argv, once_span *key);
/* Likewise, but a key is required. */
bool once_cli_key(const struct once_cli *cli, int argc, char **argv, once_span *key);

enum once_cli_open {
    ONCE_CLI_CREATE,   /* creates a missing store, migrates an older one */
    ONCE_CLI_EXISTING, /* the store must exist: reading must not create files */
    ONCE_CLI_IF_ANY,   /* likewise, but a missing default store is not an error */
};

/* Sets the seal keys for this store, from options or the environment; a daemon has its own. */
void once_cli_seal(const struct once_cli *cli, struct once_options *options);

/* Opens cli->store, or the default. 0, or the exit code after a message: 64 for an invalid URL. With
 * ONCE_CLI_IF_ANY and no store, *once stays NULL and a message says so, unless --quiet. */
int once_cli_open(struct once_cli *cli, enum once_cli_open how, struct once **once);

/* The current user for the audit trail: name, or number. */
void once_cli_actor(char *out, size_t size);

/* "\n" if stdout and stderr are the same file or terminal and `printed` does not end a line, else "": printed before a
 * message on stderr. */
const char *once_cli_line_end(once_span printed);

/* Flushes stdout; returns `exit`, or ONCE_EXIT_IO instead of 0 if writing failed. */
int once_cli_finish(const struct once_cli *cli, int exit);

/* Adds the given ones of " --store 'URL' --tenant 'T'", for commands in messages. */
void once_cli_add_context(const struct once_cli *cli, struct once_buf *out);

/* optarg of --quota, or of --quota-tenant. False: the mistake was reported. */
struct quota_rules;
bool once_cli_quota(const struct once_cli *cli, struct quota_rules *rules, bool tenant);

#endif
