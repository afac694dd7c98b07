/*
 * child.h - one process that `once serve` starts, restarts, and whose output it forwards.
 *
 * Model: a child has its own process group, so that a Ctrl-C at the terminal reaches only
 *        `once serve`, which stops its children in order. Its output comes through one pipe
 *        and is printed line by line with the child's name before it. If `once serve` itself
 *        is killed, the kernel sends the child `death_signal`.
 *
 *        idle -- start --> running -- it ended --> idle, with restart_at set
 *
 * nginx's workers outlive a master that was killed, and keep its port. They are in its process
 * group: once_serve_child_sweep() stops them, and the next master joins that group.
 */
#ifndef ONCE_SERVE_CHILD_H
#define ONCE_SERVE_CHILD_H

#include "serve/paths.h"

#include <signal.h>

enum {
    ONCE_SERVE_LINE_LEN_MAX = 4096, /* a longer line is printed in pieces */
    ONCE_SERVE_ARGC_MAX = 768,      /* enough for a daemon with the maximum of relay routes and quotas */
    ONCE_SERVE_ENV_MAX = 4,
};

struct once_serve_env {
    const char *name, *value; /* NULL: none */
};

struct once_serve_child {
    const char *name; /* "daemon" or "nginx": the prefix of its lines */
    const char *program;
    const char *argv[ONCE_SERVE_ARGC_MAX + 1];
    struct once_serve_env env[ONCE_SERVE_ENV_MAX]; /* further variables */
    const struct once_serve_user *user;            /* to run as; NULL: as `once serve` */
    int death_signal;

    /* Called with each line; true: the line was for `once serve` itself, do not print it. */
    bool (*take_line)(void *arg, const char *line);
    void *arg;

    pid_t pid;                      /* 0: not running */
    pid_t group;                    /* of its latest start; 0: never started */
    int output;                     /* the pipe, or -1; nginx's workers may hold it open after the master's end */
    int status;                     /* of its last end, as wait(2) returns it */
    unsigned failures;              /* ends in a row, each soon after its start */
    int64_t started_at, restart_at; /* monotonic ms; restart_at 0: no restart is due */
    size_t line_len;
    char line[ONCE_SERVE_LINE_LEN_MAX];
};

void once_serve_child_init(struct once_serve_child *child, const char *name, const char *program);
void once_serve_child_add(struct once_serve_child *child, const char *argument);

/* 0 or an errno, also when the program cannot be executed. `mask` is the child's signal mask. */
int once_serve_child_start(struct once_serve_child *child, const sigset_t *mask);

/* Prints the output that has arrived; closes the pipe at its end. */
void once_serve_child_read(struct once_serve_child *child);

/* Records that the child ended with `status`, and sets restart_at. */
void once_serve_child_ended(struct once_serve_child *child, int status);

/* "exited with status 1", "was killed by signal 9 (Killed)". */
void once_serve_child_end_text(const struct once_serve_child *child, char out[80]);

void once_serve_child_signal(const struct once_serve_child *child, int signal);

/* Sends a signal to all processes of its group. False: the group has none. */
bool once_serve_child_sweep(const struct once_serve_child *child, int signal);

#endif
