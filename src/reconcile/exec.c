/*
 * exec.c - asks about keys by running a command for each, some at a time.
 *
 * The command is a line for the shell. The key is its last argument ("$@" is appended) and never
 * part of the line, so that no byte of a key is code. A key that begins with '-' could be read as
 * an option of the command; such a key is not asked about.
 *
 * Only output on standard output together with exit status 0 is an answer. Anything else, also
 * no output, is an error: programs fail in too many ways for an exit status to mean "there is no
 * such charge".
 *
 * Each command has its own process group, which is killed when its timeout is over, when it
 * prints more than the limit, and when a signal ends this program.
 */
#include "reconcile/reconcile.h"

#include "core/span.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

struct job {
    const struct reconcile_question *question; /* NULL: free */
    pid_t pid;
    int pidfd, output;
    once_time until; /* monotonic */
    struct once_buf text;
    const char *error;
};

struct jobs {
    struct reconcile *r;
    struct job *all;
    size_t count; /* length of `all` */
    reconcile_answered_fn *answered;
};

/* ---------------------------------------------------------------- starting */

static int spawn(struct jobs *jobs, struct job *job, const char *key)
{
    char script[4096];
    int n = snprintf(script, sizeof script, "%s \"$@\"", jobs->r->command);
    if (n < 0 || n >= (int)sizeof script)
        return E2BIG;
    int output[2];
    if (pipe2(output, O_CLOEXEC) != 0)
        return errno;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    sigset_t standard;
    sigemptyset(&standard);
    sigaddset(&standard, SIGPIPE);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &jobs->r->signals.mask);
    posix_spawnattr_setsigdefault(&attributes, &standard);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    char shell[] = "sh", option[] = "-c", name[] = "once-reconcile";
    char *argv[] = { shell, option, script, name, (char *)(uintptr_t)key, NULL };
    int error = posix_spawn(&job->pid, "/bin/sh", &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(output[1]);
    if (error != 0) {
        close(output[0]);
        return error;
    }
    fcntl(output[0], F_SETFL, O_NONBLOCK);
    job->output = output[0];
    job->pidfd = pidfd_open(job->pid, 0);
    if (job->pidfd >= 0)
        return 0;
    error = errno;
    kill(-job->pid, SIGKILL);
    waitpid(job->pid, NULL, 0);
    close(job->output);
    return error;
}

/* 0 or an exit code. A key that cannot be asked about is answered with an error at once. */
static int start(struct jobs *jobs, struct job *job, const struct reconcile_question *question)
{
    once_span match = question->match.key;
    char key[ONCE_KEY_LEN_MAX + 1];
    if (match.len == 0 || match.len > ONCE_KEY_LEN_MAX || match.ptr[0] == '-' ||
        memchr(match.ptr, '\0', match.len) != NULL)
        return jobs->answered(jobs->r, question, "such a key is not passed to a command: it could be read as an option",
                              false, ONCE_LIT(""));
    memcpy(key, match.ptr, match.len);
    key[match.len] = '\0';
    int error = spawn(jobs, job, key);
    if (error != 0)
        return once_cli_fail(&jobs->r->cli, ONCE_EXIT_OS, "cannot run the command: %s", strerror(error));
    once_buf_init(&job->text, RECONCILE_ANSWER_LEN_MAX);
    job->error = NULL;
    job->until = once_os_monotonic_ms() + jobs->r->timeout_ms;
    job->question = question;
    return ONCE_EXIT_OK;
}

/* ---------------------------------------------------------------- running */

static void give_up(struct job *job, const char *error)
{
    if (job->error == NULL)
        job->error = error;
    kill(-job->pid, SIGKILL);
}

/* Reads what has arrived. At its end the pipe is closed, because poll(2) would report it forever. */
static void drain(struct job *job)
{
    uint8_t chunk[16384];
    while (job->output >= 0) {
        ssize_t n = read(job->output, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            close(job->output);
            job->output = -1;
            return;
        }
        once_buf_add(&job->text, once_span_of(chunk, (size_t)n));
        if (job->text.result != ONCE_OK) {
            give_up(job, "the command printed more than 1 MiB");
            close(job->output);
            job->output = -1;
        }
    }
}

/* The command has exited. Processes left in its group are killed. */
static int finish(struct jobs *jobs, struct job *job, bool report)
{
    char text[80];
    int status = 0;
    drain(job);
    kill(-job->pid, SIGKILL);
    while (waitpid(job->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (job->output >= 0)
        close(job->output);
    close(job->pidfd);
    if (job->error == NULL && WIFSIGNALED(status)) {
        snprintf(text, sizeof text, "the command was killed by signal %d", WTERMSIG(status));
        job->error = text;
    } else if (job->error == NULL && WEXITSTATUS(status) != 0) {
        snprintf(text, sizeof text, "the command exited with %d", WEXITSTATUS(status));
        job->error = text;
    } else if (job->error == NULL && job->text.len == 0) {
        job->error = "the command printed nothing";
    }
    int exit =
        report ? jobs->answered(jobs->r, job->question, job->error, false, once_buf_span(&job->text)) : ONCE_EXIT_OK;
    once_buf_release(&job->text);
    job->question = NULL;
    return exit;
}

/* Waits for output, the end or the timeout of a job. */
static int turn(struct jobs *jobs)
{
    struct pollfd fds[2 * RECONCILE_JOBS_MAX + 1];
    struct job *of[2 * RECONCILE_JOBS_MAX + 1];
    nfds_t count = 0;
    once_time now = once_os_monotonic_ms(), next = now + 60000;
    fds[count++] = (struct pollfd){ .fd = jobs->r->signals.fd, .events = POLLIN };
    for (size_t i = 0; i < jobs->count; i++) {
        struct job *job = &jobs->all[i];
        if (job->question == NULL)
            continue;
        if (job->until <= now)
            give_up(job, "the command took too long");
        else if (job->until < next)
            next = job->until;
        of[count] = job;
        fds[count++] = (struct pollfd){ .fd = job->pidfd, .events = POLLIN };
        of[count] = job;
        fds[count++] = (struct pollfd){ .fd = job->output, .events = POLLIN };
    }
    if (poll(fds, count, (int)(next - now)) < 0)
        return ONCE_EXIT_OK; /* a signal, which the caller handles */
    for (nfds_t i = 1; i + 1 < count; i += 2) {
        if (fds[i + 1].revents != 0)
            drain(of[i]);
        if (fds[i].revents != 0) {
            int exit = finish(jobs, of[i], true);
            if (exit != ONCE_EXIT_OK)
                return exit;
        }
    }
    return ONCE_EXIT_OK;
}

static size_t busy(const struct jobs *jobs)
{
    size_t n = 0;
    for (size_t i = 0; i < jobs->count; i++)
        n += jobs->all[i].question != NULL;
    return n;
}

static int start_some(struct jobs *jobs, const struct reconcile_question *questions, size_t count, size_t *asked)
{
    int exit = ONCE_EXIT_OK;
    for (size_t i = 0; i < jobs->count && exit == ONCE_EXIT_OK; i++)
        while (jobs->all[i].question == NULL && *asked < count && exit == ONCE_EXIT_OK)
            exit = start(jobs, &jobs->all[i], &questions[(*asked)++]);
    return exit;
}

int reconcile_exec(struct reconcile *r, const struct reconcile_question *questions, size_t count,
                   reconcile_answered_fn *answered)
{
    struct jobs jobs = { .r = r, .count = r->jobs, .answered = answered };
    jobs.all = calloc(jobs.count, sizeof *jobs.all);
    if (jobs.all == NULL)
        return once_cli_fail(&r->cli, ONCE_EXIT_OS, "out of memory");
    size_t asked = 0;
    int exit = ONCE_EXIT_OK;
    while (exit == ONCE_EXIT_OK && !reconcile_is_interrupted(r)) {
        exit = start_some(&jobs, questions, count, &asked);
        if (busy(&jobs) == 0)
            break;
        if (exit == ONCE_EXIT_OK)
            exit = turn(&jobs);
    }
    for (size_t i = 0; i < jobs.count; i++)
        if (jobs.all[i].question != NULL) {
            kill(-jobs.all[i].pid, SIGKILL);
            finish(&jobs, &jobs.all[i], false);
        }
    free(jobs.all);
    return exit;
}
