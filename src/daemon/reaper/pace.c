/* pace.c - see reaper/pace.h. */
#include "daemon/reaper/pace.h"

#include <assert.h>

void pace_init(struct pace *p, once_time now)
{
    *p = (struct pace){ .round_at = now + PACE_IDLE_MS };
}

static bool is_loaded(struct pace_load load)
{
    return load.queued > load.queue_max / PACE_LOAD_SHARE;
}

struct pace_order pace_next(struct pace *p, once_time now, struct pace_load load)
{
    if (!p->in_round && now < p->round_at)
        return (struct pace_order){ .what = PACE_REST, .wait_ms = p->round_at - now };
    if (!p->in_round)
        *p = (struct pace){ .round_at = now, .paused_at = p->paused_at, .in_round = true };
    if (!is_loaded(load)) {
        p->paused_at = 0;
        return (struct pace_order){ .what = PACE_STEP, .budget = PACE_BUDGET };
    }
    if (p->paused_at == 0)
        p->paused_at = now;
    if (now - p->paused_at < PACE_PAUSE_MS_MAX)
        return (struct pace_order){ .what = PACE_PAUSE, .wait_ms = PACE_PAUSE_MS };
    p->paused_at = now; /* the next pause begins */
    return (struct pace_order){ .what = PACE_STEP, .budget = PACE_BUDGET_SMALL };
}

static void end_turn(struct pace *p, once_time next)
{
    p->in_round = false;
    p->round_at = next;
}

bool pace_did(struct pace *p, once_time now, once_time took_ms, bool more)
{
    assert(p->in_round);
    p->steps++;
    p->spent_ms += took_ms;
    if (!more) {
        end_turn(p, now + PACE_IDLE_MS);
    } else if (p->steps >= PACE_STEPS_MAX || p->spent_ms >= PACE_SPENT_MS_MAX) {
        /* REAPER-PACE-1: rest as long as it worked, also where one step took more than a turn may. */
        once_time next = p->round_at + PACE_ROUND_MS;
        end_turn(p, next < now + p->spent_ms ? now + p->spent_ms : next);
    }
    return !p->in_round;
}

void pace_give_up(struct pace *p, once_time now)
{
    end_turn(p, now + PACE_IDLE_MS);
}
