/* ask.c - see postgres/ask.h. */
#include "store/postgres/ask.h"

#include "core/span.h"
#include "once.h"
#include "store/format.h"
#include "store/postgres/param.h"

#include <stdlib.h>

static once_span record_span(const struct once_op *op)
{
    return once_span_of(op->record, 16);
}

#define ANSWER "SELECT a.* FROM "

/* once.claim.takeover, without PG_FLAG_UUID_KEY. */
static int64_t takeover_code(const struct once_op *op)
{
    const struct once_claim *claim = &op->request->claim;
    return (int64_t)claim->takeover + (claim->intent ? PG_FLAG_INTENT : 0) + (int64_t)op->route * PG_ROUTE_UNIT;
}

static int hex_digit(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Packs a key that is the text of a UUID in small letters into 16 bytes. False: another key. */
static bool pack_key(once_span key, uint8_t packed[16])
{
    if (key.len != ONCE_UUID_LEN)
        return false;
    size_t at = 0;
    for (size_t i = 0; i < ONCE_UUID_LEN; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash && key.ptr[i] != '-')
            return false;
        if (dash)
            continue;
        int high = hex_digit(key.ptr[i]), low = hex_digit(key.ptr[i + 1]);
        if (high < 0 || low < 0)
            return false;
        packed[at++] = (uint8_t)(high << 4 | low);
        i++;
    }
    return true;
}

static void add_key(struct pg_params *p, once_span key, bool for_insert)
{
    uint8_t packed[16];
    pg_array_bytes(p, for_insert && pack_key(key, packed) ? once_span_of(packed, sizeof packed) : key);
}

/* A default goes over as NULL. */
static void add_term(struct pg_params *p, int64_t value, int64_t standard)
{
    if (value == standard)
        pg_array_null(p);
    else
        pg_array_int(p, PG_INT8, value);
}

/* once.claim.takeover; for_insert: of a key that is packed where it can be. */
static int64_t stored_code(const struct once_op *op, bool for_insert)
{
    uint8_t packed[16];
    return takeover_code(op) + (for_insert && pack_key(op->request->claim.key, packed) ? PG_FLAG_UUID_KEY : 0);
}

/* Leases, retentions and takeovers: a NULL array if all have the default. for_insert: the row is inserted as it is
 * sent, so takeovers are needed. */
static void add_terms(struct pg_params *p, struct once_op *const *ops, size_t count, bool for_insert)
{
    bool leases = false, retentions = false, takeovers = for_insert;
    for (size_t i = 0; i < count; i++) {
        const struct once_claim *claim = &ops[i]->request->claim;
        leases = leases || claim->lease_ms != ONCE_LEASE_MS_DEFAULT;
        retentions = retentions || claim->retention_ms != ONCE_RETENTION_MS_DEFAULT;
        takeovers = takeovers || takeover_code(ops[i]) != ONCE_TAKEOVER_ESCALATE;
    }
    leases ? pg_array_begin(p, PG_INT8, count) : pg_array_absent(p, PG_INT8);
    for (size_t i = 0; leases && i < count; i++)
        add_term(p, ops[i]->request->claim.lease_ms, ONCE_LEASE_MS_DEFAULT);
    retentions ? pg_array_begin(p, PG_INT8, count) : pg_array_absent(p, PG_INT8);
    for (size_t i = 0; retentions && i < count; i++)
        add_term(p, ops[i]->request->claim.retention_ms, ONCE_RETENTION_MS_DEFAULT);
    takeovers ? pg_array_begin(p, PG_INT4, count) : pg_array_absent(p, PG_INT4);
    for (size_t i = 0; takeovers && i < count; i++)
        pg_array_int(p, PG_INT4, stored_code(ops[i], for_insert));
}

static void add_records(struct pg_params *p, struct once_op *const *ops, size_t count)
{
    pg_array_begin(p, PG_UUID, count);
    for (size_t i = 0; i < count; i++)
        pg_array_bytes(p, record_span(ops[i]));
}

static void add_fingerprints(struct pg_params *p, struct once_op *const *ops, size_t count)
{
    pg_array_begin(p, PG_BYTEA, count);
    for (size_t i = 0; i < count; i++)
        pg_array_bytes(p, once_span_of(ops[i]->request->claim.fingerprint.bytes, 32));
}

static void add_claims(struct pg_params *p, struct once_op *const *ops, size_t count, bool for_insert)
{
    add_records(p, ops, count);
    pg_array_begin(p, PG_BYTEA, count);
    for (size_t i = 0; i < count; i++)
        pg_array_bytes(p, ops[i]->request->claim.tenant);
    pg_array_begin(p, PG_BYTEA, count);
    for (size_t i = 0; i < count; i++)
        add_key(p, ops[i]->request->claim.key, for_insert);
    add_fingerprints(p, ops, count);
    add_terms(p, ops, count, for_insert);
    pg_array_begin(p, PG_UUID, count);
    for (size_t i = 0; i < count; i++)
        pg_array_bytes(p, once_span_of(ops[i]->request->claim.nonce, 16));
}

/* The time in the key if the claim asks to check it; else ONCE_NEVER. */
static once_time key_time_of(const struct once_claim *claim)
{
    return claim->key_time && claim->retention_ms != ONCE_NEVER ? once_key_time(claim->key) : ONCE_NEVER;
}

/* Body retentions and times in keys: a NULL array if no claim has one. */
static void add_rare_terms(struct pg_params *p, struct once_op *const *ops, size_t count)
{
    bool bodies = false, key_times = false;
    for (size_t i = 0; i < count; i++) {
        const struct once_claim *claim = &ops[i]->request->claim;
        bodies = bodies || claim->body_retention_ms != 0;
        key_times = key_times || key_time_of(claim) != ONCE_NEVER;
    }
    bodies ? pg_array_begin(p, PG_INT8, count) : pg_array_absent(p, PG_INT8);
    for (size_t i = 0; bodies && i < count; i++)
        add_term(p, ops[i]->request->claim.body_retention_ms, 0);
    key_times ? pg_array_begin(p, PG_INT8, count) : pg_array_absent(p, PG_INT8);
    for (size_t i = 0; key_times && i < count; i++)
        add_term(p, key_time_of(&ops[i]->request->claim), ONCE_NEVER);
}

once_result pg_ask_claims(struct pg_conn *pg, struct once_op *const *ops, size_t count, bool replays_first,
                          struct once_error *err)
{
    struct pg_params p;
    pg_params_init(&p);
    add_claims(&p, ops, count, false);
    add_rare_terms(&p, ops, count);
    pg_add_int(&p, PG_INT4, replays_first);
    once_result r = pg_conn_call(pg, PG_STATEMENT_CLAIMS, &p, err);
    pg_params_release(&p);
    return r;
}

/* once.result.state. */
static int64_t state_code(const struct once_outcome *o)
{
    return (int64_t)o->state + (o->retryable ? PG_RETRYABLE : 0) + (o->body_dropped ? PG_BODY_DROPPED : 0) +
           (o->undelivered ? PG_UNDELIVERED : 0);
}

static void add_fences(struct pg_params *p, struct once_op *const *ops, size_t count)
{
    pg_array_begin(p, PG_INT8, count);
    for (size_t i = 0; i < count; i++)
        pg_array_int(p, PG_INT8, (int64_t)ops[i]->request->grant.fence);
}

/* Empty is stored as NULL. */
static void add_part(struct pg_params *p, once_span part)
{
    if (part.len == 0)
        pg_array_null(p);
    else
        pg_array_bytes(p, part);
}

static void add_outcomes(struct pg_params *p, struct once_op *const *ops, size_t count)
{
    bool headers = false;
    for (size_t i = 0; i < count; i++)
        headers = headers || ops[i]->request->outcome.headers.len > 0;
    pg_array_begin(p, PG_INT4, count);
    for (size_t i = 0; i < count; i++)
        pg_array_int(p, PG_INT4, state_code(&ops[i]->request->outcome));
    pg_array_begin(p, PG_INT4, count);
    for (size_t i = 0; i < count; i++)
        pg_array_int(p, PG_INT4, ops[i]->request->outcome.status);
    headers ? pg_array_begin(p, PG_BYTEA, count) : pg_array_absent(p, PG_BYTEA);
    for (size_t i = 0; headers && i < count; i++)
        add_part(p, ops[i]->request->outcome.headers);
    pg_array_begin(p, PG_BYTEA, count);
    for (size_t i = 0; i < count; i++)
        add_part(p, ops[i]->request->outcome.body);
}

once_result pg_ask_finishes(struct pg_conn *pg, struct once_op *const *ops, size_t count, struct once_error *err)
{
    struct pg_params p;
    pg_params_init(&p);
    add_records(&p, ops, count);
    add_fences(&p, ops, count);
    add_outcomes(&p, ops, count);
    pg_add_int(&p, PG_INT4, ops[0]->again); /* the same for all of them */
    once_result r = pg_conn_call(pg, PG_STATEMENT_FINISHES, &p, err);
    pg_params_release(&p);
    return r;
}

static void add_absent(struct pg_params *p, const Oid *types, size_t count)
{
    for (size_t i = 0; i < count; i++)
        pg_array_absent(p, types[i]);
}

once_result pg_ask_fast_batch(struct pg_conn *pg, const struct pg_fast_batch *fast, struct once_error *err)
{
    static const Oid claim[] = { PG_UUID, PG_BYTEA, PG_BYTEA, PG_BYTEA, PG_INT8, PG_INT8, PG_INT4, PG_UUID };
    static const Oid finish[] = { PG_INT8, PG_INT8, PG_INT4, PG_INT4, PG_BYTEA, PG_BYTEA };
    struct once_op *const *finished = fast->ops + fast->claims;
    struct pg_params p;
    pg_params_init(&p);
    if (fast->claims > 0)
        add_claims(&p, fast->ops, fast->claims, true);
    else
        add_absent(&p, claim, sizeof claim / sizeof *claim);
    if (fast->finishes > 0) {
        add_fences(&p, finished, fast->finishes);
        pg_array_begin(&p, PG_INT8, fast->finishes);
        for (size_t i = 0; i < fast->finishes; i++)
            pg_array_int(&p, PG_INT8, fast->granted[i].claimed_at);
        add_outcomes(&p, finished, fast->finishes);
    } else {
        add_absent(&p, finish, sizeof finish / sizeof *finish);
    }
    once_result r = pg_conn_call(pg, PG_STATEMENT_FAST_BATCH, &p, err);
    pg_params_release(&p);
    return r;
}

once_result pg_ask_replays(struct pg_conn *pg, struct once_op *const *ops, size_t count, struct once_error *err)
{
    struct pg_params p;
    pg_params_init(&p);
    add_records(&p, ops, count);
    add_fingerprints(&p, ops, count);
    once_result r = pg_conn_call(pg, PG_STATEMENT_REPLAYS, &p, err);
    pg_params_release(&p);
    return r;
}

static once_result ask_resolve(struct pg_conn *pg, const struct once_op *op, struct pg_params *p,
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
    return pg_send(pg->conn, ANSWER "once.resolve_record($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) a", p, err);
}

static once_result ask_claim(struct pg_conn *pg, const struct once_op *op, struct pg_params *p, struct once_error *err)
{
    const struct once_claim *c = &op->request->claim;
    pg_add_bytes(p, PG_BYTEA, c->tenant);
    pg_add_bytes(p, PG_BYTEA, c->key);
    pg_add_bytes(p, PG_BYTEA, once_span_of(c->fingerprint.bytes, sizeof c->fingerprint.bytes));
    pg_add_int(p, PG_INT8, c->lease_ms);
    pg_add_int(p, PG_INT8, c->retention_ms);
    pg_add_int(p, PG_INT4, takeover_code(op));
    pg_add_bytes(p, PG_UUID, once_span_of(c->nonce, sizeof c->nonce));
    pg_add_bytes(p, PG_BYTEA, c->request);
    pg_add_int(p, PG_INT8, c->body_retention_ms);
    pg_add_int(p, PG_INT8, key_time_of(c));
    return pg_send(pg->conn,
                   ANSWER "once.claim_with_request($1, $2, $3, $4, $5, $6, $7, $8, $9, nullif($10, 0), "
                          "nullif($11, -1)) a",
                   p, err);
}

once_result pg_ask_other(struct pg_conn *pg, const struct once_op *op, struct once_error *err)
{
    const struct once_request *q = op->request;
    struct pg_params p;
    pg_params_init(&p);
    pg_add_bytes(&p, PG_UUID, record_span(op));
    once_result r = ONCE_OK;
    switch (q->verb) {
    case ONCE_VERB_CLAIM:
        r = ask_claim(pg, op, &p, err);
        break;
    case ONCE_VERB_EXTEND:
        pg_add_int(&p, PG_INT8, (int64_t)q->grant.fence);
        pg_add_int(&p, PG_INT8, q->extend.lease_ms);
        r = pg_send(pg->conn, ANSWER "once.extend_record($1, $2, $3) a", &p, err);
        break;
    case ONCE_VERB_ADVANCE:
        pg_add_int(&p, PG_INT8, (int64_t)q->grant.fence);
        pg_add_bytes(&p, PG_TEXT, q->advance.point);
        pg_add_bytes(&p, PG_BYTEA, q->advance.checkpoint);
        pg_add_bytes(&p, PG_UUID, once_span_of(op->nonce, sizeof op->nonce));
        r = pg_send(pg->conn, ANSWER "once.advance_record($1, $2, $3, $4, $5) a", &p, err);
        break;
    case ONCE_VERB_RELEASE:
        pg_add_int(&p, PG_INT8, (int64_t)q->grant.fence);
        pg_add_int(&p, PG_INT4, op->again);
        r = pg_send(pg->conn, ANSWER "once.release_record($1, $2, $3 = 1) a", &p, err);
        break;
    case ONCE_VERB_LOOKUP:
        r = pg_send(pg->conn,
                    q->lookup.request ? ANSWER "once.lookup_with_request($1) a" : ANSWER "once.lookup_record($1) a", &p,
                    err);
        break;
    case ONCE_VERB_RESOLVE:
        r = ask_resolve(pg, op, &p, err);
        break;
    case ONCE_VERB_FORGET:
        pg_add_int(&p, PG_INT8, (int64_t)q->forget.seen.fence);
        pg_add_int(&p, PG_INT4, q->forget.drop);
        pg_add_bytes(&p, PG_BYTEA, q->forget.actor);
        pg_add_bytes(&p, PG_BYTEA, q->forget.reason);
        pg_add_bytes(&p, PG_UUID, once_span_of(op->nonce, sizeof op->nonce));
        r = pg_send(pg->conn, ANSWER "once.forget_record($1, $2, $3 = 1, $4, $5, $6) a", &p, err);
        break;
    case ONCE_VERB_TAKE_OVER:
        pg_add_int(&p, PG_INT8, (int64_t)q->take_over.seen.fence);
        pg_add_int(&p, PG_INT8, q->take_over.lease_ms);
        pg_add_int(&p, PG_INT4, q->take_over.intent);
        pg_add_bytes(&p, PG_UUID, once_span_of(q->take_over.nonce, sizeof q->take_over.nonce));
        pg_add_int(&p, PG_INT4, op->again);
        r = pg_send(pg->conn, ANSWER "once.take_over_record($1, $2, $3, $4 = 1, $5, $6 = 1) a", &p, err);
        break;
    default:
        abort();
    }
    pg_params_release(&p);
    return r;
}
