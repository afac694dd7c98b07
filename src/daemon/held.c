/* held.c - see held.h. */
#include "daemon/held.h"

#include <assert.h>
#include <stdlib.h>

static struct held **bucket_of(struct held_table *table, uint64_t fence)
{
    return &table->buckets[fence * 0x9e3779b97f4a7c15ULL >> 52];
}

void held_add(struct held_table *table, const void *holder, const struct once_grant *grant)
{
    static_assert(HELD_BUCKETS == 1 << 12, "the hash has 12 bits");
    struct held *held = malloc(sizeof *held);
    if (held == NULL)
        return;
    struct held **bucket = bucket_of(table, grant->fence);
    *held = (struct held){ *grant, holder, *bucket };
    *bucket = held;
}

static void unlink_held(struct held **at)
{
    struct held *held = *at;
    *at = held->next;
    free(held);
}

void held_remove(struct held_table *table, uint64_t fence)
{
    for (struct held **at = bucket_of(table, fence); *at != NULL; at = &(*at)->next)
        if ((*at)->grant.fence == fence) {
            unlink_held(at);
            return;
        }
}

bool held_take(struct held_table *table, const void *holder, struct once_grant *grant)
{
    for (size_t i = 0; i < HELD_BUCKETS; i++)
        for (struct held **at = &table->buckets[i]; *at != NULL; at = &(*at)->next)
            if ((*at)->holder == holder) {
                *grant = (*at)->grant;
                unlink_held(at);
                return true;
            }
    return false;
}

void held_release(struct held_table *table)
{
    for (size_t i = 0; i < HELD_BUCKETS; i++)
        while (table->buckets[i] != NULL)
            unlink_held(&table->buckets[i]);
}
