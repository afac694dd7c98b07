/*
 * postgres.c - the store for many machines: PostgreSQL behind the same interface.
 *
 * The protocol itself is in the database's functions (sql/postgres), the same that a service
 * calls in its own transaction. A batch is one pipeline: BEGIN, one call for all claims, one
 * for all finishes, the rest one by one, COMMIT, and one wait for all the answers.
 *
 * Invariants: K4 answers are believed after COMMIT said so, without a warning: a WARNING
 *                during COMMIT means that the wait for a standby was cut short (FAULTS E6).
 *             K10 a connection lost after anything was sent is ONCE_UNKNOWN. The engine
 *                reopens, and applies each operation again: its insert conflicts with, and
 *                waits for, the transaction in doubt. COMMIT is never cancelled.
 *             After a reconnect, ours or a pooler's, a barrier write comes first: what somebody
 *                else committed on a primary that was just promoted is believed only when it
 *                is durable.
 */
#include "store/gather.h"
#include "store/pg_conn.h"
#include "store/pg_param.h"
#include "store/store.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/record.h"
#include "core/span.h"
#include "os/os.h"

#include <stdlib.h>
#include <unistd.h>

enum { RETRIES_MAX = 10, RETRY_PAUSE_US = 2000 };

struct postgres_store {
    struct once_store base;
    struct pg_conn pg;
    const struct once_clock *clock; /* NULL: the database's own */
    bool keytext;
    uint64_t commits;
    uint64_t emptied; /* records that went with a slot and were not told of yet */
};

/* ------------------------------------------------------------------ answers */

/* The columns of once.answer, after the number of the operation. */
enum {
    A_N,
    A_ARM,
    A_RECORD,
    A_FENCE,
    A_ATTEMPT,
    A_STATE,
    A_RETRYABLE,
    A_STATUS,
    A_HEADERS,
    A_BODY,
    A_BODY_DROPPED,
    A_POINT,
    A_CHECKPOINT,
    A_RETRY_AFTER,
    A_TAKEOVER,
    A_CREATED,
    A_CLAIMED,
    A_LEASE_UNTIL,
    A_LEASE_LIVE,
    A_FINISHED,
    A_EXPIRES,
    A_RETENTION,
    A_FINGERPRINT,
    A_TENANT,
    A_KEY,
    A_COUNT,
};

static enum once_arm arm_of(once_span name)
{
    for (int arm = ONCE_ARM_EXECUTE; arm <= ONCE_ARM_ABSENT; arm++)
        if (once_span_equal(name, once_span_str(once_arm_name((enum once_arm)arm))))
            return (enum once_arm)arm;
    return ONCE_ARM_NONE;
}

static enum once_state state_of(once_span name)
{
    for (int state = ONCE_STATE_RUNNING; state <= ONCE_STATE_UNKNOWN; state++)
        if (once_span_equal(name, once_span_str(once_state_name((enum once_state)state))))
            return (enum once_state)state;
    return ONCE_STATE_NONE;
}

static enum once_takeover takeover_of(once_span name)
{
    for (int t = ONCE_TAKEOVER_ESCALATE; t <= ONCE_TAKEOVER_PROBE; t++)
        if (once_span_equal(name, once_span_str(once_takeover_name((enum once_takeover)t))))
            return (enum once_takeover)t;
    return ONCE_TAKEOVER_DEFAULT;
}

static void copy_bytes(const PGresult *result, int row, int column, uint8_t *to, size_t len)
{
    once_span bytes = pg_bytes(result, row, column);
    if (bytes.len == len)
        memcpy(to, bytes.ptr, len);
}

/* Spans are the result's. */
static struct once_record read_record(const PGresult *r, int row)
{
    struct once_record record = {
        .grant.fence = (uint64_t)pg_int(r, row, A_FENCE),
        .tenant = pg_bytes(r, row, A_TENANT),
        .key = pg_bytes(r, row, A_KEY),
        .state = state_of(pg_bytes(r, row, A_STATE)),
        .retryable = pg_bool(r, row, A_RETRYABLE),
        .body_dropped = pg_bool(r, row, A_BODY_DROPPED),
        .lease_live = pg_bool(r, row, A_LEASE_LIVE),
        .takeover = takeover_of(pg_bytes(r, row, A_TAKEOVER)),
        .attempt = (uint32_t)pg_int(r, row, A_ATTEMPT),
        .status = (int32_t)pg_int(r, row, A_STATUS),
        .retention_ms = pg_int(r, row, A_RETENTION),
        .created_at = pg_int(r, row, A_CREATED),
        .claimed_at = pg_int(r, row, A_CLAIMED),
        .lease_until = pg_int(r, row, A_LEASE_UNTIL),
        .finished_at = pg_int(r, row, A_FINISHED),
        .expires_at = pg_int(r, row, A_EXPIRES),
        .recovery_point = pg_bytes(r, row, A_POINT),
        .checkpoint = pg_bytes(r, row, A_CHECKPOINT),
        .headers = pg_bytes(r, row, A_HEADERS),
        .body = pg_bytes(r, row, A_BODY),
    };
    copy_bytes(r, row, A_RECORD, record.grant.record, 16);
    copy_bytes(r, row, A_FINGERPRINT, record.fingerprint.bytes, 32);
    if (record.finished_at != 0 && PQgetisnull(r, row, A_EXPIRES))
        record.expires_at = ONCE_NEVER;
    return record;
}

static once_result read_answer(const PGresult *r, int row, struct once_op *op, struct once_error *err)
{
    enum once_arm arm = arm_of(pg_bytes(r, row, A_ARM));
    struct once_record record = read_record(r, row);
    bool has_record = !PQgetisnull(r, row, A_FENCE);
    if (has_record && arm == ONCE_ARM_EXECUTE && PQgetisnull(r, row, A_FINGERPRINT)) { /* fresh: as it was asked for */
        record.fingerprint = op->request->claim.fingerprint;
        record.takeover = op->request->claim.takeover;
        record.retention_ms = op->request->claim.retention_ms;
    }
    if (arm == ONCE_ARM_DONE) { /* the caller knows the rest */
        record.tenant = record.key = record.recovery_point = record.checkpoint = once_span_of(NULL, 0);
        record.headers = record.body = once_span_of(NULL, 0);
    }
    op->result = ONCE_OK;
    once_result result = once_reply_set(&op->reply, arm, has_record ? &record : NULL, err);
    if (result == ONCE_OK && arm == ONCE_ARM_IN_PROGRESS)
        op->reply.retry_after_ms = pg_int(r, row, A_RETRY_AFTER);
    return result;
}

/* ------------------------------------------------------------------ questions */

static once_span record_span(const struct once_op *op)
{
    return once_span_of(op->record, 16);
}

#define ANSWER "SELECT 1, a.* FROM "

static once_result send_claims(struct postgres_store *s, struct once_op *const *ops, size_t count,
                               struct once_error *err)
{
    struct pg_params p;
    pg_params_init(&p);
    pg_array_begin(&p, PG_UUID, count);
    for (size_t i = 0; i < count; i++)
        pg_array_bytes(&p, record_span(ops[i]));
    pg_array_begin(&p, PG_BYTEA, count);
    for (size_t i = 0; i < count; i++)
        pg_array_bytes(&p, ops[i]->request->claim.tenant);
    pg_array_begin(&p, PG_BYTEA, count);
    for (size_t i = 0; i < count; i++) {
        if (s->keytext)
            pg_array_bytes(&p, ops[i]->request->claim.key);
        else
            pg_array_null(&p);
    }
    pg_array_begin(&p, PG_BYTEA, count);
    for (size_t i = 0; i < count; i++)
        pg_array_bytes(&p, once_span_of(ops[i]->request->claim.fingerprint.bytes, 32));
    pg_array_begin(&p, PG_INT8, count);
    for (size_t i = 0; i < count; i++)
        pg_array_int(&p, PG_INT8, ops[i]->request->claim.lease_ms);
    pg_array_begin(&p, PG_INT8, count);
    for (size_t i = 0; i < count; i++)
        pg_array_int(&p, PG_INT8, ops[i]->request->claim.retention_ms);
    pg_array_begin(&p, PG_INT4, count);
    for (size_t i = 0; i < count; i++)
        pg_array_int(&p, PG_INT4, ops[i]->request->claim.takeover);
    pg_array_begin(&p, PG_UUID, count);
    for (size_t i = 0; i < count; i++)
        pg_array_bytes(&p, once_span_of(ops[i]->request->claim.nonce, 16));
    once_result r =
        pg_send(s->pg.conn, "SELECT m.n, (m.answer).* FROM once.claim_many($1, $2, $3, $4, $5, $6, $7, $8) m", &p, err);
    pg_params_release(&p);
    return r;
}

/* As once.result has it. */
static int64_t state_code(const struct once_outcome *o)
{
    return (int64_t)o->state + (o->retryable ? 16 : 0) + (o->body_dropped ? 32 : 0);
}

static once_result send_finishes(struct postgres_store *s, struct once_op *const *ops, size_t count,
                                 struct once_error *err)
{
    struct pg_params p;
    pg_params_init(&p);
    pg_array_begin(&p, PG_UUID, count);
    for (size_t i = 0; i < count; i++)
        pg_array_bytes(&p, record_span(ops[i]));
    pg_array_begin(&p, PG_INT8, count);
    for (size_t i = 0; i < count; i++)
        pg_array_int(&p, PG_INT8, (int64_t)ops[i]->request->grant.fence);
    pg_array_begin(&p, PG_INT4, count);
    for (size_t i = 0; i < count; i++)
        pg_array_int(&p, PG_INT4, state_code(&ops[i]->request->outcome));
    pg_array_begin(&p, PG_INT4, count);
    for (size_t i = 0; i < count; i++)
        pg_array_int(&p, PG_INT4, ops[i]->request->outcome.status);
    pg_array_begin(&p, PG_BYTEA, count);
    for (size_t i = 0; i < count; i++)
        pg_array_bytes(&p, ops[i]->request->outcome.headers);
    pg_array_begin(&p, PG_BYTEA, count);
    for (size_t i = 0; i < count; i++)
        pg_array_bytes(&p, ops[i]->request->outcome.body);
    pg_add_int(&p, PG_INT4, ops[0]->again); /* what is applied again is applied alone */
    once_result r = pg_send(
        s->pg.conn, "SELECT m.n, (m.answer).* FROM once.finish_many($1, $2, $3, $4, $5, $6, $7 = 1) m", &p, err);
    pg_params_release(&p);
    return r;
}

static once_result send_resolve(struct postgres_store *s, const struct once_op *op, struct pg_params *p,
                                struct once_error *err)
{
    const struct once_resolve *v = &op->request->resolve;
    pg_add_int(p, PG_INT8, (int64_t)v->fence);
    pg_add_int(p, PG_INT4, v->verdict);
    pg_add_int(p, PG_INT4, state_code(&v->outcome));
    pg_add_int(p, PG_INT4, v->outcome.status);
    pg_add_bytes(p, PG_BYTEA, v->outcome.headers);
    pg_add_bytes(p, PG_BYTEA, v->outcome.body);
    pg_add_bytes(p, PG_BYTEA, v->actor);
    pg_add_bytes(p, PG_BYTEA, v->reason);
    pg_add_bytes(p, PG_UUID, once_span_of(op->nonce, sizeof op->nonce));
    return pg_send(s->pg.conn, ANSWER "once.resolve_record($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) a", p, err);
}

static once_result send_other(struct postgres_store *s, const struct once_op *op, struct once_error *err)
{
    const struct once_request *q = op->request;
    struct pg_params p;
    pg_params_init(&p);
    pg_add_bytes(&p, PG_UUID, record_span(op));
    once_result r = ONCE_OK;
    switch (q->verb) {
    case ONCE_VERB_EXTEND:
        pg_add_int(&p, PG_INT8, (int64_t)q->grant.fence);
        pg_add_int(&p, PG_INT8, q->extend.lease_ms);
        r = pg_send(s->pg.conn, ANSWER "once.extend_record($1, $2, $3) a", &p, err);
        break;
    case ONCE_VERB_ADVANCE:
        pg_add_int(&p, PG_INT8, (int64_t)q->grant.fence);
        pg_add_bytes(&p, PG_TEXT, q->advance.point);
        pg_add_bytes(&p, PG_BYTEA, q->advance.checkpoint);
        pg_add_bytes(&p, PG_UUID, once_span_of(op->nonce, sizeof op->nonce));
        r = pg_send(s->pg.conn, ANSWER "once.advance_record($1, $2, $3, $4, $5) a", &p, err);
        break;
    case ONCE_VERB_RELEASE:
        pg_add_int(&p, PG_INT8, (int64_t)q->grant.fence);
        pg_add_int(&p, PG_INT4, op->again);
        r = pg_send(s->pg.conn, ANSWER "once.release_record($1, $2, $3 = 1) a", &p, err);
        break;
    case ONCE_VERB_LOOKUP:
        r = pg_send(s->pg.conn, ANSWER "once.lookup_record($1) a", &p, err);
        break;
    case ONCE_VERB_RESOLVE:
        r = send_resolve(s, op, &p, err);
        break;
    default:
        abort();
    }
    pg_params_release(&p);
    return r;
}

static once_result send_plain(struct postgres_store *s, const char *sql, struct once_error *err)
{
    struct pg_params p;
    pg_params_init(&p);
    once_result r = pg_send(s->pg.conn, sql, &p, err);
    pg_params_release(&p);
    return r;
}

/* A clock of the tests' own. The database listens only where it was told to. */
static once_result send_clock(struct postgres_store *s, struct once_error *err)
{
    struct pg_params p;
    pg_params_init(&p);
    char text[24];
    int len = snprintf(text, sizeof text, "%lld", (long long)s->clock->wall(s->clock->arg));
    pg_add_bytes(&p, PG_TEXT, once_span_of(text, (size_t)len));
    once_result r = pg_send(s->pg.conn, "SELECT set_config('once.now_ms', $1, true)", &p, err);
    pg_params_release(&p);
    return r;
}

/* ------------------------------------------------------------------ a batch */

/* The operations of a batch, in the order in which they are sent: all claims in one statement,
 * all finishes in the next, then the rest. Those of one record keep their order: where that
 * takes one back to an earlier kind of statement, it begins another stage. */
struct batch {
    struct item {
        struct once_op *op;
        size_t index;
        unsigned stage;
        enum kind { KIND_CLAIM, KIND_FINISH, KIND_OTHER } kind;
    } * items;
    struct once_op **ops; /* of the items */
    size_t count;
};

static enum kind kind_of(const struct once_op *op)
{
    return op->request->verb == ONCE_VERB_CLAIM    ? KIND_CLAIM
           : op->request->verb == ONCE_VERB_FINISH ? KIND_FINISH
                                                   : KIND_OTHER;
}

static int by_record(const void *left, const void *right)
{
    const struct item *a = left, *b = right;
    int order = memcmp(a->op->record, b->op->record, sizeof a->op->record);
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

static int by_statement(const void *left, const void *right)
{
    const struct item *a = left, *b = right;
    if (a->stage != b->stage)
        return a->stage < b->stage ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

static void batch_release(struct batch *b)
{
    free(b->items);
    free(b->ops);
}

static bool batch_init(struct batch *b, struct once_op *const *ops, size_t count)
{
    *b = (struct batch){ .items = calloc(count, sizeof *b->items),
                         .ops = calloc(count, sizeof *b->ops),
                         .count = count };
    if (b->items == NULL || b->ops == NULL) {
        batch_release(b);
        return false;
    }
    for (size_t i = 0; i < count; i++)
        b->items[i] = (struct item){ .op = ops[i], .index = i, .kind = kind_of(ops[i]) };
    qsort(b->items, count, sizeof *b->items, by_record);
    for (size_t i = 1; i < count; i++) {
        struct item *before = &b->items[i - 1], *at = &b->items[i];
        if (memcmp(before->op->record, at->op->record, sizeof at->op->record) == 0)
            at->stage = before->stage + (at->kind < before->kind);
    }
    qsort(b->items, count, sizeof *b->items, by_statement);
    for (size_t i = 0; i < count; i++)
        b->ops[i] = b->items[i].op;
    return true;
}

/* How many operations, from `at` on, go into one statement. */
static size_t batch_statement(const struct batch *b, size_t at)
{
    size_t end = at + 1;
    if (b->items[at].kind != KIND_OTHER)
        while (end < b->count && b->items[end].kind == b->items[at].kind && b->items[end].stage == b->items[at].stage)
            end++;
    return end - at;
}

static once_result send_batch(struct postgres_store *s, const struct batch *b, struct once_error *err)
{
    once_result r = send_plain(s, "BEGIN ISOLATION LEVEL READ COMMITTED", err);
    if (r == ONCE_OK)
        r = send_plain(s, s->pg.settings, err);
    if (r == ONCE_OK && s->clock != NULL)
        r = send_clock(s, err);
    for (size_t at = 0, count; r == ONCE_OK && at < b->count; at += count) {
        count = batch_statement(b, at);
        if (b->items[at].kind == KIND_CLAIM)
            r = send_claims(s, b->ops + at, count, err);
        else if (b->items[at].kind == KIND_FINISH)
            r = send_finishes(s, b->ops + at, count, err);
        else
            r = send_other(s, b->ops[at], err);
    }
    if (r == ONCE_OK)
        r = send_plain(s, "COMMIT", err);
    if (r == ONCE_OK && !PQpipelineSync(s->pg.conn))
        r = once_fail(err, ONCE_UNAVAILABLE, "cannot send to the database: %s", PQerrorMessage(s->pg.conn));
    return r;
}

struct receipt {
    once_result result;      /* the first failure of our own */
    enum pg_failure failure; /* of the server */
    bool failed, rolled_back;
};

static void note_failure(struct postgres_store *s, const PGresult *r, struct receipt *receipt, struct once_error *err)
{
    if (receipt->failed)
        return;
    receipt->failed = true;
    receipt->failure = pg_failure_of(&s->pg, r);
    const char *message = r != NULL ? PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    if (message == NULL)
        message = s->pg.silent ? "no answer" : PQerrorMessage(s->pg.conn);
    once_fail(err, ONCE_UNAVAILABLE, "database: %.*s", (int)strcspn(message, "\n"), message);
}

/* One statement's result. `ops` are the operations that its rows answer, numbered from 1. */
static void receive(struct postgres_store *s, struct once_op *const *ops, size_t count, struct receipt *receipt,
                    struct once_error *err)
{
    PGresult *r = pg_conn_result(&s->pg);
    ExecStatusType status = PQresultStatus(r);
    if (r == NULL || status == PGRES_FATAL_ERROR || status == PGRES_BAD_RESPONSE) {
        note_failure(s, r, receipt, err);
    } else if (status == PGRES_TUPLES_OK && count > 0 && !receipt->failed) {
        for (int row = 0; row < PQntuples(r); row++) {
            int64_t n = pg_int(r, row, A_N);
            if (PQnfields(r) != A_COUNT || n < 1 || (size_t)n > count)
                receipt->result = once_fail(err, ONCE_CORRUPT, "the database's functions are not ours");
            else if (receipt->result == ONCE_OK)
                receipt->result = read_answer(r, row, ops[n - 1], err);
        }
    } else if (status == PGRES_TUPLES_OK && count == 0) {
        pg_conn_note_server(&s->pg, r);
    } else if (status == PGRES_COMMAND_OK && strcmp(PQcmdStatus(r), "ROLLBACK") == 0) {
        receipt->rolled_back = true;
    }
    PQclear(r);
    while (PQstatus(s->pg.conn) == CONNECTION_OK && (r = pg_conn_result(&s->pg)) != NULL)
        PQclear(r); /* the NULL that ends each statement's results */
}

static void receive_sync(struct postgres_store *s)
{
    PGresult *r = NULL;
    for (int i = 0; i < 4 && PQstatus(s->pg.conn) == CONNECTION_OK; i++) {
        r = pg_conn_result(&s->pg);
        bool sync = PQresultStatus(r) == PGRES_PIPELINE_SYNC;
        PQclear(r);
        if (sync)
            return;
    }
}

static struct receipt receive_batch(struct postgres_store *s, const struct batch *b, struct once_error *err)
{
    struct receipt receipt = { .result = ONCE_OK };
    receive(s, NULL, 0, &receipt, err); /* BEGIN */
    receive(s, NULL, 0, &receipt, err); /* its settings */
    if (s->clock != NULL)
        receive(s, NULL, 0, &receipt, err);
    for (size_t at = 0, count; at < b->count; at += count) {
        count = batch_statement(b, at);
        receive(s, b->ops + at, count, &receipt, err);
    }
    s->pg.warned = false;
    receive(s, NULL, 0, &receipt, err); /* COMMIT */
    receive_sync(s);
    return receipt;
}

static void roll_back(struct postgres_store *s)
{
    PQexitPipelineMode(s->pg.conn);
    if (pg_conn_exec(&s->pg, "ROLLBACK", NULL, NULL) != ONCE_OK)
        pg_conn_close(&s->pg);
}

static once_result result_of(enum pg_failure failure)
{
    switch (failure) {
    case PG_FAILURE_LOST:
        return ONCE_UNKNOWN;
    case PG_FAILURE_RETRY:
    case PG_FAILURE_LOCKED:
        return ONCE_BUSY;
    case PG_FAILURE_INPUT:
        return ONCE_INVALID;
    case PG_FAILURE_LIMIT:
        return ONCE_LIMIT;
    default:
        return ONCE_UNAVAILABLE;
    }
}

static void drop_replies(const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        once_reply_release(&b->ops[i]->reply);
}

/* Replays and look-ups write nothing. */
static bool has_written(const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        enum once_arm arm = b->ops[i]->reply.arm;
        if (arm == ONCE_ARM_EXECUTE || arm == ONCE_ARM_PROBE || arm == ONCE_ARM_DONE || arm == ONCE_ARM_UNKNOWN)
            return true;
    }
    return false;
}

/* One try. *again: the same transaction may succeed if repeated. */
static once_result try_batch(struct postgres_store *s, const struct batch *b, bool *again, struct once_error *err)
{
    *again = false;
    if (!PQenterPipelineMode(s->pg.conn))
        return once_fail(err, ONCE_UNAVAILABLE, "the connection is not usable");
    once_result r = send_batch(s, b, err);
    if (r != ONCE_OK) { /* part of it may be on its way, COMMIT included */
        pg_conn_close(&s->pg);
        return r == ONCE_NO_MEMORY ? r : ONCE_UNKNOWN;
    }
    struct receipt receipt = receive_batch(s, b, err);
    if (receipt.failed && receipt.failure == PG_FAILURE_LOST) {
        pg_conn_close(&s->pg);
        return ONCE_UNKNOWN;
    }
    if (receipt.failed) {
        roll_back(s);
        *again = receipt.failure == PG_FAILURE_RETRY;
        return result_of(receipt.failure);
    }
    PQexitPipelineMode(s->pg.conn);
    if (s->pg.warned)
        return once_fail(err, ONCE_UNKNOWN, "the server warned during COMMIT: it may not be replicated");
    if (receipt.rolled_back)
        return once_fail(err, ONCE_UNAVAILABLE, "the server rolled the transaction back");
    if (pg_conn_meet_server(&s->pg, err) != ONCE_OK)
        return ONCE_UNKNOWN; /* it answered, but what it says may not be durable */
    s->commits += has_written(b);
    /* Committed, but not all answers could be kept: ask again, one by one. */
    return receipt.result == ONCE_OK ? ONCE_OK : receipt.result == ONCE_NO_MEMORY ? ONCE_UNKNOWN : receipt.result;
}

static once_result apply_batch(struct postgres_store *s, struct once_op *const *ops, size_t count,
                               struct once_error *err)
{
    struct batch b;
    if (!batch_init(&b, ops, count))
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a batch");
    once_result r = ONCE_OK;
    bool again = true;
    for (int i = 0; again && i < RETRIES_MAX; i++) {
        if (i > 0)
            usleep((useconds_t)(once_os_monotonic_ns() % (RETRY_PAUSE_US << i)));
        r = try_batch(s, &b, &again, err);
        if (r != ONCE_OK)
            drop_replies(&b);
    }
    batch_release(&b);
    return r;
}

/* A key that somebody's own transaction holds must not fail the others of its batch. */
static once_result apply_one_by_one(struct postgres_store *s, struct once_op *const *ops, size_t count,
                                    struct once_error *err)
{
    for (size_t i = 0; i < count; i++) {
        struct once_error own;
        once_result r = apply_batch(s, &ops[i], 1, &own);
        if (r == ONCE_UNKNOWN) { /* what follows has not been sent, but the engine settles all alike */
            if (err != NULL)
                *err = own;
            return r;
        }
        if (r != ONCE_OK) {
            ops[i]->result = r;
            ops[i]->err = own;
        }
    }
    return ONCE_OK;
}

static once_result reopen(struct once_store *base, enum once_fate *fate, struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    *fate = ONCE_FATE_UNSURE;
    once_result r = pg_conn_open(&s->pg, err);
    return r == ONCE_OK ? pg_conn_barrier(&s->pg, err) : r;
}

static once_result apply(struct once_store *base, struct once_op *const *ops, size_t count, struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    enum once_fate fate;
    if (s->pg.conn == NULL && reopen(base, &fate, err) != ONCE_OK) /* a question had found it gone */
        return ONCE_UNAVAILABLE;
    once_result r = apply_batch(s, ops, count, err);
    if (r == ONCE_BUSY && count > 1)
        return apply_one_by_one(s, ops, count, err);
    if (count == 1 && (r == ONCE_INVALID || r == ONCE_LIMIT)) { /* the function looked, and refused: its own answer */
        ops[0]->result = r;
        if (err != NULL)
            ops[0]->err = *err;
        return ONCE_OK;
    }
    return r;
}

/* ------------------------------------------------------------------ looking */

/* A question outside of any batch; connects again by itself. */
static once_result ask(struct postgres_store *s, const char *sql, struct pg_params *p, PGresult **out,
                       struct once_error *err)
{
    if (s->pg.conn == NULL || PQstatus(s->pg.conn) != CONNECTION_OK) {
        enum once_fate fate;
        once_result r = reopen(&s->base, &fate, err);
        if (r != ONCE_OK)
            return r;
    }
    char set[80];
    if (s->clock != NULL)
        snprintf(set, sizeof set, "SELECT set_config('once.now_ms', '%lld', true)",
                 (long long)s->clock->wall(s->clock->arg));
    return pg_conn_ask(&s->pg, s->clock != NULL ? set : NULL, sql, p, out, err);
}

static once_time now_of(struct postgres_store *s)
{
    return s->clock != NULL ? s->clock->wall(s->clock->arg) : once_os_clock.wall(NULL);
}

static once_result list(struct once_store *base, const struct once_filter *f, struct once_page *page,
                        struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    struct pg_params p;
    pg_params_init(&p);
    pg_add_int(&p, PG_INT8, f->before != 0 && f->before < INT64_MAX ? (int64_t)f->before : INT64_MAX);
    pg_add_int(&p, PG_INT8, ONCE_LIST_SCAN_MAX);
    PGresult *r = NULL;
    struct gather_page g = { .count = 0 };
    once_result result = ask(s, "SELECT l.next, (l.answer).* FROM once.list($1, $2) l", &p, &r, err);
    if (result == ONCE_OK)
        result = gather_page_init(&g, f->limit, err);
    /* The last row says only where to go on; a full page goes on after its own last record. */
    int rows = result == ONCE_OK ? PQntuples(r) : 0;
    for (int row = 0; row < rows && g.count < f->limit; row++) {
        struct once_record record = read_record(r, row);
        page->next = (uint64_t)pg_int(r, row, A_N);
        if (!PQgetisnull(r, row, A_FENCE) && gather_matches(f, &record, now_of(s)))
            gather_record(&g, &record);
    }
    if (result == ONCE_OK)
        result = gather_page_make(&g, page, err);
    gather_page_release(&g);
    PQclear(r);
    pg_params_release(&p);
    return result;
}

static const char *event_name(once_span what)
{
    static const char *const names[] = { "claimed",       "claimed to probe",  "finished", "superseded",
                                         "resolved done", "resolved not done", "released" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (once_span_equal(what, once_span_str(names[i])))
            return names[i];
    return "?";
}

static once_result history(struct once_store *base, const uint8_t record[16], struct once_history *h,
                           struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    struct pg_params p;
    pg_params_init(&p);
    pg_add_bytes(&p, PG_UUID, once_span_of(record, 16));
    PGresult *r = NULL;
    struct gather_history t = { .count = 0 };
    once_result result = ask(s, "SELECT * FROM once.history($1)", &p, &r, err);
    if (result == ONCE_OK)
        result = gather_history_init(&t, err);
    for (int row = 0; result == ONCE_OK && row < PQntuples(r); row++)
        gather_event(&t, (struct once_event){ .at = pg_int(r, row, 0),
                                              .what = event_name(pg_bytes(r, row, 1)),
                                              .fence = (uint64_t)pg_int(r, row, 2),
                                              .attempt = (uint32_t)pg_int(r, row, 3),
                                              .state = (enum once_state)pg_int(r, row, 4),
                                              .status = (int32_t)pg_int(r, row, 5),
                                              .actor = pg_bytes(r, row, 6),
                                              .reason = pg_bytes(r, row, 7) });
    if (result == ONCE_OK)
        result = gather_history_make(&t, h, err);
    gather_history_release(&t);
    PQclear(r);
    pg_params_release(&p);
    return result;
}

/* ------------------------------------------------------------------ upkeep */

static once_result expire(struct once_store *base, uint32_t budget, uint64_t *removed, bool *more,
                          struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    struct pg_params p;
    pg_params_init(&p);
    pg_add_int(&p, PG_INT4, budget);
    PGresult *r = NULL;
    once_result result = ask(s, "SELECT removed, more FROM once.expire($1)", &p, &r, err);
    if (result == ONCE_OK) { /* a slot is emptied as a whole: tell of it in steps */
        s->emptied += (uint64_t)pg_int(r, 0, 0);
        *removed = s->emptied < budget ? s->emptied : budget;
        s->emptied -= *removed;
        *more = pg_bool(r, 0, 1) || s->emptied > 0;
    }
    PQclear(r);
    pg_params_release(&p);
    return result;
}

static void tell_problems(const PGresult *r, once_problem_fn *each, void *arg, struct once_check_report *report)
{
    for (int row = 0; row < PQntuples(r); row++) {
        once_span name = pg_bytes(r, row, 0), text = pg_bytes(r, row, 2);
        char invariant[16], problem[200];
        snprintf(invariant, sizeof invariant, "%.*s", ONCE_SPAN_ARGS(name));
        snprintf(problem, sizeof problem, "%.*s", ONCE_SPAN_ARGS(text));
        report->problems++;
        if (each != NULL)
            each(arg, &(struct once_problem){ invariant, (uint64_t)pg_int(r, row, 1), problem });
    }
}

static once_result ask_problems(struct postgres_store *s, const char *sql, struct pg_params *p, once_problem_fn *each,
                                void *arg, struct once_check_report *report, struct once_error *err)
{
    PGresult *r = NULL;
    once_result result = ask(s, sql, p, &r, err);
    if (result == ONCE_OK)
        tell_problems(r, each, arg, report);
    PQclear(r);
    return result;
}

/* How many attempts and records there are among the fences of this step. */
static once_result count_rows(struct postgres_store *s, struct pg_params *p, uint64_t *cursor,
                              struct once_check_report *report, struct once_error *err)
{
    PGresult *r = NULL;
    once_result result = ask(s, "SELECT attempts, records, next FROM once.check_counts($1, $2)", p, &r, err);
    if (result == ONCE_OK) {
        report->attempts += (uint64_t)pg_int(r, 0, 0);
        report->records += (uint64_t)pg_int(r, 0, 1);
        *cursor = (uint64_t)pg_int(r, 0, 2);
    }
    PQclear(r);
    return result;
}

static once_result check(struct once_store *base, uint64_t *cursor, once_problem_fn *each, void *arg,
                         struct once_check_report *report, struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    struct pg_params none, p;
    pg_params_init(&none);
    pg_params_init(&p);
    pg_add_int(&p, PG_INT8, (int64_t)*cursor);
    pg_add_int(&p, PG_INT8, ONCE_CHECK_SCAN_MAX);
    once_result r = ONCE_OK;
    if (*cursor == 0)
        r = ask_problems(s, "SELECT * FROM once.check_orphans()", &none, each, arg, report, err);
    if (r == ONCE_OK)
        r = ask_problems(s, "SELECT * FROM once.check_rows($1, $2)", &p, each, arg, report, err);
    if (r == ONCE_OK)
        r = count_rows(s, &p, cursor, report, err);
    pg_params_release(&none);
    pg_params_release(&p);
    return r;
}

static once_result stats(struct once_store *base, struct once_stats *stats, struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    struct pg_params p;
    pg_params_init(&p);
    PGresult *r = NULL;
    once_result result = ask(s, "SELECT attempts, bytes, now_ms FROM once.counts()", &p, &r, err);
    if (result == ONCE_OK) {
        stats->records = (uint64_t)pg_int(r, 0, 0);
        stats->bytes = (uint64_t)pg_int(r, 0, 1);
        stats->now = pg_int(r, 0, 2);
        stats->commits = s->commits;
    }
    PQclear(r);
    pg_params_release(&p);
    return result;
}

/* ------------------------------------------------------------------ open, close */

static void close_store(struct once_store *base)
{
    struct postgres_store *s = (struct postgres_store *)base;
    pg_conn_close(&s->pg);
    free(s->pg.url);
    explicit_bzero(&s->base.secret, sizeof s->base.secret);
    free(s);
}

static const struct once_store_ops ops = {
    .name = "postgres",
    .apply = apply,
    .reopen = reopen,
    .list = list,
    .history = history,
    .expire = expire,
    .check = check,
    .stats = stats,
    .close = close_store,
};

once_result once_store_postgres_open(const char *url, const struct once_options *options, struct once_store **out,
                                     struct once_error *err)
{
    struct postgres_store *s = calloc(1, sizeof *s);
    if (s == NULL || (s->pg.url = strdup(url)) == NULL) {
        free(s);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a store");
    }
    s->base.ops = &ops;
    s->base.shared = true;
    s->keytext = true;
    s->clock = options->clock != &once_os_clock ? options->clock : NULL;
    once_result r = pg_conn_open(&s->pg, err);
    if (r == ONCE_OK)
        r = pg_conn_barrier(&s->pg, err);
    if (r != ONCE_OK) {
        once_error_prefix(err, "cannot open the PostgreSQL store");
        close_store(&s->base);
        return r;
    }
    s->base.secret = s->pg.secret;
    *out = &s->base;
    return ONCE_OK;
}
