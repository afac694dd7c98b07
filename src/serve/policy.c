/* policy.c - see serve/policy.h. */
#include "serve/policy.h"

#include "core/http/resend.h"
#include "core/json/pointer.h"
#include "core/limits.h"
#include "core/span.h"
#include "serve/config.h"

#include <ctype.h>
#include <string.h>

/* ---------------------------------------------------------------- lists */

static bool add_word(const struct once_cli *cli, const char *option, struct once_serve_words *words, const char *word)
{
    if (words->count == SERVE_POLICY_WORDS_MAX) {
        once_cli_usage(cli, "%s may be given at most %d times", option, SERVE_POLICY_WORDS_MAX);
        return false;
    }
    words->at[words->count++] = word;
    return true;
}

/* Splits optarg at its commas; the list replaces an earlier one. */
static bool cut_words(struct once_serve_words *words, bool (*is_word)(const char *))
{
    int n = snprintf(words->text, sizeof words->text, "%s", optarg);
    bool good = n > 0 && n <= SERVE_POLICY_LIST_LEN_MAX;
    char *rest = words->text;
    words->count = 0;
    for (char *word; good && (word = strsep(&rest, ",")) != NULL;) {
        good = is_word(word) && words->count < SERVE_POLICY_WORDS_MAX;
        if (good)
            words->at[words->count++] = word;
    }
    return good;
}

/* Checks optarg: nginx's $http_NAME needs letters, digits and '-'. */
static bool is_header(const struct once_cli *cli, const char *option)
{
    size_t len = strspn(optarg, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-");
    if (len > 0 && len <= 128 && optarg[len] == '\0')
        return true;
    once_cli_usage(cli, "%s: '%.60s' is not a header name (letters, digits and -)", option, optarg);
    return false;
}

/* all, default, 2xx to 5xx, 200 to 599; with a '-' before it, a class or status is excluded */
static bool is_final(const char *word)
{
    if (strcmp(word, "all") == 0 || strcmp(word, "default") == 0)
        return true;
    word += word[0] == '-';
    if (strlen(word) != 3 || word[0] < '2' || word[0] > '5')
        return false;
    return strcmp(word + 1, "xx") == 0 || (isdigit((unsigned char)word[1]) && isdigit((unsigned char)word[2]));
}

/* ---------------------------------------------------------------- options */

static bool take_tenant_header(const struct once_cli *cli, struct once_serve_policy *policy)
{
    policy->tenant_header = optarg;
    if (!is_header(cli, "--tenant-header"))
        return false;
    if (!once_header_is_secret(once_span_str(optarg)))
        return true;
    once_cli_usage(cli,
                   "--tenant-header: %s contains credentials, which would be stored and shown as the name of a tenant; "
                   "give a header that names the account, or --credentials %s",
                   optarg, optarg);
    return false;
}

static bool take_credentials(const struct once_cli *cli, struct once_serve_policy *policy)
{
    enum once_serve_credentials said = strcasecmp(optarg, "none") == 0      ? SERVE_CREDENTIALS_NONE
                                       : strcasecmp(optarg, "default") == 0 ? SERVE_CREDENTIALS_ALL
                                                                            : SERVE_CREDENTIALS_UNSET;
    if (said != SERVE_CREDENTIALS_UNSET && policy->standard_credentials != SERVE_CREDENTIALS_UNSET &&
        said != policy->standard_credentials) {
        once_cli_usage(cli, "--credentials: 'none' and 'default' exclude each other");
        return false;
    }
    if (said != SERVE_CREDENTIALS_UNSET) {
        policy->standard_credentials = said;
        return true;
    }
    if (strcasecmp(optarg, "all") == 0) {
        once_cli_usage(cli, "--credentials: 'all' is not supported; 'default' means the usual headers, name others");
        return false;
    }
    return is_header(cli, "--credentials") && add_word(cli, "--credentials", &policy->credentials, optarg);
}

static bool take_methods(const struct once_cli *cli, struct once_serve_policy *policy)
{
    if (cut_words(&policy->methods, once_serve_config_has_keys))
        return true;
    once_cli_usage(cli, "--methods: '%.60s' is not a comma-separated list of POST, PATCH, PUT and DELETE", optarg);
    return false;
}

static bool take_exclude(const struct once_cli *cli, struct once_serve_policy *policy)
{
    once_span pointer = once_span_str(optarg), sorted;
    struct once_error err;
    for (const char *p = optarg; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) {
            once_cli_usage(cli, "--exclude: control characters are not allowed");
            return false;
        }
    if (once_json_sort_pointers(&pointer, 1, &sorted, &err) == ONCE_OK)
        return add_word(cli, "--exclude", &policy->exclude, optarg);
    once_cli_usage(cli, "--exclude: %s", err.text);
    return false;
}

static bool take_takeover(const struct once_cli *cli, struct once_serve_policy *policy)
{
    policy->takeover = optarg;
    if (strcmp(optarg, "escalate") == 0 || strcmp(optarg, "rerun") == 0 || strcmp(optarg, "probe") == 0)
        return true;
    once_cli_usage(cli, "--takeover: '%.60s' is not 'escalate', 'rerun' or 'probe'", optarg);
    return false;
}

static bool take_probe(const struct once_cli *cli, struct once_serve_policy *policy)
{
    policy->probe = optarg;
    if (once_serve_config_is_probe(optarg))
        return true;
    once_cli_usage(
        cli,
        "--probe: '%.60s' is not a path of the service that contains {key} or {client-key}, like /orders/by-key/{key}",
        optarg);
    return false;
}

static bool take_final(const struct once_cli *cli, struct once_serve_policy *policy)
{
    if (cut_words(&policy->final, is_final))
        return true;
    once_cli_usage(
        cli,
        "--final: '%.60s' is not a comma-separated list of 'all', 'default', 2xx to 5xx and statuses from 200 to "
        "599, where '-' before a class or status excludes it",
        optarg);
    return false;
}

/* As nginx reads sizes: bytes, or a number followed by k or m. */
static bool take_max_response(const struct once_cli *cli, struct once_serve_policy *policy)
{
    char *end = optarg;
    unsigned long long n = isdigit((unsigned char)optarg[0]) ? strtoull(optarg, &end, 10) : 0;
    int unit = tolower((unsigned char)*end);
    unsigned shift = unit == 'm' ? 20 : unit == 'k' ? 10 : 0;
    policy->max_response = optarg;
    if (end > optarg && end[shift != 0] == '\0' && strlen(optarg) <= 9 && n > 0 && n << shift <= ONCE_BODY_LEN_MAX)
        return true;
    once_cli_usage(cli, "--max-response: '%.60s' is not a size from 1 to 16m, like 512k or 4m", optarg);
    return false;
}

bool once_serve_policy_option(const struct once_cli *cli, struct once_serve_policy *policy,
                              enum once_serve_policy_option option)
{
    switch (option) {
    case SERVE_POLICY_TENANT_HEADER:
        return take_tenant_header(cli, policy);
    case SERVE_POLICY_CREDENTIALS:
        return take_credentials(cli, policy);
    case SERVE_POLICY_METHODS:
        return take_methods(cli, policy);
    case SERVE_POLICY_EXCLUDE:
        return take_exclude(cli, policy);
    case SERVE_POLICY_TAKEOVER:
        return take_takeover(cli, policy);
    case SERVE_POLICY_PROBE:
        return take_probe(cli, policy);
    case SERVE_POLICY_FINAL:
        return take_final(cli, policy);
    case SERVE_POLICY_REPLAY_HEADER:
        return is_header(cli, "--replay-header") && add_word(cli, "--replay-header", &policy->replay_headers, optarg);
    case SERVE_POLICY_MAX_RESPONSE:
        return take_max_response(cli, policy);
    case SERVE_POLICY_COUNT:
        break;
    }
    return false;
}

bool once_serve_policy_check(const struct once_cli *cli, const struct once_serve_policy *policy)
{
    bool probes = policy->takeover != NULL && strcmp(policy->takeover, "probe") == 0;
    if ((policy->probe != NULL) != probes)
        once_cli_usage(cli, "--takeover probe and --probe PATH must be given together");
    else
        return true;
    return false;
}

bool once_serve_policy_is_guarded(const struct once_serve_policy *policy)
{
    return policy->standard_credentials == SERVE_CREDENTIALS_ALL ||
           (policy->standard_credentials == SERVE_CREDENTIALS_UNSET && policy->tenant_header == NULL);
}
