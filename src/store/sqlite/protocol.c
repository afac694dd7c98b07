/* protocol.c - see sqlite/protocol.h. */
#include "store/sqlite/protocol.h"

#include "core/decide.h"
#include "core/err.h"
#include "store/sqlite/op.h"
#include "store/sqlite/recent.h"

void sqlite_protocol_rolled_back(struct sqlite_protocol *p)
{
    sqlite_recent_clear(p);
}

static once_result answer_found(struct sqlite_protocol *p, struct once_op *op, struct sqlite_attempt *attempt,
                                struct once_error *err)
{
    if (!op->request->lookup.request || !attempt->stored.has_request)
        return sqlite_op_answer_stored(p, op, ONCE_ARM_FOUND, attempt, err);
    once_result r = sqlite_attempt_decode(p, attempt, &op->err);
    return r == ONCE_OK ? sqlite_op_answer_with_request(p, op, ONCE_ARM_FOUND, &attempt->stored.record, err)
                        : sqlite_op_fail(op, r, err);
}

static once_result lookup(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    struct sqlite_query query;
    struct sqlite_attempt attempt;
    bool found = false;
    once_result r = sqlite_op_load(p, op->record, &query, &attempt, &found, &op->err);
    if (r != ONCE_OK)
        r = sqlite_op_fail(op, r, err);
    else if (!found || attempt.stored.released || once_stored_is_expired(&attempt.stored, p->now))
        r = sqlite_op_answer(op, ONCE_ARM_ABSENT, NULL, err);
    else
        r = answer_found(p, op, &attempt, err);
    sqlite_op_unload(&query);
    return r;
}

once_result sqlite_protocol_do(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    bool done = false;
    once_result r = sqlite_op_answer_if_done(p, op, &done, err);
    if (r != ONCE_OK || done)
        return r;
    switch (op->request->verb) {
    case ONCE_VERB_CLAIM:
    case ONCE_VERB_TAKE_OVER:
        return sqlite_op_claim(p, op, err);
    case ONCE_VERB_EXTEND:
        return sqlite_op_extend(p, op, err);
    case ONCE_VERB_ADVANCE:
        return sqlite_op_advance(p, op, err);
    case ONCE_VERB_FINISH:
        return sqlite_op_finish(p, op, err);
    case ONCE_VERB_RELEASE:
        return sqlite_op_release(p, op, err);
    case ONCE_VERB_LOOKUP:
        return lookup(p, op, err);
    case ONCE_VERB_RESOLVE:
    case ONCE_VERB_FORGET:
        return sqlite_op_verdict(p, op, err);
    }
    return once_fail(err, ONCE_INVALID, "verb %d is unknown", (int)op->request->verb);
}
