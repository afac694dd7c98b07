/*
 * outbox_pg.c - the outbox in PostgreSQL: calls the functions of 75_relay.sql.
 *
 * A statement whose answer was lost may have taken effect. Every call may be repeated: a lease that was taken without
 * the relay's knowledge runs out, and settling twice has the effect of settling once.
 */
#include "messages/items_pg.h"
#include "messages/outbox/outbox.h"

#include "core/err.h"
#include "core/span.h"
#include "os/crash_point.h"
#include "os/os.h"
#include "store/postgres/conn.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

struct outbox_pg {
    struct outbox base;
    struct pg_conn conn;
    uint8_t relay[16];
    bool idle; /* what this relay last told the database */
};

static struct outbox_pg *pg_of(struct outbox *o)
{
    return (struct outbox_pg *)o;
}

static once_result pg_outbox_connect(struct outbox *o, struct once_error *err)
{
    struct outbox_pg *pg = pg_of(o);
    once_result r = pg_conn_open(&pg->conn, err);
    pg->idle = false;
    if (r == ONCE_OK && pg->conn.direct) /* through a pooler notifications do not arrive: the relay polls */
        r = pg_conn_exec(&pg->conn, "LISTEN once_outbox", NULL, err);
    return r;
}

static void pg_outbox_close(struct outbox *o)
{
    struct outbox_pg *pg = pg_of(o);
    pg_conn_close(&pg->conn);
    free(pg->conn.url);
    free(pg);
}

/* Runs one statement. Closes a connection that failed; connect() opens it again. Releases the parameters. */
static once_result ask(void *table, const char *sql, struct pg_params *p, PGresult **out, struct once_error *err)
{
    struct outbox_pg *pg = table;
    once_result r = pg->conn.conn != NULL ? pg_conn_ask(&pg->conn, NULL, sql, p, out, err)
                                          : once_fail(err, ONCE_UNAVAILABLE, "not connected");
    if (r != ONCE_OK)
        pg_conn_close(&pg->conn);
    pg_params_release(p);
    return r;
}

/* ------------------------------------------------------------------ a batch */

static void read_message(PGresult *r, int row, struct outbox_message *out)
{
    struct message *m = &out->message;
    out->lane = (int32_t)pg_int(r, row, 0);
    out->fence = pg_int(r, row, 1);
    out->seq = pg_int(r, row, 2);
    pg_uuid(r, row, 3, m->id);
    m->topic = pg_bytes(r, row, 4);
    m->has_key = !PQgetisnull(r, row, 5);
    m->key = m->has_key ? pg_bytes(r, row, 5) : once_span_of(NULL, 0);
    m->content_type = pg_bytes(r, row, 6);
    m->headers = pg_bytes(r, row, 7);
    m->payload = pg_bytes(r, row, 8);
    out->created_at = pg_int(r, row, 9);
    m->refusals = (int32_t)pg_int(r, row, 10);
    out->delays = (int32_t)pg_int(r, row, 11);
    m->crashes = (int32_t)pg_int(r, row, 12);
    out->suspect = pg_int(r, row, 13) != 0;
    m->age_ms = pg_int(r, row, 14);
}

static once_result pg_outbox_take(struct outbox *o, int64_t lease_ms, int32_t most, bool alone,
                                  struct outbox_batch *batch, struct once_error *err)
{
    struct outbox_pg *pg = pg_of(o);
    struct pg_params p;
    PGresult *result = NULL;
    pg_params_init(&p);
    pg_add_bytes(&p, PG_UUID, once_span_of(pg->relay, 16));
    pg_add_int(&p, PG_INT8, lease_ms);
    pg_add_int(&p, PG_INT4, most);
    pg_add_int(&p, PG_INT4, alone);
    pg->conn.warned = false;
    once_result r = ask(pg, "SELECT * FROM once.outbox_take($1, $2, $3, $4 <> 0)", &p, &result, err);
    if (r != ONCE_OK)
        return r;
    if (pg->conn.warned) { /* the messages may be lost by a failover (FACT-6) */
        PQclear(result);
        pg_conn_close(&pg->conn);
        return once_fail(err, ONCE_UNAVAILABLE, "the server warned that a commit may not be replicated");
    }
    int count = PQntuples(result);
    batch->messages = count > 0 ? calloc((size_t)count, sizeof *batch->messages) : NULL;
    if (count > 0 && batch->messages == NULL) {
        PQclear(result);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a batch");
    }
    for (int i = 0; i < count; i++)
        read_message(result, i, &batch->messages[i]);
    batch->count = (size_t)count;
    batch->memory = result;
    return ONCE_OK;
}

static void pg_outbox_batch_release(struct outbox_batch *batch)
{
    PQclear(batch->memory);
    free(batch->messages);
    *batch = (struct outbox_batch){ 0 };
}

static size_t count_of(const struct outbox_batch *batch, bool confirmed)
{
    size_t n = 0;
    for (size_t i = 0; i < batch->count; i++) {
        enum outbox_verdict v = batch->messages[i].verdict;
        n += confirmed ? v == OUTBOX_CONFIRMED : v != OUTBOX_CONFIRMED && v != OUTBOX_UNTRIED;
    }
    return n;
}

/* True for the first message of each lane: messages come sorted by lane. */
static bool begins_lane(const struct outbox_batch *batch, size_t i)
{
    return i == 0 || batch->messages[i].lane != batch->messages[i - 1].lane;
}

enum field { FIELD_LANE, FIELD_FENCE, FIELD_SEQ, FIELD_VERDICT, FIELD_WAIT };

static int64_t field_of(const struct outbox_message *m, enum field field)
{
    return field == FIELD_LANE      ? m->lane
           : field == FIELD_FENCE   ? m->fence
           : field == FIELD_SEQ     ? m->seq
           : field == FIELD_VERDICT ? (int64_t)m->verdict
                                    : m->wait_ms;
}

enum which { WHICH_LANES, WHICH_CONFIRMED, WHICH_FAILED };

static bool is_one(const struct outbox_batch *batch, size_t i, enum which which)
{
    enum outbox_verdict v = batch->messages[i].verdict;
    return which == WHICH_LANES       ? begins_lane(batch, i)
           : which == WHICH_CONFIRMED ? v == OUTBOX_CONFIRMED
                                      : v != OUTBOX_CONFIRMED && v != OUTBOX_UNTRIED;
}

static void add_column(struct pg_params *p, const struct outbox_batch *batch, enum which which, size_t count, Oid type,
                       enum field field)
{
    pg_array_begin(p, type, count);
    for (size_t i = 0; i < batch->count; i++)
        if (is_one(batch, i, which))
            pg_array_int(p, type, field_of(&batch->messages[i], field));
}

static void add_settlement(struct pg_params *p, const struct outbox_batch *batch)
{
    size_t lanes = 0, done = count_of(batch, true), failed = count_of(batch, false);
    for (size_t i = 0; i < batch->count; i++)
        lanes += begins_lane(batch, i);
    add_column(p, batch, WHICH_LANES, lanes, PG_INT4, FIELD_LANE);
    add_column(p, batch, WHICH_LANES, lanes, PG_INT8, FIELD_FENCE);
    add_column(p, batch, WHICH_CONFIRMED, done, PG_INT4, FIELD_LANE);
    add_column(p, batch, WHICH_CONFIRMED, done, PG_INT8, FIELD_SEQ);
    add_column(p, batch, WHICH_FAILED, failed, PG_INT4, FIELD_LANE);
    add_column(p, batch, WHICH_FAILED, failed, PG_INT8, FIELD_SEQ);
    add_column(p, batch, WHICH_FAILED, failed, PG_INT4, FIELD_VERDICT);
    add_column(p, batch, WHICH_FAILED, failed, PG_INT8, FIELD_WAIT);
    pg_array_begin(p, PG_BYTEA, failed);
    for (size_t i = 0; i < batch->count; i++)
        if (is_one(batch, i, WHICH_FAILED))
            pg_array_bytes(p, once_span_str(batch->messages[i].reason));
}

static once_result in_transaction(struct outbox_pg *pg, struct pg_params *p, struct once_error *err)
{
    once_result r = pg_conn_exec(&pg->conn, "BEGIN", NULL, err);
    if (r == ONCE_OK)
        r = pg_conn_ask(&pg->conn, NULL, "SELECT * FROM once.outbox_settle($1, $2, $3, $4, $5, $6, $7, $8, $9)", p,
                        NULL, err);
    ONCE_CRASH_POINT("relay.marked");
    if (r == ONCE_OK)
        r = pg_conn_exec(&pg->conn, "COMMIT", NULL, err);
    if (r != ONCE_OK)
        pg_conn_close(&pg->conn); /* which also rolls the transaction back */
    return r;
}

static once_result pg_outbox_settle(struct outbox *o, const struct outbox_batch *batch, struct once_error *err)
{
    struct outbox_pg *pg = pg_of(o);
    struct pg_params p;
    if (pg->conn.conn == NULL)
        return once_fail(err, ONCE_UNAVAILABLE, "not connected");
    pg_params_init(&p);
    add_settlement(&p, batch);
    once_result r = in_transaction(pg, &p, err);
    pg_params_release(&p);
    return r;
}

/* ------------------------------------------------------------------ the rest of a relay */

static once_result call(struct outbox *o, const char *sql, struct once_error *err)
{
    struct pg_params none;
    pg_params_init(&none);
    return ask(o, sql, &none, NULL, err);
}

static once_result pg_outbox_retry_now(struct outbox *o, struct once_error *err)
{
    return call(o, "SELECT once.outbox_retry_now()", err);
}

static once_result pg_outbox_upkeep(struct outbox *o, struct once_error *err)
{
    return call(o, "SELECT once.outbox_upkeep()", err);
}

/* Sent again before every wait: another relay may have declared itself busy meanwhile. */
static once_result pg_outbox_set_idle(struct outbox *o, bool idle, struct once_error *err)
{
    struct outbox_pg *pg = pg_of(o);
    if (!idle && !pg->idle)
        return ONCE_OK;
    pg->idle = idle;
    return call(o, idle ? "SELECT once.outbox_idle(true)" : "SELECT once.outbox_idle(false)", err);
}

static void pg_outbox_wait(struct outbox *o, int fd, int ms)
{
    struct outbox_pg *pg = pg_of(o);
    bool up = pg->conn.conn != NULL && PQstatus(pg->conn.conn) == CONNECTION_OK;
    struct pollfd p[2] = { { .fd = fd, .events = POLLIN },
                           { .fd = up ? PQsocket(pg->conn.conn) : -1, .events = POLLIN } };
    if (up) {
        PGnotify *n = PQnotifies(pg->conn.conn);
        if (n != NULL)
            ms = 0; /* the notification came with the last answer */
        PQfreemem(n);
    }
    poll(p, 2, ms);
    if (!up || p[1].revents == 0)
        return;
    if (!PQconsumeInput(pg->conn.conn))
        pg_conn_close(&pg->conn);
    else
        for (PGnotify *n; (n = PQnotifies(pg->conn.conn)) != NULL;)
            PQfreemem(n);
}

static once_result pg_outbox_counts(struct outbox *o, struct outbox_counts *counts, struct once_error *err)
{
    struct pg_params none;
    PGresult *r = NULL;
    pg_params_init(&none);
    once_result result = ask(o, "SELECT * FROM once.outbox_counts()", &none, &r, err);
    if (result == ONCE_OK)
        *counts = (struct outbox_counts){ pg_int(r, 0, 0), pg_int(r, 0, 1), pg_int(r, 0, 2),
                                          pg_int(r, 0, 3), pg_int(r, 0, 4), pg_int(r, 0, 5) };
    PQclear(r);
    return result;
}

/* ------------------------------------------------------------------ for operators */

static void read_item(const PGresult *r, int row, message_item_fn *each, void *arg)
{
    struct outbox_item item = { .created_at = pg_int(r, row, 8), .delays = pg_int(r, row, 11) };
    items_pg_read(r, row, 3, &item.base);
    item.base.at = pg_int(r, row, 9);
    item.base.message.refusals = (int32_t)pg_int(r, row, 10);
    item.base.message.crashes = (int32_t)pg_int(r, row, 12);
    item.base.reason = pg_bytes(r, row, 13);
    each(arg, &item.base);
}

static const struct items_pg items = {
    .ask = ask,
    .show = "SELECT * FROM once.outbox_show($1::uuid)",
    .list = "SELECT * FROM once.outbox_list($1, $2, $3)",
    .resolve = "SELECT once.outbox_resolve($1::uuid, $2, $3, $4)",
    .read = read_item,
};

static once_result pg_outbox_query(struct outbox *o, const char *id, const struct message_filter *filter,
                                   message_item_fn *each, void *arg, struct once_error *err)
{
    return items_pg_query(&items, o, id, filter, each, arg, err);
}

static once_result pg_outbox_resolve(struct outbox *o, const char *id, const char *action, once_span actor,
                                     once_span reason, char did[16], struct once_error *err)
{
    return items_pg_resolve(&items, o, id, action, actor, reason, did, err);
}

static const struct outbox_ops pg_ops = {
    .connect = pg_outbox_connect,
    .close = pg_outbox_close,
    .take = pg_outbox_take,
    .settle = pg_outbox_settle,
    .batch_release = pg_outbox_batch_release,
    .retry_now = pg_outbox_retry_now,
    .upkeep = pg_outbox_upkeep,
    .set_idle = pg_outbox_set_idle,
    .wait = pg_outbox_wait,
    .counts = pg_outbox_counts,
    .query = pg_outbox_query,
    .resolve = pg_outbox_resolve,
};

struct outbox *outbox_pg_create(const char *url)
{
    struct outbox_pg *pg = calloc(1, sizeof *pg);
    if (pg == NULL)
        return NULL;
    pg->base.ops = &pg_ops;
    pg->conn.url = strdup(url);
    once_os_random(pg->relay, sizeof pg->relay);
    if (pg->conn.url == NULL) {
        free(pg);
        return NULL;
    }
    return &pg->base;
}
