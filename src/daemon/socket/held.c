/* held.c - see held.h. */
#include "daemon/socket/held.h"

#include <assert.h>
#include <stdlib.h>

static struct held **bucket_of(struct held_table *table, uint64_t fence)
{
    return &table->buckets[fence * 0x9e3779b97f4a7c15ULL >> 52];
}

static struct held *find(struct held_table *table, uint64_t fence)
{
    struct held *held = *bucket_of(table, fence);
    while (held != NULL && held->grant.fence != fence)
        held = held->next;
    return held;
}

static void enter(struct held_table *table, const void *holder, const struct once_grant *grant)
{
    static_assert(HELD_BUCKETS == 1 << 12, "the hash has 12 bits");
    struct held **bucket = bucket_of(table, grant->fence);
    struct held *held = table->spare;
    if (held != NULL)
        table->spare = held->next;
    else if (table->count < HELD_MAX)
        held = malloc(sizeof *held);
    if (held == NULL)
        return;
    *held = (struct held){ *grant, holder, *bucket };
    *bucket = held;
    table->count++;
}

void held_add(struct held_table *table, const void *holder, const struct once_grant *grant)
{
    struct held *held = find(table, grant->fence);
    if (held != NULL)
        held->holder = holder; /* asked again, over another connection */
    else
        enter(table, holder, grant);
}

void held_renew(struct held_table *table, const void *holder, const struct once_grant *grant)
{
    if (find(table, grant->fence) == NULL)
        enter(table, holder, grant);
}

static void unlink_held(struct held_table *table, struct held **at)
{
    struct held *held = *at;
    *at = held->next;
    held->next = table->spare;
    table->spare = held;
    table->count--;
}

void held_remove(struct held_table *table, uint64_t fence)
{
    for (struct held **at = bucket_of(table, fence); *at != NULL; at = &(*at)->next)
        if ((*at)->grant.fence == fence) {
            unlink_held(table, at);
            return;
        }
}

void held_forget(struct held_table *table, const void *holder, void (*each)(void *arg, const struct once_grant *grant),
                 void *arg)
{
    for (size_t i = 0; i < HELD_BUCKETS && table->count > 0; i++)
        for (struct held **at = &table->buckets[i]; *at != NULL;) {
            if ((*at)->holder != holder) {
                at = &(*at)->next;
                continue;
            }
            if (each != NULL)
                each(arg, &(*at)->grant);
            unlink_held(table, at);
        }
}

void held_release(struct held_table *table)
{
    for (size_t i = 0; i < HELD_BUCKETS; i++)
        while (table->buckets[i] != NULL)
            unlink_held(table, &table->buckets[i]);
    for (struct held *held = table->spare, *next; held != NULL; held = next) {
        next = held->next;
        free(held);
    }
    table->spare = NULL;
}
