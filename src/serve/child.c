/* child.c - see serve/child.h. */
#include "serve/child.h"

#include "core/backoff.h"
#include "os/os.h"
#include "os/stderr_log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    BACKOFF_MS_FIRST = 100, /* doubled with every failure in a row */
    BACKOFF_MS_MAX = 5000,
    STABLE_MS = 30000, /* a child that ran this long starts a new row of failures */
};

void once_serve_child_init(struct once_serve_child *child, const char *name, const char *program)
{
    *child = (struct once_serve_child){ .name = name, .program = program, .output = -1, .death_signal = SIGTERM };
}

void once_serve_child_add(struct once_serve_child *child, const char *argument)
{
    size_t n = 0;
    while (child->argv[n] != NULL)
        n++;
    assert(n < ONCE_SERVE_ARGC_MAX);
    child->argv[n] = argument;
}

/* ---------------------------------------------------------------- starting */

static int become(const struct once_serve_user *user)
{
    if (user == NULL || user->uid == 0)
        return 0;
    if (initgroups(user->name, user->gid) != 0 || setgid(user->gid) != 0 || setuid(user->uid) != 0)
        return errno;
    setenv("HOME", user->home, 1);
    setenv("USER", user->name, 1);
    setenv("LOGNAME", user->name, 1);
    unsetenv("XDG_STATE_HOME");
    unsetenv("XDG_RUNTIME_DIR");
    return 0;
}

/* nginx does not get the store's credentials: an attacker who controls a worker can read its environment. */
static void unset_secrets(void)
{
    static const char *const names[] = { "ONCE_STORE",          "ONCE_RELAY_STORE",    "ONCE_CONSUME_STORE",
                                         "ONCE_CONSOLE_OUTBOX", "ONCE_REDIS_PASSWORD", "PGPASSWORD" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

static int in_child(const struct once_serve_child *child, const sigset_t *mask, int output, pid_t parent)
{
    /* Join the group of an nginx master that died while it still has workers. */
    if (child->group == 0 || setpgid(0, child->group) != 0)
        setpgid(0, 0);
    int null = open("/dev/null", O_RDONLY);
    once_os_log_inherit(output);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0)
        return errno;
    close(null);
    unsetenv("NOTIFY_SOCKET"); /* only `once serve` itself reports to the service manager */
    unsetenv("NGINX");         /* nginx would read it as a list of inherited sockets */
    if (strcmp(child->name, "nginx") == 0) {
        unset_secrets();
        setenv("TZ", "UTC", 1); /* log lines in UTC, as those of the other processes */
    }
    for (size_t i = 0; i < ONCE_SERVE_ENV_MAX; i++)
        if (child->env[i].name != NULL)
            setenv(child->env[i].name, child->env[i].value, 1);
    int error = become(child->user);
    if (error != 0)
        return error;
    /* Only now, because changing the user resets it. */
    prctl(PR_SET_PDEATHSIG, child->death_signal);
    if (getppid() != parent)
        _exit(1);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execv(child->program, (char **)(uintptr_t)child->argv);
    return errno;
}

int once_serve_child_start(struct once_serve_child *child, const sigset_t *mask)
{
    int output[2], report[2];
    assert(child->pid == 0);
    if (pipe2(output, O_CLOEXEC) != 0)
        return errno;
    if (pipe2(report, O_CLOEXEC) != 0) {
        int error = errno;
        close(output[0]);
        close(output[1]);
        return error;
    }
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        int error = in_child(child, mask, output[1], parent);
        ssize_t n = write(report[1], &error, sizeof error);
        (void)n;
        _exit(127);
    }
    int error = pid < 0 ? errno : 0;
    close(output[1]);
    close(report[1]);
    /* A successful exec closes the pipe, and the read returns 0. */
    if (pid > 0 && read(report[0], &error, sizeof error) == (ssize_t)sizeof error)
        waitpid(pid, NULL, 0);
    close(report[0]);
    if (error != 0) {
        close(output[0]);
        return error;
    }
    if (child->output >= 0)
        close(child->output); /* still held by workers of a master that died; they are being stopped */
    fcntl(output[0], F_SETFL, O_NONBLOCK);
    child->output = output[0];
    child->pid = pid;
    child->group = getpgid(pid) > 0 ? getpgid(pid) : pid;
    child->started_at = once_os_monotonic_ms();
    child->restart_at = 0;
    child->line_len = 0;
    return 0;
}

/* ---------------------------------------------------------------- its output */

static bool begins_with(const char *line, const char *prefix)
{
    return strncmp(line, prefix, strlen(prefix)) == 0;
}

/* True if the line already begins with the child's name, as some lines of nginx do and the daemon's own
 * (os/stderr_log.h), the latter after a timestamp if they have one. */
static bool names_itself(const char *name, const char *line)
{
    char remark[32];
    size_t name_len = strlen(name), time_len = strcspn(line, " ");
    snprintf(remark, sizeof remark, "once %s: ", name);
    return (strncmp(line, name, name_len) == 0 && line[name_len] == ':') || begins_with(line, remark) ||
           (line[time_len] == ' ' && time_len > 0 && line[time_len - 1] == 'Z' &&
            begins_with(line + time_len + 1, remark));
}

/* A line of the decision log (daemon/observers/decisions.h) is JSON or logfmt; a name before it would break that. */
static bool is_decision(const char *line)
{
    return begins_with(line, "{\"time\":\"") || begins_with(line, "time=");
}

/* Writes a NUL at line[len], which must be inside the buffer. */
static void pass_on(const struct once_serve_child *child, char *line, size_t len)
{
    char text[ONCE_SERVE_LINE_LEN_MAX + 64];
    while (len > 0 && line[len - 1] == '\r')
        len--;
    /* A log line may contain bytes of a request, and control characters could change a terminal. */
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)line[i] < 0x20 && line[i] != '\t') || line[i] == 0x7f)
            line[i] = '?';
    line[len] = '\0';
    if (len == 0 || (child->take_line != NULL && child->take_line(child->arg, line)))
        return;
    bool named = names_itself(child->name, line) || is_decision(line);
    int n = snprintf(text, sizeof text, "%s%s%s\n", named ? "" : child->name, named ? "" : ": ", line);
    if (n > 0)
        once_os_log_forward("once serve", text, (size_t)n);
}

static void pass_on_lines(struct once_serve_child *child)
{
    char *begin = child->line, *end = child->line + child->line_len, *newline;
    while ((newline = memchr(begin, '\n', (size_t)(end - begin))) != NULL) {
        pass_on(child, begin, (size_t)(newline - begin));
        begin = newline + 1;
    }
    child->line_len = (size_t)(end - begin);
    memmove(child->line, begin, child->line_len);
    if (child->line_len == sizeof child->line - 1) {
        pass_on(child, child->line, child->line_len);
        child->line_len = 0;
    }
}

void once_serve_child_read(struct once_serve_child *child)
{
    while (child->output >= 0) {
        ssize_t n = read(child->output, child->line + child->line_len, sizeof child->line - 1 - child->line_len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n > 0) {
            child->line_len += (size_t)n;
            pass_on_lines(child);
            continue;
        }
        if (child->line_len > 0)
            pass_on(child, child->line, child->line_len);
        child->line_len = 0;
        close(child->output);
        child->output = -1;
    }
}

/* ---------------------------------------------------------------- its end */

void once_serve_child_ended(struct once_serve_child *child, int status)
{
    static const struct once_backoff backoff = { BACKOFF_MS_FIRST, BACKOFF_MS_MAX, ONCE_JITTER_NONE };
    int64_t now = once_os_monotonic_ms();
    child->pid = 0;
    child->status = status;
    if (now - child->started_at >= STABLE_MS)
        child->failures = 0;
    child->restart_at = now + once_backoff_ms(backoff, child->failures++, 0);
}

void once_serve_child_end_text(const struct once_serve_child *child, char out[80])
{
    if (WIFSIGNALED(child->status))
        snprintf(out, 80, "was killed by signal %d (%s)", WTERMSIG(child->status), strsignal(WTERMSIG(child->status)));
    else
        snprintf(out, 80, "exited with status %d", WEXITSTATUS(child->status));
}

void once_serve_child_signal(const struct once_serve_child *child, int signal)
{
    if (child->pid > 0)
        kill(child->pid, signal);
}

bool once_serve_child_sweep(const struct once_serve_child *child, int signal)
{
    return child->group > 0 && kill(-child->group, signal) == 0;
}
