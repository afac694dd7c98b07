/*
 * command.h - one execution of a command: its output shown as it comes and kept,
 * signals passed on, its end awaited.
 */
#ifndef ONCE_RUN_COMMAND_H
#define ONCE_RUN_COMMAND_H

#include "os/guard.h"
#include "run/frames.h"

struct once_command {
    struct once_guard_command command;
    int signals; /* a signalfd: what comes here is passed on */
    /* Asked now and then; when it says no, the command gets SIGTERM, once. NULL: do not ask. */
    bool (*is_wanted)(void *arg);
    void *arg;
};

enum once_command_how {
    ONCE_COMMAND_NOT_STARTED = 1, /* `error` tells why */
    ONCE_COMMAND_ENDED,           /* with `status` */
    ONCE_COMMAND_LOST,            /* it was started, but nobody saw how it ended */
};

struct once_command_end {
    enum once_command_how how;
    int error;          /* an errno */
    int status;         /* as shells have it: the exit status, or 128 and the signal */
    int signal;         /* that killed it; 0: it ended by itself */
    int write_error[3]; /* errno of the first write to our own 1 or 2 that failed */
};

/* Runs it to its end; output is added to *frames. It has ended when the command itself
 * has and nobody holds its output open any more, as in a shell's $(...); a signal ends
 * the waiting for the latter. Main thread only (guard.h). */
struct once_command_end once_command_run(const struct once_command *command, struct once_frames *frames);

#endif
