/* quota_rules.c - see quota_rules.h. */
#include "core/quota_rules.h"

#include "core/duration.h"
#include "core/err.h"
#include "core/span.h"

#include <assert.h>
#include <stdlib.h>

const char *quota_kind_name(enum quota_kind kind)
{
    static const char *const names[] = {
#define QUOTA__KIND(name, text) text,
        QUOTA_KINDS(QUOTA__KIND)
#undef QUOTA__KIND
    };
    assert(kind < QUOTA_KIND_COUNT);
    return names[kind];
}

void quota_rules_init(struct quota_rules *rules)
{
    *rules = (struct quota_rules){ .count = 0 };
    for (size_t i = 0; i < QUOTA_KIND_COUNT; i++)
        rules->standard.max[i] = QUOTA_UNLIMITED;
}

void quota_rules_release(struct quota_rules *rules)
{
    free(rules->rules);
    quota_rules_init(rules);
}

static once_result parse_limit(once_span text, struct quota_limits *limits, bool given[QUOTA_KIND_COUNT],
                               struct once_error *err)
{
    once_span name, value;
    if (!once_span_cut(text, '=', &name, &value))
        return once_fail(err, ONCE_INVALID, "'%.*s' is not a limit such as records=100000", ONCE_SPAN_ARGS(text));
    size_t kind = 0;
    while (kind < QUOTA_KIND_COUNT && !once_span_equal(name, once_span_str(quota_kind_name((enum quota_kind)kind))))
        kind++;
    if (kind == QUOTA_KIND_COUNT)
        return once_fail(err, ONCE_INVALID, "'%.*s' is not records, bytes, in-flight or waiters", ONCE_SPAN_ARGS(name));
    if (given[kind])
        return once_fail(err, ONCE_INVALID, "'%.*s' is given twice", ONCE_SPAN_ARGS(name));
    given[kind] = true;
    limits->max[kind] = QUOTA_UNLIMITED;
    if (once_span_equal(value, ONCE_LIT("none")))
        return ONCE_OK;
    return once_size_parse(value, &limits->max[kind], err);
}

static once_result parse_limits(once_span text, struct quota_limits *limits, bool given[QUOTA_KIND_COUNT],
                                struct once_error *err)
{
    once_result r = ONCE_OK;
    bool more = true;
    while (r == ONCE_OK && more) {
        once_span one;
        more = once_span_cut(text, ',', &one, &text);
        r = parse_limit(one, limits, given, err);
    }
    return r;
}

static void note_any(struct quota_rules *rules, const struct quota_limits *limits)
{
    for (size_t i = 0; i < QUOTA_KIND_COUNT; i++)
        rules->any = rules->any || limits->max[i] != QUOTA_UNLIMITED;
}

once_result quota_rules_set(struct quota_rules *rules, once_span text, struct once_error *err)
{
    bool given[QUOTA_KIND_COUNT] = { false };
    struct quota_limits limits = rules->standard;
    once_result r = parse_limits(text, &limits, given, err);
    if (r != ONCE_OK)
        return r;
    rules->standard = limits;
    note_any(rules, &limits);
    return ONCE_OK;
}

static const struct quota_rule *find_rule(const struct quota_rules *rules, once_span tenant)
{
    for (size_t i = 0; i < rules->count; i++)
        if (once_span_equal(tenant, once_span_of(rules->rules[i].tenant, rules->rules[i].tenant_len)))
            return &rules->rules[i];
    return NULL;
}

/* At the last colon: limits contain no colon, tenants may. */
static once_result cut_tenant(once_span text, once_span *tenant, once_span *limits, struct once_error *err)
{
    size_t at = text.len;
    while (at > 0 && text.ptr[at - 1] != ':')
        at--;
    if (at == 0)
        return once_fail(err, ONCE_INVALID, "'%.*s' is not TENANT:records=N,...", ONCE_SPAN_ARGS(text));
    *tenant = once_span_of(text.ptr, at - 1);
    *limits = once_span_skip(text, at);
    if (tenant->len > ONCE_TENANT_LEN_MAX)
        return once_fail(err, ONCE_INVALID, "a tenant of %zu bytes; the limit is %d", tenant->len, ONCE_TENANT_LEN_MAX);
    return ONCE_OK;
}

once_result quota_rules_add(struct quota_rules *rules, once_span text, struct once_error *err)
{
    once_span tenant = { NULL, 0 }, limits = { NULL, 0 };
    struct quota_rule rule = { .tenant_len = 0 };
    once_result r = cut_tenant(text, &tenant, &limits, err);
    if (r == ONCE_OK)
        r = parse_limits(limits, &rule.limits, rule.given, err);
    if (r != ONCE_OK)
        return r;
    if (find_rule(rules, tenant) != NULL)
        return once_fail(err, ONCE_INVALID, "the tenant '%.*s' is given twice", ONCE_SPAN_ARGS(tenant));
    if (rules->count == QUOTA_RULES_MAX)
        return once_fail(err, ONCE_LIMIT, "more than %d tenants have their own rule", QUOTA_RULES_MAX);
    struct quota_rule *bigger = realloc(rules->rules, (rules->count + 1) * sizeof *bigger);
    if (bigger == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a quota");
    if (tenant.len > 0)
        memcpy(rule.tenant, tenant.ptr, tenant.len);
    rule.tenant_len = tenant.len;
    for (size_t i = 0; i < QUOTA_KIND_COUNT; i++)
        rules->any = rules->any || (rule.given[i] && rule.limits.max[i] != QUOTA_UNLIMITED);
    rules->rules = bigger;
    rules->rules[rules->count++] = rule;
    return ONCE_OK;
}

struct quota_limits quota_rules_find(const struct quota_rules *rules, once_span tenant)
{
    struct quota_limits limits = rules->standard;
    const struct quota_rule *rule = find_rule(rules, tenant);
    for (size_t i = 0; rule != NULL && i < QUOTA_KIND_COUNT; i++)
        if (rule->given[i])
            limits.max[i] = rule->limits.max[i];
    return limits;
}

bool quota_rules_have(const struct quota_rules *rules, enum quota_kind kind)
{
    bool have = rules->standard.max[kind] != QUOTA_UNLIMITED;
    for (size_t i = 0; i < rules->count; i++)
        have = have || (rules->rules[i].given[kind] && rules->rules[i].limits.max[kind] != QUOTA_UNLIMITED);
    return have;
}
