/*
 * muster.h - whether a batch waits for more callers, found by trying.
 *
 * Callers that were just answered are about to come back: a commit for the two fastest would make all others
 * wait for the next. So the writer waits for those it answered and those who came meanwhile to be together in
 * one batch; but no longer than half of what the last step took, and not when nobody comes. Without this the
 * callers fall into two halves that take turns, which on a slow disk halves the throughput.
 *
 * Callers with a long way to go (a gateway's: to its upstream and back) cannot be waited for. Where less than half
 * of those who were missing came, the next batches go without: one, three, seven, and so on.
 */
#ifndef ONCE_ENGINE_MUSTER_H
#define ONCE_ENGINE_MUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct muster {
    size_t expected;      /* callers that are, or will soon be, waiting */
    uint64_t step_ns;     /* what the last step took */
    unsigned rest, pause; /* batches that do not wait: still to come; as it was decided. 0: waiting was worth it */
};

/* Does a batch wait, with `queued` callers there? False: all are there, or it was in vain lately. */
bool muster_begins(struct muster *muster, size_t queued);
/* Is it still worth it, when it began at `start` and somebody last came at `grown`? */
bool muster_goes_on(const struct muster *muster, uint64_t start, uint64_t grown, uint64_t now);
/* So many were there at first, and when the wait was over. */
void muster_ends(struct muster *muster, size_t before, size_t after);

#endif
