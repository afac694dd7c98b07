/*
 * bound.c - the protocol inside the caller's own transaction (once_sqlite_*).
 *
 * Key, work and outcome are rows of one transaction: they commit or roll back together,
 * so a local effect happens exactly once and no lease is needed. The tables
 * live in the caller's database; its journal mode, its locking and its durability are the
 * caller's. Nothing is cached between transactions: a rollback could make it wrong.
 */
#include "store/sqlite/bound.h"
#include "core/decide.h"
#include "core/err.h"
#include "core/limits.h"
#include "core/outcome.h"
#include "core/span.h"
#include "os/os.h"
#include "store/sqlite/op.h"
#include "store/sqlite/route.h"
#include "store/sqlite/schema.h"

struct once_sqlite {
    struct sqlite_db db;
    struct sqlite_index index;
    struct sqlite_protocol protocol;
};

static int guard_in_sql(struct once_sqlite *b);

once_result once_sqlite_bind(struct sqlite3 *handle, const struct once_clock *clock, struct once_sqlite **out,
                             struct once_error *err)
{
    if (!sqlite3_get_autocommit(handle))
        return once_fail(err, ONCE_INVALID, "bind outside of a transaction: tables may have to be created");
    struct once_sqlite *b = calloc(1, sizeof *b);
    if (b == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory to bind a connection");
    b->db.handle = handle;
    b->db.clock = clock != NULL ? clock : &once_os_clock;
    once_buf_init(&b->protocol.scratch, ONCE_BODY_LEN_MAX + 1);
    int64_t version = 0;
    once_result r = sqlite_schema_version(handle, SQLITE_CALLERS_FILE, &version, err);
    if (r == ONCE_OK && version < sqlite_migration_count)
        r = sqlite_schema_migrate(&b->db, SQLITE_CALLERS_FILE, true, err);
    if (r == ONCE_OK)
        r = sqlite_schema_attach(&b->db, true, err);
    if (r == ONCE_OK)
        r = sqlite_index_init(&b->index, &b->db, false, err);
    if (r == ONCE_OK && guard_in_sql(b) != SQLITE_OK)
        r = sqlite_fail(handle, sqlite3_errcode(handle), "define once_guard()", err);
    if (r != ONCE_OK) {
        once_sqlite_unbind(b);
        return r;
    }
    b->protocol.db = &b->db;
    b->protocol.index = &b->index;
    b->protocol.keytext = true;
    *out = b;
    return ONCE_OK;
}

void once_sqlite_unbind(struct once_sqlite *b)
{
    if (b == NULL)
        return;
    sqlite3_create_function(b->db.handle, "once_guard", 2, SQLITE_UTF8, NULL, NULL, NULL, NULL);
    sqlite_index_release(&b->index);
    sqlite_db_release(&b->db);
    once_buf_release(&b->protocol.scratch);
    free(b);
}

struct sqlite_db *sqlite_bound_db(struct once_sqlite *b)
{
    return &b->db;
}

/* A savepoint around each call: one that fails halfway leaves the caller's transaction as
 * it was before it. */
static once_result in_savepoint(struct once_sqlite *b, struct once_op *op, struct once_error *err)
{
    sqlite3 *handle = b->db.handle;
    if (sqlite3_get_autocommit(handle))
        return once_fail(err, ONCE_INVALID, "not inside a transaction: BEGIN IMMEDIATE first");
    once_result r = sqlite_exec(handle, "SAVEPOINT once_call", "begin", err);
    if (r != ONCE_OK)
        return r;
    r = sqlite_index_begin(&b->index, op->request->verb != ONCE_VERB_LOOKUP, err);
    b->protocol.now = sqlite_now(&b->db);
    sqlite_routes_begin(&b->protocol);
    if (r == ONCE_OK)
        r = sqlite_op_apply(&b->protocol, op, err);
    if (r == ONCE_OK && op->request->verb != ONCE_VERB_LOOKUP)
        r = sqlite_index_close_segment(&b->index, err);
    if (r != ONCE_OK)
        sqlite3_exec(handle, "ROLLBACK TO once_call", NULL, NULL, NULL);
    sqlite3_exec(handle, "RELEASE once_call", NULL, NULL, NULL);
    return r;
}

static once_result call(struct once_sqlite *b, const struct once_request *request, const uint8_t record[16],
                        once_span outcome, struct once_reply *reply, struct once_error *err)
{
    struct once_op op = { .request = request, .outcome = outcome };
    memcpy(op.record, record, 16);
    once_result r = in_savepoint(b, &op, err);
    if (r == ONCE_OK && op.result != ONCE_OK) {
        r = op.result;
        if (err != NULL)
            *err = op.err;
    }
    if (r != ONCE_OK)
        once_reply_release(&op.reply);
    *reply = op.reply;
    return r;
}

once_result once_sqlite_claim(struct once_sqlite *b, const struct once_claim *claim, struct once_reply *reply,
                              struct once_error *err)
{
    *reply = (struct once_reply){ .arm = ONCE_ARM_NONE };
    struct once_request request = { .verb = ONCE_VERB_CLAIM };
    once_result r = once_claim_check(claim, &request.claim, err);
    if (r == ONCE_OK && claim->wait_ms != 0)
        r = once_fail(err, ONCE_INVALID, "a claim inside a transaction cannot wait");
    if (r != ONCE_OK)
        return r;
    once_os_nonce(request.claim.nonce);
    uint8_t record[16];
    once_record_id(&b->db.secret, claim->tenant, claim->key, record);
    return call(b, &request, record, once_span_of(NULL, 0), reply, err);
}

once_result once_sqlite_take_over(struct once_sqlite *b, const struct once_take_over *take_over,
                                  struct once_reply *reply, struct once_error *err)
{
    *reply = (struct once_reply){ .arm = ONCE_ARM_NONE };
    struct once_request request = { .verb = ONCE_VERB_TAKE_OVER, .take_over = *take_over };
    once_result r = once_lease_check(take_over->lease_ms, err);
    if (r != ONCE_OK)
        return r;
    once_os_nonce(request.take_over.nonce);
    return call(b, &request, take_over->seen.record, once_span_of(NULL, 0), reply, err);
}

once_result once_sqlite_advance(struct once_sqlite *b, struct once_grant grant, once_span point, once_span checkpoint,
                                struct once_reply *reply, struct once_error *err)
{
    *reply = (struct once_reply){ .arm = ONCE_ARM_NONE };
    struct once_request request = { .verb = ONCE_VERB_ADVANCE, .grant = grant, .advance = { point, checkpoint } };
    once_result r = once_advance_check(point, checkpoint, err);
    return r == ONCE_OK ? call(b, &request, grant.record, once_span_of(NULL, 0), reply, err) : r;
}

once_result once_sqlite_finish(struct once_sqlite *b, struct once_grant grant, const struct once_outcome *outcome,
                               struct once_reply *reply, struct once_error *err)
{
    *reply = (struct once_reply){ .arm = ONCE_ARM_NONE };
    struct once_request request = { .verb = ONCE_VERB_FINISH, .grant = grant, .outcome = *outcome };
    once_result r = once_outcome_check(outcome, err);
    if (r != ONCE_OK)
        return r;
    struct once_buf buf;
    once_buf_init(&buf, ONCE_OUTCOME_LEN_MAX);
    uint64_t seal = once_outcome_sum_seed(grant, outcome);
    r = once_outcome_encode(outcome, seal, &buf, err);
    if (r == ONCE_OK)
        r = call(b, &request, grant.record, once_buf_span(&buf), reply, err);
    once_buf_release(&buf);
    return r;
}

once_result once_sqlite_release(struct once_sqlite *b, struct once_grant grant, struct once_reply *reply,
                                struct once_error *err)
{
    *reply = (struct once_reply){ .arm = ONCE_ARM_NONE };
    struct once_request request = { .verb = ONCE_VERB_RELEASE, .grant = grant };
    return call(b, &request, grant.record, once_span_of(NULL, 0), reply, err);
}

once_result once_sqlite_lookup(struct once_sqlite *b, once_span tenant, once_span key, struct once_reply *reply,
                               struct once_error *err)
{
    *reply = (struct once_reply){ .arm = ONCE_ARM_NONE };
    struct once_request request = { .verb = ONCE_VERB_LOOKUP, .lookup = { tenant, key, false } };
    once_result r = once_name_check(tenant, key, err);
    if (r != ONCE_OK)
        return r;
    uint8_t record[16];
    once_record_id(&b->db.secret, tenant, key, record);
    return call(b, &request, record, once_span_of(NULL, 0), reply, err);
}

once_result once_sqlite_extend(struct once_sqlite *b, struct once_grant grant, int64_t lease_ms,
                               struct once_reply *reply, struct once_error *err)
{
    *reply = (struct once_reply){ .arm = ONCE_ARM_NONE };
    struct once_request request = { .verb = ONCE_VERB_EXTEND, .grant = grant, .extend = { lease_ms } };
    once_result r = once_lease_check(lease_ms, err);
    return r == ONCE_OK ? call(b, &request, grant.record, once_span_of(NULL, 0), reply, err) : r;
}

/* ------------------------------------------------------------------ looking */

once_result once_sqlite_list(struct once_sqlite *b, const struct once_filter *filter, struct once_page *page,
                             struct once_error *err)
{
    *page = (struct once_page){ .count = 0 };
    struct once_filter f = filter != NULL ? *filter : (struct once_filter){ 0 };
    f.limit = f.limit != 0 ? f.limit : ONCE_LIST_LIMIT_DEFAULT;
    if (f.limit > ONCE_LIST_LIMIT_MAX)
        return once_fail(err, ONCE_INVALID, "limit %u is not in 1 to %d", f.limit, ONCE_LIST_LIMIT_MAX);
    if (sqlite3_get_autocommit(b->db.handle))
        return once_fail(err, ONCE_INVALID, "not inside a transaction: BEGIN first");
    struct gather_page g;
    once_result r = gather_page_init(&g, f.limit, err);
    if (r == ONCE_OK)
        r = sqlite_index_begin(&b->index, false, err);
    b->protocol.now = sqlite_now(&b->db);
    sqlite_routes_begin(&b->protocol);
    if (r == ONCE_OK)
        r = sqlite_list_scan(&b->protocol, &f, &g, &page->next, err);
    if (r == ONCE_OK)
        r = gather_page_make(&g, page, err);
    gather_page_release(&g);
    return r;
}

void once_sqlite_child_key(const struct once_sqlite *b, const struct once_grant *grant, once_span call_name,
                           char out[ONCE_CHILD_KEY_LEN + 1])
{
    once_child_key_of(&b->db.secret, grant->record, call_name, out);
}

const struct once_mac *once_sqlite_secret(const struct once_sqlite *b)
{
    return &b->db.secret;
}

once_time once_sqlite_now(const struct once_sqlite *b)
{
    return sqlite_now(&b->db);
}

/* ------------------------------------------------------------------ the guard */

/* Only reads, and without a savepoint: once_guard() is called inside one of the caller's statements. */
static once_result guard(struct once_sqlite *b, struct once_grant grant, struct once_error *err)
{
    struct once_request request = { .verb = ONCE_VERB_LOOKUP };
    struct once_op op = { .request = &request };
    memcpy(op.record, grant.record, sizeof op.record);
    once_result r = sqlite_index_begin(&b->index, false, err);
    b->protocol.now = sqlite_now(&b->db);
    sqlite_routes_begin(&b->protocol);
    if (r == ONCE_OK)
        r = sqlite_op_apply(&b->protocol, &op, err);
    if (r == ONCE_OK && op.result != ONCE_OK) {
        r = op.result;
        if (err != NULL)
            *err = op.err;
    }
    const struct once_record *now = &op.reply.record;
    unsigned long long held = grant.fence, newest = now->grant.fence;
    if (r == ONCE_OK && op.reply.arm == ONCE_ARM_ABSENT)
        r = once_fail(err, ONCE_INVALID, "fenced: the record of grant %llu is gone; roll back", held);
    else if (r == ONCE_OK && newest != held)
        r = once_fail(err, ONCE_INVALID, "fenced: grant %llu is not the newest any more, %llu is; roll back", held,
                      newest);
    else if (r == ONCE_OK && now->state != ONCE_STATE_RUNNING)
        r = once_fail(err, ONCE_INVALID, "fenced: the record of grant %llu has ended, %s; roll back", held,
                      once_state_name(now->state));
    once_reply_release(&op.reply);
    return r;
}

once_result once_sqlite_guard(struct once_sqlite *b, struct once_grant grant, struct once_error *err)
{
    if (sqlite3_get_autocommit(b->db.handle))
        return once_fail(err, ONCE_INVALID, "not inside a transaction: BEGIN IMMEDIATE first");
    return guard(b, grant, err);
}

static void guard_function(sqlite3_context *context, int count, sqlite3_value **values)
{
    assert(count == 2);
    struct once_grant grant = { .fence = (uint64_t)sqlite3_value_int64(values[1]) };
    const void *record = sqlite3_value_blob(values[0]);
    if (record == NULL || sqlite3_value_bytes(values[0]) != sizeof grant.record) {
        sqlite3_result_error(context, "once_guard(): a record is a blob of 16 bytes", -1);
        return;
    }
    memcpy(grant.record, record, sizeof grant.record);
    struct once_error err;
    if (guard(sqlite3_user_data(context), grant, &err) != ONCE_OK)
        sqlite3_result_error(context, err.text, -1);
    else
        sqlite3_result_int(context, 1);
}

static int guard_in_sql(struct once_sqlite *b)
{
    return sqlite3_create_function(b->db.handle, "once_guard", 2, SQLITE_UTF8, b, guard_function, NULL, NULL);
}
