/*
 * daemon.c - the options of `once daemon`, which daemon/daemon.h runs.
 */
#include "daemon/daemon.h"
#include "cli/console_setup.h"
#include "cli/consume_setup.h"
#include "cli/relay_setup.h"
#include "cli/verbs.h"
#include "core/duration.h"
#include "core/quota_rules.h"
#include "core/span.h"
#include "daemon/api/api.h"
#include "daemon/api/listen.h"
#include "messages/dead_letters/dead_letters.h"
#include "os/signals.h"
#include "program/cli.h"
#include "program/otlp_setup.h"
#include "store/url.h"

#include <pwd.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* clang-format off */
static const char help[] =
    "usage: once daemon [--store URL] [--socket PATH] [--allow USER]... [--http ADDR]\n"
    "                   [--complete NAME=URL]... [--complete-identity NAME=FILE]...\n"
    "                   [--escalate-webhook URL] [--relay 'PATTERN=SINK']...\n"
    "                   [--consume SOURCE --consumer NAME --consume-to URL]\n"
    "                   [--console ADDR|PATH] [--log-decisions json|logfmt] [--otlp URL]\n"
    "                   [--quota KIND=N,...] [--quota-tenant TENANT:KIND=N,...]...\n"
    "\n"
    "Owns the store and serves it over a unix socket: to the gateway, to libonce and to the\n"
    "verbs of `once` (--store once:PATH); and to services in any language as JSON over HTTP on\n"
    "loopback, with /healthz and /metrics. What all of them ask for is committed together.\n"
    "Ends with SIGTERM or SIGINT, after what is under way was answered.\n"
    "\n"
    "  --socket PATH      where to listen; default once.sock in $XDG_RUNTIME_DIR, as root\n"
    "                     /run/once/once.sock\n"
    "  --allow USER       this user may connect, too (name or number); else only the daemon's\n"
    "                     own and root; may be given up to 16 times\n"
    "  --http ADDR        where the JSON API listens, or 'off'; default 127.0.0.1:7411. Port 0:\n"
    "                     any that is free\n"
    "  --complete NAME=URL\n"
    "                     finish abandoned requests of routes with `once_complete NAME`: take\n"
    "                     them over and send what they stored to URL again; up to 16 times\n"
    "  --complete-identity NAME=FILE\n"
    "                     header lines, e.g. Authorization, that go with those whose route says\n"
    "                     `once_complete NAME identity`: credentials of clients are never\n"
    "                     stored. Not readable by others\n"
    "  --complete-timeout TIME\n"
    "                     for an answer to one of these; default 60s\n"
    "  --complete-lease TIME\n"
    "                     how soon another daemon goes on after one that died; default 30s\n"
    "  --complete-attempts N\n"
    "                     of one record, all in all; then it is unknown; default 10\n"
    "  --complete-crashes N\n"
    "                     of them that nobody ended; default 3\n"
    "  --escalate-webhook URL\n"
    "                     is told (POST, JSON) when a record becomes unknown\n"
    "  --escalate-secret FILE\n"
    "                     signs that, as Standard Webhooks has it: whsec_... or bytes\n"
    CONSOLE_HELP
    CONSOLE_HELP_ANY
    ONCE_CLI_HELP_QUOTA
    "  --log-decisions F  a line for every answer to a claim, finish and the like, to standard\n"
    "                     error: 'json', 'logfmt', or 'off', the default\n"
    "  --log-file PATH    write these lines there instead; SIGUSR1 opens it anew\n"
    OTLP_HELP
    OTLP_HELP_RATIO
    "  --relay P=SINK     relay an outbox, as 'once relay --route' does, in a thread of its own;\n"
    "                     up to 64 times. Numbers are in /metrics\n"
    "  --relay-store URL  the database with the outbox; default $ONCE_RELAY_STORE, else the\n"
    "                     store, if that is PostgreSQL\n"
    RELAY_HELP("relay-")
    CONSUME_HELP_PREFIXED
    "  --consume-store URL\n"
    "                     the database with its records and dead letters; default\n"
    "                     $ONCE_CONSUME_STORE, else the store, if that is PostgreSQL\n"
    ONCE_CLI_HELP_STORE
    ONCE_CLI_HELP_SEAL
    ONCE_CLI_HELP_QUIET
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0 ended by a signal; 64 usage; 69 store unavailable, or socket or port are taken\n"
    "\n"
    "example: once daemon --store sqlite:/var/lib/once/once.db --allow www-data\n";
/* clang-format on */

enum {
    OPTION_SOCKET = ONCE_CLI_OWN,
    OPTION_ALLOW,
    OPTION_HTTP,
    OPTION_COMPLETE,
    OPTION_IDENTITY,
    OPTION_TIMEOUT,
    OPTION_LEASE,
    OPTION_ATTEMPTS,
    OPTION_CRASHES,
    OPTION_WEBHOOK,
    OPTION_SECRET,
    OPTION_QUOTA,
    OPTION_QUOTA_TENANT,
    OPTION_RELAY_STORE,
    OPTION_CONSUME_STORE,
    OPTION_LOG_DECISIONS,
    OPTION_LOG_FILE,
    OPTION_CONSOLE,                                      /* the first of console_setup.h's */
    OPTION_OTLP = OPTION_CONSOLE + CONSOLE_OPTION_COUNT, /* the first of otlp_setup.h's */
    OPTION_RELAY = OPTION_OTLP + OTLP_OPTION_COUNT,      /* the first of relay_setup.h's */
    OPTION_CONSUME = OPTION_RELAY + RELAY_OPTION_COUNT,  /* the first of consume_setup.h's */
};

struct daemon {
    struct once_cli cli;
    struct daemon_options options;
    char socket[200];
    struct quota_rules quotas;
    struct relay_setup relay;
    struct relay_counters relay_counters;
    const char *relay_store;
    struct consume_setup consume;
    struct consume_counters consume_counters;
    const char *consume_store;
    char consume_url[ONCE_URL_LEN_MAX + 1];
    struct otlp_setup otlp;
};

static bool add_user(struct daemon *d, const char *name)
{
    struct server_options *o = &d->options.server;
    if (o->user_count == SERVER_USERS_MAX) {
        once_cli_usage(&d->cli, "--allow can be given %d times", SERVER_USERS_MAX);
        return false;
    }
    char *end = NULL;
    unsigned long number = strtoul(name, &end, 10);
    const struct passwd *user = getpwnam(name);
    if (user == NULL && (*name == '\0' || *end != '\0' || number >= (uid_t)-1)) {
        once_cli_usage(&d->cli, "there is no user '%.60s'", name);
        return false;
    }
    o->users[o->user_count++] = user != NULL ? user->pw_uid : (uid_t)number;
    return true;
}

/* "NAME=REST": the upstream of that name, a new one where there is none. NULL: said why not. */
static struct completer_upstream *upstream_of(struct daemon *d, const char *option, const char *text, const char **rest)
{
    struct completer_options *o = &d->options.completer;
    const char *equals = strchr(text, '=');
    size_t len = equals != NULL ? (size_t)(equals - text) : 0;
    if (len == 0 || len > ONCE_UPSTREAM_NAME_LEN_MAX || equals[1] == '\0' || strcspn(text, " \t/:") < len) {
        once_cli_usage(&d->cli, "--%s takes NAME=VALUE, not '%.60s'", option, text);
        return NULL;
    }
    *rest = equals + 1;
    for (size_t i = 0; i < o->count; i++)
        if (strlen(o->upstreams[i].name) == len && memcmp(o->upstreams[i].name, text, len) == 0)
            return &o->upstreams[i];
    if (o->count == COMPLETER_UPSTREAMS_MAX) {
        once_cli_usage(&d->cli, "--complete can be given %d times", COMPLETER_UPSTREAMS_MAX);
        return NULL;
    }
    struct completer_upstream *u = &o->upstreams[o->count++];
    memcpy(u->name, text, len);
    return u;
}

static bool set_upstream(struct daemon *d, int option, const char *text)
{
    const char *rest = NULL;
    bool identity = option == OPTION_IDENTITY;
    struct completer_upstream *u = upstream_of(d, identity ? "complete-identity" : "complete", text, &rest);
    if (u == NULL)
        return false;
    const char **field = identity ? &u->identity : &u->url;
    if (*field != NULL) {
        once_cli_usage(&d->cli, "'%s' is given twice", u->name);
        return false;
    }
    *field = rest;
    return true;
}

static bool set_number(struct daemon *d, const char *option, const char *text, uint32_t *out)
{
    char *end = NULL;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || value < 1 || value > 1000) {
        once_cli_usage(&d->cli, "--%s takes a number from 1 to 1000, not '%.60s'", option, text);
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

static bool set_time(struct daemon *d, const char *option, const char *text, int64_t *out)
{
    struct once_error err;
    int64_t ms = 0;
    if (once_duration_parse(once_span_str(text), false, &ms, &err) != ONCE_OK || ms < 1000 || ms > 3600 * 1000) {
        once_cli_usage(&d->cli, "--%s takes 1s to 1h, not '%.60s'", option, text);
        return false;
    }
    *out = ms;
    return true;
}

static bool check_completer(struct daemon *d)
{
    for (size_t i = 0; i < d->options.completer.count; i++)
        if (d->options.completer.upstreams[i].url == NULL) {
            once_cli_usage(&d->cli, "'%s' has an identity, but no --complete", d->options.completer.upstreams[i].name);
            return false;
        }
    if (d->options.escalate.secret_file != NULL && d->options.escalate.webhook == NULL) {
        once_cli_usage(&d->cli, "--escalate-secret is for --escalate-webhook");
        return false;
    }
    return true;
}

static bool check_relay(struct daemon *d)
{
    if (d->relay_store != NULL && !d->relay.given) {
        once_cli_usage(&d->cli, "--relay-store is for --relay");
        return false;
    }
    return !d->relay.given || relay_setup_check(&d->relay);
}

/* Its outbox is in a database that services enqueue in: nobody can in an SQLite store, which is the daemon's alone. */
static int prepare_relay(struct daemon *d)
{
    struct once_error err;
    char url[ONCE_URL_LEN_MAX + 1];
    const char *named = getenv("ONCE_RELAY_STORE");
    if (d->relay_store == NULL && named != NULL && named[0] != '\0')
        d->relay_store = named;
    if (d->relay_store == NULL && strncmp(d->cli.url, "postgres", 8) != 0)
        return once_cli_usage(&d->cli, "--relay: which outbox? --relay-store URL names the database that services "
                                       "enqueue in; the daemon's own store is none");
    if (d->relay_store == NULL)
        d->relay_store = d->cli.url;
    if (once_store_url(d->relay_store, false, url, &err) != ONCE_OK ||
        outbox_create(url, &d->relay.relay.outbox, &err) != ONCE_OK)
        return once_cli_usage(&d->cli, "--relay-store: %s", err.text);
    if (relay_setup_open_sinks(&d->relay, &err) != ONCE_OK)
        return once_cli_error(&d->cli, &err, "relay");
    d->relay.relay.counters = &d->relay_counters;
    d->options.relay = &d->relay.relay;
    return ONCE_EXIT_OK;
}

static bool check_consume(struct daemon *d)
{
    if (d->consume_store != NULL && !d->consume.given) {
        once_cli_usage(&d->cli, "--consume-store is for --consume");
        return false;
    }
    return !d->consume.given || consume_setup_check(&d->consume);
}

/* Its records are in a database that others may use besides the daemon: an SQLite store is the daemon's alone. */
static int prepare_consume(struct daemon *d, const struct once_signals *signals)
{
    struct once_error err;
    struct consume_options *o = &d->consume.options;
    const char *named = getenv("ONCE_CONSUME_STORE");
    if (d->consume_store == NULL && named != NULL && named[0] != '\0')
        d->consume_store = named;
    if (d->consume_store == NULL && strncmp(d->cli.url, "postgres", 8) != 0)
        return once_cli_usage(&d->cli,
                              "--consume: which store? --consume-store URL names the database for its records; "
                              "the daemon's own SQLite or Redis store cannot have them");
    if (d->consume_store == NULL)
        d->consume_store = d->cli.url;
    if (once_store_url(d->consume_store, true, d->consume_url, &err) != ONCE_OK ||
        (o->dead_letter_topic == NULL && dead_letters_check(d->consume_url, &err) != ONCE_OK))
        return once_cli_usage(&d->cli, "--consume-store: %s", err.text);
    o->store_url = d->consume_url;
    o->counters = &d->consume_counters;
    o->consumer.target.mask = signals->mask;
    d->options.consume = o;
    return ONCE_EXIT_OK;
}

static bool set_log_format(struct daemon *d, const char *text)
{
    static const char *const names[] = { "off", "json", "logfmt" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0) {
            d->options.log_format = (enum decisions_format)i;
            return true;
        }
    once_cli_usage(&d->cli, "--log-decisions takes json, logfmt or off, not '%.60s'", text);
    return false;
}

/* The default's directory is made where it can be. */
static bool choose_socket(struct daemon *d, const char *given)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int len;
    if (given != NULL) {
        len = snprintf(d->socket, sizeof d->socket, "%s", given);
    } else if (geteuid() == 0) {
        mkdir("/run/once", 0755);
        len = snprintf(d->socket, sizeof d->socket, "/run/once/once.sock");
    } else if (runtime != NULL && runtime[0] == '/') {
        len = snprintf(d->socket, sizeof d->socket, "%s/once.sock", runtime);
    } else {
        once_cli_usage(&d->cli, "where to listen? XDG_RUNTIME_DIR is not set: give --socket");
        return false;
    }
    if (len < 1 || (size_t)len >= sizeof d->socket) {
        once_cli_usage(&d->cli, "--socket takes a path");
        return false;
    }
    struct once_error err;
    if (server_path_check(d->socket, &err) != ONCE_OK) {
        once_cli_usage(&d->cli, "--socket: %s", err.text);
        return false;
    }
    d->options.server.socket_path = d->socket;
    return true;
}

/* What was named, else what is relayed, else the store itself. */
static void choose_console_outbox(struct daemon *d)
{
    bool postgres = strncmp(d->cli.url, "postgres", 8) == 0;
    const char *named = getenv("ONCE_CONSOLE_OUTBOX");
    if (d->options.console.outbox == NULL && named != NULL && named[0] != '\0')
        d->options.console.outbox = named;
    if (d->options.console.outbox == NULL)
        d->options.console.outbox = d->relay.given ? d->relay_store : postgres ? d->cli.url : NULL;
}

/* As status and console show it. */
static const char *kind_of(const char *url)
{
    return strncmp(url, "postgres", 8) == 0  ? "PostgreSQL"
           : strncmp(url, "sqlite:", 7) == 0 ? "SQLite"
           : strncmp(url, "redis", 5) == 0   ? "Redis (best effort)"
                                             : "other";
}

static int run(struct daemon *d)
{
    struct daemon_options *o = &d->options;
    struct once_signals signals;
    struct once_error err;
    if (once_store_url(d->cli.store, true, d->cli.url, &err) != ONCE_OK)
        return once_cli_error(&d->cli, &err, "find the store");
    int error = once_signals_init(&signals);
    if (error != 0)
        return once_cli_fail(&d->cli, ONCE_EXIT_OS, "cannot watch for signals: %s", strerror(error));
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); /* nobody reads these counters, and each allocation pays for them */
    o->server.signals = signals.fd;
    o->store_url = d->cli.url;
    o->store_kind = kind_of(d->cli.url);
    o->quotas = &d->quotas;
    o->otlp = d->otlp.options;
    o->trace_ratio = d->otlp.tracer.ratio;
    o->quiet = d->cli.quiet;
    once_cli_seal(&d->cli, &o->store);
    int exit = d->relay.given ? prepare_relay(d) : ONCE_EXIT_OK;
    if (exit == ONCE_EXIT_OK && d->consume.given)
        exit = prepare_consume(d, &signals);
    if (exit == ONCE_EXIT_OK) {
        choose_console_outbox(d);
        if (daemon_run(o, &err) != ONCE_OK)
            exit = once_cli_fail(&d->cli, (int)once_exit_of(err.result), "%s", err.text);
    }
    once_signals_release(&signals);
    return exit;
}

/* -1: go on; else the exit code. */
static int parse(struct daemon *d, int argc, char **argv)
{
    static const struct option options[] = {
        ONCE_CLI_OPTION_HELP,
        ONCE_CLI_OPTION_STORE,
        ONCE_CLI_OPTION_SEAL,
        ONCE_CLI_OPTION_QUIET,
        { "socket", required_argument, NULL, OPTION_SOCKET },
        { "allow", required_argument, NULL, OPTION_ALLOW },
        { "http", required_argument, NULL, OPTION_HTTP },
        { "complete", required_argument, NULL, OPTION_COMPLETE },
        { "complete-identity", required_argument, NULL, OPTION_IDENTITY },
        { "complete-timeout", required_argument, NULL, OPTION_TIMEOUT },
        { "complete-lease", required_argument, NULL, OPTION_LEASE },
        { "complete-attempts", required_argument, NULL, OPTION_ATTEMPTS },
        { "complete-crashes", required_argument, NULL, OPTION_CRASHES },
        { "escalate-webhook", required_argument, NULL, OPTION_WEBHOOK },
        { "escalate-secret", required_argument, NULL, OPTION_SECRET },
        CONSOLE_OPTIONS(OPTION_CONSOLE),
        CONSOLE_OPTIONS_ANY(OPTION_CONSOLE),
        { "quota", required_argument, NULL, OPTION_QUOTA },
        { "quota-tenant", required_argument, NULL, OPTION_QUOTA_TENANT },
        { "relay-store", required_argument, NULL, OPTION_RELAY_STORE },
        { "consume-store", required_argument, NULL, OPTION_CONSUME_STORE },
        { "log-decisions", required_argument, NULL, OPTION_LOG_DECISIONS },
        { "log-file", required_argument, NULL, OPTION_LOG_FILE },
        OTLP_OPTIONS(OPTION_OTLP),
        OTLP_OPTIONS_RATIO(OPTION_OTLP),
        RELAY_OPTIONS("relay", "relay-", OPTION_RELAY),
        CONSUME_OPTIONS_PREFIXED(OPTION_CONSUME),
        { 0 },
    };
    const char *socket = NULL;
    for (int c; (c = once_cli_next(&d->cli, argc, argv, "", options)) != -1;) {
        bool good = true;
        if (c == OPTION_SOCKET)
            socket = optarg;
        else if (c == OPTION_HTTP)
            d->options.http = strcmp(optarg, "off") != 0 ? optarg : NULL;
        else if (c == OPTION_ALLOW)
            good = add_user(d, optarg);
        else if (c == OPTION_COMPLETE || c == OPTION_IDENTITY)
            good = set_upstream(d, c, optarg);
        else if (c == OPTION_TIMEOUT)
            good = set_time(d, "complete-timeout", optarg, &d->options.completer.timeout_ms);
        else if (c == OPTION_LEASE)
            good = set_time(d, "complete-lease", optarg, &d->options.completer.lease_ms);
        else if (c == OPTION_ATTEMPTS)
            good = set_number(d, "complete-attempts", optarg, &d->options.completer.attempts_max);
        else if (c == OPTION_CRASHES)
            good = set_number(d, "complete-crashes", optarg, &d->options.completer.crashes_max);
        else if (c == OPTION_WEBHOOK)
            d->options.escalate.webhook = optarg;
        else if (c == OPTION_SECRET)
            d->options.escalate.secret_file = optarg;
        else if (c == OPTION_QUOTA || c == OPTION_QUOTA_TENANT)
            good = once_cli_quota(&d->cli, &d->quotas, c == OPTION_QUOTA_TENANT);
        else if (c == OPTION_RELAY_STORE)
            d->relay_store = optarg;
        else if (c == OPTION_CONSUME_STORE)
            d->consume_store = optarg;
        else if (c == OPTION_LOG_DECISIONS)
            good = set_log_format(d, optarg);
        else if (c == OPTION_LOG_FILE)
            d->options.log_file = optarg;
        else if (c >= OPTION_CONSOLE && c < OPTION_OTLP)
            good = console_setup_option(&d->cli, &d->options.console, (enum console_option)(c - OPTION_CONSOLE));
        else if (c >= OPTION_OTLP && c < OPTION_RELAY)
            good = otlp_setup_option(&d->otlp, (enum otlp_option)(c - OPTION_OTLP));
        else if (c >= OPTION_RELAY && c < OPTION_CONSUME)
            good = relay_setup_option(&d->relay, (enum relay_option)(c - OPTION_RELAY));
        else if (c >= OPTION_CONSUME)
            good = consume_setup_option(&d->consume, (enum consume_option)(c - OPTION_CONSUME));
        else
            return d->cli.exit;
        if (!good)
            return ONCE_EXIT_USAGE;
    }
    if (optind < argc)
        return once_cli_usage(&d->cli, "'%s' is too much", argv[optind]);
    struct once_error err;
    if (d->options.http != NULL && api_listen_check(d->options.http, false, &err) != ONCE_OK)
        return once_cli_usage(&d->cli, "--http: %s", err.text);
    if (!console_setup_check(&d->cli, &d->options.console))
        return ONCE_EXIT_USAGE;
    if (d->options.log_file != NULL && d->options.log_format == DECISIONS_OFF)
        return once_cli_usage(&d->cli, "--log-file is for --log-decisions json or logfmt");
    if (!otlp_setup_check(&d->otlp) || !check_completer(d) || !check_relay(d) || !check_consume(d) ||
        !choose_socket(d, socket))
        return ONCE_EXIT_USAGE;
    return -1;
}

int once_cli_daemon(int argc, char **argv)
{
    struct daemon d = { .cli = { .verb = "daemon", .help = help } };
    d.options = (struct daemon_options){
        .http = ONCE_API_LISTEN_DEFAULT,
        .completer = { .attempts_max = 10, .crashes_max = 3, .timeout_ms = 60000, .lease_ms = 30000 },
    };
    relay_setup_init(&d.relay, &d.cli, true);
    consume_setup_init(&d.consume, &d.cli, true);
    quota_rules_init(&d.quotas);
    otlp_setup_init(&d.otlp, &d.cli, "once");
    int exit = parse(&d, argc, argv);
    if (exit < 0)
        exit = once_cli_finish(&d.cli, run(&d));
    relay_setup_release(&d.relay);
    quota_rules_release(&d.quotas);
    outbox_close(d.relay.relay.outbox);
    return exit;
}
