/*
 * trace.c - a store around a store that logs every operation and its answer.
 *
 * One line per operation, to the file named by ONCE_TRACE or else to stderr:
 *
 *     finish 3f9a0c11 fence=17 -> OK done batch=3 us=412
 *
 * Record ids are cut to 8 digits; keys, fingerprints and bodies are not written at all.
 */
#include "store/wrap/wrap.h"

#include "core/err.h"
#include "os/os.h"

#include <fcntl.h>
#include <unistd.h>

struct trace_store {
    struct wrap_store wrap;
    int fd;
};

static const char *verb_name(enum once_verb verb)
{
    static const char *const names[] = {
        [ONCE_VERB_CLAIM] = "claim",     [ONCE_VERB_EXTEND] = "extend",       [ONCE_VERB_ADVANCE] = "advance",
        [ONCE_VERB_FINISH] = "finish",   [ONCE_VERB_RELEASE] = "release",     [ONCE_VERB_LOOKUP] = "lookup",
        [ONCE_VERB_RESOLVE] = "resolve", [ONCE_VERB_TAKE_OVER] = "take over", [ONCE_VERB_FORGET] = "forget",
    };
    return names[verb];
}

static void write_line(const struct trace_store *t, const char *line, int len)
{
    /* A failed write of the log must not change the operation. */
    if (len > 0 && write(t->fd, line, (size_t)len) < 0)
        return;
}

static void trace_op(const struct trace_store *t, const struct once_op *op, once_result batch, size_t count,
                     uint64_t us)
{
    char line[200];
    once_result r = batch != ONCE_OK ? batch : op->result;
    uint64_t fence = op->reply.record.grant.fence != 0 ? op->reply.record.grant.fence : op->request->grant.fence;
    int n = snprintf(line, sizeof line, "%s %02x%02x%02x%02x fence=%llu -> %s%s%s batch=%zu us=%llu\n",
                     verb_name(op->request->verb), op->record[0], op->record[1], op->record[2], op->record[3],
                     (unsigned long long)fence, once_result_name(r), r == ONCE_OK ? " " : "",
                     r == ONCE_OK ? once_arm_name(op->reply.arm) : "", count, (unsigned long long)us);
    write_line(t, line, n);
}

static once_result apply(struct once_store *base, struct once_op *const *ops, size_t count, struct once_error *err)
{
    struct trace_store *t = (struct trace_store *)base;
    uint64_t start = once_os_monotonic_ns();
    once_result r = once_store_apply(t->wrap.inner, ops, count, err);
    uint64_t us = (once_os_monotonic_ns() - start) / 1000;
    for (size_t i = 0; i < count; i++)
        trace_op(t, ops[i], r, count, us);
    return r;
}

static once_result reopen(struct once_store *base, enum once_fate *fate, struct once_error *err)
{
    struct trace_store *t = (struct trace_store *)base;
    once_result r = once_store_reopen(t->wrap.inner, fate, err);
    char line[64];
    write_line(t, line, snprintf(line, sizeof line, "reopen -> %s\n", once_result_name(r)));
    return r;
}

static void close_store(struct once_store *base)
{
    struct trace_store *t = (struct trace_store *)base;
    if (t->fd != STDERR_FILENO)
        close(t->fd);
    wrap_close(base);
}

once_result once_store_trace_wrap(struct once_store *inner, struct once_store **out, struct once_error *err)
{
    static const struct once_store_ops ops = {
        .name = "trace",
        .apply = apply,
        .reopen = reopen,
        WRAP_OPS_REST,
        .close = close_store,
    };
    struct trace_store *t = wrap_create(sizeof *t, &ops, inner, err);
    if (t == NULL)
        return ONCE_NO_MEMORY;
    const char *path = getenv("ONCE_TRACE");
    t->fd = STDERR_FILENO;
    if (path != NULL)
        t->fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (t->fd < 0) {
        t->fd = STDERR_FILENO;
        close_store(&t->wrap.base);
        return once_fail(err, ONCE_UNAVAILABLE, "cannot open trace file '%s': %m", path);
    }
    *out = &t->wrap.base;
    return ONCE_OK;
}
