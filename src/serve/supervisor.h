/*
 * supervisor.h - starts the daemon, then nginx, restarts them, and stops them in reverse order.
 *
 * Model: one loop over signals, the children's output and time.
 *
 *        daemon -- says that it is ready --> nginx -- has its pid file --> serving
 *        serving -- INT, TERM, QUIT --> ending nginx --> ending the daemon --> over
 *
 *        If a child dies before the first `serving`, all stops: the set-up is wrong. Later a
 *        child that dies is restarted after a growing delay, while the other one goes on.
 *        nginx answers 503 while there is no daemon.
 *
 * Invariants: SERVE-1 the daemon outlives nginx, so that a request in flight can store its answer.
 *        SERVE-2 when it is over, no process of either child's group is left.
 */
#ifndef ONCE_SERVE_SUPERVISOR_H
#define ONCE_SERVE_SUPERVISOR_H

#include "program/cli.h"
#include "serve/child.h"

enum once_serve_phase {
    ONCE_SERVE_DAEMON, /* waiting until it is ready */
    ONCE_SERVE_NGINX,  /* likewise */
    ONCE_SERVE_SERVING,
    ONCE_SERVE_ENDING_NGINX,
    ONCE_SERVE_ENDING_DAEMON,
    ONCE_SERVE_OVER,
};

struct once_serve_supervisor {
    const struct once_cli *cli;
    const char *pid_file;                       /* nginx's */
    bool has_daemon;                            /* false: --store names a daemon that runs already */
    void (*ready)(void *arg, const char *http); /* http: the JSON API's address, or "off" */
    void *arg;
    struct once_serve_child daemon, nginx;

    enum once_serve_phase phase;
    bool daemon_ready;
    char http[ONCE_SERVE_ADDRESS_LEN];       /* from the daemon's ready line */
    bool terminal;                           /* standard error was a terminal at the start */
    int hurry;                               /* how often force_stop() was called */
    int64_t deadline, remark_at, hurry_from; /* monotonic ms */
    int signals;                             /* a signalfd */
    sigset_t mask;
    int exit;
};

/* Blocks the signals and opens s->signals for them. 0 or an errno. */
int once_serve_watch(struct once_serve_supervisor *supervisor);

/* Before once_serve_supervise(): true if a signal came that ends the program; others are dropped. */
bool once_serve_is_to_end(const struct once_serve_supervisor *supervisor);

/* After once_serve_watch(). Returns an exit code when all processes have ended. */
int once_serve_supervise(struct once_serve_supervisor *supervisor);

#endif
