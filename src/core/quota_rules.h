/*
 * quota_rules.h - the quotas of tenants, as an operator writes them.
 *
 * "records=100000,bytes=1G,in-flight=200,waiters=100". A kind that is not named has no limit, or, in
 * the rule of one tenant, the common limit; "none" removes a limit. A number may end in K, M or G, as
 * sizes do. 0 is a limit: it allows nothing new.
 */
#ifndef ONCE_CORE_QUOTA_RULES_H
#define ONCE_CORE_QUOTA_RULES_H

#include "once.h"

#define QUOTA_KINDS(X)                                                                                                 \
    X(RECORDS, "records")                                                                                              \
    X(BYTES, "bytes")                                                                                                  \
    X(IN_FLIGHT, "in-flight")                                                                                          \
    X(WAITERS, "waiters")

enum quota_kind {
#define QUOTA__KIND(name, text) QUOTA_##name,
    QUOTA_KINDS(QUOTA__KIND)
#undef QUOTA__KIND
        QUOTA_KIND_COUNT, /* also the answer "no quota is reached" */
};

enum { QUOTA_RULES_MAX = 256 }; /* tenants with their own rule, written by hand */

#define QUOTA_UNLIMITED UINT64_MAX

struct quota_limits {
    uint64_t max[QUOTA_KIND_COUNT];
};

struct quota_rule {
    uint8_t tenant[ONCE_TENANT_LEN_MAX];
    size_t tenant_len;
    struct quota_limits limits;
    bool given[QUOTA_KIND_COUNT]; /* set in this rule; the others are the common limits */
};

struct quota_rules {
    struct quota_limits standard;
    struct quota_rule *rules;
    size_t count;
    bool any; /* some rule sets a limit */
};

const char *quota_kind_name(enum quota_kind kind);

void quota_rules_init(struct quota_rules *rules);
void quota_rules_release(struct quota_rules *rules);
/* "records=N,..." for all tenants. A second call adds to the first. */
once_result quota_rules_set(struct quota_rules *rules, once_span text, struct once_error *err);
/* "TENANT:records=N,..." for one tenant, whose name ends at the last colon. */
once_result quota_rules_add(struct quota_rules *rules, once_span text, struct once_error *err);
/* The limits of a tenant. */
struct quota_limits quota_rules_find(const struct quota_rules *rules, once_span tenant);
/* Does any tenant have a limit of this kind? */
bool quota_rules_have(const struct quota_rules *rules, enum quota_kind kind);

#endif
