/*
 * deliver_exec.c - see deliver.h: a message as standard input of a command.
 *
 * The command runs under a guardian (guard.h): if `once` dies, the command and all its descendants are killed, so that
 * no attempt goes on without its lease holder. Its output goes to our standard error; the end of it is the reason of a
 * failure. The environment has ONCE_KEY (the same for every attempt), ONCE_MESSAGE_ID, ONCE_CONSUMER, ONCE_TOPIC,
 * ONCE_MESSAGE_KEY, ONCE_CONTENT_TYPE, ONCE_FENCE, ONCE_ATTEMPT, and ONCE_HEADER_NAME for each header, its name in
 * capitals with _ for other characters than letters and digits. Values have no control characters; those that are too
 * long are left out.
 */
#include "messages/deliver.h"

#include "core/buf.h"
#include "core/span.h"
#include "messages/brokers/headers.h"
#include "os/guard.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    HEADERS_MOST = 64,       /* headers in the environment */
    VALUE_LEN_MAX = 8 << 10, /* of one variable */
    ENV_LEN_MAX = 128 << 10, /* of our variables together; the kernel accepts a quarter of the stack, 2 MiB */
    LOOK_MS = 200,
    KILL_AFTER_MS = 5000, /* after SIGTERM */
};

/* ------------------------------------------------------------------ the environment */

static void add_variable(struct once_buf *out, const char *name, once_span value)
{
    if (value.len > VALUE_LEN_MAX)
        return;
    once_buf_addf(out, "%s=", name);
    for (size_t i = 0; i < value.len; i++)
        once_buf_add_byte(out, value.ptr[i] < ' ' || value.ptr[i] == 0x7f ? '?' : value.ptr[i]);
    once_buf_add_byte(out, '\0');
}

static void add_headers(struct once_buf *out, once_span lines)
{
    once_span name, value;
    for (int i = 0; i < HEADERS_MOST && headers_next(&lines, &name, &value); i++) {
        char variable[80] = "ONCE_HEADER_";
        if (name.len > 60)
            continue;
        size_t at = strlen(variable);
        for (size_t j = 0; j < name.len; j++) {
            uint8_t c = name.ptr[j];
            variable[at++] = (char)((c >= 'a' && c <= 'z')                             ? c - 32
                                    : (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c
                                                                                       : '_');
        }
        variable[at] = '\0';
        if (out->len + value.len < ENV_LEN_MAX - 100)
            add_variable(out, variable, value);
    }
}

static void add_variables(struct once_buf *out, const struct delivery_call *call)
{
    const struct incoming *m = call->incoming;
    const struct once_record *record = once_attempt_record(call->attempt);
    char key[ONCE_CHILD_KEY_LEN + 1];
    once_attempt_child_key(call->attempt, ONCE_LIT("consume"), key);
    once_buf_addf(out, "ONCE_KEY=%s%c", key, 0);
    once_buf_addf(out, "ONCE_FENCE=%" PRIu64 "%c", record->grant.fence, 0);
    once_buf_addf(out, "ONCE_ATTEMPT=%" PRIu32 "%c", record->attempt, 0);
    add_variable(out, "ONCE_CONSUMER", call->consumer);
    add_variable(out, "ONCE_MESSAGE_ID", call->id);
    add_variable(out, "ONCE_TOPIC", m->message.topic);
    add_variable(out, "ONCE_CONTENT_TYPE", m->message.content_type);
    if (m->message.has_key)
        add_variable(out, "ONCE_MESSAGE_KEY", m->message.key);
    add_headers(out, call->headers);
}

/* Variables of ours that this message does not set must not be inherited either. */
static bool is_own_variable(const char *variable)
{
    static const char *const prefixes[] = { "ONCE_KEY=",      "ONCE_FENCE=",        "ONCE_ATTEMPT=",
                                            "ONCE_CONSUMER=", "ONCE_MESSAGE_ID=",   "ONCE_MESSAGE_KEY=",
                                            "ONCE_TOPIC=",    "ONCE_CONTENT_TYPE=", "ONCE_HEADER_" };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static char **make_environment(struct once_buf *text)
{
    size_t count = 0, at = 0;
    while (environ[count] != NULL)
        count++;
    for (size_t i = 0; i < text->len; i++)
        count += text->ptr[i] == '\0';
    char **envp = calloc(count + 1, sizeof *envp);
    for (size_t i = 0; envp != NULL && environ[i] != NULL; i++)
        if (!is_own_variable(environ[i]))
            envp[at++] = environ[i];
    for (char *v = (char *)text->ptr, *end = v + text->len; envp != NULL && v < end; v += strlen(v) + 1)
        envp[at++] = v;
    return envp;
}

static int make_input(once_span payload)
{
    int fd = memfd_create("once-message", MFD_CLOEXEC);
    while (fd >= 0 && payload.len > 0) {
        ssize_t n = write(fd, payload.ptr, payload.len);
        if (n <= 0) {
            close(fd);
            return -1;
        }
        payload = once_span_skip(payload, (size_t)n);
    }
    if (fd >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

/* ------------------------------------------------------------------ its run */

struct exec {
    struct once_guard guard;
    bool failed, exited, lost;
    int error, wait_status;
    char output_end[160]; /* the end of its standard error */
    size_t said_len;
};

static void keep_said(struct exec *e, const char *bytes, size_t len)
{
    size_t room = sizeof e->output_end - 1;
    if (len > room) {
        bytes += len - room;
        len = room;
    }
    if (e->said_len + len > room) {
        size_t drop = e->said_len + len - room;
        memmove(e->output_end, e->output_end + drop, e->said_len - drop);
        e->said_len -= drop;
    }
    memcpy(e->output_end + e->said_len, bytes, len);
    e->said_len += len;
}

/* Reads the available output, up to a bound. False: the end. */
static bool pass_on(struct exec *e, int fd, bool keep)
{
    char chunk[8192];
    ssize_t n = read(fd, chunk, sizeof chunk);
    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    if (keep)
        keep_said(e, chunk, (size_t)n);
    for (ssize_t at = 0, wrote; at < n; at += wrote) {
        wrote = write(STDERR_FILENO, chunk + at, (size_t)(n - at));
        if (wrote < 0 && errno == EINTR)
            wrote = 0;
        else if (wrote < 0)
            break; /* our standard error cannot be written */
    }
    return true;
}

static void take_report(struct exec *e)
{
    struct once_guard_report report = once_guard_read(&e->guard);
    switch (report.news) {
    case ONCE_GUARD_SPAWNED:
        break;
    case ONCE_GUARD_FAILED:
        e->failed = true;
        e->error = report.value;
        break;
    case ONCE_GUARD_EXITED:
        e->exited = true;
        e->wait_status = report.value;
        break;
    default:
        e->exited = true;
        e->lost = !e->failed;
        break;
    }
}

/* True: the timeout has passed, or the lease is lost; the command was signalled. */
static bool stop_when_due(struct exec *e, const struct delivery_call *call, once_time *until, bool *signalled)
{
    once_time now = once_os_monotonic_ms();
    if (now < *until && (*signalled || once_attempt_is_held(call->attempt)))
        return *signalled;
    once_guard_signal(&e->guard, *signalled ? SIGKILL : SIGTERM);
    *signalled = true;
    *until = now + KILL_AFTER_MS;
    return true;
}

static void watch(struct exec *e, const struct target *target, const struct delivery_call *call, bool *timed_out)
{
    once_time until = once_os_monotonic_ms() + target->timeout_ms;
    int *const streams[] = { &e->guard.out, &e->guard.err };
    *timed_out = false;
    for (int i = 0; i < 2; i++)
        fcntl(*streams[i], F_SETFL, O_NONBLOCK);
    while (!e->exited) {
        struct pollfd fds[] = { { .fd = e->guard.report, .events = POLLIN },
                                { .fd = e->guard.out, .events = POLLIN },
                                { .fd = e->guard.err, .events = POLLIN } };
        if (poll(fds, 3, LOOK_MS) < 0)
            continue;
        for (int i = 0; i < 2; i++)
            if (fds[1 + i].revents != 0 && !pass_on(e, *streams[i], i == 1)) {
                close(*streams[i]);
                *streams[i] = -1;
            }
        if (fds[0].revents != 0)
            take_report(e);
        else
            stop_when_due(e, call, &until, timed_out);
    }
    for (int i = 0; i < 2; i++) /* reads its last output; a descendant that inherited the pipe is not waited for */
        for (struct pollfd p = { .fd = *streams[i], .events = POLLIN };
             p.fd >= 0 && poll(&p, 1, 0) > 0 && pass_on(e, p.fd, i == 1);)
            ;
}

static enum deliver_end judge(struct exec *e, bool timed_out, struct delivery_answer *answer)
{
    while (e->said_len > 0 && e->output_end[e->said_len - 1] <= ' ')
        e->said_len--;
    for (size_t i = 0; i < e->said_len; i++)
        if (e->output_end[i] < ' ' || e->output_end[i] > '~')
            e->output_end[i] = ' ';
    if (e->failed) {
        snprintf(answer->reason, sizeof answer->reason, "cannot execute /bin/sh: %s", strerror(e->error));
        return DELIVER_NOT_SENT;
    }
    if (e->lost) {
        snprintf(answer->reason, sizeof answer->reason, "its guardian was killed: how the command ended is not known");
        return DELIVER_LOST;
    }
    bool killed = WIFSIGNALED(e->wait_status);
    answer->status = killed ? 128 + WTERMSIG(e->wait_status) : WEXITSTATUS(e->wait_status);
    snprintf(answer->reason, sizeof answer->reason, "%s %d%s%s%.*s", killed ? "killed by signal" : "exit status",
             killed ? WTERMSIG(e->wait_status) : answer->status, timed_out ? ", after its timeout" : "",
             e->said_len > 0 ? ": " : "", (int)e->said_len, e->output_end);
    switch (answer->status) {
    case 0:
        return DELIVER_DONE;
    case 65:
        return DELIVER_REFUSED;
    case 75:
        return DELIVER_LATER;
    default:
        return DELIVER_FAILED;
    }
}

enum deliver_end deliver_exec(const struct target *target, const struct delivery_call *call,
                              struct delivery_answer *answer)
{
    struct once_buf text;
    struct exec e = { .failed = false };
    enum deliver_end end = DELIVER_NOT_SENT;
    bool timed_out;
    *answer = (struct delivery_answer){ .status = 0 };
    once_buf_init(&text, 2 * ENV_LEN_MAX);
    add_variables(&text, call);
    char **envp = text.result == ONCE_OK ? make_environment(&text) : NULL;
    int input = make_input(call->incoming->message.payload);
    char shell[] = "/bin/sh", option[] = "-c";
    char *argv[] = { shell, option, (char *)(uintptr_t)target->command, NULL };
    struct once_guard_command command = {
        .argv = argv, .envp = envp, .mask = target->mask, .input = input, .apart = true
    };
    int error = envp == NULL || input < 0 ? ENOMEM : once_guard_start(&e.guard, &command);
    if (error == 0) {
        watch(&e, target, call, &timed_out);
        once_guard_end(&e.guard);
        end = judge(&e, timed_out, answer);
    } else {
        snprintf(answer->reason, sizeof answer->reason, "cannot start a process: %s", strerror(error));
    }
    if (input >= 0)
        close(input);
    free(envp);
    once_buf_release(&text);
    return end;
}
