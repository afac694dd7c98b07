/* recent.c - see sqlite/recent.h. */
#include "store/sqlite/recent.h"

#include <string.h>

static struct sqlite_recent *recent_slot(struct sqlite_protocol *p, uint64_t fence)
{
    return &p->recent[fence % SQLITE_RECENT_LEN];
}

void sqlite_recent_put(struct sqlite_protocol *p, const struct once_record *record, const struct once_claim *claim)
{
    if (p->recent == NULL)
        return;
    struct once_stored *s = &recent_slot(p, record->grant.fence)->stored;
    *s = (struct once_stored){
        .record = *record, .lease_ms = claim->lease_ms, .intent = claim->intent, .has_request = claim->request.len > 0
    };
    memcpy(s->nonce, claim->nonce, sizeof s->nonce);
}

bool sqlite_recent_take(struct sqlite_protocol *p, struct once_grant grant, struct sqlite_attempt *out)
{
    if (p->recent == NULL || grant.fence == 0) /* 0: the fence of an empty entry */
        return false;
    struct once_record *r = &recent_slot(p, grant.fence)->stored.record;
    if (r->grant.fence != grant.fence || memcmp(r->grant.record, grant.record, 16) != 0)
        return false;
    *out = (struct sqlite_attempt){ .stored = recent_slot(p, grant.fence)->stored,
                                    .sum_is_right = true,
                                    .progress_sum_is_right = true };
    r->grant.fence = 0;
    return true;
}

void sqlite_recent_drop(struct sqlite_protocol *p, uint64_t fence)
{
    if (p->recent != NULL && recent_slot(p, fence)->stored.record.grant.fence == fence)
        recent_slot(p, fence)->stored.record.grant.fence = 0;
}

void sqlite_recent_clear(struct sqlite_protocol *p)
{
    for (size_t i = 0; p->recent != NULL && i < SQLITE_RECENT_LEN; i++)
        p->recent[i].stored.record.grant.fence = 0;
}
