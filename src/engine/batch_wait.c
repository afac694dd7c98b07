/* batch_wait.c - see batch_wait.h. */
#include "engine/batch_wait.h"

enum {
    QUIET_NS = 50 * 1000, /* nobody came for this long: go */
    PAUSE_MAX = 31,
};

bool batch_wait_begins(struct batch_wait *m, size_t queued)
{
    if (queued >= m->expected || m->expected < 2)
        return false;
    if (m->rest == 0)
        return true;
    m->rest--;
    return false;
}

bool batch_wait_continues(const struct batch_wait *m, uint64_t start, uint64_t grown, uint64_t now)
{
    return now - start < m->step_ns / 2 && now - grown < QUIET_NS;
}

void batch_wait_ended(struct batch_wait *m, size_t before, size_t after)
{
    size_t enough = (before + m->expected + 1) / 2;
    m->pause = after >= enough ? 0 : m->pause < PAUSE_MAX ? 2 * m->pause + 1 : PAUSE_MAX;
    m->rest = m->pause;
}
