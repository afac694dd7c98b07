/*
 * recover.c - one step of the store, and what to do when it goes wrong.
 *
 * A step either is durable, or changed nothing, or its answer was lost. What was lost is
 * settled here before anybody is answered (K10): a store that can tell is believed, else each
 * operation is applied again by itself and recognises what it did by its nonce or fence.
 */
#include "engine/writer.h"

#include <unistd.h>

enum {
    SETTLE_ROUNDS = 5,    /* tries to learn what became of a lost commit */
    SETTLE_PAUSE_MS = 20, /* before the second; then doubled each time */
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

/* Remembers what the operations would answer, had the commit, and doubts it. */
static void doubt(struct job **jobs, size_t count, const struct once_error *why)
{
    for (size_t i = 0; i < count; i++) {
        struct once_op *op = &jobs[i]->op;
        op->tentative = op->result;
        op->result = ONCE_UNKNOWN;
        if (op->tentative == ONCE_OK || op->err.text[0] == '\0')
            op->err = *why;
    }
}

/* Applies one operation again, after a reopen. True: its fate is known. */
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
    doubt(&job, 1, &err);
    return false;
}

/* The last step's answer was lost, and its operations are in doubt (K10). Look at the durable
 * state: a store that can tell whether the step committed is believed, and the answers stand.
 * Else the operations are applied again, one by one: each recognises what it did. */
static void settle_step(struct writer *writer, struct job **jobs, size_t count)
{
    for (int round = 0; round < SETTLE_ROUNDS; round++) {
        if (round > 0)
            usleep((useconds_t)(SETTLE_PAUSE_MS << (round - 1)) * 1000);
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
                    settle_step(writer, &jobs[i], 1);
            return;
        }
    }
}

static void settle(struct writer *writer, struct job **jobs, size_t count, const struct once_error *why)
{
    doubt(jobs, count, why);
    settle_step(writer, jobs, count);
    size_t open = 0;
    for (size_t i = 0; i < count; i++) {
        open += jobs[i]->op.result == ONCE_UNKNOWN;
        if (jobs[i]->op.result != ONCE_OK)
            once_reply_release(&jobs[i]->op.reply);
    }
    if (open > 0)
        writer->needs_reopen = true; /* some commit is still in doubt: look again before anything new */
    writer->recovered += count - open;
}

/* A step that failed without changing anything. Where one operation may be to blame, the
 * others are tried without it. */
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
            settle(writer, &jobs[i], 1, &own);
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
        settle(writer, jobs, count, &err);
    else if (r != ONCE_OK)
        fail_or_split(writer, jobs, count, r, &err);
}
