/*
 * command.h - one execution of a command: prints and keeps its output, forwards signals, waits
 * for its end.
 */
#ifndef ONCE_RUN_COMMAND_H
#define ONCE_RUN_COMMAND_H

#include "os/guard.h"
#include "run/frames.h"

struct once_command {
    struct once_guard_command command;
    int signals; /* a signalfd; its signals are forwarded to the command */
    /* Called from time to time; when it returns false, the command gets one SIGTERM. May be NULL. */
    bool (*is_wanted)(void *arg);
    void *arg;
};

enum once_command_how {
    ONCE_COMMAND_NOT_STARTED = 1, /* `error` tells why */
    ONCE_COMMAND_ENDED,           /* with `status` */
    ONCE_COMMAND_LOST,            /* it was started, but its end was not reported */
};

struct once_command_end {
    enum once_command_how how;
    int error;          /* an errno */
    int status;         /* as in shells: the exit status, or 128 plus the signal */
    int signal;         /* the signal that killed it; 0: it exited */
    int write_error[3]; /* errno of the first failed write to our stdout [1] and stderr [2] */
};

/* Runs the command to its end and adds its output to *frames. The end is when the command
 * has exited and no process holds its output open, as in a shell's $(...); a signal ends
 * the wait for the latter. Main thread only (guard.h). */
struct once_command_end once_command_run(const struct once_command *command, struct once_frames *frames);

#endif
