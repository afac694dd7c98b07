/* batch_wait.c - see batch_wait.h. */
#include "engine/batch_wait.h"

enum {
    QUIET_NS = 50 * 1000, /* if no caller comes for this long, the batch starts */
    SKIP_MAX = 31,
};

bool batch_wait_begins(struct batch_wait *m, size_t queued)
{
    if (queued >= m->expected || m->expected < 2)
        return false;
    if (m->skip == 0)
        return true;
    m->skip--;
    return false;
}

bool batch_wait_continues(const struct batch_wait *m, uint64_t start, uint64_t grown, uint64_t now)
{
    return now - start < m->batch_ns / 2 && now - grown < QUIET_NS;
}

void batch_wait_ended(struct batch_wait *m, size_t before, size_t after)
{
    size_t enough = (before + m->expected + 1) / 2;
    m->skip_len = after >= enough ? 0 : m->skip_len < SKIP_MAX ? 2 * m->skip_len + 1 : SKIP_MAX;
    m->skip = m->skip_len;
}
