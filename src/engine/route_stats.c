/* route_stats.c - see route_stats.h. */
#include "engine/route_stats.h"

#include "core/span.h"
#include "store/store.h"

#include <stdlib.h>

enum { SET_BITS = 11, SET_COUNT = 1 << SET_BITS, SET_LEN = 8 };

/* Nonces or fences that were seen; in each set the newest is first and the last one is replaced. */
struct seen {
    uint64_t sets[SET_COUNT][SET_LEN];
};

/* Grants of this engine that have not ended. */
struct grants {
    struct grant {
        uint64_t fence; /* 0: none */
        once_time due;  /* monotonic ms: when its lease is over */
        uint32_t lease_ms;
        uint8_t route;
    } sets[SET_COUNT][SET_LEN];
};

struct route_stats {
    struct engine_route_stats *all[ROUTE_STATS_MAX]; /* [0] always exists */
    size_t count;                                    /* without "other", the last one */
    struct grants granted;
    struct seen ended;   /* fences */
    struct seen claimed; /* nonces of claims */
};

static size_t set_of(uint64_t number)
{
    return (size_t)(number * 0x9e3779b97f4a7c15u >> (64 - SET_BITS));
}

static bool is_seen(const struct seen *n, uint64_t number)
{
    const uint64_t *set = n->sets[set_of(number)];
    for (size_t i = 0; i < SET_LEN; i++)
        if (set[i] == number)
            return true;
    return false;
}

static void add_seen(struct seen *n, uint64_t number)
{
    uint64_t *set = n->sets[set_of(number)];
    memmove(set + 1, set, (SET_LEN - 1) * sizeof *set);
    set[0] = number;
}

/* The grant with this fence; NULL: not remembered. */
static struct grant *find_grant(struct route_stats *r, uint64_t fence)
{
    struct grant *set = r->granted.sets[set_of(fence)];
    for (size_t i = 0; i < SET_LEN; i++)
        if (set[i].fence == fence)
            return &set[i];
    return NULL;
}

/* Replaces a free place of the set, or its oldest grant: the one with the smallest fence. */
static void remember_grant(struct route_stats *r, const struct grant *grant)
{
    struct grant *set = r->granted.sets[set_of(grant->fence)], *at = set;
    for (size_t i = 1; i < SET_LEN; i++)
        if (set[i].fence < at->fence)
            at = &set[i];
    *at = *grant;
}

struct route_stats *route_stats_new(void)
{
    struct route_stats *r = calloc(1, sizeof *r);
    if (r != NULL && (r->all[0] = calloc(1, sizeof **r->all)) == NULL) {
        free(r);
        return NULL;
    }
    if (r != NULL)
        r->count = 1;
    return r;
}

void route_stats_free(struct route_stats *r)
{
    if (r == NULL)
        return;
    for (size_t i = 0; i < ROUTE_STATS_MAX; i++)
        free(r->all[i]);
    free(r);
}

static bool make(struct route_stats *r, size_t at, once_span name)
{
    if (r->all[at] == NULL && (r->all[at] = calloc(1, sizeof **r->all)) != NULL)
        memcpy(r->all[at]->name, name.ptr, name.len);
    return r->all[at] != NULL;
}

uint8_t route_stats_find(struct route_stats *r, once_span name)
{
    if (name.len == 0 || name.len > ONCE_ROUTE_LEN_MAX)
        return 0;
    for (size_t i = 1; i < r->count; i++)
        if (once_span_equal(name, once_span_str(r->all[i]->name)))
            return (uint8_t)i;
    bool other = r->count == ONCE_ROUTE_OTHER || once_span_equal(name, ONCE_LIT(ONCE_ROUTE_OTHER_NAME));
    if (other)
        return make(r, ONCE_ROUTE_OTHER, ONCE_LIT(ONCE_ROUTE_OTHER_NAME)) ? ONCE_ROUTE_OTHER : 0;
    return make(r, r->count, name) ? (uint8_t)r->count++ : 0;
}

void route_stats_refused(struct route_stats *r, uint8_t route)
{
    r->all[route]->failed++;
}

void route_stats_waited(struct route_stats *r, uint8_t route)
{
    r->all[route]->claims[ONCE_ARM_IN_PROGRESS]++;
}

static bool count_claim(struct route_stats *r, const struct once_op *op, uint8_t route, uint64_t ns, bool timed)
{
    struct engine_route_stats *to = r->all[route];
    if (op->result != ONCE_OK) {
        to->failed++;
        return true;
    }
    uint64_t nonce = 0;
    memcpy(&nonce, op->request->claim.nonce, sizeof nonce);
    if (op->again && is_seen(&r->claimed, nonce))
        return false;
    add_seen(&r->claimed, nonce);
    to->claims[op->reply.arm]++;
    if (timed)
        engine_latency_add(&to->claim, ns);
    return true;
}

/* A repeated finish or release is answered DONE as well, whether or not its client marked it as repeated. */
static bool count_end(struct route_stats *r, const struct once_op *op, uint64_t ns)
{
    uint64_t fence = op->request->grant.fence;
    struct grant *grant = find_grant(r, fence);
    uint8_t route = grant != NULL ? grant->route : 0;
    if (op->result == ONCE_OK && grant != NULL)
        *grant = (struct grant){ .fence = 0 };
    if (op->result != ONCE_OK || op->reply.arm != ONCE_ARM_DONE)
        return true;
    if (is_seen(&r->ended, fence))
        return false;
    add_seen(&r->ended, fence);
    bool finish = op->request->verb == ONCE_VERB_FINISH;
    r->all[route]->outcomes[finish ? op->request->outcome.state : ONCE_STATE_NONE]++;
    if (finish)
        engine_latency_add(&r->all[route]->finish, ns);
    return true;
}

/* A lease begins or is renewed. */
static void note_grant(struct route_stats *r, const struct once_op *op, uint8_t route, once_time now)
{
    bool claim = op->request->verb == ONCE_VERB_CLAIM;
    const struct once_record *record = &op->reply.record;
    int64_t lease_ms = claim ? op->request->claim.lease_ms : record->lease_until - record->claimed_at;
    if (!claim)
        route = route_stats_find(r, record->route);
    if (find_grant(r, record->grant.fence) != NULL)
        return; /* the same claim again */
    remember_grant(
        r, &(struct grant){
               .fence = record->grant.fence, .due = now + lease_ms, .lease_ms = (uint32_t)lease_ms, .route = route });
}

static void note_renewal(struct route_stats *r, const struct once_op *op, once_time now)
{
    struct grant *grant = op->result == ONCE_OK ? find_grant(r, op->request->grant.fence) : NULL;
    if (grant == NULL)
        return;
    if (op->reply.arm != ONCE_ARM_DONE) {
        *grant = (struct grant){ .fence = 0 };
        return;
    }
    if (op->request->verb == ONCE_VERB_EXTEND && op->request->extend.lease_ms > 0)
        grant->due = now + op->request->extend.lease_ms;
    else
        grant->due = now + grant->lease_ms;
}

bool route_stats_count(struct route_stats *r, const struct once_op *op, uint8_t route, uint64_t now_ns, uint64_t ns,
                       bool timed)
{
    once_time now = (once_time)(now_ns / 1000000);
    bool counted = true;
    switch (op->request->verb) {
    case ONCE_VERB_FINISH:
    case ONCE_VERB_RELEASE:
        return count_end(r, op, ns);
    case ONCE_VERB_EXTEND:
    case ONCE_VERB_ADVANCE:
        note_renewal(r, op, now);
        return true;
    case ONCE_VERB_CLAIM:
        counted = count_claim(r, op, route, ns, timed);
        break;
    default:
        break;
    }
    if (op->result == ONCE_OK && (op->reply.arm == ONCE_ARM_EXECUTE || op->reply.arm == ONCE_ARM_PROBE))
        note_grant(r, op, route, now);
    return counted;
}

void route_stats_leases(const struct route_stats *r, once_time now, struct engine_lease_counts *out)
{
    *out = (struct engine_lease_counts){ .held = 0 };
    for (size_t set = 0; set < SET_COUNT; set++)
        for (size_t i = 0; i < SET_LEN; i++) {
            const struct grant *grant = &r->granted.sets[set][i];
            bool live = grant->fence != 0 && grant->due > now;
            out->held += live;
            out->ending += live && grant->due - now <= LEASE_ENDING_MS;
        }
}

size_t route_stats_read(const struct route_stats *r, struct engine_route_stats *out)
{
    size_t count = 0;
    for (size_t i = 0; i < ROUTE_STATS_MAX; i++)
        if (r->all[i] != NULL)
            out[count++] = *r->all[i];
    return count;
}
