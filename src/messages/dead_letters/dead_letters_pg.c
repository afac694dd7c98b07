/*
 * dead_letters_pg.c - dead letters in PostgreSQL: calls the functions of 80_inbox.sql, each a transaction.
 *
 * A statement whose answer was lost may have taken effect. Every call may be repeated.
 */
#include "messages/dead_letters/dead_letters.h"

#include "core/err.h"
#include "core/span.h"
#include "messages/items_pg.h"
#include "store/postgres/conn.h"

#include <stdio.h>
#include <stdlib.h>

struct dead_letters_pg {
    struct dead_letters base;
    struct pg_conn conn;
};

static void pg_dead_letters_close(struct dead_letters *l)
{
    struct dead_letters_pg *pg = (struct dead_letters_pg *)l;
    pg_conn_close(&pg->conn);
    free(pg->conn.url);
    free(pg);
}

/* Runs one statement; connects first if necessary, and closes a connection that failed. Releases the parameters. */
static once_result ask(void *table, const char *sql, struct pg_params *p, PGresult **out, struct once_error *err)
{
    struct dead_letters_pg *pg = table;
    once_result r = pg->conn.conn == NULL ? pg_conn_open(&pg->conn, err) : ONCE_OK;
    if (r == ONCE_OK) {
        pg->conn.warned = false;
        r = pg_conn_ask(&pg->conn, NULL, sql, p, out, err);
        if (r == ONCE_OK && pg->conn.warned) { /* a failover may lose the commit (FACT-6) */
            r = pg_conn_barrier(&pg->conn, err);
            if (r != ONCE_OK && out != NULL) {
                PQclear(*out);
                *out = NULL;
            }
        }
        if (r != ONCE_OK)
            pg_conn_close(&pg->conn);
    }
    pg_params_release(p);
    return r;
}

static once_result pg_dead_letters_put(struct dead_letters *l, const struct dead_letter *dead_letter,
                                       struct once_error *err)
{
    const struct incoming *in = dead_letter->incoming;
    const struct message *m = &in->message;
    struct pg_params p;
    pg_params_init(&p);
    pg_add_bytes(&p, PG_TEXT, once_span_str(dead_letter->id));
    pg_add_bytes(&p, PG_TEXT, dead_letter->consumer);
    pg_add_bytes(&p, PG_BYTEA, dead_letter->message_id);
    pg_add_bytes(&p, PG_BYTEA, once_span_str(in->position));
    pg_add_bytes(&p, PG_BYTEA, m->topic);
    pg_add_bytes(&p, PG_BYTEA, m->key);
    pg_add_bytes(&p, PG_BYTEA, m->content_type);
    pg_add_bytes(&p, PG_BYTEA, m->headers);
    pg_add_bytes(&p, PG_BYTEA, m->payload);
    pg_add_int(&p, PG_INT4, dead_letter->attempts);
    pg_add_bytes(&p, PG_BYTEA, dead_letter->reason);
    pg_add_int(&p, PG_INT4, dead_letter->again);
    return ask(l, "SELECT once.inbox_put_dead($1::uuid, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12 <> 0)", &p, NULL,
               err);
}

static once_result pg_dead_letters_due(struct dead_letters *l, once_span consumer, int32_t most,
                                       dead_letters_due_fn *each, void *arg, struct once_error *err)
{
    struct pg_params p;
    PGresult *r = NULL;
    pg_params_init(&p);
    pg_add_bytes(&p, PG_TEXT, consumer);
    pg_add_int(&p, PG_INT4, most);
    once_result result = ask(l, "SELECT * FROM once.inbox_due($1, $2)", &p, &r, err);
    for (int i = 0; result == ONCE_OK && i < PQntuples(r); i++) {
        struct incoming in = { .is_dead_letter = true,
                               .message = { .topic = pg_bytes(r, i, 3),
                                            .key = pg_bytes(r, i, 4),
                                            .content_type = pg_bytes(r, i, 5),
                                            .headers = pg_bytes(r, i, 6),
                                            .payload = pg_bytes(r, i, 7) } };
        in.message.has_key = in.message.key.len > 0;
        pg_uuid(r, i, 0, in.message.id);
        snprintf(in.position, sizeof in.position, "%.*s", ONCE_SPAN_ARGS(pg_bytes(r, i, 2)));
        each(arg, pg_bytes(r, i, 1), &in);
    }
    PQclear(r);
    return result;
}

static once_result pg_dead_letters_settle(struct dead_letters *l, const char *id, struct once_error *err)
{
    struct pg_params p;
    pg_params_init(&p);
    pg_add_bytes(&p, PG_TEXT, once_span_str(id));
    return ask(l, "SELECT once.inbox_settle($1::uuid)", &p, NULL, err);
}

static once_result pg_dead_letters_count(struct dead_letters *l, once_span consumer, int64_t *count,
                                         struct once_error *err)
{
    struct pg_params p;
    PGresult *r = NULL;
    pg_params_init(&p);
    pg_add_bytes(&p, PG_TEXT, consumer);
    once_result result = ask(l, "SELECT once.inbox_count($1)", &p, &r, err);
    if (result == ONCE_OK)
        *count = pg_int(r, 0, 0);
    PQclear(r);
    return result;
}

static void read_item(const PGresult *r, int row, message_item_fn *each, void *arg)
{
    struct dead_letter_item item = { .consumer = pg_bytes(r, row, 2),
                                     .message_id = pg_bytes(r, row, 3),
                                     .source = pg_bytes(r, row, 4) };
    items_pg_read(r, row, 5, &item.base);
    item.base.message.has_key = item.base.message.key.len > 0;
    item.base.at = pg_int(r, row, 10);
    item.base.message.refusals = (int32_t)pg_int(r, row, 11);
    item.base.reason = pg_bytes(r, row, 12);
    each(arg, &item.base);
}

static const struct items_pg items = {
    .ask = ask,
    .show = "SELECT * FROM once.inbox_show($1::uuid)",
    .list = "SELECT * FROM once.inbox_list($1, $2, $3, $4)",
    .has_consumers = true,
    .resolve = "SELECT once.inbox_resolve($1::uuid, $2, $3, $4)",
    .read = read_item,
};

static once_result pg_dead_letters_query(struct dead_letters *l, const char *id, const struct message_filter *filter,
                                         message_item_fn *each, void *arg, struct once_error *err)
{
    return items_pg_query(&items, l, id, filter, each, arg, err);
}

static once_result pg_dead_letters_resolve(struct dead_letters *l, const char *id, const char *action, once_span actor,
                                           once_span reason, char did[16], struct once_error *err)
{
    return items_pg_resolve(&items, l, id, action, actor, reason, did, err);
}

static const struct dead_letters_ops pg_ops = {
    .close = pg_dead_letters_close,
    .put = pg_dead_letters_put,
    .due = pg_dead_letters_due,
    .settle = pg_dead_letters_settle,
    .count = pg_dead_letters_count,
    .query = pg_dead_letters_query,
    .resolve = pg_dead_letters_resolve,
};

once_result dead_letters_pg_create(const char *url, struct dead_letters **out, struct once_error *err)
{
    struct dead_letters_pg *pg = calloc(1, sizeof *pg);
    if (pg == NULL || (pg->conn.url = strdup(url)) == NULL) {
        free(pg);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a connection");
    }
    pg->base.ops = &pg_ops;
    once_result r = pg_conn_open(&pg->conn, err);
    if (r != ONCE_OK)
        pg_dead_letters_close(&pg->base);
    else
        *out = &pg->base;
    return r;
}
