/*
 * guard.h - a guardian process between `once` and its command.
 *
 *     once -- fork --> guardian -- fork, exec --> the command -- ... --> its descendants
 *
 * When `once` dies, however it dies, the command and all its descendants die too: a
 * command must not go on with nobody to record how it ended. The guardian does that;
 * it also tells `once` how the command started and ended, and passes signals on (it
 * alone knows whether the command's process id still is the command's).
 *
 * Everybody stays in one process group, so the terminal's signals reach the command
 * by themselves, unless it is to be apart.
 *
 * Limits: a command that gained other rights (set-user-ID, sudo) cannot be killed by
 * the guardian; neither can anybody help if the guardian is killed first: then the
 * command gets SIGKILL from the kernel, but its descendants live on.
 */
#ifndef ONCE_OS_GUARD_H
#define ONCE_OS_GUARD_H

#include "once.h"

#include <signal.h>
#include <sys/types.h>

struct once_guard_command {
    char **argv, **envp;
    sigset_t mask; /* signals to block in the command: what was blocked when `once` was started */
    int input;     /* its standard input; 0: ours */
    bool apart;    /* in a process group of its own: the terminal's signals are not for it */
};

struct once_guard {
    pid_t pid;    /* the guardian's */
    int report;   /* readable when the guardian has something to say */
    int control;  /* to the guardian */
    int out, err; /* what the command prints */
};

enum once_guard_news {
    ONCE_GUARD_GONE = 0, /* the guardian died without a word */
    ONCE_GUARD_SPAWNED,  /* value: the command's process id; it is about to be executed */
    ONCE_GUARD_FAILED,   /* value: errno; the command was certainly not executed */
    ONCE_GUARD_EXITED,   /* value: its wait status */
};

struct once_guard_report {
    int32_t news, value;
};

/* Call it from a thread that lives until once_guard_end(): the kernel ties the guardian's life
 * to the thread that forked it. Descriptors 0 to 2 must be open. 0 or an errno: then nothing was started. */
int once_guard_start(struct once_guard *guard, const struct once_guard_command *command);

/* The next report; blocks until there is one. FAILED comes before EXITED. */
struct once_guard_report once_guard_read(const struct once_guard *guard);

/* Passes a signal on, if the command is still there. */
void once_guard_signal(const struct once_guard *guard, int signal);

/* The command is over: dismisses the guardian, which leaves alone what the command may
 * have put into the background, and closes everything. */
void once_guard_end(struct once_guard *guard);

#endif
