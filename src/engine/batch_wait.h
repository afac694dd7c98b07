/*
 * batch_wait.h - whether a batch waits for more callers, found by trying.
 *
 * Callers that were just answered are about to come back: a commit for the two fastest would make all others
 * wait for the next. So the writer waits for those it answered and those who came meanwhile to be together in
 * one batch; but no longer than half of what the last step took, and not when nobody comes. Without this the
 * callers fall into two halves that take turns, which on a slow disk halves the throughput.
 *
 * Callers with a long way to go (a gateway's: to its upstream and back) cannot be waited for. Where less than half
 * of those who were missing came, the next batches go without: one, three, seven, and so on.
 */
#ifndef ONCE_ENGINE_BATCH_WAIT_H
#define ONCE_ENGINE_BATCH_WAIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct batch_wait {
    size_t expected;      /* callers that are, or will soon be, waiting */
    uint64_t step_ns;     /* what the last step took */
    unsigned rest, pause; /* batches that do not wait: still to come; as it was decided. 0: waiting was worth it */
};

/* Does a batch wait, with `queued` callers there? False: all are there, or it was in vain lately. */
bool batch_wait_begins(struct batch_wait *batch_wait, size_t queued);
/* Is it still worth it, when it began at `start` and somebody last came at `grown`? */
bool batch_wait_continues(const struct batch_wait *batch_wait, uint64_t start, uint64_t grown, uint64_t now);
/* So many were there at first, and when the wait was over. */
void batch_wait_ended(struct batch_wait *batch_wait, size_t before, size_t after);

#endif
