/*
 * guard.c - see guard.h.
 *
 * The guardian is forked from a process with threads and never executes another
 * program, so it calls only functions that are safe in a signal handler: no malloc, no
 * stdio, nothing that takes a lock. All signals are blocked from its start and read from a
 * signalfd, so Ctrl-C and kill cannot end it, and Ctrl-Z cannot stop it.
 *
 * How it learns that `once` is gone: PR_SET_PDEATHSIG, and the end of the control pipe.
 * The death signal is SIGCONT, because it also wakes a guardian that was stopped with
 * SIGSTOP. getppid() detects a parent that died before PR_SET_PDEATHSIG took effect.
 *
 * How it finds the descendants: it is their subreaper, so a process that loses its parent
 * becomes a child of the guardian. The guardian kills its children until it has none left,
 * which also reaches processes that were forked in the meantime.
 */
#include "os/guard.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LET_GO = 0,  /* on the control pipe; any other byte is the number of a signal */
    CONTROL = 0, /* the guardian's descriptors, after the command is forked */
    REPORT = 1,
};

struct pipes {
    int report[2], control[2], out[2], err[2];
};

/* ---------------------------------------------------------------- after the fork */

static void report(int fd, enum once_guard_news news, int value)
{
    struct once_guard_report message = { (int32_t)news, value };
    /* Shorter than PIPE_BUF, so it is written whole or not at all; if not at all, `once` is
     * gone, which is detected elsewhere. */
    ssize_t n = write(fd, &message, sizeof message);
    (void)n;
}

static _Noreturn void execute(const struct pipes *pipes, const struct once_guard_command *command,
                              const struct sigaction *child_action, pid_t guardian)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guardian)
        _exit(1);
    if (dup2(command->input, STDIN_FILENO) >= 0 && dup2(pipes->out[1], STDOUT_FILENO) >= 0 &&
        dup2(pipes->err[1], STDERR_FILENO) >= 0) {
        if (command->apart)
            setpgid(0, 0);
        sigaction(SIGCHLD, child_action, NULL);
        sigprocmask(SIG_SETMASK, &command->mask, NULL);
        execvpe(command->argv[0], command->argv, command->envp);
    }
    report(pipes->report[1], ONCE_GUARD_FAILED, errno);
    _exit(1);
}

/* SIGKILL to each of our children. False: /proc does not list them. */
static bool kill_children(void)
{
    int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    char text[4096]; /* children that do not fit are killed in the next round */
    ssize_t len = read(fd, text, sizeof text);
    close(fd);
    pid_t pid = 0;
    for (ssize_t i = 0; i < len; i++) {
        if (text[i] >= '0' && text[i] <= '9') {
            pid = pid * 10 + (text[i] - '0');
        } else {
            if (pid > 1)
                kill(pid, SIGKILL);
            pid = 0;
        }
    }
    return len >= 0;
}

static _Noreturn void kill_all(pid_t command)
{
    int pause_ms = 1;
    for (;;) {
        if (!kill_children()) {
            /* At least the command; it also has its own PR_SET_PDEATHSIG. */
            if (command > 0)
                kill(command, SIGKILL);
            _exit(1);
        }
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            pause_ms = 1;
        if (pid < 0 && errno == ECHILD)
            _exit(0);
        /* One of them is slow to die, or we may not kill it. */
        poll(NULL, 0, pause_ms);
        pause_ms = pause_ms < 500 ? pause_ms * 2 : 1000;
    }
}

/* Reaps dead children; returns 0 if the command is among them, else `command`. */
static pid_t reap(pid_t command)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == command) {
            report(REPORT, ONCE_GUARD_EXITED, status);
            command = 0;
        }
    }
    return command;
}

static _Noreturn void watch(int signals, pid_t command, pid_t once)
{
    for (;;) {
        struct pollfd fds[] = { { .fd = signals, .events = POLLIN }, { .fd = CONTROL, .events = POLLIN } };
        if (poll(fds, 2, -1) < 0)
            continue;
        if (fds[0].revents != 0) {
            struct signalfd_siginfo info;
            ssize_t n = read(signals, &info, sizeof info);
            (void)n; /* no matter which signal: both causes are checked */
        }
        command = reap(command);
        if (getppid() != once)
            kill_all(command);
        if (fds[1].revents != 0) {
            uint8_t order;
            if (read(CONTROL, &order, 1) != 1)
                kill_all(command);
            if (order == LET_GO)
                _exit(0);
            if (command > 0)
                kill(command, order);
        }
    }
}

static _Noreturn void guardian(const struct pipes *pipes, const struct once_guard_command *command, pid_t once)
{
    prctl(PR_SET_PDEATHSIG, SIGCONT);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* Not prctl(): AddressSanitizer's takes a lock that another thread may have held at the fork. */
    syscall(SYS_prctl, PR_SET_NAME, "once-guard", 0, 0, 0);
    if (getppid() != once)
        _exit(0);
    /* An ignored SIGCHLD would be inherited, and waitpid() would not work. */
    struct sigaction standard = { .sa_handler = SIG_DFL }, child_action;
    sigaction(SIGCHLD, &standard, &child_action);
    pid_t self = getpid();
    pid_t pid = fork();
    if (pid == 0)
        execute(pipes, command, &child_action, self);
    report(pipes->report[1], pid > 0 ? ONCE_GUARD_SPAWNED : ONCE_GUARD_FAILED, pid > 0 ? pid : errno);
    if (pid < 0)
        _exit(1);
    /* Leave the process group of the command and `once`: if that whole group is killed, the
     * guardian must survive to kill the processes that left the group. A new session, not
     * only a group: otherwise their group would not count as orphaned. */
    setsid();
    /* Close the pipes, since `once` waits for their end, the store's file, since its lock must
     * not outlive `once`, and all other inherited descriptors. */
    close(pipes->out[1]);
    close(pipes->err[1]);
    dup2(pipes->control[0], CONTROL);
    dup2(pipes->report[1], REPORT);
    close_range(REPORT + 1, ~0u, 0);
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    sigaddset(&wanted, SIGCONT);
    watch(signalfd(-1, &wanted, SFD_CLOEXEC), pid, once);
}

/* ---------------------------------------------------------------- in once itself */

static void pipes_close(const struct pipes *pipes)
{
    const int *ends = (const int *)pipes;
    for (size_t i = 0; i < sizeof *pipes / sizeof *ends; i++)
        if (ends[i] >= 0)
            close(ends[i]);
}

static int pipes_open(struct pipes *pipes)
{
    *pipes = (struct pipes){ { -1, -1 }, { -1, -1 }, { -1, -1 }, { -1, -1 } };
    if (pipe2(pipes->report, O_CLOEXEC) == 0 && pipe2(pipes->control, O_CLOEXEC) == 0 &&
        pipe2(pipes->out, O_CLOEXEC) == 0 && pipe2(pipes->err, O_CLOEXEC) == 0) {
        assert(pipes->report[0] > STDERR_FILENO);
        return 0;
    }
    int error = errno;
    pipes_close(pipes);
    return error;
}

int once_guard_start(struct once_guard *guard, const struct once_guard_command *command)
{
    struct pipes pipes;
    int error = pipes_open(&pipes);
    if (error != 0)
        return error;
    pid_t once = getpid();
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0) {
        close(pipes.control[1]); /* otherwise the guardian itself would keep its control pipe open */
        guardian(&pipes, command, once);
    }
    error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0) {
        pipes_close(&pipes);
        return error;
    }
    close(pipes.report[1]);
    close(pipes.control[0]);
    close(pipes.out[1]);
    close(pipes.err[1]);
    *guard = (struct once_guard){ pid, pipes.report[0], pipes.control[1], pipes.out[0], pipes.err[0] };
    return 0;
}

struct once_guard_report once_guard_read(const struct once_guard *guard)
{
    struct once_guard_report message;
    ssize_t n;
    do
        n = read(guard->report, &message, sizeof message);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof message ? message : (struct once_guard_report){ ONCE_GUARD_GONE, 0 };
}

void once_guard_signal(const struct once_guard *guard, int signal)
{
    uint8_t order = (uint8_t)signal;
    ssize_t n = write(guard->control, &order, 1);
    (void)n; /* the report pipe shows that the guardian is gone */
}

void once_guard_end(struct once_guard *guard)
{
    once_guard_signal(guard, LET_GO);
    /* ECHILD: SIGCHLD is ignored, and the guardian is gone already. */
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    close(guard->report);
    close(guard->control);
    if (guard->out >= 0)
        close(guard->out);
    if (guard->err >= 0)
        close(guard->err);
    *guard = (struct once_guard){ 0, -1, -1, -1, -1 };
}
