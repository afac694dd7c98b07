/*
 * crash_point.h - named places where a test can stop the program.
 *
 *     ONCE_CRASH_POINT("writer.before-commit");
 *
 * With ONCE_CRASH=NAME:N[:ACTION] in the environment the program acts when it passes
 * the point for the N-th time (from 1): `kill` (the default) sends SIGKILL to itself,
 * `stop` sends SIGSTOP, `exit` calls _exit(99). One table (crash_point.c) lists all
 * points, so that a test can try each; passing a point that is not in the table aborts.
 * With ONCE_CRASH_LOG=FILE the program appends a line to FILE for each point it passes,
 * which proves that a test reached them all.
 *
 * In a build without crash points (release), ONCE_CRASH_POINT expands to nothing.
 */
#ifndef ONCE_OS_CRASH_POINT_H
#define ONCE_OS_CRASH_POINT_H

#if ONCE_CRASH_POINTS
#define ONCE_CRASH_POINT(name) once_crash_point_pass(name)
#else
#define ONCE_CRASH_POINT(name) ((void)0)
#endif

void once_crash_point_pass(const char *name);
/* The names of all points, up to a NULL; empty in a build without crash points. */
const char *const *once_crash_point_names(void);

#endif
