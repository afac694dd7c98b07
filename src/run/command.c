/*
 * command.c - see command.h.
 *
 * Model: one loop over poll(2). At most one chunk of output is in hand: it is read
 *        from the command, added to the frames, and written out to our own stream
 *        before anything else is read. So what a terminal shows live is what a replay
 *        will show, and a reader that does not read slows the command down as it would
 *        without us. While a chunk waits for its reader, signals and the command's end
 *        are still seen: it is written in pieces that poll(2) promised room for.
 *
 * Between the two streams the order is the one seen here. Two pipes do not tell which
 * of two writes a moment apart came first.
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
    ASK_EVERY_MS = 200,
};

struct pump {
    pid_t pid; /* of the command, once it was started */
    const struct once_command *command;
    struct once_frames *frames;
    struct once_guard guard;
    struct once_command_end end;
    bool exited;      /* the command itself; its output may still be held open */
    bool abandoned;   /* take what is in the pipes, do not wait for more */
    bool dismissed;   /* is_wanted() said no */
    uint8_t stream;   /* of the chunk in hand; 0: none */
    uint8_t previous; /* of the chunk before: the other one goes first, or it might starve */
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
            pump->exited = true; /* it could not even fork, said so, and left */
        else
            pump->end.how = ONCE_COMMAND_LOST;
        break;
    }
}

/* A signal while only the output of others is awaited. The second one while our own
 * reader does not read: then it is not shown, but still kept. */
static void stop_waiting(struct pump *pump)
{
    if (pump->abandoned && pump->stream != 0) {
        pump->end.write_error[pump->stream] = EINTR;
        pump->stream = 0;
    }
    pump->abandoned = true;
    for (uint8_t stream = ONCE_STREAM_OUT; stream <= ONCE_STREAM_ERR; stream++)
        if (*source_of(pump, stream) >= 0)
            fcntl(*source_of(pump, stream), F_SETFL, O_NONBLOCK); /* our end only */
}

static void pass_signal_on(struct pump *pump)
{
    struct signalfd_siginfo info;
    if (read(pump->command->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    /* What the terminal sends, it sent to the whole group already; but the command may have
     * left it, and a hang-up goes to the leader of a session alone. */
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
    if (n <= 0) { /* the end, or EAGAIN when abandoned */
        close(*source);
        *source = -1;
        return;
    }
    pump->previous = stream;
    once_frames_add(pump->frames, stream, once_span_of(pump->chunk, (size_t)n));
    ONCE_CRASH_POINT("run.output");
    if (pump->end.write_error[stream] != 0)
        return; /* nobody to show it to; go on keeping it */
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
    bool in_hand = pump->stream != 0, drain = pump->abandoned && !in_hand;
    bool ask = pump->command->is_wanted != NULL;
    struct pollfd fds[] = {
        { .fd = pump->command->signals, .events = POLLIN },
        { .fd = pump->exited ? -1 : pump->guard.report, .events = POLLIN },
        { .fd = in_hand ? pump->stream : -1, .events = POLLOUT },
        { .fd = in_hand ? -1 : pump->guard.out, .events = POLLIN },
        { .fd = in_hand ? -1 : pump->guard.err, .events = POLLIN },
    };
    if (poll(fds, sizeof fds / sizeof *fds, drain ? 0 : ask ? ASK_EVERY_MS : -1) < 0)
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
