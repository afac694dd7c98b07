/* daemon.c - see daemon.h. */
#include "daemon/daemon.h"

#include "core/err.h"
#include "core/span.h"
#include "daemon/api/api.h"
#include "daemon/consumer_thread.h"
#include "daemon/observers/health.h"
#include "daemon/observers/quota_count.h"
#include "daemon/observers/status.h"
#include "daemon/observers/unknown_count.h"
#include "daemon/relay_thread.h"
#include "engine/daemon_api.h"
#include "http/http_call.h"
#include "os/notify.h"
#include "os/stderr_log.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/resource.h>

/* Queue and waiters are large: they serve all connections. */
enum { QUEUE_LEN = 32768, WAITER_LEN = 32768, DESCRIPTORS_WANTED = 4096 };

/* The parts; NULL: not started. */
struct daemon {
    const struct daemon_options *options;
    struct tracer tracer;
    struct decisions *log;
    struct once *once; /* owned by the server once that is open */
    struct server *server;
    struct escalations *escalations;
    struct quota_count *quota_count;
    struct health *health;
    struct completer *completer;
    struct unknown_count *unknown_count;
    struct once_api *api;
    struct console *console;
    struct relay_thread *relay_thread;
    struct consumer_thread *consumer_thread;
    struct status status;
    char lacking[COMPLETER_UPSTREAMS_MAX]
                [ONCE_UPSTREAM_NAME_LEN_MAX + 1]; /* upstreams of claims for which there is no --complete */
    size_t lacking_count;
};

/* ------------------------------------------------------------------ callbacks between parts */

static void put_more(void *arg, FILE *file)
{
    struct daemon *d = arg;
    const struct relay *relay = d->options->relay;
    unknown_count_put(d->unknown_count, file);
    fprintf(file,
            "# HELP once_log_lines_dropped_total Lines for standard error that nobody took.\n"
            "# TYPE once_log_lines_dropped_total counter\nonce_log_lines_dropped_total %" PRIu64 "\n",
            once_os_log_dropped());
    decisions_put(d->log, file);
    exporter_put(d->tracer.exporter, file);
    const char *patterns[RELAY_ROUTES_MAX];
    for (size_t i = 0; relay != NULL && i < relay->route_count; i++)
        patterns[i] = relay->routes[i].pattern;
    if (relay != NULL)
        relay_counters_put(relay->counters, patterns, relay->route_count, file);
    if (d->options->consume != NULL)
        consume_counters_put(d->options->consume->counters, file);
}

static void on_escalated(void *arg, struct once_grant grant, once_time since, const char *why)
{
    struct daemon *d = arg;
    if (since == 0)
        escalate_note(d->escalations, grant, why);
    else
        escalate_found(d->escalations, grant, since, why);
}

/* A record that only a completer may take over stays in progress for its clients if no daemon completes its upstream.
 * The operator is warned, once for each upstream. */
static void on_deferred(void *arg, once_span request)
{
    struct daemon *d = arg;
    once_span name =
        d->lacking_count < COMPLETER_UPSTREAMS_MAX ? completer_lacks(&d->options->completer, request) : ONCE_LIT("");
    for (size_t i = 0; i < d->lacking_count; i++)
        if (once_span_equal(name, once_span_str(d->lacking[i])))
            return;
    if (name.len == 0)
        return;
    snprintf(d->lacking[d->lacking_count++], sizeof *d->lacking, "%.*s", ONCE_SPAN_ARGS(name));
    fprintf(
        stderr,
        "once daemon: requests to '%.*s' need a completer if their holder is gone, but this daemon has no --complete "
        "%.*s=URL: unless another daemon on this store has it, they stay in progress\n",
        ONCE_SPAN_ARGS(name), ONCE_SPAN_ARGS(name));
}

static void on_status(void *arg, size_t clients, struct once_buf *buf, uint32_t id)
{
    struct daemon *d = arg;
    status_answer(&d->status, clients, buf, id);
}

static void on_ending(void *arg)
{
    struct daemon *d = arg;
    health_end(d->health);
    escalate_end(d->escalations);
}

/* Warnings of the store, e.g. that it lost acknowledged writes. */
static void warn_operator(void *arg, const char *text)
{
    (void)arg;
    once_os_log("once daemon", "%s", text);
}

/* For the signal handler, which has no argument. */
static struct decisions *reopened;

static void on_usr1(int signal)
{
    (void)signal;
    decisions_reopen(reopened);
}

/* ------------------------------------------------------------------ starting one part */

/* A client on the socket needs one descriptor, a client over HTTP two: more than a shell's usual limit. */
static once_result allow_descriptors(struct daemon *d, struct once_error *err)
{
    (void)d, (void)err;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= DESCRIPTORS_WANTED)
        return ONCE_OK;
    limit.rlim_cur = limit.rlim_max < DESCRIPTORS_WANTED ? limit.rlim_max : DESCRIPTORS_WANTED;
    setrlimit(RLIMIT_NOFILE, &limit); /* if it fails, fewer clients are accepted at a time */
    return ONCE_OK;
}

/* Before the store is opened and clients can connect. */
static once_result check_escalation(struct daemon *d, struct once_error *err)
{
    once_result r = http_call_init(err);
    return r == ONCE_OK ? escalate_check(&d->options->escalate, err) : r;
}

static once_result start_exporter(struct daemon *d, struct once_error *err)
{
    d->tracer.ratio = d->options->trace_ratio;
    return d->options->otlp.url != NULL ? exporter_start(&d->options->otlp, &d->tracer.exporter, err) : ONCE_OK;
}

static once_result start_decision_log(struct daemon *d, struct once_error *err)
{
    const struct daemon_options *o = d->options;
    sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL); /* without a log file it is ignored */
    if (o->log_format == DECISIONS_OFF)
        return ONCE_OK;
    once_result r = decisions_start(o->log_format, o->log_file, &d->log, err);
    if (r == ONCE_OK && o->log_file != NULL) {
        reopened = d->log;
        struct sigaction action = { .sa_handler = on_usr1, .sa_flags = SA_RESTART };
        sigaction(SIGUSR1, &action, NULL);
    }
    return r;
}

static once_result open_store(struct daemon *d, struct once_error *err)
{
    struct once_options options = d->options->store;
    options.poll = true;
    options.queue_len = QUEUE_LEN;
    options.waiter_len = WAITER_LEN;
    options.warn = warn_operator;
    return once_open(d->options->store_url, &options, &d->once, err);
}

static once_result set_quotas(struct daemon *d, struct once_error *err)
{
    return d->options->quotas->any ? once_set_quotas(d->once, d->options->quotas, err) : ONCE_OK;
}

/* Listens from now on; serves no client before server_run(). */
static once_result open_server(struct daemon *d, struct once_error *err)
{
    struct server_options options = d->options->server;
    options.once = d->once;
    options.escalated = on_escalated;
    options.deferred = on_deferred;
    options.ending = on_ending;
    options.status = on_status;
    options.arg = d;
    options.call_log = (struct call_log_outputs){ d->log, d->tracer.exporter };
    once_result r = server_open(&options, &d->server, err);
    if (r != ONCE_OK)
        d->once = NULL; /* closed */
    return r;
}

static once_result start_escalation(struct daemon *d, struct once_error *err)
{
    struct escalate_options options = d->options->escalate;
    options.once = d->once;
    return escalate_start(&options, &d->escalations, err);
}

/* Before the first client is served. Quota usage is not stored: it is counted at every start. */
static once_result start_quota_count(struct daemon *d, struct once_error *err)
{
    const struct quota_rules *quotas = d->options->quotas;
    bool counts = quota_rules_have(quotas, QUOTA_RECORDS) || quota_rules_have(quotas, QUOTA_BYTES);
    return counts ? quota_count_start(d->once, &d->quota_count, err) : ONCE_OK;
}

static once_result start_health(struct daemon *d, struct once_error *err)
{
    return health_start(d->once, QUEUE_LEN, &d->health, err);
}

static once_result start_completer(struct daemon *d, struct once_error *err)
{
    struct completer_options options = d->options->completer;
    options.once = d->once;
    options.escalations = d->escalations;
    options.log = d->log;
    options.tracer = &d->tracer;
    return options.count > 0 ? completer_start(&options, &d->completer, err) : ONCE_OK;
}

/* The answer to `once status`. */
static once_result fill_status(struct daemon *d, struct once_error *err)
{
    (void)err;
    d->status = (struct status){ .once = d->once,
                                 .health = d->health,
                                 .store = d->options->store_kind,
                                 .expiry = server_expiry(d->server),
                                 .escalations = escalate_counters(d->escalations),
                                 .completer = d->completer != NULL ? completer_counters(d->completer) : NULL,
                                 .relay = d->options->relay != NULL ? d->options->relay->counters : NULL,
                                 .consume = d->options->consume != NULL ? d->options->consume->counters : NULL };
    return ONCE_OK;
}

static once_result start_unknown_count(struct daemon *d, struct once_error *err)
{
    return d->options->http != NULL ? unknown_count_start(d->once, &d->unknown_count, err) : ONCE_OK;
}

static once_result start_api(struct daemon *d, struct once_error *err)
{
    struct once_api_options options = { .once = d->once,
                                        .more = put_more,
                                        .more_arg = d,
                                        .listen = d->options->http,
                                        .log = d->log,
                                        .escalated = on_escalated,
                                        .escalated_arg = d,
                                        .escalations = d->status.escalations,
                                        .completer = d->status.completer,
                                        .expiry = d->status.expiry,
                                        .health = d->health };
    return options.listen != NULL ? once_api_start(&options, &d->api, err) : ONCE_OK;
}

static once_result start_console(struct daemon *d, struct once_error *err)
{
    struct console_options options = d->options->console;
    options.once = d->once;
    options.store = d->options->store_kind;
    options.escalations = d->status.escalations;
    options.completer = d->status.completer;
    options.expiry = d->status.expiry;
    return options.listen != NULL ? console_start(&options, &d->console, err) : ONCE_OK;
}

static once_result start_relay(struct daemon *d, struct once_error *err)
{
    struct relay *relay = d->options->relay;
    if (relay == NULL)
        return ONCE_OK;
    relay->exporter = d->tracer.exporter;
    return relay_thread_start(relay, &d->relay_thread, err);
}

static once_result start_consumer(struct daemon *d, struct once_error *err)
{
    struct consume_options *consume = d->options->consume;
    if (consume == NULL)
        return ONCE_OK;
    consume->consumer.tracer = &d->tracer;
    return consumer_thread_start(consume, &d->options->store, &d->consumer_thread, err);
}

/* ------------------------------------------------------------------ all of them */

static once_result start_all(struct daemon *d, struct once_error *err)
{
    static const struct {
        once_result (*start)(struct daemon *d, struct once_error *err); /* ONCE_OK also if the options leave it out */
        const char *purpose;                                            /* of the message "cannot ..." */
    } steps[] = {
        { allow_descriptors, "serve" },
        { check_escalation, "escalate" },
        { start_exporter, "export spans" },
        { start_decision_log, "log decisions" },
        { open_store, "open the store" },
        { set_quotas, "set up quotas" },
        { open_server, "serve" },
        { start_escalation, "escalate" },
        { start_quota_count, "count what tenants have" },
        { start_health, "serve" },
        { start_completer, "complete" },
        { fill_status, "serve" },
        { start_unknown_count, "count what is unknown" },
        { start_api, "serve HTTP" },
        { start_console, "serve the console" },
        { start_relay, "relay" },
        { start_consumer, "consume" },
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        once_result r = steps[i].start(d, err);
        if (r != ONCE_OK) {
            once_error_prefix(err, "cannot %s", steps[i].purpose);
            return r;
        }
    }
    return ONCE_OK;
}

/* The server closes the store, after all parts that use it. The logs end last, after the last answer. */
static void stop_all(struct daemon *d)
{
    relay_thread_end(d->relay_thread); /* both need time to end, so they begin together */
    consumer_thread_end(d->consumer_thread);
    quota_count_stop(d->quota_count);
    console_stop(d->console);
    once_api_stop(d->api);
    unknown_count_stop(d->unknown_count);
    health_stop(d->health);
    completer_stop(d->completer);
    relay_thread_stop(d->relay_thread);
    consumer_thread_stop(d->consumer_thread);
    escalate_stop(d->escalations);
    if (d->server != NULL)
        server_close(d->server); /* its last answers may escalate */
    else
        once_close(d->once);
    escalate_free(d->escalations);
    sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL);
    decisions_stop(d->log);
    exporter_stop(d->tracer.exporter);
}

static void say_ready(const struct daemon *d)
{
    if (d->console != NULL)
        console_print_url(d->console);
    printf("once: ready: socket %s, %s%s%shttp %s\n", d->options->server.socket_path,
           d->console != NULL ? "console " : "", d->console != NULL ? console_address(d->console) : "",
           d->console != NULL ? ", " : "", d->api != NULL ? once_api_address(d->api) : "off");
    fflush(stdout);
    once_os_notify("READY=1");
}

once_result daemon_run(const struct daemon_options *options, struct once_error *err)
{
    struct daemon d = { .options = options };
    once_result r = start_all(&d, err);
    if (r == ONCE_OK) {
        say_ready(&d);
        int signal = server_run(d.server);
        if (!options->quiet)
            once_os_log("once daemon", "ended by signal %d", signal);
    }
    stop_all(&d);
    return r;
}
