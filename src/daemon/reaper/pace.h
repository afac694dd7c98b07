/*
 * pace.h - when the reaper takes a step, and when it rests.
 *
 * Model:      Work comes in turns. A turn has a budget of steps and of time; what is left over waits for the next.
 * Turns follow each other slowly while there is nothing to do, and fast, but never without a rest, while there is.
 *             While many operations wait for the writer no step is taken: they have the same writer.
 * Invariants: REAPER-PACE-1 in any second the reaper has the writer for about half of it at most.
 *             REAPER-PACE-2 it never starves: after a pause of PACE_PAUSE_MS_MAX it takes one small step, load or not.
 * Without that, a store under load would only grow. Pure: time comes in as an argument, in milliseconds of a clock that
 * does not jump.
 */
#ifndef ONCE_DAEMON_REAPER_PACE_H
#define ONCE_DAEMON_REAPER_PACE_H

#include "once.h"

enum {
    PACE_IDLE_MS = 5000,      /* between turns, while there is nothing to do */
    PACE_ROUND_MS = 1000,     /* likewise, while there is: from beginning to beginning */
    PACE_SPENT_MS_MAX = 500,  /* of one turn, in steps */
    PACE_STEPS_MAX = 100,     /* of one turn */
    PACE_BUDGET = 1000,       /* records of one step: near 10 ms */
    PACE_BUDGET_SMALL = 100,  /* of a step under load */
    PACE_LOAD_SHARE = 16,     /* load: more than this part of the queue is filled; a daemon's is two batches then */
    PACE_PAUSE_MS = 20,       /* then look again */
    PACE_PAUSE_MS_MAX = 2000, /* REAPER-PACE-2 */
};

struct pace {
    once_time round_at;  /* when the turn began, or is to begin */
    once_time paused_at; /* when it began to pause; 0: it does not */
    once_time spent_ms;  /* in steps of this turn */
    uint32_t steps;      /* likewise */
    bool in_round;
};

struct pace_load {
    uint32_t queued, queue_max;
};

enum pace_what { PACE_STEP, PACE_REST, PACE_PAUSE };

struct pace_order {
    enum pace_what what;
    uint32_t budget;   /* STEP */
    once_time wait_ms; /* REST, PAUSE */
};

void pace_init(struct pace *pace, once_time now);
/* What to do now. */
struct pace_order pace_next(struct pace *pace, once_time now, struct pace_load load);
/* A step was taken. True: the turn is over, and took pace->spent_ms. */
bool pace_did(struct pace *pace, once_time now, once_time took_ms, bool more);
/* No step could, or should, be taken: the turn is over. */
void pace_give_up(struct pace *pace, once_time now);

#endif
