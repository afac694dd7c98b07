/* remark.c - see remark.h. */
#include "os/remark.h"

#include "core/utc.h"
#include "os/os.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STREAM_LEN = 64 };

static void name_stream(uint64_t device, uint64_t inode, char out[STREAM_LEN])
{
    snprintf(out, STREAM_LEN, "%" PRIu64 ":%" PRIu64, device, inode);
}

bool remark_has_time(const char *stream, uint64_t device, uint64_t inode, bool terminal)
{
    char ours[STREAM_LEN];
    name_stream(device, inode, ours);
    return !terminal && (stream == NULL || strcmp(stream, ours) != 0);
}

/* Looked at for each line: these are rare, and whoever changes where standard error goes is right at once. */
static bool has_time(void)
{
    struct stat st = { .st_ino = 0 };
    bool known = fstat(STDERR_FILENO, &st) == 0;
    return known && remark_has_time(getenv("JOURNAL_STREAM"), st.st_dev, st.st_ino, isatty(STDERR_FILENO) == 1);
}

void once_os_remark_inherit(int fd)
{
    struct stat st;
    char name[STREAM_LEN];
    if (has_time() || fstat(fd, &st) != 0)
        return;
    name_stream(st.st_dev, st.st_ino, name);
    setenv("JOURNAL_STREAM", name, 1);
}

void once_os_remark(const char *who, const char *format, ...)
{
    char line[REMARK_LEN_MAX], time[ONCE_TEXT_TIME_LEN] = "";
    bool timed = has_time();
    if (timed)
        once_text_utc((once_time)(once_os_wall_ns() / 1000000), time);
    int head = snprintf(line, sizeof line, "%s%s%s: ", time, timed ? " " : "", who);
    size_t len = head > 0 && (size_t)head < sizeof line ? (size_t)head : 0;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line + len, sizeof line - len, format, args);
    va_end(args);
    len += n > 0 ? (size_t)n : 0;
    if (len > sizeof line - 2)
        len = sizeof line - 2;
    line[len++] = '\n';
    fwrite(line, 1, len, stderr); /* which has no buffer of its own: one write */
}
