/*
 * batch_wait.h - the batch delay: how long a writer waits for more callers before it starts a batch.
 *
 * Callers that were just answered usually come back at once. A commit for the two fastest would make all the others
 * wait for the next commit. So the writer waits until the callers that it answered, and those that came meanwhile, are
 * in the queue; but at most half of the time that the last batch took, and not if no caller comes. Without this delay
 * the callers split into two halves that take turns, which halves the throughput on a slow disk.
 *
 * Some callers come back late, for example a gateway that calls its upstream first: waiting for them is in vain. If
 * fewer than half of the missing callers came, the next batches start without a delay: one, then three, then seven...
 */
#ifndef ONCE_ENGINE_BATCH_WAIT_H
#define ONCE_ENGINE_BATCH_WAIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct batch_wait {
    size_t expected;         /* callers that are in the queue or should be soon */
    uint64_t batch_ns;       /* the time that the last batch took */
    unsigned skip, skip_len; /* batches that start without a delay: still to come; in all. 0: the last delay paid off */
};

/* Whether the next batch waits, with `queued` callers in the queue. */
bool batch_wait_begins(struct batch_wait *batch_wait, size_t queued);
/* Whether to go on waiting: the wait began at `start`, the last caller came at `grown`. Times in ns. */
bool batch_wait_continues(const struct batch_wait *batch_wait, uint64_t start, uint64_t grown, uint64_t now);
/* The wait is over: this many callers were in the queue before it and after it. */
void batch_wait_ended(struct batch_wait *batch_wait, size_t before, size_t after);

#endif
