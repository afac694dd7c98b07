/*
 * policy.h - the options of `once serve` about keys: their tenant, fingerprint, takeover and final statuses.
 *
 * Each of these options becomes a directive of the module (serve/config.c). Mistakes are reported here in terms of the
 * command line; `nginx -t` refuses the rest. A verb adds SERVE_POLICY_OPTIONS to its options, passes them to
 * once_serve_policy_option() as they occur, and calls once_serve_policy_check() at the end.
 */
#ifndef ONCE_SERVE_POLICY_H
#define ONCE_SERVE_POLICY_H

#include "program/cli.h"

enum once_serve_policy_option {
    SERVE_POLICY_TENANT_HEADER,
    SERVE_POLICY_CREDENTIALS,
    SERVE_POLICY_METHODS,
    SERVE_POLICY_EXCLUDE,
    SERVE_POLICY_TAKEOVER,
    SERVE_POLICY_PROBE,
    SERVE_POLICY_FINAL,
    SERVE_POLICY_REPLAY_HEADER,
    SERVE_POLICY_MAX_RESPONSE,
    SERVE_POLICY_COUNT,
};

/* clang-format off */
#define SERVE_POLICY_OPTIONS(first)                                                        \
    { "tenant-header", required_argument, NULL, (first) + SERVE_POLICY_TENANT_HEADER },    \
    { "credentials", required_argument, NULL, (first) + SERVE_POLICY_CREDENTIALS },        \
    { "methods", required_argument, NULL, (first) + SERVE_POLICY_METHODS },                \
    { "exclude", required_argument, NULL, (first) + SERVE_POLICY_EXCLUDE },                \
    { "takeover", required_argument, NULL, (first) + SERVE_POLICY_TAKEOVER },              \
    { "probe", required_argument, NULL, (first) + SERVE_POLICY_PROBE },                    \
    { "final", required_argument, NULL, (first) + SERVE_POLICY_FINAL },                    \
    { "replay-header", required_argument, NULL, (first) + SERVE_POLICY_REPLAY_HEADER },    \
    { "max-response", required_argument, NULL, (first) + SERVE_POLICY_MAX_RESPONSE }
/* clang-format on */

#define SERVE_POLICY_HELP                                                                                              \
    "  --tenant-header H  the request header that names the tenant; clients that can set it\n"                         \
    "                     must be trusted. Default: one tenant, see --credentials\n"                                   \
    "  --credentials H    one more request header that tells callers apart: with another value,\n"                     \
    "                     or without one, a retry is refused (422). May be\n"                                          \
    "                     given again. 'default': Authorization, Cookie and the like; implied\n"                       \
    "                     unless --tenant-header is given. 'none': only the headers that you\n"                        \
    "                     name; without any, every client that knows a key gets its answer\n"                          \
    "  --methods LIST     methods with keys, of POST,PATCH,PUT,DELETE; requests with others are\n"                     \
    "                     forwarded unchanged; default POST,PATCH\n"                                                   \
    "  --exclude POINTER  a member of JSON bodies that may differ in a retry, e.g. /sent_at;\n"                        \
    "                     may be given again\n"                                                                        \
    "  --takeover HOW     for abandoned requests: 'escalate' (the default) leaves them to an\n"                        \
    "                     operator, 'rerun' sends them again: for services that\n"                                     \
    "                     honour the derived key; 'probe' asks the service: see --probe\n"                             \
    "  --probe PATH       with --takeover probe and --complete: the daemon sends a GET there:\n"                       \
    "                     200 is the answer of the request, 404: it had no effect. {key} is\n"                         \
    "                     the derived key, as in the header Once-Key, {client-key} the client's\n"                     \
    "  --final LIST       statuses that are final, separated by commas: all, default, 2xx to\n"                        \
    "                     5xx, a status; -5xx, -409: not those. Default: 200 to 499 except\n"                          \
    "                     401, 403, 408, 409, 425, 429. 'default,5xx': a 5xx is final, too\n"                          \
    "  --replay-header H  a response header that replays contain, besides the usual ones;\n"                           \
    "                     may be given again\n"                                                                        \
    "  --max-response N   the largest answer that is stored, e.g. 4m, at most 16m;\n"                                  \
    "                     default 1m\n"

enum { SERVE_POLICY_WORDS_MAX = 32, SERVE_POLICY_LIST_LEN_MAX = 255 };

/* The usual credential headers. UNSET: they are part of the fingerprint unless --tenant-header is given. */
enum once_serve_credentials { SERVE_CREDENTIALS_UNSET, SERVE_CREDENTIALS_ALL, SERVE_CREDENTIALS_NONE };

/* The values of a repeatable option, or of a list separated by commas. */
struct once_serve_words {
    const char *at[SERVE_POLICY_WORDS_MAX];
    size_t count;
    char text[SERVE_POLICY_LIST_LEN_MAX + 1]; /* of a list: its words point here */
};

/* Texts are borrowed from the command line. NULL or an empty list: the module's default. */
struct once_serve_policy {
    const char *tenant_header; /* NULL: one tenant */
    const char *takeover;
    const char *probe;
    const char *max_response;
    struct once_serve_words methods, exclude, final, replay_headers;
    struct once_serve_words credentials; /* besides the usual ones */
    enum once_serve_credentials standard_credentials;
};

/* Takes `optarg`. False: the mistake was reported. */
bool once_serve_policy_option(const struct once_cli *cli, struct once_serve_policy *policy,
                              enum once_serve_policy_option option);
bool once_serve_policy_check(const struct once_cli *cli, const struct once_serve_policy *policy);

/* True if the usual credentials are part of the fingerprint. */
bool once_serve_policy_is_guarded(const struct once_serve_policy *policy);

#endif
