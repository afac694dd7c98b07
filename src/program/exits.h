/*
 * exits.h - every exit code of `once`, in one place.
 *
 * The numbers are those of sysexits(3) where one fits. `once run` also exits with the
 * status of its command.
 */
#ifndef ONCE_PROGRAM_EXITS_H
#define ONCE_PROGRAM_EXITS_H

#include "once.h"

enum once_exit {
    ONCE_EXIT_OK = 0,
    ONCE_EXIT_FOUND = 1,        /* problems were found; no such key; nothing to resolve */
    ONCE_EXIT_STATUS = 22,      /* `once send`, as curl --fail: a final answer with an error status */
    ONCE_EXIT_UNTRUSTED = 60,   /* as curl: a certificate is not trusted */
    ONCE_EXIT_TOO_LARGE = 63,   /* as curl: an answer over the limit */
    ONCE_EXIT_USAGE = 64,       /* the command line, or a value in it, is wrong */
    ONCE_EXIT_MISMATCH = 65,    /* the key belongs to another command */
    ONCE_EXIT_INPUT = 66,       /* `once reconcile` could not read all data of the other side */
    ONCE_EXIT_UNAVAILABLE = 69, /* the store was not reached; nothing was changed */
    ONCE_EXIT_UNKNOWN = 70,     /* the operation may have happened; or the store is damaged */
    ONCE_EXIT_OS = 71,          /* no memory, no process; nothing was changed */
    ONCE_EXIT_IO = 74,          /* our own output could not be written; the store is right */
    ONCE_EXIT_BUSY = 75,        /* another process holds the key or the store: try again later */
    ONCE_EXIT_FENCED = 77,      /* not the holder any more */
    ONCE_EXIT_NOT_EXECUTABLE = 126,
    ONCE_EXIT_NOT_FOUND = 127,
    ONCE_EXIT_SIGNAL = 128, /* plus the signal's number */
};

/* The exit code for a call that ended with `result`. */
enum once_exit once_exit_of(once_result result);

#endif
