/* clock.c - see reaper/clock.h. */
#include "daemon/reaper/clock.h"

#include <assert.h>

/* How far `value` is outside of what is within `slack` of `wanted`. */
static once_time distance(once_time value, once_time wanted, once_time slack)
{
    once_time far = value > wanted ? value - wanted : wanted - value;
    return far > slack ? far - slack : 0;
}

static void believe(struct reckon *k, once_time offset, once_time ahead)
{
    k->begun = true;
    k->held = false;
    k->offset = offset;
    k->ahead = ahead > RECKON_AHEAD_MS ? ahead : 0;
    k->off_ms = 0;
}

enum reckon_verdict reckon_look(struct reckon *k, const struct reckon_reading *r)
{
    assert(r->after >= r->before);
    once_time slack = r->after - r->before; /* the store's answer is of some moment in between */
    once_time offset = r->store - r->before, ahead = r->store - r->wall;
    bool jumped = k->begun && distance(offset, k->offset, slack) > RECKON_JUMP_MS;
    bool is_ahead = ahead - k->ahead > RECKON_AHEAD_MS;
    if (!jumped && !is_ahead) {
        believe(k, offset, k->ahead != 0 ? ahead : 0); /* T2: it may fall behind again, little by little */
        return RECKON_GOOD;
    }
    k->off_ms = jumped ? offset - k->offset : ahead;
    if (!k->held || distance(offset, k->held_offset, slack) > RECKON_JUMP_MS) {
        k->held = true;
        k->held_since = r->after;
        k->held_offset = offset;
    }
    if (r->after - k->held_since >= RECKON_STEADY_MS) {
        believe(k, offset, ahead);
        return RECKON_GOOD;
    }
    return jumped ? RECKON_JUMPED : RECKON_AHEAD;
}

void reckon_accept(struct reckon *k)
{
    k->begun = false;
    k->ahead = INT64_MAX / 2; /* whatever it is */
    k->held = false;
}
