/* supervisor.c - see serve/supervisor.h. */
#include "serve/supervisor.h"

#include "os/notify.h"
#include "os/os.h"
#include "os/stderr_log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    NGINX_GRACE_MS = 30000,  /* for requests in flight, after QUIT */
    DAEMON_GRACE_MS = 30000, /* after TERM: a large store is closed in a few seconds */
    LAST_GRACE_MS = 5000,    /* nginx, after TERM */
    SAME_SIGNAL_MS = 500,    /* one Ctrl-C may arrive twice: to us and to our group */
    POLL_EVERY_MS = 20,      /* for a pid file or the end of a group, which send no event */
    REMIND_EVERY_MS = 10000,
};

static void say(const char *name, const char *what)
{
    once_os_log("once serve", "%s %s", name, what);
}

/* ---------------------------------------------------------------- starting */

static bool take_daemon_line(void *arg, const char *line)
{
    struct once_serve_supervisor *s = arg;
    if (strncmp(line, "once: ready:", 12) != 0)
        return false;
    if (s->phase == ONCE_SERVE_SERVING)
        say("daemon", "is up again");
    const char *http = strstr(line, ", http ");
    if (http != NULL)
        snprintf(s->http, sizeof s->http, "%s", http + 7);
    s->daemon_ready = true;
    return true;
}

static bool start(struct once_serve_supervisor *s, struct once_serve_child *child)
{
    if (child == &s->daemon)
        s->daemon_ready = false;
    else
        unlink(s->pid_file); /* left by a master that was killed */
    int error = once_serve_child_start(child, &s->mask);
    if (error == 0)
        return true;
    once_os_log("once serve", "cannot start %s (%s): %s", child->name, child->program, strerror(error));
    return false;
}

static bool nginx_has_pid_file(const struct once_serve_supervisor *s)
{
    char text[32] = "";
    int fd = open(s->pid_file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    return n > 0 && s->nginx.pid > 0 && strtol(text, NULL, 10) == s->nginx.pid;
}

/* ---------------------------------------------------------------- stopping */

static void end_daemon(struct once_serve_supervisor *s)
{
    s->phase = ONCE_SERVE_ENDING_DAEMON;
    s->deadline = once_os_monotonic_ms() + DAEMON_GRACE_MS;
    once_serve_child_signal(&s->daemon, SIGTERM);
}

static void end_all(struct once_serve_supervisor *s)
{
    s->phase = ONCE_SERVE_ENDING_NGINX;
    once_os_notify("STOPPING=1");
    s->deadline = once_os_monotonic_ms() + NGINX_GRACE_MS;
    if (s->nginx.pid > 0)
        once_serve_child_signal(&s->nginx, SIGQUIT);
    else
        once_serve_child_sweep(&s->nginx, SIGQUIT); /* workers of a master that died */
}

/* A child failed during the start. */
static void give_up(struct once_serve_supervisor *s, int exit)
{
    s->exit = exit;
    end_all(s);
}

/* The grace period is over, or a second signal came: stop by force. */
static void force_stop(struct once_serve_supervisor *s)
{
    s->hurry++;
    if (s->phase == ONCE_SERVE_ENDING_DAEMON) {
        say("daemon", "does not stop and is killed; acknowledged operations are stored");
        once_serve_child_sweep(&s->daemon, SIGKILL);
        s->deadline = INT64_MAX;
    } else if (s->hurry == 1) {
        say("nginx", "still has requests in flight; they are cut off");
        once_serve_child_sweep(&s->nginx, SIGTERM);
        s->deadline = once_os_monotonic_ms() + LAST_GRACE_MS;
    } else {
        say("nginx", "does not stop and is killed");
        once_serve_child_sweep(&s->nginx, SIGKILL);
        s->deadline = INT64_MAX;
    }
}

/* ---------------------------------------------------------------- signals */

static void child_ended(struct once_serve_supervisor *s, struct once_serve_child *child, int status)
{
    char text[80], message[160];
    once_serve_child_read(child); /* print its last lines first */
    once_serve_child_ended(child, status);
    once_serve_child_end_text(child, text);
    switch (s->phase) {
    case ONCE_SERVE_DAEMON:
    case ONCE_SERVE_NGINX:
        snprintf(message, sizeof message, "%s before it was ready", text);
        say(child->name, message);
        /* The daemon's exit code tells why it could not open the store. */
        give_up(s, child == &s->daemon && WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status)
                                                                                        : ONCE_EXIT_UNAVAILABLE);
        break;
    case ONCE_SERVE_SERVING:
        snprintf(message, sizeof message, "%s; it is restarted in %lld ms", text,
                 (long long)(child->restart_at - once_os_monotonic_ms()));
        say(child->name, message);
        if (child == &s->nginx)
            once_serve_child_sweep(child, SIGQUIT); /* its workers still listen */
        break;
    default:
        break;
    }
}

static void reap(struct once_serve_supervisor *s)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid == s->daemon.pid)
            child_ended(s, &s->daemon, status);
        else if (pid == s->nginx.pid)
            child_ended(s, &s->nginx, status);
        /* Other pids are workers of an nginx master that died. */
    }
}

static void reload(struct once_serve_supervisor *s)
{
    if (s->nginx.pid == 0)
        return;
    say("nginx", "reloads its configuration and certificates");
    once_serve_child_signal(&s->nginx, SIGHUP);
}

/* HUP from a closed terminal means stop: no Ctrl-C can come from there any more. */
static bool is_hung_up(const struct once_serve_supervisor *s, int signal)
{
    return signal == SIGHUP && s->terminal && !isatty(STDERR_FILENO);
}

static void take_signals(struct once_serve_supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int signal = (int)info.ssi_signo;
        if (signal == SIGCHLD)
            reap(s);
        else if (signal == SIGHUP && !is_hung_up(s, signal))
            reload(s);
        else if (signal == SIGUSR1) {
            if (s->daemon.pid != 0)
                once_serve_child_signal(&s->daemon, SIGUSR1); /* its log */
        } else if (s->phase >= ONCE_SERVE_ENDING_NGINX) {
            if (once_os_monotonic_ms() >= s->hurry_from)
                force_stop(s);
        } else {
            s->hurry_from = once_os_monotonic_ms() + SAME_SIGNAL_MS;
            once_os_log("once serve", "stopping: requests in flight finish first; signal again to stop at once");
            end_all(s);
        }
    }
}

bool once_serve_is_to_end(const struct once_serve_supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int signal = (int)info.ssi_signo;
        if (signal == SIGINT || signal == SIGTERM || signal == SIGQUIT || is_hung_up(s, signal))
            return true;
    }
    return false;
}

int once_serve_watch(struct once_serve_supervisor *s)
{
    static const int wanted[] = { SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGCHLD };
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        /* Even if they were ignored (nohup, `once serve &` in a script): `once serve` handles all
         * of them. The children get the default action. */
        signal(wanted[i], SIG_DFL);
        sigaddset(&set, wanted[i]);
    }
    signal(SIGPIPE, SIG_DFL);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->signals < 0)
        return errno;
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, &s->mask);
    /* Workers of a master that died become our children, so that SIGCHLD reports their end. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    s->terminal = isatty(STDERR_FILENO);
    return 0;
}

/* ---------------------------------------------------------------- the loop */

static void restart_due(struct once_serve_supervisor *s, struct once_serve_child *child, int64_t now)
{
    if (child->pid != 0 || child->restart_at == 0 || now < child->restart_at)
        return;
    if (!start(s, child))
        child->restart_at = now + REMIND_EVERY_MS;
}

static void remark_on_waiting(struct once_serve_supervisor *s, int64_t now)
{
    if (now < s->remark_at)
        return;
    if (s->remark_at > 0)
        say(s->phase == ONCE_SERVE_DAEMON ? "daemon" : "nginx", "is not ready yet; still waiting");
    s->remark_at = now + REMIND_EVERY_MS;
}

static void step(struct once_serve_supervisor *s)
{
    int64_t now = once_os_monotonic_ms();
    switch (s->phase) {
    case ONCE_SERVE_DAEMON:
        if (s->daemon_ready || !s->has_daemon) {
            s->phase = ONCE_SERVE_NGINX;
            s->remark_at = 0;
            if (!start(s, &s->nginx))
                give_up(s, ONCE_EXIT_OS);
        }
        remark_on_waiting(s, now);
        break;
    case ONCE_SERVE_NGINX:
        if (nginx_has_pid_file(s)) {
            s->phase = ONCE_SERVE_SERVING;
            s->ready(s->arg, s->http);
        }
        remark_on_waiting(s, now);
        break;
    case ONCE_SERVE_SERVING:
        restart_due(s, &s->daemon, now);
        restart_due(s, &s->nginx, now);
        break;
    case ONCE_SERVE_ENDING_NGINX:
        if (s->nginx.pid == 0 && !once_serve_child_sweep(&s->nginx, 0))
            end_daemon(s);
        else if (now >= s->deadline)
            force_stop(s);
        break;
    case ONCE_SERVE_ENDING_DAEMON:
        if (s->daemon.pid == 0 && !once_serve_child_sweep(&s->daemon, 0))
            s->phase = ONCE_SERVE_OVER;
        else if (now >= s->deadline)
            force_stop(s);
        break;
    case ONCE_SERVE_OVER:
        break;
    }
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The timeout for poll(2) until the next timed action; -1: no timeout. */
static int time_to_wait(const struct once_serve_supervisor *s)
{
    int64_t now = once_os_monotonic_ms(), at = INT64_MAX;
    if (s->phase == ONCE_SERVE_SERVING) {
        if (s->daemon.pid == 0 && s->daemon.restart_at > 0)
            at = s->daemon.restart_at;
        if (s->nginx.pid == 0 && s->nginx.restart_at > 0)
            at = earlier(at, s->nginx.restart_at);
    } else if (s->phase == ONCE_SERVE_DAEMON) {
        at = s->remark_at;
    } else {
        at = now + POLL_EVERY_MS;
    }
    if (at == INT64_MAX)
        return -1;
    return at <= now ? 0 : (int)(at - now);
}

int once_serve_supervise(struct once_serve_supervisor *s)
{
    s->daemon.take_line = take_daemon_line;
    s->daemon.arg = s;
    s->phase = ONCE_SERVE_DAEMON;
    snprintf(s->http, sizeof s->http, "off");
    if (s->has_daemon && !start(s, &s->daemon))
        give_up(s, ONCE_EXIT_OS);
    while (step(s), s->phase != ONCE_SERVE_OVER) {
        struct pollfd fds[] = {
            { .fd = s->signals, .events = POLLIN },
            { .fd = s->daemon.output, .events = POLLIN },
            { .fd = s->nginx.output, .events = POLLIN },
        };
        poll(fds, sizeof fds / sizeof *fds, time_to_wait(s));
        once_serve_child_read(&s->daemon);
        once_serve_child_read(&s->nginx);
        take_signals(s);
    }
    close(s->signals);
    return s->exit;
}
