/* grants.c - see postgres/grants.h. */
#include "store/postgres/grants.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Fences are sixteen apart, so the newest 65536 grants of a store that no other process uses do not share a place; a
 * later grant replaces an earlier one. */
enum { PLACES = 1 << 16, FENCE_STEP = 16 };

struct pg_grants {
    pthread_mutex_t lock;
    struct pg_grant places[PLACES]; /* fence 0: empty */
};

static struct pg_grant *place_of(struct pg_grants *grants, uint64_t fence)
{
    return &grants->places[fence / FENCE_STEP % PLACES];
}

struct pg_grants *pg_grants_new(void)
{
    struct pg_grants *grants = calloc(1, sizeof *grants);
    if (grants != NULL)
        pthread_mutex_init(&grants->lock, NULL);
    return grants;
}

void pg_grants_free(struct pg_grants *grants)
{
    if (grants == NULL)
        return;
    pthread_mutex_destroy(&grants->lock);
    free(grants);
}

void pg_grants_add(struct pg_grants *grants, const struct once_record *record)
{
    pthread_mutex_lock(&grants->lock);
    *place_of(grants, record->grant.fence) = (struct pg_grant){
        .grant = record->grant,
        .claimed_at = record->claimed_at,
        .retention_ms = record->retention_ms,
    };
    pthread_mutex_unlock(&grants->lock);
}

bool pg_grants_find(struct pg_grants *grants, const struct once_grant *grant, struct pg_grant *out)
{
    pthread_mutex_lock(&grants->lock);
    *out = *place_of(grants, grant->fence);
    pthread_mutex_unlock(&grants->lock);
    return out->grant.fence == grant->fence && grant->fence != 0 &&
           memcmp(out->grant.record, grant->record, sizeof grant->record) == 0;
}

void pg_grants_forget(struct pg_grants *grants)
{
    pthread_mutex_lock(&grants->lock);
    memset(grants->places, 0, sizeof grants->places);
    pthread_mutex_unlock(&grants->lock);
}
