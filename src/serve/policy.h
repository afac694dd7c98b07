/*
 * policy.h - what `once serve` is told about keys: whose they are, what they count for, what ends them.
 *
 * Each of these options becomes a directive of the module (serve/config.c). What is wrong is said here, in the words of
 * the command line, as far as it can be told here; the rest is refused by `nginx -t`. A verb adds SERVE_POLICY_OPTIONS
 * to its options, hands those that it meets to once_serve_policy_option(), and asks once_serve_policy_check() at the
 * end.
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
    "  --tenant-header H  the request header that names the account whose key it is; who can\n"                        \
    "                     set it must be trusted. Default: one tenant, see --credentials\n"                            \
    "  --credentials H    one more request header that tells callers apart: with another value,\n"                     \
    "                     or none, a retry is refused (422) and gets nobody's answer. May be\n"                        \
    "                     given again. 'default': Authorization, Cookie and the like, which is\n"                      \
    "                     so without --tenant-header; 'none': only those that you name; with\n"                        \
    "                     nothing else, whoever knows a key gets its answer\n"                                         \
    "  --methods LIST     those that keys are looked at for, of POST,PATCH,PUT,DELETE; others\n"                       \
    "                     pass as they are; default POST,PATCH\n"                                                      \
    "  --exclude POINTER  a member of JSON bodies that may differ in a retry, e.g. /sent_at;\n"                        \
    "                     may be given again\n"                                                                        \
    "  --takeover HOW     after a request whose end nobody saw: 'escalate' (the default)\n"                            \
    "                     leaves it to a person, 'rerun' sends it again: for services that\n"                          \
    "                     honour the derived key; 'probe' asks the service: see --probe\n"                             \
    "  --probe PATH       with --takeover probe and --complete: where the daemon asks, by GET,\n"                      \
    "                     whether it happened: 200 is the answer, 404 no. {key} in it is the\n"                        \
    "                     derived key, as in the header Once-Key, {client-key} the client's\n"                         \
    "  --final LIST       statuses that end it for good, with commas: all, default, 2xx to 5xx,\n"                     \
    "                     a status; -5xx, -409: not those. Default: 200 to 499 but 401, 403,\n"                        \
    "                     408, 409, 425, 429. 'default,5xx': also a 5xx is its last word\n"                            \
    "  --replay-header H  a header of answers that replays have, too, besides the usual ones;\n"                       \
    "                     may be given again\n"                                                                        \
    "  --max-response N   how long an answer may be to be kept, e.g. 4m, at most 16m;\n"                               \
    "                     default 1m\n"

enum { SERVE_POLICY_WORDS_MAX = 32, SERVE_POLICY_LIST_LEN_MAX = 255 };

/* Of credentials: unsaid, they count where there is no --tenant-header. */
enum once_serve_credentials { SERVE_CREDENTIALS_UNSET, SERVE_CREDENTIALS_ALL, SERVE_CREDENTIALS_NONE };

/* What was given again and again, or with commas. */
struct once_serve_words {
    const char *at[SERVE_POLICY_WORDS_MAX];
    size_t count;
    char text[SERVE_POLICY_LIST_LEN_MAX + 1]; /* of a list with commas */
};

/* Texts are borrowed from the command line. NULL, and none: the module's default. */
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

/* Do the usual credentials count, since nothing else tells callers apart? */
bool once_serve_policy_is_guarded(const struct once_serve_policy *policy);

#endif
