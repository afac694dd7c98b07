/*
 * crash_point.h - named places where a test can stop the program.
 *
 *     ONCE_CRASH_POINT("writer.before-commit");
 *
 * The environment variable ONCE_CRASH=NAME:N[:ACTION] acts when the point is passed
 * for the N-th time (from 1): `kill` (the default) is SIGKILL to itself, `stop` is
 * SIGSTOP, `exit` is _exit(99). Points are listed in one table (crash_point.c), so that a
 * test can walk all of them; passing a point that is not in the table aborts. With
 * ONCE_CRASH_LOG=FILE each point passed is appended to the file, one line each: the
 * proof that a walk reached them all.
 *
 * Built without crash points (release), ONCE_CRASH_POINT is nothing.
 */
#ifndef ONCE_OS_CRASH_POINT_H
#define ONCE_OS_CRASH_POINT_H

#if ONCE_CRASH_POINTS
#define ONCE_CRASH_POINT(name) once_crash_point_pass(name)
#else
#define ONCE_CRASH_POINT(name) ((void)0)
#endif

void once_crash_point_pass(const char *name);
/* NULL-terminated; empty in a build without points. */
const char *const *once_crash_point_names(void);

#endif
