/*
 * child.h - one process that `once serve` starts, listens to and keeps alive.
 *
 * Model: a child has a process group of its own, so that a Ctrl-C at the terminal reaches
 *        only `once serve`, which ends its children in order. What it prints comes through
 *        one pipe and is passed on line by line, with its name before it. If `once serve`
 *        itself is killed, the kernel sends the child `death_signal`.
 *
 *        idle -- start --> running -- it ended --> idle, with restart_at set
 *
 * nginx's master has workers, and they outlive a master that was killed, with its port. They
 * are in its group: once_serve_child_sweep() ends them, and a successor joins that group.
 */
#ifndef ONCE_SERVE_CHILD_H
#define ONCE_SERVE_CHILD_H

#include "serve/paths.h"

#include <signal.h>

enum {
    ONCE_SERVE_LINE_LEN_MAX = 4096, /* a longer line is passed on in pieces */
    ONCE_SERVE_ARGC_MAX = 768,      /* a daemon that relays, with all routes and quotas that there may be */
    ONCE_SERVE_ENV_MAX = 4,
};

struct once_serve_env {
    const char *name, *value; /* NULL: none */
};

struct once_serve_child {
    const char *name; /* "daemon", "nginx": before its lines, and in messages */
    const char *program;
    const char *argv[ONCE_SERVE_ARGC_MAX + 1];
    struct once_serve_env env[ONCE_SERVE_ENV_MAX]; /* further variables */
    const struct once_serve_user *user;            /* to become; NULL: stay */
    int death_signal;

    /* Looks at each whole line; true: it was meant for `once serve`, do not print it. */
    bool (*take_line)(void *arg, const char *line);
    void *arg;

    pid_t pid;                      /* 0: not running */
    pid_t group;                    /* of its last life; 0: never started */
    int output;                     /* the pipe; -1: none. May stay open after the child's end: workers */
    int status;                     /* as wait(2) tells, of its last end */
    unsigned failures;              /* ends in a row, without a good while between */
    int64_t started_at, restart_at; /* monotonic ms; restart_at 0: is not to be started */
    size_t line_len;
    char line[ONCE_SERVE_LINE_LEN_MAX];
};

void once_serve_child_init(struct once_serve_child *child, const char *name, const char *program);
void once_serve_child_add(struct once_serve_child *child, const char *argument);

/* 0 or an errno, also when the program cannot be executed. `mask` is for the child. */
int once_serve_child_start(struct once_serve_child *child, const sigset_t *mask);

/* Passes on what it said; closes the pipe at its end. */
void once_serve_child_read(struct once_serve_child *child);

/* It ended, with `status`: decides when to try again. */
void once_serve_child_ended(struct once_serve_child *child, int status);

/* "exited with status 1", "was killed by signal 9 (Killed)". */
void once_serve_child_end_text(const struct once_serve_child *child, char out[80]);

void once_serve_child_signal(const struct once_serve_child *child, int signal);

/* Sends a signal to whoever is left of its group. False: nobody is. */
bool once_serve_child_sweep(const struct once_serve_child *child, int signal);

#endif
