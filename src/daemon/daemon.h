/*
 * daemon.h - the whole daemon: daemon_run() starts every part in order, serves until a signal comes, and stops them.
 *
 * Callers: cli/daemon.c, which turns a command line into these options. start_all() in daemon.c has the table of parts.
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

/* daemon_run() fills in those members of the parts' options that name other parts, `once` for example. */
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

/* Returns after a signal came to options->server.signals; the caller has blocked the signals. */
once_result daemon_run(const struct daemon_options *options, struct once_error *err);

#endif
