/*
 * store.c - opening by URL, and the wrappers around every implementation.
 *
 * Before the call a wrapper asserts what our own code could have got wrong. After it, the wrapper checks every answer
 * against the same facts: an answer that breaks an invariant becomes ONCE_CORRUPT.
 */
#include "store/store.h"

#include "core/err.h"
#include "core/http/url.h"
#include "core/limits.h"
#include "core/record.h"
#include "core/span.h"

/* ------------------------------------------------------------------ URLs */

bool once_url_param(once_span query, const char *name, once_span *value)
{
    once_span wanted = once_span_str(name);
    while (query.len > 0) {
        once_span param, key;
        once_span_cut(query, '&', &param, &query);
        once_span_cut(param, '=', &key, value);
        if (once_span_equal(key, wanted))
            return true;
    }
    return false;
}

once_result once_url_check(once_span query, const char *const *known, struct once_error *err)
{
    once_span all = query;
    while (query.len > 0) {
        once_span param, key, value;
        once_span_cut(query, '&', &param, &query);
        once_span_cut(param, '=', &key, &value);
        bool found = false;
        for (size_t i = 0; known[i] != NULL; i++)
            found = found || once_span_equal(key, once_span_str(known[i]));
        if (!found && memchr(all.ptr, '@', all.len) != NULL) /* it may be part of a password: do not show it */
            return once_fail(err, ONCE_INVALID,
                             "the store's URL has an unknown parameter; special characters in user and password must "
                             "be percent-encoded");
        if (!found)
            return once_fail(err, ONCE_INVALID, "the store's URL has an unknown parameter '%.*s'", ONCE_SPAN_ARGS(key));
    }
    return ONCE_OK;
}

static once_result kind_of(once_span url, enum once_store_kind *kind, struct once_error *err)
{
    static const struct {
        once_span scheme;
        enum once_store_kind kind;
    } kinds[] = {
        { ONCE_LIT("sqlite"), ONCE_STORE_SQLITE },     { ONCE_LIT("postgresql"), ONCE_STORE_POSTGRES },
        { ONCE_LIT("postgres"), ONCE_STORE_POSTGRES }, { ONCE_LIT("redis"), ONCE_STORE_REDIS },
        { ONCE_LIT("rediss"), ONCE_STORE_REDIS },      { ONCE_LIT("redis+unix"), ONCE_STORE_REDIS },
        { ONCE_LIT("once"), ONCE_STORE_DAEMON },
    };
    once_span scheme, rest;
    if (!once_span_cut(url, ':', &scheme, &rest)) {
        char shown[ONCE_URL_SHOWN_LEN];
        once_url_shown((const char *)url.ptr, shown); /* url ends where its string does */
        return once_fail(err, ONCE_INVALID, "'%s' is not a store's URL; write sqlite:PATH", shown);
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (once_span_equal(scheme, kinds[i].scheme)) {
            *kind = kinds[i].kind;
            return ONCE_OK;
        }
    return once_fail(
        err, ONCE_INVALID,
        "there is no store '%.*s:'; this program has sqlite:, postgresql:, redis: and once:", ONCE_SPAN_ARGS(scheme));
}

static once_span behind_scheme(once_span url)
{
    once_span scheme, rest;
    once_span_cut(url, ':', &scheme, &rest);
    return rest;
}

static once_result open_plain(once_span url, const struct once_options *options, struct once_store **out,
                              struct once_error *err)
{
    enum once_store_kind kind = 0;
    once_result r = kind_of(url, &kind, err);
    if (r != ONCE_OK)
        return r;
    switch (kind) {
    case ONCE_STORE_SQLITE:
        return once_store_sqlite_open(behind_scheme(url), options, out, err);
    case ONCE_STORE_POSTGRES:
        return once_store_postgres_open((const char *)url.ptr, options, out, err);
    case ONCE_STORE_REDIS:
        return once_store_redis_open(url, options, out, err);
    default:
        return once_store_remote_open(behind_scheme(url), out, err);
    }
}

static once_result check_plain(once_span url, enum once_store_kind kind, struct once_error *err)
{
    switch (kind) {
    case ONCE_STORE_SQLITE:
        return once_store_sqlite_url_check(behind_scheme(url), err);
    case ONCE_STORE_POSTGRES:
        return once_store_postgres_url_check((const char *)url.ptr, err);
    case ONCE_STORE_REDIS:
        return once_store_redis_url_check(url, err);
    default:
        return once_store_remote_url_check(behind_scheme(url), err);
    }
}

struct wrapper {
    once_span prefix;
    once_result (*wrap)(struct once_store *inner, struct once_store **out, struct once_error *err);
};

/* The wrapper that a URL begins with, or NULL. */
static const struct wrapper *wrapper_of(once_span url)
{
    static const struct wrapper wrappers[] = {
        { ONCE_LIT("trace+"), once_store_trace_wrap },
        { ONCE_LIT("fault+"), once_store_fault_wrap },
    };
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (once_span_starts(url, wrappers[i].prefix))
            return &wrappers[i];
    return NULL;
}

enum { WRAP_DEPTH_MAX = 4 };

/* Splits "trace+fault+sqlite:PATH" into its wrappers, outermost first, and the plain URL. */
static once_result unwrap(const char *url, const struct wrapper *around[WRAP_DEPTH_MAX], size_t *depth,
                          once_span *plain, struct once_error *err)
{
    const struct wrapper *next;
    *depth = 0;
    *plain = once_span_str(url);
    if (plain->len > ONCE_URL_LEN_MAX)
        return once_fail(err, ONCE_LIMIT, "the store's URL is %zu bytes long, the limit is %d", plain->len,
                         ONCE_URL_LEN_MAX);
    while ((next = wrapper_of(*plain)) != NULL) {
        if (*depth == WRAP_DEPTH_MAX)
            return once_fail(err, ONCE_LIMIT, "the store's URL wraps more than %d times", WRAP_DEPTH_MAX);
        around[(*depth)++] = next;
        *plain = once_span_skip(*plain, next->prefix.len);
    }
    return ONCE_OK;
}

once_result once_store_url_check(const char *url, enum once_store_kind *kind, struct once_error *err)
{
    const struct wrapper *around[WRAP_DEPTH_MAX];
    size_t depth;
    once_span plain;
    enum once_store_kind found = 0;
    once_result r = unwrap(url, around, &depth, &plain, err);
    if (r == ONCE_OK)
        r = kind_of(plain, &found, err);
    if (r == ONCE_OK)
        r = check_plain(plain, found, err);
    if (kind != NULL)
        *kind = found;
    return r;
}

/* The innermost is opened first, then wrapped. */
once_result once_store_open(const char *url, const struct once_options *options, struct once_store **out,
                            struct once_error *err)
{
    const struct wrapper *around[WRAP_DEPTH_MAX];
    size_t depth;
    once_span plain;
    struct once_store *store = NULL;
    once_result r = unwrap(url, around, &depth, &plain, err);
    if (r == ONCE_OK)
        r = open_plain(plain, options, &store, err);
    while (r == ONCE_OK && depth > 0)
        r = around[--depth]->wrap(store, &store, err);
    if (r == ONCE_OK)
        *out = store;
    return r;
}

once_result once_store_migrate(const char *url, const struct once_options *options, int *version,
                               struct once_error *err)
{
    enum once_store_kind kind = 0;
    (void)!kind_of(once_span_str(url), &kind, NULL); /* a wrapped or wrong URL is opened below */
    if (kind == ONCE_STORE_POSTGRES)                 /* the only one that does not upgrade itself when it is opened */
        return once_store_postgres_migrate(url, version, err);
    struct once_store *store = NULL;
    once_result r = once_store_open(url, options, &store, err);
    if (r != ONCE_OK)
        return r;
    *version = store->schema_version;
    once_store_close(store);
    return *version != 0 ? ONCE_OK
                         : once_fail(err, ONCE_INVALID, "a daemon's store is migrated by its daemon: name that store");
}

void once_store_close(struct once_store *store)
{
    if (store != NULL)
        store->ops->close(store);
}

/* ------------------------------------------------------------------ answers */

static bool arm_fits(enum once_verb verb, enum once_arm arm)
{
#define BIT(name) (1u << ONCE_ARM_##name)
    static const unsigned arms[] = {
        [ONCE_VERB_CLAIM] =
            BIT(EXECUTE) | BIT(PROBE) | BIT(REPLAY) | BIT(MISMATCH) | BIT(IN_PROGRESS) | BIT(UNKNOWN) | BIT(EXPIRED),
        [ONCE_VERB_EXTEND] = BIT(DONE) | BIT(FENCED),
        [ONCE_VERB_ADVANCE] = BIT(DONE) | BIT(FENCED),
        [ONCE_VERB_FINISH] = BIT(DONE) | BIT(FENCED),
        [ONCE_VERB_RELEASE] = BIT(DONE) | BIT(FENCED),
        [ONCE_VERB_LOOKUP] = BIT(FOUND) | BIT(ABSENT),
        [ONCE_VERB_RESOLVE] = BIT(DONE) | BIT(ABSENT) | BIT(REPLAY) | BIT(IN_PROGRESS) | BIT(FENCED),
        [ONCE_VERB_TAKE_OVER] = BIT(EXECUTE) | BIT(PROBE) | BIT(UNKNOWN) | BIT(FENCED) | BIT(ABSENT),
        [ONCE_VERB_FORGET] = BIT(DONE) | BIT(ABSENT) | BIT(IN_PROGRESS) | BIT(UNKNOWN) | BIT(FENCED),
    };
#undef BIT
    return (arms[verb] & 1u << arm) != 0;
}

/* The invariant that an answer breaks, or NULL. */
static const char *answer_fault(const struct once_op *op)
{
    const struct once_reply *reply = &op->reply;
    const struct once_record *record = &reply->record;
    enum once_verb verb = op->request->verb;
    if (!arm_fits(verb, reply->arm))
        return "an arm that its verb does not have";
    if (record->grant.fence != 0 && memcmp(record->grant.record, op->record, 16) != 0)
        return "another record than was asked for";
    switch (reply->arm) {
    case ONCE_ARM_EXECUTE:
    case ONCE_ARM_PROBE:
        if (record->state != ONCE_STATE_RUNNING || !record->lease_live)
            return "a grant of a record that is not running";
        if (verb == ONCE_VERB_TAKE_OVER && record->grant.fence <= op->request->take_over.seen.fence)
            return "a takeover without a newer fence (K2)";
        if (verb == ONCE_VERB_CLAIM &&
            memcmp(&record->fingerprint, &op->request->claim.fingerprint, sizeof record->fingerprint) != 0)
            return "a grant over another fingerprint (K6)";
        return once_record_fault(record);
    case ONCE_ARM_REPLAY:
        if (record->state != ONCE_STATE_SUCCEEDED && record->state != ONCE_STATE_FAILED)
            return "a replay without an outcome";
        if (verb == ONCE_VERB_CLAIM && record->retryable)
            return "a replay of a retryable failure";
        return once_record_fault(record);
    case ONCE_ARM_IN_PROGRESS:
        return !record->lease_live && record->takeover != ONCE_TAKEOVER_COMPLETER ? "in progress without a live lease"
                                                                                  : once_record_fault(record);
    case ONCE_ARM_UNKNOWN:
        return record->state != ONCE_STATE_UNKNOWN && verb != ONCE_VERB_FORGET
                   ? "the arm unknown for a record in another state"
                   : once_record_fault(record);
    case ONCE_ARM_MISMATCH:
    case ONCE_ARM_ABSENT:
    case ONCE_ARM_EXPIRED:
        return record->grant.fence != 0 ? "a record for an arm that has none" : NULL;
    default:
        return NULL;
    }
}

once_result once_store_apply(struct once_store *store, struct once_op *const *ops, size_t count, struct once_error *err)
{
    assert(count > 0);
    for (size_t i = 0; i < count; i++) {
        assert(ops[i]->reply.memory == NULL);
        ops[i]->result = ONCE_UNAVAILABLE;
        ops[i]->verified_not_applied = false;
    }
    once_result r = store->ops->apply(store, ops, count, err);
    for (size_t i = 0; i < count; i++) {
        if (r == ONCE_UNKNOWN && ops[i]->result == ONCE_OK)
            continue; /* it may turn out to be committed */
        if (r != ONCE_OK || ops[i]->result != ONCE_OK) {
            once_reply_release(&ops[i]->reply);
            continue;
        }
        const char *fault = answer_fault(ops[i]);
        if (fault != NULL) {
            once_reply_release(&ops[i]->reply);
            ops[i]->result =
                once_fail(&ops[i]->err, ONCE_CORRUPT, "store '%s' answered with %s", store->ops->name, fault);
        }
    }
    return r;
}

once_result once_store_reopen(struct once_store *store, enum once_fate *fate, struct once_error *err)
{
    enum once_fate unused;
    return store->ops->reopen(store, fate != NULL ? fate : &unused, err);
}

once_result once_store_list(struct once_store *store, const struct once_filter *filter, struct once_page *page,
                            struct once_error *err)
{
    assert(filter->limit > 0);
    assert(filter->limit <= ONCE_LIST_LIMIT_MAX);
    once_result r = store->ops->list(store, filter, page, err);
    assert(r != ONCE_OK || page->count <= filter->limit);
    return r;
}

once_result once_store_history(struct once_store *store, const uint8_t record[16], struct once_history *history,
                               struct once_error *err)
{
    return store->ops->history(store, record, history, err);
}

once_result once_store_sweep(struct once_store *store, struct once_sweep *sweep, struct once_error *err)
{
    assert(store->has_sweep);
    assert(sweep->count == 0 && sweep->room > 0);
    once_result r = store->ops->sweep(store, sweep, err);
    assert(r != ONCE_OK || sweep->count <= sweep->room);
    return r;
}

once_result once_store_lookup_many(struct once_store *store, const struct once_unfinished *wanted, size_t count,
                                   struct once_page *page, struct once_error *err)
{
    assert(count > 0 && count <= ONCE_LIST_LIMIT_MAX);
    if (store->ops->lookup_many == NULL)
        return once_fail(err, ONCE_UNAVAILABLE, "store '%s' cannot read records by their id", store->ops->name);
    once_result r = store->ops->lookup_many(store, wanted, count, page, err);
    assert(r != ONCE_OK || page->count == count);
    return r;
}

once_result once_store_expire(struct once_store *store, uint32_t budget, uint64_t *removed, bool *more,
                              struct once_error *err)
{
    assert(budget > 0);
    assert(budget <= ONCE_EXPIRE_BUDGET_MAX);
    once_result r = store->ops->expire(store, budget, removed, more, err);
    assert(r != ONCE_OK || *removed <= budget);
    return r;
}

once_result once_store_check(struct once_store *store, uint64_t *cursor, once_problem_fn *each, void *arg,
                             struct once_check_report *report, struct once_error *err)
{
    return store->ops->check(store, cursor, each, arg, report, err);
}

once_result once_store_stats(struct once_store *store, struct once_stats *stats, struct once_error *err)
{
    return store->ops->stats(store, stats, err);
}

once_result once_store_usage(struct once_store *store, struct once_usage *usage, struct once_error *err)
{
    if (store->ops->usage == NULL)
        return once_fail(err, ONCE_INVALID, "store '%s' does not count usage by tenant", store->ops->name);
    return store->ops->usage(store, usage, err);
}

once_result once_store_clock(struct once_store *store, once_time *now, struct once_error *err)
{
    *now = 0;
    return store->ops->clock(store, now, err);
}

once_result once_store_accepts(const struct once_store *store, const struct once_request *request,
                               struct once_error *err)
{
    return store->ops->accepts != NULL ? store->ops->accepts(store, request, err) : ONCE_OK;
}

const struct once_gap *once_store_gaps(const struct once_store *store, size_t *count)
{
    *count = 0;
    return store->ops->gaps != NULL ? store->ops->gaps(store, count) : NULL;
}

once_result once_store_seal_keys(struct once_store *store, const struct once_seal_key_ref *add,
                                 struct once_seal_key_refs *out, struct once_error *err)
{
    out->count = 0;
    if (store->ops->seal_keys == NULL)
        return once_fail(err, ONCE_INVALID, "store '%s' is sealed by the daemon that owns it", store->ops->name);
    return store->ops->seal_keys(store, add, out, err);
}

once_result once_store_open_another(struct once_store *store, struct once_store **out, struct once_error *err)
{
    if (store->ops->open_another == NULL)
        return once_fail(err, ONCE_UNAVAILABLE, "store '%s' has one writer", store->ops->name);
    return store->ops->open_another(store, out, err);
}
