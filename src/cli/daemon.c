/*
 * daemon.c - `once daemon`: owns a store and serves it to nginx, to `once` and to libonce
 * over a unix socket, and to everybody else over HTTP on loopback.
 */
#include "cli/console_setup.h"
#include "cli/consume_setup.h"
#include "cli/relay_setup.h"
#include "cli/verbs.h"
#include "core/duration.h"
#include "core/quota_rules.h"
#include "core/span.h"
#include "daemon/api/api.h"
#include "daemon/api/listen.h"
#include "daemon/completer/completer.h"
#include "daemon/consumer_thread.h"
#include "daemon/observers/decisions.h"
#include "daemon/observers/health.h"
#include "daemon/observers/quota_count.h"
#include "daemon/observers/status.h"
#include "daemon/observers/unknown_count.h"
#include "daemon/relay_thread.h"
#include "daemon/socket/server.h"
#include "engine/handle.h"
#include "http/http_call.h"
#include "messages/dead_letters/dead_letters.h"
#include "os/notify.h"
#include "os/signals.h"
#include "os/stderr_log.h"
#include "program/cli.h"
#include "program/otlp_setup.h"
#include "store/url.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/resource.h>
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

/* Calls that wait for the engine: of many connections. */
enum { QUEUE_LEN = 32768, WAITER_LEN = 32768, DESCRIPTORS_WANTED = 4096 };

struct daemon {
    struct once_cli cli;
    struct server_options options;
    struct once_signals signals;
    char socket[200];
    const char *http; /* NULL: off */
    struct completer_options complete;
    char lacking[COMPLETER_UPSTREAMS_MAX][ONCE_UPSTREAM_NAME_LEN_MAX + 1]; /* asked for, and not in there */
    size_t lacking_count;
    struct escalate_options escalate;
    struct escalations *escalations;
    struct console_options console; /* listen is NULL: off */
    struct quota_rules quotas;
    struct relay_setup relay;
    struct relay_counters relay_counters;
    const char *relay_store;
    struct consume_setup consume;
    struct consume_counters consume_counters;
    const char *consume_store;
    char consume_url[ONCE_URL_LEN_MAX + 1];
    struct once_options store_options; /* for a second handle, of the consumer */
    struct status status;
    enum decisions_format log_format;
    const char *log_file; /* NULL: standard error */
    struct decisions *log;
    struct unknown_count *unknown_count;
    struct otlp_setup otlp;
};

static bool add_user(struct daemon *d, const char *name)
{
    struct server_options *o = &d->options;
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
    struct completer_options *o = &d->complete;
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
    for (size_t i = 0; i < d->complete.count; i++)
        if (d->complete.upstreams[i].url == NULL) {
            once_cli_usage(&d->cli, "'%s' has an identity, but no --complete", d->complete.upstreams[i].name);
            return false;
        }
    if (d->escalate.secret_file != NULL && d->escalate.webhook == NULL) {
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
static int prepare_consume(struct daemon *d)
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
    o->consumer.target.mask = d->signals.mask;
    o->consumer.tracer = &d->otlp.tracer;
    once_cli_seal(&d->cli, &d->store_options);
    return ONCE_EXIT_OK;
}

/* Before there is a store, or a socket that somebody could connect to. */
static int prepare_escalation(struct daemon *d)
{
    struct once_error err;
    if (http_call_init(&err) != ONCE_OK || escalate_check(&d->escalate, &err) != ONCE_OK)
        return once_cli_error(&d->cli, &err, "escalate");
    return ONCE_EXIT_OK;
}

static bool set_log_format(struct daemon *d, const char *text)
{
    static const char *const names[] = { "off", "json", "logfmt" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0) {
            d->log_format = (enum decisions_format)i;
            return true;
        }
    once_cli_usage(&d->cli, "--log-decisions takes json, logfmt or off, not '%.60s'", text);
    return false;
}

/* For the handler, which has no argument. */
static struct decisions *reopened;

static void on_usr1(int signal)
{
    (void)signal;
    decisions_reopen(reopened);
}

/* What tells of the work: logs and spans. */
static int start_logging_and_tracing(struct daemon *d)
{
    struct once_error err;
    int exit = otlp_setup_start(&d->otlp);
    sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL); /* where there is nothing to reopen */
    if (exit != ONCE_EXIT_OK || d->log_format == DECISIONS_OFF)
        return exit;
    if (decisions_start(d->log_format, d->log_file, &d->log, &err) != ONCE_OK)
        return once_cli_error(&d->cli, &err, "log decisions");
    if (d->log_file != NULL) {
        reopened = d->log;
        struct sigaction action = { .sa_handler = on_usr1, .sa_flags = SA_RESTART };
        sigaction(SIGUSR1, &action, NULL);
    }
    return ONCE_EXIT_OK;
}

static void stop_logging_and_tracing(struct daemon *d)
{
    if (reopened != NULL)
        sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL);
    decisions_stop(d->log);
    otlp_setup_stop(&d->otlp);
}

static void put_more(void *arg, FILE *file)
{
    struct daemon *d = arg;
    unknown_count_put(d->unknown_count, file);
    fprintf(file,
            "# HELP once_log_lines_dropped_total Lines for standard error that nobody took.\n"
            "# TYPE once_log_lines_dropped_total counter\nonce_log_lines_dropped_total %" PRIu64 "\n",
            once_os_log_dropped());
    decisions_put(d->log, file);
    exporter_put(d->otlp.tracer.exporter, file);
    if (d->relay.given)
        relay_counters_put(&d->relay_counters, d->relay.patterns, d->relay.relay.route_count, file);
    if (d->consume.given)
        consume_counters_put(&d->consume_counters, file);
}

static void on_escalated(void *arg, struct once_grant grant, once_time since, const char *why)
{
    struct daemon *d = arg;
    if (since == 0)
        escalate_note(d->escalations, grant, why);
    else
        escalate_found(d->escalations, grant, since, why);
}

/* Such a record is in progress for its clients until somebody completes it: that must not be found out from them.
 * Said once for each name, as long as there is room to remember that. */
static void on_deferred(void *arg, once_span request)
{
    struct daemon *d = arg;
    once_span name = d->lacking_count < COMPLETER_UPSTREAMS_MAX ? completer_lacks(&d->complete, request) : ONCE_LIT("");
    for (size_t i = 0; i < d->lacking_count; i++)
        if (once_span_equal(name, once_span_str(d->lacking[i])))
            return;
    if (name.len == 0)
        return;
    snprintf(d->lacking[d->lacking_count++], sizeof *d->lacking, "%.*s", ONCE_SPAN_ARGS(name));
    fprintf(
        stderr,
        "once daemon: requests to '%.*s' are left to a completer if their holder is gone, and here is no --complete "
        "%.*s=URL: unless another daemon on this store has it, they stay in progress\n",
        ONCE_SPAN_ARGS(name), ONCE_SPAN_ARGS(name));
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
    d->options.socket_path = d->socket;
    return true;
}

/* What works besides the server itself. */
struct services {
    struct health *health;
    struct once_api *api;
    struct completer *completer;
    struct console *console;
    struct relay_thread *relay_thread;
    struct consumer_thread *consumer_thread;
    struct quota_count *quota_count;
    struct unknown_count *unknown_count;
};

static void stop_services(struct services *o)
{
    consumer_thread_end(o->consumer_thread);
    relay_thread_end(o->relay_thread); /* it needs its time: all of them at once */
    quota_count_stop(o->quota_count);
    console_stop(o->console);
    once_api_stop(o->api);
    unknown_count_stop(o->unknown_count); /* nobody reads it any more */
    health_stop(o->health);
    completer_stop(o->completer);
    relay_thread_stop(o->relay_thread);
    consumer_thread_stop(o->consumer_thread);
}

static void on_ending(void *arg)
{
    struct daemon *d = arg;
    health_end(d->status.health);
    escalate_end(d->escalations);
}

/* What `once status` is told of. */
static void fill_status(struct daemon *d, const struct once_api_options *of)
{
    d->status.store = d->console.store;
    d->status.expiry = of->expiry;
    d->status.escalations = of->escalations;
    d->status.completer = of->completer;
    d->status.relay = d->relay.given ? &d->relay_counters : NULL;
    d->status.consume = d->consume.given ? &d->consume_counters : NULL;
}

static int start_services(struct daemon *d, const struct server *server, struct services *o)
{
    struct once_error err;
    bool relays = d->relay.given;
    if (health_start(d->options.once, QUEUE_LEN, &o->health, &err) != ONCE_OK)
        return once_cli_error(&d->cli, &err, "serve");
    d->status.health = o->health;
    d->complete.once = d->options.once;
    d->complete.escalations = d->escalations;
    d->complete.log = d->log;
    d->complete.tracer = &d->otlp.tracer;
    if (d->complete.count > 0 && completer_start(&d->complete, &o->completer, &err) != ONCE_OK)
        return once_cli_error(&d->cli, &err, "complete");
    const struct completer_counters *completer = o->completer != NULL ? completer_counters(o->completer) : NULL;
    struct once_api_options options = { .once = d->options.once,
                                        .more = put_more,
                                        .more_arg = d,
                                        .listen = d->http,
                                        .log = d->log,
                                        .escalated = on_escalated,
                                        .escalated_arg = d,
                                        .escalations = escalate_counters(d->escalations),
                                        .completer = completer,
                                        .expiry = server_expiry(server),
                                        .health = d->status.health };
    fill_status(d, &options);
    if (d->http != NULL && unknown_count_start(d->options.once, &o->unknown_count, &err) != ONCE_OK)
        return once_cli_error(&d->cli, &err, "count what is unknown");
    d->unknown_count = o->unknown_count;
    if (d->http != NULL && once_api_start(&options, &o->api, &err) != ONCE_OK)
        return once_cli_error(&d->cli, &err, "serve HTTP");
    d->console.once = d->options.once;
    d->console.escalations = options.escalations;
    d->console.completer = completer;
    d->console.expiry = options.expiry;
    if (d->console.listen != NULL && console_start(&d->console, &o->console, &err) != ONCE_OK)
        return once_cli_error(&d->cli, &err, "serve the console");
    if (relays && relay_thread_start(&d->relay.relay, &o->relay_thread, &err) != ONCE_OK)
        return once_cli_error(&d->cli, &err, "relay");
    if (d->consume.given &&
        consumer_thread_start(&d->consume.options, &d->store_options, &o->consumer_thread, &err) != ONCE_OK)
        return once_cli_error(&d->cli, &err, "consume");
    return ONCE_EXIT_OK;
}

/* Before anybody is served. What they were counted before the start is counted again: nothing of it is stored. */
static int start_quotas(struct daemon *d, struct services *o)
{
    struct once_error err;
    bool counts = quota_rules_have(&d->quotas, QUOTA_RECORDS) || quota_rules_have(&d->quotas, QUOTA_BYTES);
    if (counts && quota_count_start(d->options.once, &o->quota_count, &err) != ONCE_OK)
        return once_cli_error(&d->cli, &err, "count what tenants have");
    return ONCE_EXIT_OK;
}

/* Between opening and closing the server: listens, completes, relays, serves. */
static int serve_all(struct daemon *d, struct server *server)
{
    struct services o = { 0 };
    int exit = start_quotas(d, &o);
    if (exit == ONCE_EXIT_OK)
        exit = start_services(d, server, &o);
    if (exit != ONCE_EXIT_OK) {
        stop_services(&o);
        return exit;
    }
    if (o.console != NULL)
        console_print_url(o.console);
    printf("once: ready: socket %s, %s%s%shttp %s\n", d->socket, o.console != NULL ? "console " : "",
           o.console != NULL ? console_address(o.console) : "", o.console != NULL ? ", " : "",
           o.api != NULL ? once_api_address(o.api) : "off");
    fflush(stdout);
    once_os_notify("READY=1");
    int signal = server_run(server);
    if (!d->cli.quiet)
        once_os_log("once daemon", "ended by signal %d", signal);
    stop_services(&o);
    return ONCE_EXIT_OK;
}

static int serve(struct daemon *d)
{
    struct once_error err;
    struct server *server = NULL;
    d->options.escalated = on_escalated;
    d->options.escalated_arg = d;
    d->options.deferred = on_deferred;
    d->options.deferred_arg = d;
    d->options.ending = on_ending;
    d->options.ending_arg = d;
    d->options.status = status_answer;
    d->options.status_arg = &d->status;
    d->status.once = d->options.once;
    d->options.log = d->log;
    d->options.exporter = d->otlp.tracer.exporter;
    d->relay.relay.exporter = d->otlp.tracer.exporter;
    if (server_open(&d->options, &server, &err) != ONCE_OK)
        return once_cli_error(&d->cli, &err, "serve");
    d->escalate.once = d->options.once;
    if (escalate_start(&d->escalate, &d->escalations, &err) != ONCE_OK) {
        server_close(server);
        return once_cli_error(&d->cli, &err, "escalate");
    }
    int exit = serve_all(d, server);
    escalate_stop(d->escalations);
    server_close(server); /* its last answers may note something */
    escalate_free(d->escalations);
    return exit;
}

/* What was named, else what is relayed, else the store itself. */
static void choose_console_outbox(struct daemon *d, bool postgres)
{
    const char *named = getenv("ONCE_CONSOLE_OUTBOX");
    if (d->console.outbox == NULL && named != NULL && named[0] != '\0')
        d->console.outbox = named;
    if (d->console.outbox == NULL)
        d->console.outbox = d->relay.given ? d->relay_store : postgres ? d->cli.url : NULL;
}

/* What the store has to say, e.g. what it lost. */
static void warn_operator(void *arg, const char *text)
{
    (void)arg;
    once_os_log("once daemon", "%s", text);
}

/* A client has one, one over HTTP two: as many as are let in need more than a shell's usual limit. */
static void allow_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= DESCRIPTORS_WANTED)
        return;
    limit.rlim_cur = limit.rlim_max < DESCRIPTORS_WANTED ? limit.rlim_max : DESCRIPTORS_WANTED;
    setrlimit(RLIMIT_NOFILE, &limit); /* if not: some of them wait */
}

static int run(struct daemon *d)
{
    struct once_error err;
    allow_descriptors();
    if (once_store_url(d->cli.store, true, d->cli.url, &err) != ONCE_OK)
        return once_cli_error(&d->cli, &err, "find the store");
    int error = once_signals_init(&d->signals);
    if (error != 0)
        return once_cli_fail(&d->cli, ONCE_EXIT_OS, "cannot watch for signals: %s", strerror(error));
    d->options.signals = d->signals.fd;
    bool postgres = strncmp(d->cli.url, "postgres", 8) == 0;
    d->console.store = postgres                                 ? "PostgreSQL"
                       : strncmp(d->cli.url, "sqlite:", 7) == 0 ? "SQLite"
                       : strncmp(d->cli.url, "redis", 5) == 0   ? "Redis (best effort)"
                                                                : "other";
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); /* nobody reads these counters, and each allocation pays for them */
    struct once_options options = {
        .poll = true, .queue_len = QUEUE_LEN, .waiter_len = WAITER_LEN, .warn = warn_operator
    };
    once_cli_seal(&d->cli, &options);
    int exit = d->relay.given ? prepare_relay(d) : ONCE_EXIT_OK;
    if (exit == ONCE_EXIT_OK && d->consume.given)
        exit = prepare_consume(d);
    if (exit == ONCE_EXIT_OK)
        exit = prepare_escalation(d);
    if (exit == ONCE_EXIT_OK)
        exit = start_logging_and_tracing(d);
    if (exit == ONCE_EXIT_OK && once_open(d->cli.url, &options, &d->options.once, &err) != ONCE_OK)
        exit = once_cli_error(&d->cli, &err, "open the store");
    else if (exit == ONCE_EXIT_OK && d->quotas.any && once_set_quotas(d->options.once, &d->quotas, &err) != ONCE_OK) {
        once_close(d->options.once);
        exit = once_cli_error(&d->cli, &err, "set up quotas");
    } else if (exit == ONCE_EXIT_OK) {
        choose_console_outbox(d, postgres);
        exit = serve(d);
    }
    stop_logging_and_tracing(d); /* nobody is answered any more */
    once_signals_release(&d->signals);
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
            d->http = strcmp(optarg, "off") != 0 ? optarg : NULL;
        else if (c == OPTION_ALLOW)
            good = add_user(d, optarg);
        else if (c == OPTION_COMPLETE || c == OPTION_IDENTITY)
            good = set_upstream(d, c, optarg);
        else if (c == OPTION_TIMEOUT)
            good = set_time(d, "complete-timeout", optarg, &d->complete.timeout_ms);
        else if (c == OPTION_LEASE)
            good = set_time(d, "complete-lease", optarg, &d->complete.lease_ms);
        else if (c == OPTION_ATTEMPTS)
            good = set_number(d, "complete-attempts", optarg, &d->complete.attempts_max);
        else if (c == OPTION_CRASHES)
            good = set_number(d, "complete-crashes", optarg, &d->complete.crashes_max);
        else if (c == OPTION_WEBHOOK)
            d->escalate.webhook = optarg;
        else if (c == OPTION_SECRET)
            d->escalate.secret_file = optarg;
        else if (c == OPTION_QUOTA || c == OPTION_QUOTA_TENANT)
            good = once_cli_quota(&d->cli, &d->quotas, c == OPTION_QUOTA_TENANT);
        else if (c == OPTION_RELAY_STORE)
            d->relay_store = optarg;
        else if (c == OPTION_CONSUME_STORE)
            d->consume_store = optarg;
        else if (c == OPTION_LOG_DECISIONS)
            good = set_log_format(d, optarg);
        else if (c == OPTION_LOG_FILE)
            d->log_file = optarg;
        else if (c >= OPTION_CONSOLE && c < OPTION_OTLP)
            good = console_setup_option(&d->cli, &d->console, (enum console_option)(c - OPTION_CONSOLE));
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
    if (d->http != NULL && api_listen_check(d->http, false, &err) != ONCE_OK)
        return once_cli_usage(&d->cli, "--http: %s", err.text);
    if (!console_setup_check(&d->cli, &d->console))
        return ONCE_EXIT_USAGE;
    if (d->log_file != NULL && d->log_format == DECISIONS_OFF)
        return once_cli_usage(&d->cli, "--log-file is for --log-decisions json or logfmt");
    if (!otlp_setup_check(&d->otlp) || !check_completer(d) || !check_relay(d) || !check_consume(d) ||
        !choose_socket(d, socket))
        return ONCE_EXIT_USAGE;
    return -1;
}

int once_cli_daemon(int argc, char **argv)
{
    struct daemon d = { .cli = { .verb = "daemon", .help = help },
                        .http = ONCE_API_LISTEN_DEFAULT,
                        .complete = { .attempts_max = 10, .crashes_max = 3, .timeout_ms = 60000, .lease_ms = 30000 } };
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
