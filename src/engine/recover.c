/*
 * recover.c - applies one batch to the store, and handles its failure.
 *
 * A batch is durable, or changed nothing, or its commit is in doubt because the answer was lost. Recovery comes before
 * any answer (K10): if the store can tell after a reopen whether the batch committed, that holds; else each operation
 * is applied again by itself, and its nonce or fence shows whether it was applied already.
 */
#include "engine/writer.h"

#include <unistd.h>

enum {
    RECOVER_TRIES = 5,     /* to find out about a commit in doubt */
    RECOVER_PAUSE_MS = 20, /* before the second try; then doubled each time */
};

static void fail_all(struct job **jobs, size_t count, once_result r, const struct once_error *err)
{
    for (size_t i = 0; i < count; i++) {
        jobs[i]->op.result = r;
        jobs[i]->op.err = *err;
    }
}

once_result writer_reopen(struct writer *writer, enum once_fate *fate, struct once_error *err)
{
    once_result r = once_store_reopen(writer->store, fate, err);
    atomic_fetch_add(&writer->store_calls, 1);
    writer->needs_reopen = r != ONCE_OK;
    return r;
}

/* Keeps the results, which hold if the commit took effect, as tentative. */
static void mark_in_doubt(struct job **jobs, size_t count, const struct once_error *why)
{
    for (size_t i = 0; i < count; i++) {
        struct once_op *op = &jobs[i]->op;
        op->tentative = op->result;
        op->result = ONCE_UNKNOWN;
        if (op->tentative == ONCE_OK || op->err.text[0] == '\0')
            op->err = *why;
    }
}

/* Applies one operation again, after a reopen. True: it is known whether it took effect. */
static bool apply_again(struct writer *writer, struct job *job)
{
    struct once_op *op = &job->op;
    struct once_error err = { .result = ONCE_OK };
    once_reply_release(&op->reply);
    op->again = true;
    once_result r = once_store_apply(writer->store, &op, 1, &err);
    atomic_fetch_add(&writer->store_calls, 1);
    if (r == ONCE_OK)
        return true;
    if (r != ONCE_UNKNOWN && op->verified_not_applied) {
        op->result = r;
        op->err = err;
        return true;
    }
    mark_in_doubt(&job, 1, &err);
    return false;
}

/* Reopens the store, which may know from its durable state whether the batch committed: then the tentative results
 * hold. Else applies the operations again, one by one (K10). */
static void recover_batch(struct writer *writer, struct job **jobs, size_t count)
{
    for (int try = 0; try < RECOVER_TRIES; try++) {
        if (try > 0)
            usleep((useconds_t)(RECOVER_PAUSE_MS << (try - 1)) * 1000);
        enum once_fate fate = ONCE_FATE_UNSURE;
        if (writer_reopen(writer, &fate, NULL) != ONCE_OK)
            continue;
        if (fate == ONCE_FATE_COMMITTED) {
            for (size_t i = 0; i < count; i++)
                jobs[i]->op.result = jobs[i]->op.tentative;
            return;
        }
        if (count == 1 && apply_again(writer, jobs[0]))
            return;
        if (count > 1) {
            for (size_t i = 0; i < count; i++)
                if (!apply_again(writer, jobs[i]))
                    recover_batch(writer, &jobs[i], 1);
            return;
        }
    }
}

static void recover(struct writer *writer, struct job **jobs, size_t count, const struct once_error *why)
{
    mark_in_doubt(jobs, count, why);
    recover_batch(writer, jobs, count);
    size_t open = 0;
    for (size_t i = 0; i < count; i++) {
        open += jobs[i]->op.result == ONCE_UNKNOWN;
        if (jobs[i]->op.result != ONCE_OK)
            once_reply_release(&jobs[i]->op.reply);
    }
    if (open > 0)
        writer->needs_reopen = true; /* a commit is still in doubt: reopen before the next batch */
    writer->recovered += count - open;
}

/* The batch failed and changed nothing. If one operation may be the cause, each is tried by itself. */
static void fail_or_split(struct writer *writer, struct job **jobs, size_t count, once_result r,
                          const struct once_error *err)
{
    fail_all(jobs, count, r, err);
    if (count == 1 || r == ONCE_UNAVAILABLE || r == ONCE_BUSY)
        return;
    for (size_t i = 0; i < count; i++) {
        struct once_op *op = &jobs[i]->op;
        struct once_error own;
        once_result single = once_store_apply(writer->store, &op, 1, &own);
        if (single == ONCE_UNKNOWN)
            recover(writer, &jobs[i], 1, &own);
        else if (single != ONCE_OK)
            fail_all(&jobs[i], 1, single, &own);
    }
}

void writer_apply(struct writer *writer, struct job **jobs, size_t count)
{
    struct once_error err = { .result = ONCE_OK };
    if (writer->needs_reopen && writer_reopen(writer, NULL, &err) != ONCE_OK) {
        fail_all(jobs, count, ONCE_UNAVAILABLE, &err);
        return;
    }
    for (size_t i = 0; i < count; i++)
        writer->ops[i] = &jobs[i]->op;
    once_result r = once_store_apply(writer->store, writer->ops, count, &err);
    atomic_fetch_add(&writer->store_calls, 1);
    if (r == ONCE_UNKNOWN)
        recover(writer, jobs, count, &err);
    else if (r != ONCE_OK)
        fail_or_split(writer, jobs, count, r, &err);
}
