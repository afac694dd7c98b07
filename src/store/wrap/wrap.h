/*
 * wrap.h - a store around a store: passes everything on, except what it replaces.
 */
#ifndef ONCE_STORE_WRAP_WRAP_H
#define ONCE_STORE_WRAP_WRAP_H

#include "store/store.h"

struct wrap_store {
    struct once_store base;
    struct once_store *inner;
};

/* `size` bytes beginning with a struct wrap_store. On failure closes `inner` and returns NULL. */
void *wrap_create(size_t size, const struct once_store_ops *ops, struct once_store *inner, struct once_error *err);

once_result wrap_reopen(struct once_store *base, enum once_fate *fate, struct once_error *err);
once_result wrap_list(struct once_store *base, const struct once_filter *filter, struct once_page *page,
                      struct once_error *err);
once_result wrap_sweep(struct once_store *base, struct once_sweep *sweep, struct once_error *err);
once_result wrap_lookup_many(struct once_store *base, const struct once_unfinished *wanted, size_t count,
                             struct once_page *page, struct once_error *err);
once_result wrap_history(struct once_store *base, const uint8_t record[16], struct once_history *history,
                         struct once_error *err);
once_result wrap_expire(struct once_store *base, uint32_t budget, uint64_t *removed, bool *more,
                        struct once_error *err);
once_result wrap_check(struct once_store *base, uint64_t *cursor, once_problem_fn *each, void *arg,
                       struct once_check_report *report, struct once_error *err);
once_result wrap_stats(struct once_store *base, struct once_stats *stats, struct once_error *err);
once_result wrap_clock(struct once_store *base, once_time *now, struct once_error *err);
once_result wrap_accepts(const struct once_store *base, const struct once_request *request, struct once_error *err);
const struct once_gap *wrap_gaps(const struct once_store *base, size_t *count);
once_result wrap_usage(struct once_store *base, struct once_usage *usage, struct once_error *err);
once_result wrap_seal_keys(struct once_store *base, const struct once_seal_key_ref *add, struct once_seal_key_refs *out,
                           struct once_error *err);
void wrap_close(struct once_store *base);

/* The members that wrappers seldom replace. */
#define WRAP_OPS_REST                                                                                                  \
    .list = wrap_list, .sweep = wrap_sweep, .lookup_many = wrap_lookup_many, .history = wrap_history,                  \
    .expire = wrap_expire, .check = wrap_check, .stats = wrap_stats, .clock = wrap_clock, .accepts = wrap_accepts,     \
    .gaps = wrap_gaps, .seal_keys = wrap_seal_keys, .usage = wrap_usage

#endif
