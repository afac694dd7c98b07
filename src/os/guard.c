/*
 * guard.c - see guard.h.
 *
 * The guardian is forked from a process with threads and never executes another
 * program, so everything in it keeps to what is safe in a signal handler: no malloc,
 * no stdio, nothing that takes a lock. It is born with every signal blocked and looks
 * at them through a signalfd; so Ctrl-C and kill cannot end it, and Ctrl-Z not stop it.
 *
 * How it learns that `once` is gone: PR_SET_PDEATHSIG, and the end of the control pipe.
 * The death signal is SIGCONT, because that one also wakes a guardian that somebody
 * stopped with SIGSTOP. A parent that died before PR_SET_PDEATHSIG took effect is found
 * out by getppid().
 *
 * How it finds the descendants: it is their subreaper, so whoever loses his parent
 * becomes its child. Killing its children again and again until it has none left gets
 * all of them, also those forked in the meantime.
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
    LET_GO = 0,  /* on the control pipe: everything else is a signal's number */
    CONTROL = 0, /* the guardian's descriptors, once the command is forked */
    REPORT = 1,
};

struct pipes {
    int report[2], control[2], out[2], err[2];
};

/* ---------------------------------------------------------------- after the fork */

static void report(int fd, enum once_guard_news news, int value)
{
    struct once_guard_report message = { (int32_t)news, value };
    /* Shorter than PIPE_BUF, hence whole or not at all; not at all means that `once` is
     * gone, which is noticed elsewhere. */
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

/* SIGKILL to each of our children. False: /proc does not tell them. */
static bool kill_children(void)
{
    int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    char text[4096]; /* more children than fit are next time's */
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
            /* The command, at least; it also has its own PR_SET_PDEATHSIG. */
            if (command > 0)
                kill(command, SIGKILL);
            _exit(1);
        }
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            pause_ms = 1;
        if (pid < 0 && errno == ECHILD)
            _exit(0);
        /* One of them takes its time to die, or may not be killed by us. */
        poll(NULL, 0, pause_ms);
        pause_ms = pause_ms < 500 ? pause_ms * 2 : 1000;
    }
}

/* Collects who died; 0 instead of `command` once it is among them. */
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
            (void)n; /* which one does not matter: both are looked for */
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
    /* Not by prctl(): AddressSanitizer's takes a lock that another thread may have held at the fork. */
    syscall(SYS_prctl, PR_SET_NAME, "once-guard", 0, 0, 0);
    if (getppid() != once)
        _exit(0);
    /* Ignored SIGCHLD would be inherited, and then nobody could be waited for. */
    struct sigaction standard = { .sa_handler = SIG_DFL }, child_action;
    sigaction(SIGCHLD, &standard, &child_action);
    pid_t self = getpid();
    pid_t pid = fork();
    if (pid == 0)
        execute(pipes, command, &child_action, self);
    report(pipes->report[1], pid > 0 ? ONCE_GUARD_SPAWNED : ONCE_GUARD_FAILED, pid > 0 ? pid : errno);
    if (pid < 0)
        _exit(1);
    /* Out of the group that the command and `once` are in: what kills all of that must leave
     * somebody to kill those who left it. A session of its own, not only a group: else the
     * kernel would count on us for whether their group is orphaned. */
    setsid();
    /* Let go of the pipes, whose end `once` waits for, of the store's file and of whatever
     * we were started with; a lock on it must not outlive `once`. */
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
        close(pipes.control[1]); /* else it would keep its own control pipe open */
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
    (void)n; /* a guardian that is gone shows at its report */
}

void once_guard_end(struct once_guard *guard)
{
    once_guard_signal(guard, LET_GO);
    /* ECHILD: we were started with SIGCHLD ignored, and it is gone already. */
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
