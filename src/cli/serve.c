/*
 * serve.c - `once serve`: a gateway before a service, without any configuration by hand.
 *
 * Writes an nginx.conf (serve/config.c), starts `once daemon` and nginx, and stays as the
 * parent of both (serve/supervisor.c). serve/paths.h lists its files and users.
 */
#include "cli/console_setup.h"
#include "cli/consume_setup.h"
#include "cli/relay_setup.h"
#include "cli/verbs.h"
#include "core/quota_rules.h"
#include "core/span.h"
#include "daemon/api/listen.h"
#include "os/notify.h"
#include "program/cli.h"
#include "program/otlp_setup.h"
#include "program/text.h"
#include "serve/address.h"
#include "serve/config.h"
#include "serve/paths.h"
#include "serve/policy.h"
#include "serve/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CA_FILE "/etc/ssl/certs/ca-certificates.crt"

/* clang-format off */
static const char help[] =
    "usage: once serve --upstream URL [OPTIONS]\n"
    "\n"
    "Puts a gateway before the HTTP service at URL: requests with an Idempotency-Key are\n"
    "executed once, and every retry gets the same answer. Starts 'once daemon' and nginx,\n"
    "restarts them if they die, and stops them when it ends.\n"
    "\n"
    "  --upstream URL     the service: http://HOST:PORT, https://HOST:PORT or\n"
    "                     http://unix:/PATH, without a path of a request\n"
    "  --listen ADDR      where the gateway listens: ADDRESS:PORT, [IPV6]:PORT, *:PORT, or\n"
    "                     PORT on 127.0.0.1; default 127.0.0.1:8080\n"
    "  --store URL        the store; default $ONCE_STORE, else, for root,\n"
    "                     /var/lib/once/once.db, else that of 'once run'; once:PATH uses a\n"
    "                     daemon that runs already\n"
    ONCE_CLI_HELP_SEAL
    SERVE_POLICY_HELP
    "  --required         refuse requests without a key\n"
    "  --intent           store an intent with each claim: if the gateway dies before it sends\n"
    "                     the request, a retry sends it, also with 'escalate'\n"
    "  --complete         store requests (never their credentials), and let the daemon complete\n"
    "                     abandoned ones, as --takeover says. A request whose failure was\n"
    "                     answered is left to the client\n"
    "  --complete-identity FILE\n"
    "                     header lines, e.g. Authorization, that the daemon sends with them:\n"
    "                     only if a proxy before this gateway authenticates clients\n"
    "  --escalate-webhook URL\n"
    "                     gets a POST when an outcome becomes unknown\n"
    ONCE_CLI_HELP_QUOTA
    "  --relay P=SINK     the daemon relays an outbox, too: as 'once relay --route'\n"
    "  --relay-store URL  the outbox; default $ONCE_RELAY_STORE, else the store, if that is\n"
    "                     PostgreSQL\n"
    RELAY_HELP("relay-")
    CONSUME_HELP_PREFIXED
    "  --consume-store URL\n"
    "                     with its records and dead letters; default $ONCE_CONSUME_STORE, else\n"
    "                     the store, if that is PostgreSQL\n"
    "  --retention DUR    how long answers are kept, or 'never' to keep them for ever;\n"
    "                     default 24h\n"
    "  --body-retention DUR\n"
    "                     how long bodies are kept, if shorter: after that a retry gets a 410\n"
    "                     and is not executed again\n"
    "  --no-key-time      accept UUIDv7 keys of any age; default: refuse those older than the\n"
    "                     retention\n"
    "  --lease DUR        how long a request is protected from takeover; default 60s\n"
    "  --wait DUR         how long a retry waits for the first request to end before it gets a\n"
    "                     409; default 0s\n"
    "  --timeout DUR      how long the service may be silent before the outcome is unknown;\n"
    "                     default 60s\n"
    "  --tls-cert FILE    serve HTTPS, also HTTP/2, with this certificate chain\n"
    "  --tls-key FILE     and this key\n"
    "  --workers N        nginx's; default: one per processor\n"
    "  --http ADDR        where the daemon's JSON API listens, or 'off';\n"
    "                     default 127.0.0.1:7411\n"
    CONSOLE_HELP
    "  --log-requests     a line on standard error for every request: time, client, request\n"
    "                     line, status, result, key hash\n"
    "  --log-decisions F  the decision log of the daemon: 'json', 'logfmt' or 'off'\n"
    "  --log-file PATH    the decision log goes there, not to standard error; USR1 reopens it\n"
    "  --trace SHARE      take part in traces: 'on', 'off', or the share, 0 to 1, of requests\n"
    "                     without a trace that begin one; default 'on' with --otlp, else 'off'\n"
    OTLP_HELP
    OTLP_HELP_RATIO
    "  --config DIR       write nginx.conf to DIR, and do not remove it at the end\n"
    "  --print-config     print nginx.conf, start nothing\n"
    "  --user NAME        as root: the user of the daemon; default 'once' if that user exists,\n"
    "                     else root\n"
    "  --nginx FILE       the nginx program; default: nginx in $PATH or /usr/sbin\n"
    "  --module FILE      ngx_http_once_module.so; default: that of this build, or the\n"
    "                     installed one\n"
    ONCE_CLI_HELP_HELP
    "\n"
    "Signals: INT, TERM, QUIT stop it after the requests in flight, a second one at once; HUP\n"
    "makes nginx reload its configuration and certificates; USR1 is forwarded to the daemon.\n"
    "All logs go to standard error, with 'nginx:' or 'daemon:' before the lines of these two.\n"
    "\n"
    "exit: 0 stopped by a signal; 64 usage; 69 nginx, the module, a port, a directory or the\n"
    "store is missing or in use; 71 no process could be started; or the exit status of the\n"
    "daemon if it failed before it was ready\n"
    "\n"
    "example: once serve --upstream http://127.0.0.1:9000\n";
/* clang-format on */

enum {
    OPTION_UPSTREAM = ONCE_CLI_OWN,
    OPTION_LISTEN,
    OPTION_REQUIRED,
    OPTION_INTENT,
    OPTION_COMPLETE,
    OPTION_IDENTITY,
    OPTION_WEBHOOK,
    OPTION_RETENTION,
    OPTION_BODY_RETENTION,
    OPTION_NO_KEY_TIME,
    OPTION_LEASE,
    OPTION_WAIT,
    OPTION_TIMEOUT,
    OPTION_TLS_CERT,
    OPTION_TLS_KEY,
    OPTION_WORKERS,
    OPTION_HTTP,
    OPTION_LOG_REQUESTS,
    OPTION_CONFIG,
    OPTION_PRINT_CONFIG,
    OPTION_USER,
    OPTION_NGINX,
    OPTION_MODULE,
    OPTION_QUOTA,
    OPTION_QUOTA_TENANT,
    OPTION_RELAY_STORE,
    OPTION_CONSUME_STORE,
    OPTION_LOG_DECISIONS,
    OPTION_LOG_FILE,
    OPTION_TRACE,
    OPTION_CONSOLE,                                      /* the first of console_setup.h's */
    OPTION_OTLP = OPTION_CONSOLE + CONSOLE_OPTION_COUNT, /* the first of otlp_setup.h's */
    OPTION_POLICY = OPTION_OTLP + OTLP_OPTION_COUNT,     /* the first of serve/policy.h's */
    OPTION_RELAY = OPTION_POLICY + SERVE_POLICY_COUNT,   /* the first of relay_setup.h's */
    OPTION_CONSUME = OPTION_RELAY + RELAY_OPTION_COUNT,  /* the first of consume_setup.h's */
};

static const struct option options[] = {
    ONCE_CLI_OPTION_HELP,
    ONCE_CLI_OPTION_STORE,
    ONCE_CLI_OPTION_SEAL,
    { "upstream", required_argument, NULL, OPTION_UPSTREAM },
    { "listen", required_argument, NULL, OPTION_LISTEN },
    SERVE_POLICY_OPTIONS(OPTION_POLICY),
    { "required", no_argument, NULL, OPTION_REQUIRED },
    { "intent", no_argument, NULL, OPTION_INTENT },
    { "complete", no_argument, NULL, OPTION_COMPLETE },
    { "complete-identity", required_argument, NULL, OPTION_IDENTITY },
    { "escalate-webhook", required_argument, NULL, OPTION_WEBHOOK },
    { "retention", required_argument, NULL, OPTION_RETENTION },
    { "body-retention", required_argument, NULL, OPTION_BODY_RETENTION },
    { "no-key-time", no_argument, NULL, OPTION_NO_KEY_TIME },
    { "lease", required_argument, NULL, OPTION_LEASE },
    { "wait", required_argument, NULL, OPTION_WAIT },
    { "timeout", required_argument, NULL, OPTION_TIMEOUT },
    { "tls-cert", required_argument, NULL, OPTION_TLS_CERT },
    { "tls-key", required_argument, NULL, OPTION_TLS_KEY },
    { "workers", required_argument, NULL, OPTION_WORKERS },
    { "http", required_argument, NULL, OPTION_HTTP },
    CONSOLE_OPTIONS(OPTION_CONSOLE),
    { "log-requests", no_argument, NULL, OPTION_LOG_REQUESTS },
    { "config", required_argument, NULL, OPTION_CONFIG },
    { "print-config", no_argument, NULL, OPTION_PRINT_CONFIG },
    { "user", required_argument, NULL, OPTION_USER },
    { "nginx", required_argument, NULL, OPTION_NGINX },
    { "module", required_argument, NULL, OPTION_MODULE },
    { "quota", required_argument, NULL, OPTION_QUOTA },
    { "quota-tenant", required_argument, NULL, OPTION_QUOTA_TENANT },
    { "relay-store", required_argument, NULL, OPTION_RELAY_STORE },
    { "consume-store", required_argument, NULL, OPTION_CONSUME_STORE },
    { "log-decisions", required_argument, NULL, OPTION_LOG_DECISIONS },
    { "log-file", required_argument, NULL, OPTION_LOG_FILE },
    { "trace", required_argument, NULL, OPTION_TRACE },
    OTLP_OPTIONS(OPTION_OTLP),
    OTLP_OPTIONS_RATIO(OPTION_OTLP),
    RELAY_OPTIONS("relay", "relay-", OPTION_RELAY),
    CONSUME_OPTIONS_PREFIXED(OPTION_CONSUME),
    { 0 },
};

enum {
    FILES_MAX = 8192,
    CONFIG_LEN_MAX = 256 << 10,
    RELAY_WORDS_MAX = 2 * (RELAY_ROUTES_MAX + QUOTA_RULES_MAX + 64),
    DAY_MS = 24 * 60 * 60 * 1000,
};

struct serve {
    struct once_cli cli;
    struct once_serve_upstream upstream;
    struct once_serve_listen listen, http;
    bool upstream_given, http_given, http_off, print_config;
    struct once_serve_settings settings;
    struct once_serve_paths paths;
    struct once_serve_config config;
    struct once_serve_policy policy;
    char tls_cert[PATH_MAX], tls_key[PATH_MAX];
    const char *identity, *webhook;                               /* NULL: none */
    struct console_options console;                               /* as given; listen NULL: off */
    char identity_path[PATH_MAX], identity_option[PATH_MAX + 16]; /* absolute path; the daemon's option value */
    char complete_option[ONCE_SERVE_ADDRESS_LEN + 8 + 16];
    struct quota_rules quotas; /* only to check the options */
    struct relay_setup relay;  /* likewise: the daemon gets them as words */
    char *relay_words[RELAY_WORDS_MAX];
    size_t relay_word_count;
    const char *relay_store;
    struct consume_setup consume; /* likewise */
    const char *consume_store;
    struct otlp_setup otlp; /* likewise */
    bool logs, log_file;    /* the decision log is on; --log-file was given */
    char trace[16];         /* value of once_trace; empty: not given */
};

/* ---------------------------------------------------------------- the command line */

static bool parse_listen(const struct serve *serve, const char *option, struct once_serve_listen *out)
{
    struct once_error err;
    if (once_serve_listen_parse(optarg, out, &err) == ONCE_OK)
        return true;
    once_cli_usage(&serve->cli, "%s: %s", option, err.text);
    return false;
}

static bool parse_upstream(struct serve *serve)
{
    struct once_error err;
    if (serve->upstream_given) {
        once_cli_usage(&serve->cli, "--upstream may be given only once; for several services write your own nginx.conf "
                                    "(--print-config shows a start)");
        return false;
    }
    serve->upstream_given = true;
    if (once_serve_upstream_parse(optarg, &serve->upstream, &err) == ONCE_OK)
        return true;
    once_cli_usage(&serve->cli, "--upstream: %s", err.text);
    return false;
}

static bool parse_duration(const struct serve *serve, const char *option, bool allow_never, int64_t min, int64_t max,
                           int64_t *ms)
{
    if (!once_cli_duration(&serve->cli, option, allow_never, ms))
        return false;
    if (*ms == ONCE_NEVER || (*ms >= min && *ms <= max))
        return true;
    once_cli_usage(&serve->cli, "%s: '%.60s' is too %s", option, optarg, *ms < min ? "short" : "long");
    return false;
}

/* An existing file; its path becomes absolute, because nginx has another working directory. */
static bool parse_file(const struct serve *serve, const char *option, char out[PATH_MAX], const char **path)
{
    if (realpath(optarg, out) == NULL || access(out, R_OK) != 0) {
        once_cli_usage(&serve->cli, "%s: cannot read '%.200s': %s", option, optarg, strerror(errno));
        return false;
    }
    if (!once_serve_config_is_plain(out)) {
        once_cli_usage(&serve->cli, "%s: '%.200s' contains a '$' or a control character: nginx cannot use that path",
                       option, optarg);
        return false;
    }
    *path = out;
    return true;
}

/* Adds an option to the daemon's command line. */
static bool pass_on(struct serve *serve, const char *name, const char *value)
{
    if (serve->relay_word_count + 2 > RELAY_WORDS_MAX) {
        once_cli_usage(&serve->cli, "%s: too many options for the daemon", name);
        return false;
    }
    char **words = &serve->relay_words[serve->relay_word_count];
    words[0] = strdup(name);
    words[1] = strdup(value);
    serve->relay_word_count += 2;
    if (words[0] == NULL || words[1] == NULL)
        once_cli_fail(&serve->cli, ONCE_EXIT_OS, "out of memory");
    return words[0] != NULL && words[1] != NULL;
}

/* Passes an option that was checked here on to the daemon, a file by its absolute path. */
static bool pass_checked(struct serve *serve, const char *name, bool is_file)
{
    char path[PATH_MAX];
    if (is_file && (realpath(optarg, path) == NULL || access(path, R_OK) != 0)) {
        once_cli_usage(&serve->cli, "%s: cannot read '%.200s': %s", name, optarg, strerror(errno));
        return false;
    }
    return pass_on(serve, name, is_file ? path : optarg);
}

static bool parse_relay(struct serve *serve, enum relay_option option)
{
    char name[32];
    relay_setup_name(&serve->relay, option, name);
    return relay_setup_option(&serve->relay, option) && pass_checked(serve, name, relay_setup_is_file(option));
}

static bool parse_consume(struct serve *serve, enum consume_option option)
{
    char name[32];
    consume_setup_name(&serve->consume, option, name);
    return consume_setup_option(&serve->consume, option) && pass_checked(serve, name, consume_setup_is_file(option));
}

/* Makes the path absolute; the file need not exist yet. */
static bool parse_log_file(struct serve *serve)
{
    char path[PATH_MAX], here[PATH_MAX];
    bool absolute = optarg[0] == '/';
    if (!absolute && getcwd(here, sizeof here) == NULL) {
        once_cli_usage(&serve->cli, "--log-file: cannot find the working directory: %s", strerror(errno));
        return false;
    }
    int len = snprintf(path, sizeof path, "%s%s%s", absolute ? "" : here, absolute ? "" : "/", optarg);
    if (optarg[0] == '\0' || len < 0 || (size_t)len >= sizeof path) {
        once_cli_usage(&serve->cli, "--log-file takes a path");
        return false;
    }
    serve->log_file = true;
    return pass_on(serve, "--log-file", path);
}

static bool parse_log_decisions(struct serve *serve)
{
    if (strcmp(optarg, "json") != 0 && strcmp(optarg, "logfmt") != 0 && strcmp(optarg, "off") != 0) {
        once_cli_usage(&serve->cli, "--log-decisions takes json, logfmt or off, not '%.60s'", optarg);
        return false;
    }
    serve->logs = strcmp(optarg, "off") != 0;
    return pass_on(serve, "--log-decisions", optarg);
}

static bool parse_trace(struct serve *serve)
{
    char *end = NULL;
    double share = strtod(optarg, &end);
    bool number = optarg[0] >= '0' && optarg[0] <= '9' && *end == '\0' && share >= 0 && share <= 1;
    if (!number && strcmp(optarg, "on") != 0 && strcmp(optarg, "off") != 0) {
        once_cli_usage(&serve->cli, "--trace takes on, off or a share from 0 to 1, not '%.60s'", optarg);
        return false;
    }
    if (number)
        snprintf(serve->trace, sizeof serve->trace, "%.6f", share);
    else
        snprintf(serve->trace, sizeof serve->trace, "%s", optarg);
    return true;
}

static bool parse_otlp(struct serve *serve, enum otlp_option option)
{
    static const char *const names[] = { "--otlp", "--otlp-header", "--otlp-ratio" };
    char file[PATH_MAX + 1] = "@";
    const char *value = optarg;
    if (!otlp_setup_option(&serve->otlp, option))
        return false;
    if (option == OTLP_OPTION_HEADER && optarg[0] == '@') {
        if (realpath(optarg + 1, file + 1) == NULL) {
            once_cli_usage(&serve->cli, "--otlp-header: cannot read '%.200s': %s", optarg + 1, strerror(errno));
            return false;
        }
        value = file;
    }
    return pass_on(serve, names[option], value);
}

static bool parse_option(struct serve *serve, int c)
{
    uint64_t number;
    if (c >= OPTION_CONSUME)
        return parse_consume(serve, (enum consume_option)(c - OPTION_CONSUME));
    if (c >= OPTION_RELAY)
        return parse_relay(serve, (enum relay_option)(c - OPTION_RELAY));
    if (c >= OPTION_POLICY)
        return once_serve_policy_option(&serve->cli, &serve->policy,
                                        (enum once_serve_policy_option)(c - OPTION_POLICY));
    if (c >= OPTION_OTLP)
        return parse_otlp(serve, (enum otlp_option)(c - OPTION_OTLP));
    if (c >= OPTION_CONSOLE)
        return console_setup_option(&serve->cli, &serve->console, (enum console_option)(c - OPTION_CONSOLE));
    switch (c) {
    case OPTION_LOG_DECISIONS:
        return parse_log_decisions(serve);
    case OPTION_LOG_FILE:
        return parse_log_file(serve);
    case OPTION_TRACE:
        return parse_trace(serve);
    case OPTION_UPSTREAM:
        return parse_upstream(serve);
    case OPTION_LISTEN:
        return parse_listen(serve, "--listen", &serve->listen);
    case OPTION_RETENTION:
        return parse_duration(serve, "--retention", true, 1, 36500LL * DAY_MS, &serve->config.retention_ms);
    case OPTION_BODY_RETENTION:
        return parse_duration(serve, "--body-retention", true, 1, 36500LL * DAY_MS, &serve->config.body_retention_ms);
    case OPTION_NO_KEY_TIME:
        serve->config.no_key_time = true;
        return true;
    case OPTION_LEASE:
        return parse_duration(serve, "--lease", false, 1, DAY_MS, &serve->config.lease_ms);
    case OPTION_WAIT:
        return parse_duration(serve, "--wait", false, 0, DAY_MS, &serve->config.wait_ms);
    case OPTION_TIMEOUT:
        return parse_duration(serve, "--timeout", false, 1, DAY_MS, &serve->config.timeout_ms);
    case OPTION_TLS_CERT:
        return parse_file(serve, "--tls-cert", serve->tls_cert, &serve->config.tls_cert);
    case OPTION_IDENTITY:
        serve->config.complete_identity = true;
        return parse_file(serve, "--complete-identity", serve->identity_path, &serve->identity);
    case OPTION_TLS_KEY:
        return parse_file(serve, "--tls-key", serve->tls_key, &serve->config.tls_key);
    case OPTION_WORKERS:
        if (!once_cli_number(&serve->cli, "--workers", 1, 512, &number))
            return false;
        serve->config.workers = (unsigned)number;
        return true;
    case OPTION_QUOTA:
    case OPTION_QUOTA_TENANT:
        return once_cli_quota(&serve->cli, &serve->quotas, c == OPTION_QUOTA_TENANT) &&
               pass_on(serve, c == OPTION_QUOTA ? "--quota" : "--quota-tenant", optarg);
    case OPTION_HTTP:
        serve->http_given = true;
        serve->http_off = strcmp(optarg, "off") == 0;
        return serve->http_off || parse_listen(serve, "--http", &serve->http);
    default: /* flags, and values that are not checked here */
        serve->config.required |= c == OPTION_REQUIRED;
        serve->config.intent |= c == OPTION_INTENT;
        serve->config.complete |= c == OPTION_COMPLETE;
        serve->config.log_requests |= c == OPTION_LOG_REQUESTS;
        serve->print_config |= c == OPTION_PRINT_CONFIG;
        if (c == OPTION_CONFIG)
            serve->settings.config_dir = optarg;
        else if (c == OPTION_WEBHOOK)
            serve->webhook = optarg;
        else if (c == OPTION_USER)
            serve->settings.user = optarg;
        else if (c == OPTION_NGINX)
            serve->settings.nginx = optarg;
        else if (c == OPTION_MODULE)
            serve->settings.module = optarg;
        else if (c == OPTION_RELAY_STORE)
            serve->relay_store = optarg;
        else if (c == OPTION_CONSUME_STORE)
            serve->consume_store = optarg;
        return true;
    }
}

/* True if --body-retention exceeds --retention. */
static bool is_kept_longer(const struct once_serve_config *config)
{
    int64_t body = config->body_retention_ms, record = config->retention_ms;
    if (record == ONCE_SERVE_CONFIG_DEFAULT)
        record = ONCE_RETENTION_MS_DEFAULT;
    return body != ONCE_SERVE_CONFIG_DEFAULT && record != ONCE_NEVER && (body == ONCE_NEVER || body > record);
}

/* True if the upstream is this gateway, under any name: requests would loop. */
static bool is_itself(const struct serve *serve)
{
    const char *server = serve->upstream.server, *near = serve->listen.near;
    bool local =
        strcasecmp(serve->upstream.host, "localhost") == 0 && strcmp(strrchr(server, ':'), strrchr(near, ':')) == 0;
    return strcmp(server, near) == 0 ||
           (local && (strncmp(near, "127.0.0.1:", 10) == 0 || strncmp(near, "[::1]:", 6) == 0));
}

static bool parse(struct serve *serve, int argc, char **argv)
{
    struct once_cli *cli = &serve->cli;
    struct once_error err;
    for (int c; (c = once_cli_next(cli, argc, argv, "", options)) != -1;) {
        if (c == '?')
            return false;
        if (!parse_option(serve, c)) {
            cli->exit = ONCE_EXIT_USAGE;
            return false;
        }
    }
    cli->exit = ONCE_EXIT_OK;
    if (optind < argc)
        cli->exit = once_cli_usage(cli, "unexpected argument '%.60s'", argv[optind]);
    else if (serve->settings.config_dir != NULL && serve->settings.config_dir[0] == '\0')
        cli->exit = once_cli_usage(cli, "--config takes a directory");
    else if (!serve->upstream_given)
        cli->exit = once_cli_usage(cli, "--upstream URL is missing");
    else if ((serve->config.tls_cert == NULL) != (serve->config.tls_key == NULL))
        cli->exit = once_cli_usage(cli, "--tls-cert and --tls-key must be given together");
    else if (is_kept_longer(&serve->config))
        cli->exit = once_cli_usage(cli, "--body-retention must not be longer than --retention");
    else if (!once_serve_policy_check(cli, &serve->policy))
        cli->exit = ONCE_EXIT_USAGE;
    else if (serve->policy.probe != NULL && !serve->config.complete)
        cli->exit = once_cli_usage(cli, "--probe needs --complete: the daemon sends the probe");
    else if (serve->identity != NULL && !serve->config.complete)
        cli->exit = once_cli_usage(cli, "--complete-identity needs --complete");
    else if (!serve->http_off && api_listen_check(serve->http.text, false, &err) != ONCE_OK)
        cli->exit = once_cli_usage(cli, "--http: %s", err.text);
    else if (!console_setup_check(cli, &serve->console))
        cli->exit = ONCE_EXIT_USAGE;
    else if (serve->relay_store != NULL && !serve->relay.given)
        cli->exit = once_cli_usage(cli, "--relay-store needs --relay");
    else if (serve->consume_store != NULL && !serve->consume.given)
        cli->exit = once_cli_usage(cli, "--consume-store needs --consume");
    else if ((serve->relay.given && !relay_setup_check(&serve->relay)) ||
             (serve->consume.given && !consume_setup_check(&serve->consume)))
        cli->exit = ONCE_EXIT_USAGE;
    else if (!otlp_setup_check(&serve->otlp))
        cli->exit = ONCE_EXIT_USAGE;
    else if (serve->log_file && !serve->logs)
        cli->exit = once_cli_usage(cli, "--log-file needs --log-decisions json or logfmt");
    else if ((serve->config.complete || serve->webhook != NULL || serve->relay.given || serve->consume.given ||
              serve->console.listen != NULL || cli->seal_given || serve->logs || serve->otlp.options.url != NULL ||
              serve->quotas.any) &&
             cli->store != NULL && strncmp(cli->store, "once:", 5) == 0)
        cli->exit = once_cli_usage(
            cli,
            "--complete, --escalate-webhook, --relay, --consume, --console, --seal-keys, --log-decisions, "
            "--otlp and --quota: give these options to the daemon that runs at %s",
            cli->store);
    else if (is_itself(serve))
        cli->exit = once_cli_usage(cli, "--upstream: %s is the gateway itself: see --listen", serve->upstream.url);
    return cli->exit == ONCE_EXIT_OK;
}

/* ---------------------------------------------------------------- the configuration */

static unsigned files_max(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max == RLIM_INFINITY || limit.rlim_max > FILES_MAX)
        return FILES_MAX;
    return limit.rlim_max > 64 ? (unsigned)limit.rlim_max : 64;
}

static int write_config(struct serve *serve, struct once_buf *text)
{
    struct once_serve_config *config = &serve->config;
    const struct once_serve_paths *paths = &serve->paths;
    config->listen = &serve->listen;
    config->upstream = &serve->upstream;
    config->module = paths->module[0] != '\0' ? paths->module : once_serve_paths_module_default();
    config->socket = paths->socket;
    config->pid_file = paths->pid_file;
    config->temp_dir = paths->temp;
    config->policy = &serve->policy;
    config->ca_file = CA_FILE;
    config->files_max = files_max();
    if (paths->root) {
        config->user = paths->workers.name;
        config->group = paths->workers.group;
    }
    if (serve->trace[0] != '\0')
        config->trace = serve->trace;
    else if (serve->otlp.options.url != NULL)
        config->trace = "on";
    once_serve_config_write(config, text);
    return text->result == ONCE_OK ? ONCE_EXIT_OK : once_cli_fail(&serve->cli, ONCE_EXIT_OS, "out of memory");
}

/* ---------------------------------------------------------------- before the start */

/* The output of `nginx -t`, and its meaning if it is an error about the module. */
struct verdict {
    struct serve *serve;
    const char *meaning;
    struct once_buf lines;
};

static bool take_verdict(void *arg, const char *line)
{
    static const struct {
        const char *said, *meaning;
    } known[] = {
        { "instead of", "was built for another version of nginx; rebuild it with the nginx-dev of this one" },
        { "is not binary compatible", "was built for another nginx; rebuild it with the nginx-dev of this one" },
        { "dlopen()", "cannot be loaded" },
        { "unknown directive \"once", "belongs to another version of once" },
    };
    struct verdict *verdict = arg;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (verdict->meaning == NULL && strstr(line, known[i].said) != NULL)
            verdict->meaning = known[i].meaning;
    once_buf_addf(&verdict->lines, "nginx: %s\n", strncmp(line, "nginx: ", 7) == 0 ? line + 7 : line);
    return true;
}

static void add_nginx(struct once_serve_child *nginx, const struct once_serve_paths *paths)
{
    once_serve_child_init(nginx, "nginx", paths->nginx);
    once_serve_child_add(nginx, "nginx");
    once_serve_child_add(nginx, "-p");
    once_serve_child_add(nginx, paths->run);
    once_serve_child_add(nginx, "-e");
    once_serve_child_add(nginx, "stderr");
    once_serve_child_add(nginx, "-c");
    once_serve_child_add(nginx, paths->config);
    nginx->death_signal = SIGQUIT;
}

/* Runs `nginx -t`, so that mistakes are reported before anything starts. Looking up a name may take long: *ended is
 * set if a signal came meanwhile. */
static int test_config(struct serve *serve, const struct once_serve_supervisor *supervisor, bool *ended)
{
    struct verdict verdict = { .serve = serve };
    struct once_serve_child nginx;
    once_buf_init(&verdict.lines, 64 << 10);
    add_nginx(&nginx, &serve->paths);
    once_serve_child_add(&nginx, "-t");
    once_serve_child_add(&nginx, "-q");
    nginx.take_line = take_verdict;
    nginx.arg = &verdict;
    int error = once_serve_child_start(&nginx, &supervisor->mask);
    if (error != 0)
        return once_cli_fail(&serve->cli, ONCE_EXIT_OS, "cannot start %s: %s", nginx.program, strerror(error));
    while (nginx.output >= 0) {
        struct pollfd fds[] = { { .fd = nginx.output, .events = POLLIN },
                                { .fd = supervisor->signals, .events = POLLIN } };
        poll(fds, sizeof fds / sizeof *fds, -1);
        once_serve_child_read(&nginx);
        *ended = *ended || once_serve_is_to_end(supervisor);
        if (*ended)
            once_serve_child_sweep(&nginx, SIGKILL);
    }
    int status = 0, exit = ONCE_EXIT_OK;
    while (waitpid(nginx.pid, &status, 0) < 0 && errno == EINTR)
        continue;
    bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    fwrite(verdict.lines.ptr, 1, verdict.lines.len, stderr); /* a warning may be among them */
    if (*ended)
        once_cli_fail(&serve->cli, 0, "stopped before anything was started");
    else if (!good && verdict.meaning != NULL)
        exit =
            once_cli_fail(&serve->cli, ONCE_EXIT_UNAVAILABLE, "the module %s %s", serve->paths.module, verdict.meaning);
    else if (!good)
        exit = once_cli_fail(&serve->cli, ONCE_EXIT_UNAVAILABLE, "nginx does not accept the configuration%s",
                             verdict.lines.len > 0 ? ", see above" : "");
    once_buf_release(&verdict.lines);
    return exit;
}

static int try_port(const struct serve *serve, const char *option, const struct once_serve_listen *listen)
{
    int error = once_serve_listen_try(listen);
    if (error == 0)
        return ONCE_EXIT_OK;
    const char *hint = "";
    if (error == EADDRINUSE)
        hint = ": another program listens there; end it, or choose another port";
    else if (error == EACCES && listen->port < 1024)
        hint = ": ports below 1024 need root";
    else if (error == EADDRNOTAVAIL)
        hint = ": no such address on this machine";
    return once_cli_fail(&serve->cli, ONCE_EXIT_UNAVAILABLE, "%s: cannot listen on %s: %s%s", option, listen->text,
                         strerror(error), hint);
}

static int check_start(struct serve *serve)
{
    struct once_error err;
    if (once_serve_paths_find(&serve->paths, &serve->settings, &err) != ONCE_OK)
        return once_cli_fail(&serve->cli, ONCE_EXIT_UNAVAILABLE, "%s", err.text);
    if (serve->upstream.tls && access(CA_FILE, R_OK) != 0)
        return once_cli_fail(&serve->cli, ONCE_EXIT_UNAVAILABLE,
                             "cannot read %s, the trusted certificates; install ca-certificates", CA_FILE);
    bool http = !serve->http_off && !once_serve_paths_has_daemon(&serve->paths);
    if (http && strcmp(serve->listen.near, serve->http.near) == 0)
        return once_cli_usage(&serve->cli, "--listen and --http cannot both be %s", serve->http.text);
    int exit = try_port(serve, "--listen", &serve->listen);
    if (exit == ONCE_EXIT_OK && http)
        exit = try_port(serve, "--http", &serve->http);
    return exit;
}

/* ---------------------------------------------------------------- messages */

/* Describes which clients share keys, and which of them can get a stored answer. */
static void add_scope(const struct once_serve_policy *policy, struct once_buf *text)
{
    const struct once_serve_words *names = &policy->credentials;
    if (policy->tenant_header != NULL)
        once_buf_addf(text, "per tenant, from %s, which a proxy before the gateway must check or set",
                      policy->tenant_header);
    else
        once_buf_addf(text, "shared by all clients");
    if (once_serve_policy_is_guarded(policy))
        once_buf_addf(text, "; a retry needs the same credentials (Authorization, Cookie and the like)");
    for (size_t i = 0; i < names->count; i++)
        once_buf_addf(text, "%s%s",
                      i == 0 && !once_serve_policy_is_guarded(policy) ? "; a retry needs the same " : ", ",
                      names->at[i]);
    if (policy->tenant_header == NULL && policy->standard_credentials == SERVE_CREDENTIALS_NONE && names->count == 0)
        once_buf_addf(text, ": every client that knows a key gets its answer (--credentials none)");
}

static void print_places(const struct serve *serve)
{
    const struct once_serve_paths *paths = &serve->paths;
    struct once_buf text;
    once_buf_init(&text, 64 << 10);
    once_buf_addf(&text, "configuration %s\n", paths->config);
    once_buf_addf(&text, "once serve: store         ");
    once_text_store(&text, paths->store);
    once_buf_addf(&text, "\nonce serve: keys          ");
    add_scope(&serve->policy, &text);
    once_buf_addf(&text, "\nonce serve: daemon        socket %s", paths->socket);
    if (paths->root)
        once_buf_addf(&text, "\nonce serve: users         %s for the daemon, %s for nginx's workers",
                      paths->daemon.name, paths->workers.name);
    once_cli_fail(&serve->cli, 0, "%.*s", ONCE_SPAN_ARGS(once_buf_span(&text)));
    once_buf_release(&text);
}

static void print_ready(void *arg, const char *http)
{
    const struct serve *serve = arg;
    const char *scheme = serve->config.tls_cert != NULL ? "https" : "http";
    struct once_buf text;
    once_buf_init(&text, 64 << 10);
    once_buf_addf(&text, "ready: %s://%s -> %s\n", scheme, serve->listen.near, serve->upstream.url);
    once_buf_addf(&text, "once serve: try this twice: curl -i -X POST -H 'Idempotency-Key: \"try-1\"' ");
    if (serve->policy.tenant_header != NULL)
        once_buf_addf(&text, "-H '%s: me' ", serve->policy.tenant_header);
    once_buf_addf(&text, "%s://%s/\n", scheme, serve->listen.near);
    once_buf_addf(&text, "once serve: see the keys:   once keys list --store ");
    char url[PATH_MAX + 8];
    snprintf(url, sizeof url, "once:%s", serve->paths.socket);
    once_text_quote(&text, once_span_str(url));
    if (strcmp(http, "off") != 0)
        once_buf_addf(&text, "\nonce serve: the JSON API:   http://%s", http);
    once_buf_addf(&text, "\nonce serve: stop it:        Ctrl-C, or kill %d", (int)getpid());
    once_cli_fail(&serve->cli, 0, "%.*s", ONCE_SPAN_ARGS(once_buf_span(&text)));
    once_buf_release(&text);
    once_os_notify("READY=1");
}

/* ---------------------------------------------------------------- running */

/* NAME VALUE; no VALUE: neither. */
static void add_option(struct once_serve_child *daemon, const char *name, const char *value)
{
    if (value == NULL)
        return;
    once_serve_child_add(daemon, name);
    once_serve_child_add(daemon, value);
}

static void add_completer(struct once_serve_child *daemon, struct serve *serve)
{
    if (serve->config.complete) {
        snprintf(serve->complete_option, sizeof serve->complete_option, "service=%s", serve->upstream.url);
        add_option(daemon, "--complete", serve->complete_option);
    }
    if (serve->identity != NULL) {
        snprintf(serve->identity_option, sizeof serve->identity_option, "service=%s", serve->identity);
        add_option(daemon, "--complete-identity", serve->identity_option);
    }
    add_option(daemon, "--escalate-webhook", serve->webhook);
}

/* All but its outbox, which add_daemon() passes in the environment. */
static void add_console(struct once_serve_child *daemon, const struct console_options *console)
{
    add_option(daemon, "--console", console->listen);
    add_option(daemon, "--console-token-file", console->token_file);
    add_option(daemon, "--console-traces", console->traces);
    add_option(daemon, "--console-origin", console->origin);
}

static void add_daemon(struct once_serve_child *daemon, struct serve *serve)
{
    const struct once_serve_paths *paths = &serve->paths;
    /* The running program itself, even if its file was replaced meanwhile. */
    once_serve_child_init(daemon, "daemon", "/proc/self/exe");
    once_serve_child_add(daemon, "once");
    once_serve_child_add(daemon, "daemon");
    add_option(daemon, "--socket", paths->socket);
    if (serve->http_given)
        add_option(daemon, "--http", serve->http_off ? "off" : serve->http.text);
    add_console(daemon, &serve->console);
    if (paths->root) {
        add_option(daemon, "--allow", paths->workers.name);
        daemon->user = &paths->daemon;
    }
    add_completer(daemon, serve);
    for (size_t i = 0; i < serve->relay_word_count; i++)
        once_serve_child_add(daemon, serve->relay_words[i]);
    /* URLs may contain passwords, and every user of the machine can see arguments. */
    daemon->env[0] = (struct once_serve_env){ "ONCE_STORE", paths->store };
    if (serve->relay_store != NULL)
        daemon->env[1] = (struct once_serve_env){ "ONCE_RELAY_STORE", serve->relay_store };
    if (serve->consume_store != NULL)
        daemon->env[3] = (struct once_serve_env){ "ONCE_CONSUME_STORE", serve->consume_store };
    if (serve->console.outbox != NULL)
        daemon->env[2] = (struct once_serve_env){ "ONCE_CONSOLE_OUTBOX", serve->console.outbox };
}

static int run(struct serve *serve, once_span config)
{
    struct once_error err;
    struct once_serve_supervisor supervisor = {
        .cli = &serve->cli,
        .pid_file = serve->paths.pid_file,
        .has_daemon = !once_serve_paths_has_daemon(&serve->paths),
        .ready = print_ready,
        .arg = serve,
    };
    int error = once_serve_watch(&supervisor);
    if (error != 0)
        return once_cli_fail(&serve->cli, ONCE_EXIT_OS, "cannot watch for signals: %s", strerror(error));
    bool ended = false;
    if (once_serve_paths_make(&serve->paths, &err) != ONCE_OK ||
        once_serve_paths_write_config(&serve->paths, config, &err) != ONCE_OK)
        return once_cli_fail(&serve->cli, ONCE_EXIT_UNAVAILABLE, "%s", err.text);
    int exit = test_config(serve, &supervisor, &ended);
    if (exit != ONCE_EXIT_OK || ended)
        return exit;
    print_places(serve);
    add_daemon(&supervisor.daemon, serve);
    add_nginx(&supervisor.nginx, &serve->paths);
    return once_serve_supervise(&supervisor);
}

static void release_words(struct serve *serve)
{
    for (size_t i = 0; i < serve->relay_word_count; i++)
        free(serve->relay_words[i]);
    serve->relay_word_count = 0;
}

/* Starts all after the command line was parsed. */
static int start(struct serve *serve)
{
    struct once_error err;
    struct once_buf config;
    serve->settings.store = serve->cli.store;
    serve->settings.listen = &serve->listen;
    if (once_serve_paths_init(&serve->paths, &serve->settings, &err) != ONCE_OK)
        return once_cli_fail(&serve->cli, err.result == ONCE_INVALID ? ONCE_EXIT_USAGE : ONCE_EXIT_UNAVAILABLE, "%s",
                             err.text);
    once_buf_init(&config, CONFIG_LEN_MAX);
    int exit = write_config(serve, &config);
    if (exit == ONCE_EXIT_OK && serve->print_config) {
        fwrite(config.ptr, 1, config.len, stdout);
        exit = once_cli_finish(&serve->cli, ONCE_EXIT_OK);
    } else if (exit == ONCE_EXIT_OK) {
        exit = check_start(serve);
        if (exit == ONCE_EXIT_OK)
            exit = run(serve, once_buf_span(&config));
        once_serve_paths_clear(&serve->paths);
    }
    once_buf_release(&config);
    return exit;
}

int once_cli_serve(int argc, char **argv)
{
    struct serve serve = {
        .cli = { .verb = "serve", .help = help },
        .config = { .lease_ms = ONCE_SERVE_CONFIG_DEFAULT,
                    .retention_ms = ONCE_SERVE_CONFIG_DEFAULT,
                    .body_retention_ms = ONCE_SERVE_CONFIG_DEFAULT,
                    .wait_ms = ONCE_SERVE_CONFIG_DEFAULT,
                    .timeout_ms = ONCE_SERVE_CONFIG_DEFAULT },
    };
    struct once_error err;
    if (once_serve_listen_parse("127.0.0.1:8080", &serve.listen, &err) != ONCE_OK ||
        once_serve_listen_parse("127.0.0.1:7411", &serve.http, &err) != ONCE_OK)
        return once_cli_error(&serve.cli, &err, "set the defaults");
    relay_setup_init(&serve.relay, &serve.cli, true);
    consume_setup_init(&serve.consume, &serve.cli, true);
    quota_rules_init(&serve.quotas);
    otlp_setup_init(&serve.otlp, &serve.cli, "once");
    int exit = parse(&serve, argc, argv) ? start(&serve) : serve.cli.exit;
    relay_setup_release(&serve.relay);
    quota_rules_release(&serve.quotas);
    release_words(&serve);
    return exit;
}
