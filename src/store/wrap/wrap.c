/* wrap.c - see wrap.h. */
#include "store/wrap/wrap.h"

#include "core/err.h"

static struct once_store *inner_of(struct once_store *base)
{
    return ((struct wrap_store *)base)->inner;
}

void *wrap_create(size_t size, const struct once_store_ops *ops, struct once_store *inner, struct once_error *err)
{
    struct wrap_store *w = calloc(1, size);
    if (w == NULL) {
        once_store_close(inner);
        once_fail(err, ONCE_NO_MEMORY, "no memory for a store");
        return NULL;
    }
    w->base = *inner;
    w->base.ops = ops;
    w->inner = inner;
    return w;
}

once_result wrap_reopen(struct once_store *base, enum once_fate *fate, struct once_error *err)
{
    return once_store_reopen(inner_of(base), fate, err);
}

once_result wrap_list(struct once_store *base, const struct once_filter *filter, struct once_page *page,
                      struct once_error *err)
{
    return once_store_list(inner_of(base), filter, page, err);
}

once_result wrap_sweep(struct once_store *base, struct once_sweep *sweep, struct once_error *err)
{
    return once_store_sweep(inner_of(base), sweep, err);
}

once_result wrap_lookup_many(struct once_store *base, const struct once_unfinished *wanted, size_t count,
                             struct once_page *page, struct once_error *err)
{
    return once_store_lookup_many(inner_of(base), wanted, count, page, err);
}

once_result wrap_history(struct once_store *base, const uint8_t record[16], struct once_history *history,
                         struct once_error *err)
{
    return once_store_history(inner_of(base), record, history, err);
}

once_result wrap_expire(struct once_store *base, uint32_t budget, uint64_t *removed, bool *more, struct once_error *err)
{
    return once_store_expire(inner_of(base), budget, removed, more, err);
}

once_result wrap_check(struct once_store *base, uint64_t *cursor, once_problem_fn *each, void *arg,
                       struct once_check_report *report, struct once_error *err)
{
    return once_store_check(inner_of(base), cursor, each, arg, report, err);
}

once_result wrap_stats(struct once_store *base, struct once_stats *stats, struct once_error *err)
{
    return once_store_stats(inner_of(base), stats, err);
}

once_result wrap_clock(struct once_store *base, once_time *now, struct once_error *err)
{
    return once_store_clock(inner_of(base), now, err);
}

once_result wrap_accepts(const struct once_store *base, const struct once_request *request, struct once_error *err)
{
    return once_store_accepts(((const struct wrap_store *)base)->inner, request, err);
}

const struct once_gap *wrap_gaps(const struct once_store *base, size_t *count)
{
    return once_store_gaps(((const struct wrap_store *)base)->inner, count);
}

once_result wrap_usage(struct once_store *base, struct once_usage *usage, struct once_error *err)
{
    return once_store_usage(inner_of(base), usage, err);
}

once_result wrap_seal_keys(struct once_store *base, const struct once_seal_key_ref *add, struct once_seal_key_refs *out,
                           struct once_error *err)
{
    return once_store_seal_keys(inner_of(base), add, out, err);
}

void wrap_close(struct once_store *base)
{
    once_store_close(inner_of(base));
    explicit_bzero(&base->secret, sizeof base->secret);
    free(base);
}
