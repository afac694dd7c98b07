/* signals.c - see signals.h. */
#include "os/signals.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/signalfd.h>
#include <unistd.h>

static bool is_ignored(int signal)
{
    struct sigaction action;
    return sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* The signals that end a program, without those that were ignored when it started. */
static sigset_t ending_set(void)
{
    static const int ending[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP };
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        if (!is_ignored(ending[i]))
            sigaddset(&set, ending[i]);
    return set;
}

int once_signals_init(struct once_signals *signals)
{
    sigset_t taken = ending_set(), blocked = taken;
    sigaddset(&blocked, SIGPIPE);
    signals->fd = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals->fd < 0)
        return errno;
    return pthread_sigmask(SIG_BLOCK, &blocked, &signals->mask);
}

void once_signals_release(struct once_signals *signals)
{
    if (signals->fd >= 0)
        close(signals->fd);
    signals->fd = -1;
}

int once_signals_take(const struct once_signals *signals)
{
    struct signalfd_siginfo info;
    ssize_t n = read(signals->fd, &info, sizeof info);
    return n == (ssize_t)sizeof info ? (int)info.ssi_signo : 0;
}

void once_signals_restore(const struct once_signals *signals)
{
    (void)signals; /* SIGPIPE stays blocked: a write returns EPIPE */
    sigset_t set = ending_set();
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

_Noreturn void once_signals_die(struct once_signals *signals, int signal)
{
    struct sigaction standard = { .sa_handler = SIG_DFL };
    sigaction(signal, &standard, NULL);
    raise(signal);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    once_signals_release(signals);
    _exit(128 + signal);
}
