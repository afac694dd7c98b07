/*
 * stderr_log.h - log lines of long-running processes, on standard error.
 *
 *     2026-11-17T22:34:58.123Z once daemon: escalated once-...-17: its service answered 500
 *
 * The time is UTC. It is left out if standard error is a terminal, or the journal, which adds its own
 * (JOURNAL_STREAM names it by device and inode: systemd.exec(5)). A line is one write, so that lines of several threads
 * and processes do not mix, and is cut after STDERR_LOG_LEN_MAX bytes.
 * A reader that does not read delays the process only briefly: if standard error is a pipe, a socket or a terminal that
 * accepts nothing for STDERR_LOG_WAIT_MS, lines are dropped until it does, and the next line says how many. A file may
 * block, as any file. Not here: errors in a command line and failures to start (program/cli.h), which the user who
 * started the program reads.
 */
#ifndef ONCE_OS_STDERR_LOG_H
#define ONCE_OS_STDERR_LOG_H

#include "once.h"

enum {
    STDERR_LOG_LEN_MAX = 4096, /* PIPE_BUF: a pipe with room takes that much in one piece, without blocking */
    STDERR_LOG_WAIT_MS = 1000, /* for a busy reader; waited for once, then not again until it reads */
};

/* `who`: "once daemon". */
__attribute__((format(printf, 2, 3))) void once_os_log(const char *who, const char *format, ...);

/* Writes a line of a child process unchanged, with its newline, under the same limits of waiting. */
void once_os_log_forward(const char *who, const char *line, size_t len);

/* For code that writes to standard error by other means: hold this from the check for room to the write. */
void once_os_stderr_lock(void);
void once_os_stderr_unlock(void);

/* Lines that this process has dropped. */
uint64_t once_os_log_dropped(void);

/* Call it in a child before exec: `fd` will be its standard error, and its lines will be forwarded to ours. Its log
 * lines then have a time if ours have one. */
void once_os_log_inherit(int fd);

/* Does a log line need a time? `stream` is JOURNAL_STREAM, or its replacement from a parent, or NULL; the rest
 * describes standard error. Pure. */
bool stderr_log_has_time(const char *stream, uint64_t device, uint64_t inode, bool terminal);

#endif
