/*
 * thread.h - threads that leave signals to the program, and conditions that wait by CLOCK_MONOTONIC.
 *
 * Signals are the business of the program's first thread: one delivered to a writer or a
 * renewer would be handled where nobody looks. A condition by the wall clock would wait for
 * hours after somebody set it back.
 */
#ifndef ONCE_OS_THREAD_H
#define ONCE_OS_THREAD_H

#include <pthread.h>

/* As pthread_create(3), with every signal blocked in the new thread. 0, or an error number. */
int once_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

/* Deadlines of pthread_cond_timedwait(3) on it are times of CLOCK_MONOTONIC. */
void once_cond_init(pthread_cond_t *cond);

#endif
