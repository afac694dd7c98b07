/*
 * thread.h - threads that leave signals to the program, and conditions that wait by CLOCK_MONOTONIC.
 *
 * Only the program's first thread handles signals: the library's threads block them all. A
 * condition on the wall clock could wait for hours after that clock was set back.
 */
#ifndef ONCE_OS_THREAD_H
#define ONCE_OS_THREAD_H

#include <pthread.h>

/* As pthread_create(3), with every signal blocked in the new thread. 0, or an error number. */
int once_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

/* Deadlines of pthread_cond_timedwait(3) on it are times of CLOCK_MONOTONIC. */
void once_cond_init(pthread_cond_t *cond);

#endif
