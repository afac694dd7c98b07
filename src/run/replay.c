/* replay.c - see replay.h. */
#include "run/replay.h"

#include "core/span.h"
#include "run/frames.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

static void write_all(int fd, once_span bytes, int *error)
{
    while (bytes.len > 0 && *error == 0) {
        ssize_t n = write(fd, bytes.ptr, bytes.len);
        if (n >= 0)
            bytes = once_span_skip(bytes, (size_t)n);
        else if (errno == EAGAIN) /* another process made the terminal non-blocking */
            poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, -1);
        else if (errno != EINTR)
            *error = errno;
    }
}

bool once_replay_print(const struct once_record *record, int write_error[3])
{
    once_span body = record->body, bytes;
    if (!once_frames_named(record->headers)) {
        write_all(STDOUT_FILENO, body, &write_error[STDOUT_FILENO]);
        return true;
    }
    if (!once_frames_valid(body))
        return false;
    for (uint8_t stream; once_frames_next(&body, &stream, &bytes);)
        write_all(stream, bytes, &write_error[stream]);
    return true;
}

int once_replay_status(const struct once_record *record)
{
    if (record->status >= 0 && record->status <= 255)
        return record->status;
    return record->state == ONCE_STATE_SUCCEEDED ? 0 : 1;
}
