/*
 * command.c - see command.h.
 *
 * Model: one loop over poll(2). It holds at most one chunk of output: it reads the chunk
 *        from the command, adds it to the frames, and writes it to our own stream before
 *        it reads again. So a replay shows the same as the terminal showed, and a slow
 *        reader slows the command down as it would without us. While a chunk is being
 *        written, signals and the command's end are still handled: each write is no
 *        longer than poll(2) promised room for.
 *
 * The order between the two streams is the order of our reads. Two pipes do not show
 * which of two writes a moment apart came first.
 */
#include "run/command.h"

#include "core/span.h"
#include "os/crash_point.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CHUNK_LEN_MAX = 64 << 10,
    CHECK_EVERY_MS = 200, /* is_wanted() */
};

struct pump {
    pid_t pid; /* of the command, once it was started */
    const struct once_command *command;
    struct once_frames *frames;
    struct once_guard guard;
    struct once_command_end end;
    bool exited;      /* the command itself; its output may still be held open */
    bool draining;    /* read what is in the pipes, do not wait for more */
    bool dismissed;   /* is_wanted() returned false */
    uint8_t stream;   /* of the chunk that is being written; 0: none */
    uint8_t previous; /* of the last chunk: the other stream goes first, so that it does not starve */
    size_t len, done;
    uint8_t chunk[CHUNK_LEN_MAX];
};

static int *source_of(struct pump *pump, uint8_t stream)
{
    return stream == ONCE_STREAM_OUT ? &pump->guard.out : &pump->guard.err;
}

static bool is_over(const struct pump *pump)
{
    if (pump->end.how == ONCE_COMMAND_LOST)
        return true;
    return pump->exited && pump->stream == 0 && pump->guard.out < 0 && pump->guard.err < 0;
}

static void take_report(struct pump *pump)
{
    struct once_guard_report report = once_guard_read(&pump->guard);
    switch (report.news) {
    case ONCE_GUARD_SPAWNED:
        ONCE_CRASH_POINT("run.spawned");
        pump->pid = report.value;
        break;
    case ONCE_GUARD_FAILED:
        pump->end.how = ONCE_COMMAND_NOT_STARTED;
        pump->end.error = report.value;
        break;
    case ONCE_GUARD_EXITED:
        ONCE_CRASH_POINT("run.exited");
        pump->exited = true;
        if (pump->end.how == ONCE_COMMAND_NOT_STARTED)
            break;
        pump->end.how = ONCE_COMMAND_ENDED;
        pump->end.signal = WIFSIGNALED(report.value) ? WTERMSIG(report.value) : 0;
        pump->end.status = pump->end.signal != 0 ? 128 + pump->end.signal : WEXITSTATUS(report.value);
        break;
    default:
        if (pump->end.how == ONCE_COMMAND_NOT_STARTED)
            pump->exited = true; /* the guardian could not fork, reported that, and exited */
        else
            pump->end.how = ONCE_COMMAND_LOST;
        break;
    }
}

/* A signal came after the command exited, while other processes hold its output open. A second
 * signal while our own reader does not read: the rest is kept, but not printed. */
static void stop_waiting(struct pump *pump)
{
    if (pump->draining && pump->stream != 0) {
        pump->end.write_error[pump->stream] = EINTR;
        pump->stream = 0;
    }
    pump->draining = true;
    for (uint8_t stream = ONCE_STREAM_OUT; stream <= ONCE_STREAM_ERR; stream++)
        if (*source_of(pump, stream) >= 0)
            fcntl(*source_of(pump, stream), F_SETFL, O_NONBLOCK); /* affects our end only */
}

static void pass_signal_on(struct pump *pump)
{
    struct signalfd_siginfo info;
    if (read(pump->command->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    /* A terminal sends its signals to the whole group; but the command may have left the
     * group, and SIGHUP goes to the session leader alone. */
    bool has_it = info.ssi_code == SI_KERNEL && info.ssi_signo != SIGHUP && getpgid(pump->pid) == getpgrp();
    if (pump->exited)
        stop_waiting(pump);
    else if (!has_it)
        once_guard_signal(&pump->guard, (int)info.ssi_signo);
}

static void read_chunk(struct pump *pump, uint8_t stream)
{
    int *source = source_of(pump, stream);
    ssize_t n = read(*source, pump->chunk, sizeof pump->chunk);
    if (n < 0 && errno == EINTR)
        return;
    if (n <= 0) { /* the end, or EAGAIN while draining */
        close(*source);
        *source = -1;
        return;
    }
    pump->previous = stream;
    once_frames_add(pump->frames, stream, once_span_of(pump->chunk, (size_t)n));
    ONCE_CRASH_POINT("run.output");
    if (pump->end.write_error[stream] != 0)
        return; /* cannot be printed, but is kept */
    pump->stream = stream;
    pump->len = (size_t)n;
    pump->done = 0;
}

static void write_piece(struct pump *pump)
{
    size_t left = pump->len - pump->done;
    ssize_t n = write(pump->stream, pump->chunk + pump->done, left < PIPE_BUF ? left : PIPE_BUF);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n < 0)
        pump->end.write_error[pump->stream] = errno;
    else
        pump->done += (size_t)n;
    if (n < 0 || pump->done == pump->len)
        pump->stream = 0;
}

static void ask_whether_wanted(struct pump *pump)
{
    if (pump->dismissed || pump->exited || pump->command->is_wanted(pump->command->arg))
        return;
    pump->dismissed = true;
    once_guard_signal(&pump->guard, SIGTERM);
}

static void turn(struct pump *pump)
{
    bool in_hand = pump->stream != 0, drain = pump->draining && !in_hand;
    bool ask = pump->command->is_wanted != NULL;
    struct pollfd fds[] = {
        { .fd = pump->command->signals, .events = POLLIN },
        { .fd = pump->exited ? -1 : pump->guard.report, .events = POLLIN },
        { .fd = in_hand ? pump->stream : -1, .events = POLLOUT },
        { .fd = in_hand ? -1 : pump->guard.out, .events = POLLIN },
        { .fd = in_hand ? -1 : pump->guard.err, .events = POLLIN },
    };
    if (poll(fds, sizeof fds / sizeof *fds, drain ? 0 : ask ? CHECK_EVERY_MS : -1) < 0)
        return;
    bool out = pump->guard.out >= 0 && (fds[3].revents != 0 || drain);
    bool err = pump->guard.err >= 0 && (fds[4].revents != 0 || drain);
    if (ask)
        ask_whether_wanted(pump);
    if (fds[0].revents != 0)
        pass_signal_on(pump);
    if (fds[1].revents != 0)
        take_report(pump);
    if (fds[2].revents != 0)
        write_piece(pump);
    else if (out && (!err || pump->previous != ONCE_STREAM_OUT))
        read_chunk(pump, ONCE_STREAM_OUT);
    else if (err)
        read_chunk(pump, ONCE_STREAM_ERR);
}

struct once_command_end once_command_run(const struct once_command *command, struct once_frames *frames)
{
    static_assert(ONCE_STREAM_OUT == STDOUT_FILENO, "a stream is written to the descriptor of its number");
    static_assert(ONCE_STREAM_ERR == STDERR_FILENO, "likewise");
    struct pump pump = { .command = command, .frames = frames };
    int error = once_guard_start(&pump.guard, &command->command);
    if (error != 0)
        return (struct once_command_end){ .how = ONCE_COMMAND_NOT_STARTED, .error = error };
    ONCE_CRASH_POINT("run.forked");
    while (!is_over(&pump))
        turn(&pump);
    once_guard_end(&pump.guard);
    return pump.end;
}
