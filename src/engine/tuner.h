/*
 * tuner.h - chooses one writer or two by measuring which is faster.
 *
 * Two are faster while the processors are the limit. One is faster while the disk is: two commits then wait for the
 * same disk with half a batch each. So under load the tuner sometimes tries the other number for one window, and keeps
 * the number with the higher rate. The more often a trial fails, the longer the time to the next.
 */
#ifndef ONCE_ENGINE_TUNER_H
#define ONCE_ENGINE_TUNER_H

#include <stdbool.h>
#include <stdint.h>

struct tuner {
    unsigned writers;        /* to use now: 1 or 2 */
    unsigned interval, left; /* windows between two trials; until the next */
    bool trying;
    double rate; /* operations per ns of the last window that was not a trial */
    uint64_t window_started_ns, operations, batches;
};

void tuner_init(struct tuner *tuner);
/* Counts a batch of operations that ended now. True: tuner->writers has changed. */
bool tuner_note(struct tuner *tuner, uint64_t operations, uint64_t now_ns);
/* A second writer could not be started. */
void tuner_give_up(struct tuner *tuner);

#endif
