/*
 * signals.h - the signals that ask a program to end, taken when it suits.
 *
 * INT, QUIT, TERM and HUP are blocked and read from a descriptor; those that were
 * ignored when the program was started stay ignored (nohup, `cmd &` in a script).
 * SIGPIPE is blocked too: a write says EPIPE, and the command started later gets its
 * old mask back, which a changed disposition would not do by itself.
 */
#ifndef ONCE_OS_SIGNALS_H
#define ONCE_OS_SIGNALS_H

#include <signal.h>

struct once_signals {
    sigset_t mask; /* as it was before */
    int fd;        /* a signalfd, not blocking */
};

/* Other threads must have them blocked, as the library's have. After opening a store: that
 * may wait for its turn, and Ctrl-C should end it then. 0 or an errno. */
int once_signals_init(struct once_signals *signals);
void once_signals_release(struct once_signals *signals);

/* The number of a signal that came, or 0. */
int once_signals_take(const struct once_signals *signals);

/* From here on they end the program as usual: nothing is left to protect. */
void once_signals_restore(const struct once_signals *signals);

/* Dies of it, as if it had never been blocked. */
_Noreturn void once_signals_die(struct once_signals *signals, int signal);

#endif
