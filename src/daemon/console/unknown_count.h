/*
 * unknown_count.h - how many records are unknown now, found out by and by.
 *
 * Model:  no store keeps them apart, so all records are walked through, newest first, a part of them at each look: a
 *         small store at once, a large one in many looks. `count` is what the last walk found, or the one under way
 *         if that is more already.
 * Bounds: steps and time of a look; after CONSOLE_UNKNOWN_COUNT_MAX a walk is over: then they are many.
 * Caller: console/sampler.c, while somebody watches.
 */
#ifndef ONCE_DAEMON_CONSOLE_UNKNOWN_COUNT_H
#define ONCE_DAEMON_CONSOLE_UNKNOWN_COUNT_H

#include "once.h"

enum {
    CONSOLE_UNKNOWN_COUNT_MAX = 1000,
    CONSOLE_UNKNOWN_COUNT_STEPS =
        10, /* of ONCE_LIST_SCAN_MAX rows each: a store holds up its writers for one at a time */
    CONSOLE_UNKNOWN_COUNT_MS = 100, /* after that no step is begun: a listing is slow in some stores */
};

struct console_unknown_count {
    uint32_t count;
    bool more; /* than that, perhaps: not all records were seen, or they are many */

    uint64_t before; /* of the walk under way: where it goes on; 0: at the newest */
    uint32_t found;
    bool walked; /* one was through */
};

/* Goes on; begins anew where the last look came to the end. */
once_result console_unknown_count_step(struct console_unknown_count *console_unknown_count, struct once *once);

#endif
