/*
 * clock.h - whether the store's clock can be believed enough to delete by it.
 *
 * What is past its retention behaves as absent, whatever time it really is (K8); but it is still there, and a clock can
 * be set right. What was deleted is gone. So before each step the store's clock is compared with two others:
 *
 *   jumped   it went on by another time than the steady clock did since the last look: somebody set a database
 *            server's clock, or another server with another clock took over
 *   ahead    it is later than this machine's wall clock: of the two one is wrong. A machine that came up with a clock
 * in the future, and was corrected since, has a store that stays ahead until the next boot (docs/internals/clock.md). A
 * store that is behind only keeps things longer.
 *
 * Then nothing is deleted until one of these holds:
 *   - the clock is back where it would be without the jump, or is not ahead any more
 *   - somebody says so: `once expire`, asked of this daemon
 *   - it has been steady for CLOCK_GUARD_STEADY_MS: nobody objected
 *
 * Invariants: REAPER-CLOCK-1 no step is due on a reading that was not compared.
 *             REAPER-CLOCK-2 what was accepted once is not held against the clock again, while it stays that way.
 * Pure: readings come in as arguments. Slow drift is no jump: a reading is compared with the last one.
 */
#ifndef ONCE_DAEMON_REAPER_CLOCK_H
#define ONCE_DAEMON_REAPER_CLOCK_H

#include "once.h"

enum {
    CLOCK_GUARD_JUMP_MS = 60 * 1000,        /* between two looks, seconds apart: no clock is slewed so fast */
    CLOCK_GUARD_AHEAD_MS = 10 * 60 * 1000,  /* machines without NTP are this far apart; it is little of any retention */
    CLOCK_GUARD_STEADY_MS = 60 * 60 * 1000, /* long enough for whoever is paged */
};

/* One look at the clocks. The store was asked between the two looks at the steady one. */
struct clock_reading {
    once_time store, wall;
    once_time before, after; /* CLOCK_BOOTTIME */
};

enum clock_verdict { CLOCK_GOOD, CLOCK_JUMPED, CLOCK_AHEAD };

struct clock_guard {
    bool begun;
    once_time offset;           /* store - steady, as last accepted */
    once_time ahead;            /* store - wall that was accepted; 0: nothing out of the ordinary */
    bool suspended;             /* nothing is to be deleted */
    once_time suspended_since;  /* steady */
    once_time suspended_offset; /* store - steady then: it must stay so */
    once_time off_ms;           /* by how much, for people */
};

enum clock_verdict clock_guard_check(struct clock_guard *clock_guard, const struct clock_reading *reading);
/* Somebody said that the clock is right. The next look is believed as it is. */
void clock_guard_accept(struct clock_guard *clock_guard);

#endif
