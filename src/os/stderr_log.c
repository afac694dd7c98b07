/* stderr_log.c - see stderr_log.h. */
#include "os/stderr_log.h"

#include "core/utc.h"
#include "os/os.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STREAM_LEN = 64 };

/* Like JOURNAL_STREAM, for a pipe whose reader forwards to the journal or a terminal. Not JOURNAL_STREAM itself: a
 * program that finds its standard error there may write the journal's own protocol. */
static const char passed_on[] = "ONCE_LOG_STREAM";

static void name_stream(uint64_t device, uint64_t inode, char out[STREAM_LEN])
{
    snprintf(out, STREAM_LEN, "%" PRIu64 ":%" PRIu64, device, inode);
}

bool stderr_log_has_time(const char *stream, uint64_t device, uint64_t inode, bool terminal)
{
    char ours[STREAM_LEN];
    name_stream(device, inode, ours);
    return !terminal && (stream == NULL || strcmp(stream, ours) != 0);
}

/* Checked for each line, since lines are rare and standard error may be redirected at any time. */
static bool has_time(void)
{
    struct stat st = { .st_ino = 0 };
    bool known = fstat(STDERR_FILENO, &st) == 0;
    return known && stderr_log_has_time(getenv("JOURNAL_STREAM"), st.st_dev, st.st_ino, isatty(STDERR_FILENO) == 1) &&
           stderr_log_has_time(getenv(passed_on), st.st_dev, st.st_ino, false);
}

void once_os_log_inherit(int fd)
{
    struct stat st;
    char name[STREAM_LEN];
    bool timed = has_time() || fstat(fd, &st) != 0;
    unsetenv("JOURNAL_STREAM");
    unsetenv(passed_on);
    if (timed)
        return;
    name_stream(st.st_dev, st.st_ino, name);
    setenv(passed_on, name, 1);
}

/* Guards `dropped`, and the time between checking for room and writing. */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static uint64_t dropped; /* since the last line */
static _Atomic uint64_t dropped_ever;

static bool has_room(int wait_ms)
{
    struct pollfd out = { .fd = STDERR_FILENO, .events = POLLOUT };
    int n;
    do
        n = poll(&out, 1, wait_ms);
    while (n < 0 && errno == EINTR);
    return n != 0;
}

/* Formats the line with its prefix; returns its length. */
__attribute__((format(printf, 3, 0))) static size_t make_line(char line[STDERR_LOG_LEN_MAX], const char *who,
                                                              const char *format, va_list args)
{
    char time[ONCE_TEXT_TIME_LEN] = "";
    bool timed = has_time();
    if (timed)
        once_text_utc((once_time)(once_os_wall_ns() / 1000000), time);
    int head = snprintf(line, STDERR_LOG_LEN_MAX, "%s%s%s: ", time, timed ? " " : "", who);
    size_t len = head > 0 && head < STDERR_LOG_LEN_MAX ? (size_t)head : 0;
    int n = vsnprintf(line + len, STDERR_LOG_LEN_MAX - len, format, args);
    len += n > 0 ? (size_t)n : 0;
    if (len > STDERR_LOG_LEN_MAX - 2)
        len = STDERR_LOG_LEN_MAX - 2;
    line[len++] = '\n';
    return len;
}

/* Writes in pieces that fit into any pipe with room. False: not all of the line was written. */
static bool write_line(const char *line, size_t len, int wait_ms)
{
    for (size_t at = 0, piece; at < len; at += piece, wait_ms = 0) {
        piece = len - at < STDERR_LOG_LEN_MAX ? len - at : STDERR_LOG_LEN_MAX;
        if (!has_room(wait_ms))
            return false;
        fwrite(line + at, 1, piece, stderr); /* stderr is unbuffered: this is one write */
    }
    return true;
}

__attribute__((format(printf, 2, 3))) static bool write_remark(const char *who, const char *format, ...)
{
    char line[STDERR_LOG_LEN_MAX];
    va_list args;
    va_start(args, format);
    size_t len = make_line(line, who, format, args);
    va_end(args);
    return write_line(line, len, 0);
}

void once_os_log_forward(const char *who, const char *line, size_t len)
{
    pthread_mutex_lock(&writing);
    bool room = true;
    if (dropped > 0) {
        room = write_remark(who, "%" PRIu64 " lines were dropped here: standard error was not read", dropped);
        dropped = room ? 0 : dropped;
    }
    if (!room || !write_line(line, len, STDERR_LOG_WAIT_MS)) {
        dropped++;
        atomic_fetch_add(&dropped_ever, 1);
    }
    pthread_mutex_unlock(&writing);
}

void once_os_log(const char *who, const char *format, ...)
{
    char line[STDERR_LOG_LEN_MAX];
    va_list args;
    va_start(args, format);
    size_t len = make_line(line, who, format, args);
    va_end(args);
    once_os_log_forward(who, line, len);
}

void once_os_stderr_lock(void)
{
    pthread_mutex_lock(&writing);
}

void once_os_stderr_unlock(void)
{
    pthread_mutex_unlock(&writing);
}

uint64_t once_os_log_dropped(void)
{
    return atomic_load(&dropped_ever);
}
