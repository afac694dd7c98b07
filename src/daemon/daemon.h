/*
 * daemon.h - the whole daemon: daemon_run() starts every part in order, serves until a signal comes, and stops them.
 *
 * Callers:  cli/daemon.c, which turns a command line into these options.
 * Not here: what each part does. The table at the end of daemon.c names them in the order of their start.
 */
#ifndef ONCE_DAEMON_DAEMON_H
#define ONCE_DAEMON_DAEMON_H

#include "core/quota_rules.h"
#include "daemon/completer/completer.h"
#include "daemon/console/console.h"
#include "daemon/observers/decisions.h"
#include "daemon/socket/server.h"
#include "messages/consume_loop.h"
#include "messages/relay.h"

/* Members of the parts' own options that name a running part, `once` for example, are filled in by daemon_run(). */
struct daemon_options {
    const char *store_url;
    const char *store_kind; /* as status and console show it: "SQLite" */
    struct once_options store;
    struct server_options server;
    const char *http; /* where the JSON API listens; NULL: off */
    struct completer_options completer;
    struct escalate_options escalate;
    struct console_options console; /* listen is NULL: off */
    const struct quota_rules *quotas;
    struct relay *relay;             /* NULL: off; with its outbox, not connected, its sinks and counters */
    struct consume_options *consume; /* NULL: off; with its store_url and counters */
    enum decisions_format log_format;
    const char *log_file;         /* NULL: standard error */
    struct exporter_options otlp; /* url is NULL: off */
    double trace_ratio;
    bool quiet;
};

/* Returns after a signal. Its signals are blocked, and come through options->server.signals. */
once_result daemon_run(const struct daemon_options *options, struct once_error *err);

#endif
