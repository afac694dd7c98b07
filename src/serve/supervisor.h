/*
 * supervisor.h - daemon and nginx, started in order, kept alive, ended in order.
 *
 * Model: one loop over signals, the children's output and time.
 *
 *        daemon -- says that it is ready --> nginx -- has its pid file --> serving
 *        serving -- INT, TERM, QUIT --> ending nginx --> ending the daemon --> over
 *
 *        A child that dies before the first `serving` ends everything: something is wrong
 *        with the set-up. Later it is started again, after a pause that grows; the other one
 *        goes on meanwhile. nginx answers 503 while there is no daemon.
 *
 * Invariants: SERVE-1 the daemon outlives nginx: a request in flight can store its answer.
 *        SERVE-2 when it is over, no process of either child's group is left.
 */
#ifndef ONCE_SERVE_SUPERVISOR_H
#define ONCE_SERVE_SUPERVISOR_H

#include "program/cli.h"
#include "serve/child.h"

enum once_serve_phase {
    ONCE_SERVE_DAEMON, /* waiting for it */
    ONCE_SERVE_NGINX,  /* waiting for it */
    ONCE_SERVE_SERVING,
    ONCE_SERVE_ENDING_NGINX,
    ONCE_SERVE_ENDING_DAEMON,
    ONCE_SERVE_OVER,
};

struct once_serve_supervisor {
    const struct once_cli *cli;
    const char *pid_file;                       /* nginx's */
    bool has_daemon;                            /* else somebody else runs it */
    void (*ready)(void *arg, const char *http); /* http: the JSON API's address, or "off" */
    void *arg;
    struct once_serve_child daemon, nginx;

    enum once_serve_phase phase;
    bool daemon_ready;
    char http[ONCE_SERVE_ADDRESS_LEN];       /* as the daemon said */
    bool terminal;                           /* standard error was one at the start */
    int hurry;                               /* how often the ending was pressed for */
    int64_t deadline, remark_at, hurry_from; /* monotonic ms */
    int signals;                             /* a signalfd */
    sigset_t mask;
    int exit;
};

/* From here on signals are waited for by us. 0, or an errno. */
int once_serve_watch(struct once_serve_supervisor *supervisor);

/* Before it is supervised: did one come that ends it? Others mean nothing yet. */
bool once_serve_is_to_end(const struct once_serve_supervisor *supervisor);

/* After once_serve_watch(). Returns an exit code when all has ended. */
int once_serve_supervise(struct once_serve_supervisor *supervisor);

#endif
