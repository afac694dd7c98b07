/*
 * tuner.h - how many lanes are faster, found by trying.
 *
 * Two win while processors are the limit, one while the disk is: two commits then wait for
 * the same disk with half a batch each. So under load it tries the other number for a moment
 * every now and then, and stays with what got more done; the longer it is right, the less
 * often it tries.
 */
#ifndef ONCE_ENGINE_TUNER_H
#define ONCE_ENGINE_TUNER_H

#include <stdbool.h>
#include <stdint.h>

struct tuner {
    unsigned writers;        /* to be used now: 1 or 2 */
    unsigned patience, left; /* windows between two trials; until the next */
    bool trying;
    double before; /* operations per second of the last window that was no trial */
    uint64_t window_started_ns, operations, batches;
};

void tuner_init(struct tuner *tuner);
/* Takes note of a batch of operations at this time. True: tuner->lanes has changed. */
bool tuner_note(struct tuner *tuner, uint64_t operations, uint64_t now_ns);
/* Two lanes cannot be had. */
void tuner_give_up(struct tuner *tuner);

#endif
