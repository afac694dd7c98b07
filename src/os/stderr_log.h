/*
 * stderr_log.h - a line on standard error by a process that stays: what happened, and when.
 *
 *     2026-11-17T22:34:58.123Z once daemon: escalated once-...-17: its service answered 500
 *
 * The time is UTC. It is left out where it is there already, or nobody needs it: standard error is the journal, which
 * JOURNAL_STREAM names by device and inode (systemd.exec(5)), or a terminal. A line is one write, so that lines of
 * several threads and processes do not mix, and ends after STDERR_LOG_LEN_MAX bytes.
 * Nobody is held up for long by a reader who does not read: where standard error is a pipe, a socket or a terminal that
 * takes nothing for STDERR_LOG_WAIT_MS, lines are dropped until it does, and the next one says how many. A file may
 * block, as any file. Not here: mistakes on a command line, and why something could not start (program/cli.h): who
 * started it reads them.
 */
#ifndef ONCE_OS_STDERR_LOG_H
#define ONCE_OS_STDERR_LOG_H

#include "once.h"

enum {
    STDERR_LOG_LEN_MAX = 4096, /* PIPE_BUF: that much is written whole to a pipe that has room, and does not block */
    STDERR_LOG_WAIT_MS = 1000, /* a reader that is busy, not gone; only once, then not at all until it reads again */
};

/* `who`: "once daemon". */
__attribute__((format(printf, 2, 3))) void once_os_log(const char *who, const char *format, ...);

/* A line of somebody else's, as it is, its newline included: who passes on what a child says is held up as little. */
void once_os_log_forward(const char *who, const char *line, size_t len);

/* For who writes to standard error by other means: having seen room there, nobody else may take it before. */
void once_os_stderr_lock(void);
void once_os_stderr_unlock(void);

/* Of this process, ever. */
uint64_t once_os_log_dropped(void);

/* In a child before it runs another program: `fd` will be its standard error, and what it says there is passed on to
 * ours. Then its remarks have a time where ours have one. */
void once_os_log_inherit(int fd);

/* What it decides by: `stream` is JOURNAL_STREAM, or what a parent says instead, or NULL; the rest is of standard
 * error. Pure. */
bool stderr_log_has_time(const char *stream, uint64_t device, uint64_t inode, bool terminal);

#endif
