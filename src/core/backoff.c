/* backoff.c - see backoff.h. */
#include "core/backoff.h"

#include <assert.h>

int64_t once_backoff_ms(struct once_backoff policy, uint32_t failures, uint32_t random)
{
    assert(policy.first_ms >= 0);
    assert(policy.max_ms >= 0);
    int64_t longest = policy.first_ms < policy.max_ms ? policy.first_ms : policy.max_ms;
    for (; failures > 0 && longest > 0 && longest < policy.max_ms; failures--)
        longest = longest > policy.max_ms / 2 ? policy.max_ms : longest * 2;
    int64_t part = (int64_t)((double)longest * ((double)random / 4294967296.0));
    switch (policy.jitter) {
    case ONCE_JITTER_HALF:
        return longest - part / 2;
    case ONCE_JITTER_NONE:
        return longest;
    default:
        return part;
    }
}
