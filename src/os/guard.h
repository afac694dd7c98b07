/*
 * guard.h - a guardian process between `once` and its command.
 *
 *     once -- fork --> guardian -- fork, exec --> the command -- ... --> its descendants
 *
 * When `once` dies, for any reason, the guardian kills the command and all its
 * descendants: a command must not run on without a process that stores its outcome. The
 * guardian also reports to `once` how the command started and ended, and forwards signals
 * (only the guardian knows whether the process id still belongs to the command).
 *
 * `once` and the command share a process group, so the terminal's signals reach the
 * command directly, unless `apart` is set.
 *
 * Limits: the guardian cannot kill a command that gained other rights (set-user-ID,
 * sudo). If the guardian itself is killed first, the kernel sends SIGKILL to the command,
 * but its descendants live on.
 */
#ifndef ONCE_OS_GUARD_H
#define ONCE_OS_GUARD_H

#include "once.h"

#include <signal.h>
#include <sys/types.h>

struct once_guard_command {
    char **argv, **envp;
    sigset_t mask; /* signals to block in the command: those that were blocked when `once` started */
    int input;     /* its standard input; 0: ours */
    bool apart;    /* in its own process group: the terminal's signals do not reach it */
};

struct once_guard {
    pid_t pid;    /* the guardian's */
    int report;   /* readable when the guardian sent a report */
    int control;  /* to the guardian */
    int out, err; /* the command's output and error output */
};

enum once_guard_news {
    ONCE_GUARD_GONE = 0, /* the guardian died without a report */
    ONCE_GUARD_SPAWNED,  /* value: the command's process id; exec follows */
    ONCE_GUARD_FAILED,   /* value: errno; the command was certainly not executed */
    ONCE_GUARD_EXITED,   /* value: its wait status */
};

struct once_guard_report {
    int32_t news, value;
};

/* Call it from a thread that lives until once_guard_end(): PR_SET_PDEATHSIG is about the thread
 * that forked. Descriptors 0 to 2 must be open. Returns 0, or an errno: nothing was started. */
int once_guard_start(struct once_guard *guard, const struct once_guard_command *command);

/* The next report; blocks until there is one. FAILED comes before EXITED. */
struct once_guard_report once_guard_read(const struct once_guard *guard);

/* Sends a signal to the command, if it is still running. */
void once_guard_signal(const struct once_guard *guard, int signal);

/* After the command ended: ends the guardian, which does not kill background processes of
 * the command, and closes all descriptors. */
void once_guard_end(struct once_guard *guard);

#endif
