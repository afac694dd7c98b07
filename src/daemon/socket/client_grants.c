/* client_grants.c - see client_grants.h. */
#include "daemon/socket/client_grants.h"

#include <assert.h>
#include <stdlib.h>

static struct client_grant **bucket_of(struct client_grants *table, uint64_t fence)
{
    return &table->buckets[fence * 0x9e3779b97f4a7c15ULL >> 52];
}

static struct client_grant *find(struct client_grants *table, uint64_t fence)
{
    struct client_grant *client_grant = *bucket_of(table, fence);
    while (client_grant != NULL && client_grant->grant.fence != fence)
        client_grant = client_grant->next;
    return client_grant;
}

static void enter(struct client_grants *table, const void *holder, const struct once_grant *grant)
{
    static_assert(CLIENT_GRANTS_BUCKETS == 1 << 12, "the hash has 12 bits");
    struct client_grant **bucket = bucket_of(table, grant->fence);
    struct client_grant *client_grant = table->spare;
    if (client_grant != NULL)
        table->spare = client_grant->next;
    else if (table->count < CLIENT_GRANTS_MAX)
        client_grant = malloc(sizeof *client_grant);
    if (client_grant == NULL)
        return;
    *client_grant = (struct client_grant){ *grant, holder, *bucket };
    *bucket = client_grant;
    table->count++;
}

void client_grants_add(struct client_grants *table, const void *holder, const struct once_grant *grant)
{
    struct client_grant *client_grant = find(table, grant->fence);
    if (client_grant != NULL)
        client_grant->holder = holder; /* the same call again, over another connection */
    else
        enter(table, holder, grant);
}

void client_grants_renew(struct client_grants *table, const void *holder, const struct once_grant *grant)
{
    if (find(table, grant->fence) == NULL)
        enter(table, holder, grant);
}

static void unlink_held(struct client_grants *table, struct client_grant **at)
{
    struct client_grant *client_grant = *at;
    *at = client_grant->next;
    client_grant->next = table->spare;
    table->spare = client_grant;
    table->count--;
}

void client_grants_remove(struct client_grants *table, uint64_t fence)
{
    for (struct client_grant **at = bucket_of(table, fence); *at != NULL; at = &(*at)->next)
        if ((*at)->grant.fence == fence) {
            unlink_held(table, at);
            return;
        }
}

void client_grants_forget(struct client_grants *table, const void *holder,
                          void (*each)(void *arg, const struct once_grant *grant), void *arg)
{
    for (size_t i = 0; i < CLIENT_GRANTS_BUCKETS && table->count > 0; i++)
        for (struct client_grant **at = &table->buckets[i]; *at != NULL;) {
            if ((*at)->holder != holder) {
                at = &(*at)->next;
                continue;
            }
            if (each != NULL)
                each(arg, &(*at)->grant);
            unlink_held(table, at);
        }
}

void client_grants_release(struct client_grants *table)
{
    for (size_t i = 0; i < CLIENT_GRANTS_BUCKETS; i++)
        while (table->buckets[i] != NULL)
            unlink_held(table, &table->buckets[i]);
    for (struct client_grant *client_grant = table->spare, *next; client_grant != NULL; client_grant = next) {
        next = client_grant->next;
        free(client_grant);
    }
    table->spare = NULL;
}
