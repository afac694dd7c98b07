/* clock.c - see reaper/clock.h. */
#include "daemon/reaper/clock.h"

#include <assert.h>

/* How far `value` is outside of what is within `slack` of `wanted`. */
static once_time distance(once_time value, once_time wanted, once_time slack)
{
    once_time far = value > wanted ? value - wanted : wanted - value;
    return far > slack ? far - slack : 0;
}

static void believe(struct clock_guard *k, once_time offset, once_time ahead)
{
    k->begun = true;
    k->suspended = false;
    k->offset = offset;
    k->ahead = ahead > CLOCK_GUARD_AHEAD_MS ? ahead : 0;
    k->off_ms = 0;
}

enum clock_verdict clock_guard_check(struct clock_guard *k, const struct clock_reading *r)
{
    assert(r->after >= r->before);
    once_time slack = r->after - r->before; /* the store's answer is of some moment in between */
    once_time offset = r->store - r->before, ahead = r->store - r->wall;
    bool jumped = k->begun && distance(offset, k->offset, slack) > CLOCK_GUARD_JUMP_MS;
    bool is_ahead = ahead - k->ahead > CLOCK_GUARD_AHEAD_MS;
    if (!jumped && !is_ahead) {
        believe(k, offset, k->ahead != 0 ? ahead : 0); /* REAPER-CLOCK-2: it may fall behind again, little by little */
        return CLOCK_GOOD;
    }
    k->off_ms = jumped ? offset - k->offset : ahead;
    if (!k->suspended || distance(offset, k->suspended_offset, slack) > CLOCK_GUARD_JUMP_MS) {
        k->suspended = true;
        k->suspended_since = r->after;
        k->suspended_offset = offset;
    }
    if (r->after - k->suspended_since >= CLOCK_GUARD_STEADY_MS) {
        believe(k, offset, ahead);
        return CLOCK_GOOD;
    }
    return jumped ? CLOCK_JUMPED : CLOCK_AHEAD;
}

void clock_guard_accept(struct clock_guard *k)
{
    k->begun = false;
    k->ahead = INT64_MAX / 2; /* whatever it is */
    k->suspended = false;
}
