/*
 * signals.h - the signals that ask a program to end, read when the program is ready.
 *
 * INT, QUIT, TERM and HUP are blocked and read from a descriptor; those that were
 * ignored when the program started stay ignored (nohup, `cmd &` in a script). SIGPIPE is
 * blocked as well: a write returns EPIPE. Blocked rather than ignored, so that a command
 * started later can get the original mask back.
 */
#ifndef ONCE_OS_SIGNALS_H
#define ONCE_OS_SIGNALS_H

#include <signal.h>

struct once_signals {
    sigset_t mask; /* as it was before */
    int fd;        /* a non-blocking signalfd */
};

/* Other threads must block these signals, as the library's threads do. Call it after opening
 * the store: that may wait for a lock, and Ctrl-C should end it. Returns 0 or an errno. */
int once_signals_init(struct once_signals *signals);
void once_signals_release(struct once_signals *signals);

/* The number of a signal that was received, or 0. */
int once_signals_take(const struct once_signals *signals);

/* From here on the signals end the program as usual. */
void once_signals_restore(const struct once_signals *signals);

/* Ends the program by this signal, as if it had never been blocked. */
_Noreturn void once_signals_die(struct once_signals *signals, int signal);

#endif
