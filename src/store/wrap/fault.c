/*
 * fault.c - a store that fails on purpose, around one that does not.
 *
 * ONCE_FAULT says how: KIND:N fails the N-th step (from 1), KIND:N+ every N-th.
 *   refuse       not applied, and says so (UNAVAILABLE)
 *   lose-before  not applied, the answer is lost (UNKNOWN)
 *   lose-after   applied, the answer is lost (UNKNOWN)
 *   lose         lose-before and lose-after in turn
 * Without ONCE_FAULT it is lose:3+: the engine above must settle lost answers all the time, and no caller may notice
 * (K10).
 */
#include "store/wrap/wrap.h"

#include "core/err.h"

enum kind { REFUSE, LOSE_BEFORE, LOSE_AFTER, LOSE };

struct fault_store {
    struct wrap_store wrap;
    enum kind kind;
    unsigned long nth;
    bool every;
    unsigned long steps, failed;
    bool forget; /* reopen() does not tell the fate of the step, if it was not applied, and of every second one that
                    was: the engine has to settle each operation by itself */
};

static bool is_due(struct fault_store *f)
{
    f->steps++;
    bool due = f->every ? f->steps % f->nth == 0 : f->steps == f->nth;
    f->failed += due;
    return due;
}

static once_result apply(struct once_store *base, struct once_op *const *ops, size_t count, struct once_error *err)
{
    struct fault_store *f = (struct fault_store *)base;
    if (!is_due(f))
        return once_store_apply(f->wrap.inner, ops, count, err);
    if (f->kind == REFUSE)
        return once_fail(err, ONCE_UNAVAILABLE, "step %lu was refused on purpose", f->steps);
    bool after = f->kind == LOSE_AFTER || (f->kind == LOSE && f->failed % 2 == 0);
    f->forget = !after || f->failed % 4 == 0;
    once_result r = after ? once_store_apply(f->wrap.inner, ops, count, err) : ONCE_OK;
    return r != ONCE_OK ? r : once_fail(err, ONCE_UNKNOWN, "the answer of step %lu was lost on purpose", f->steps);
}

static once_result reopen(struct once_store *base, enum once_fate *fate, struct once_error *err)
{
    struct fault_store *f = (struct fault_store *)base;
    once_result r = once_store_reopen(f->wrap.inner, fate, err);
    if (f->forget)
        *fate = ONCE_FATE_UNSURE;
    return r;
}

static once_result read_plan(struct fault_store *f, const char *text, struct once_error *err)
{
    static const char *const kinds[] = {
        [REFUSE] = "refuse", [LOSE_BEFORE] = "lose-before", [LOSE_AFTER] = "lose-after", [LOSE] = "lose"
    };
    const char *colon = strchr(text, ':');
    size_t len = colon != NULL ? (size_t)(colon - text) : strlen(text);
    for (int k = REFUSE; colon != NULL && k <= LOSE; k++) {
        if (strlen(kinds[k]) != len || memcmp(kinds[k], text, len) != 0)
            continue;
        char *end = NULL;
        f->kind = (enum kind)k;
        f->nth = strtoul(colon + 1, &end, 10);
        f->every = *end == '+';
        if (f->nth > 0 && end[f->every] == '\0')
            return ONCE_OK;
    }
    return once_fail(err, ONCE_INVALID, "ONCE_FAULT='%s' is not KIND:N or KIND:N+", text);
}

once_result once_store_fault_wrap(struct once_store *inner, struct once_store **out, struct once_error *err)
{
    static const struct once_store_ops ops = {
        .name = "fault",
        .apply = apply,
        .reopen = reopen,
        WRAP_OPS_REST,
        .close = wrap_close,
    };
    struct fault_store *f = wrap_create(sizeof *f, &ops, inner, err);
    if (f == NULL)
        return ONCE_NO_MEMORY;
    const char *plan = getenv("ONCE_FAULT");
    once_result r = read_plan(f, plan != NULL ? plan : "lose:3+", err);
    if (r != ONCE_OK) {
        wrap_close(&f->wrap.base);
        return r;
    }
    *out = &f->wrap.base;
    return ONCE_OK;
}
