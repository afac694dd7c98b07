/*
 * pg_enqueue.c - outbox and inbox in the caller's own PostgreSQL transaction: once_pg_enqueue(), once_pg_consume().
 *
 * Calls the SQL functions (docs/sql.md) on the caller's connection. A row exists if and only if the caller's
 * transaction commits (K12, K13); nothing is done outside of that transaction.
 */
#include "core/err.h"
#include "core/message.h"
#include "core/span.h"
#include "store/postgres/param.h"

static once_result check_transaction(PGconn *conn, struct once_error *err)
{
    switch (PQtransactionStatus(conn)) {
    case PQTRANS_INTRANS:
        return ONCE_OK;
    case PQTRANS_INERROR:
        return once_fail(err, ONCE_INVALID, "the transaction has failed: roll it back");
    case PQTRANS_ACTIVE:
        return once_fail(err, ONCE_INVALID, "the connection is in the middle of a command");
    case PQTRANS_UNKNOWN:
        return once_fail(err, ONCE_UNAVAILABLE, "the connection is lost");
    default:
        return once_fail(err, ONCE_INVALID, "not inside a transaction: BEGIN first");
    }
}

static once_result failed(const PGconn *conn, const PGresult *r, struct once_error *err)
{
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE), *text = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
    char line[300];
    snprintf(line, sizeof line, "%s", text != NULL ? text : PQerrorMessage(conn));
    line[strcspn(line, "\n")] = '\0';
    once_result result = state == NULL                  ? ONCE_UNAVAILABLE
                         : strncmp(state, "22", 2) == 0 ? ONCE_INVALID
                         : strncmp(state, "54", 2) == 0 ? ONCE_LIMIT
                         : strcmp(state, "40001") == 0  ? ONCE_BUSY
                         : strcmp(state, "40P01") == 0  ? ONCE_BUSY
                                                        : ONCE_UNAVAILABLE;
    return once_fail(err, result, "database: %s", line);
}

/* Runs a statement that returns one row in text format. The caller clears *out after ONCE_OK. Releases the parameters.
 */
static once_result ask(PGconn *conn, const char *sql, struct pg_params *p, PGresult **out, struct once_error *err)
{
    PGresult *last = NULL, *next;
    once_result r = check_transaction(conn, err);
    if (r == ONCE_OK)
        r = pg_send(conn, sql, p, err);
    pg_params_release(p);
    if (r != ONCE_OK)
        return r;
    while ((next = PQgetResult(conn)) != NULL) {
        PQclear(last);
        last = next;
    }
    if (PQresultStatus(last) == PGRES_TUPLES_OK && PQntuples(last) == 1) {
        *out = last;
        return ONCE_OK;
    }
    r = failed(conn, last, err);
    PQclear(last);
    return r;
}

/* ------------------------------------------------------------------ the outbox */

static void add_json_string(struct once_buf *out, once_span text)
{
    once_buf_add_byte(out, '"');
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        if (c == '"' || c == '\\')
            once_buf_addf(out, "\\%c", c);
        else if (c < ' ')
            once_buf_addf(out, "\\u%04x", c);
        else
            once_buf_add_byte(out, c);
    }
    once_buf_add_byte(out, '"');
}

/* Header lines as the JSON object that once.enqueue takes, with each name once. */
static once_result headers_to_json(once_span lines, struct once_buf *out, struct once_error *err)
{
    once_span all = lines, line, name, value;
    once_buf_add_byte(out, '{');
    while (lines.len > 0) {
        const uint8_t *at = lines.ptr;
        once_span_cut(lines, '\n', &line, &lines);
        line.len--; /* without its CR, which once_headers_check() has checked */
        once_span_cut(line, ':', &name, &value);
        while (value.len > 0 && value.ptr[0] == ' ')
            value = once_span_skip(value, 1);
        for (once_span earlier = all, one, other; earlier.ptr < at;) {
            once_span_cut(earlier, '\n', &one, &earlier);
            once_span_cut(one, ':', &other, &one);
            if (once_span_equal(other, name))
                return once_fail(err, ONCE_INVALID, "header '%.*s' is given twice", ONCE_SPAN_ARGS(name));
        }
        if (out->len > 1)
            once_buf_add_byte(out, ',');
        add_json_string(out, name);
        once_buf_add_byte(out, ':');
        add_json_string(out, value);
    }
    once_buf_add_byte(out, '}');
    return out->result == ONCE_OK ? ONCE_OK : once_fail(err, out->result, "no memory for headers");
}

#define ENQUEUE                                                                                                        \
    "SELECT once.enqueue($1, nullif($2, ''), $3, $4::jsonb, $5, "                                                      \
    "CASE WHEN $6 > 0 THEN to_timestamp($6 / 1000.0) END)::text::bytea"

once_result once_pg_enqueue(PGconn *conn, const struct once_message *m, char id[ONCE_UUID_LEN + 1],
                            struct once_error *err)
{
    struct once_buf headers;
    struct pg_params p;
    PGresult *answer = NULL;
    once_result r = once_message_check(m, err);
    if (r != ONCE_OK)
        return r;
    once_buf_init(&headers, 8 * ONCE_MESSAGE_HEADERS_LEN_MAX);
    r = headers_to_json(m->headers, &headers, err);
    if (r == ONCE_OK) {
        pg_params_init(&p);
        pg_add_bytes(&p, PG_TEXT, m->topic);
        pg_add_bytes(&p, PG_TEXT, m->key);
        pg_add_bytes(&p, PG_BYTEA, m->payload);
        pg_add_bytes(&p, PG_TEXT, once_buf_span(&headers));
        pg_add_bytes(&p, PG_TEXT, m->content_type.len > 0 ? m->content_type : ONCE_LIT("application/octet-stream"));
        pg_add_int(&p, PG_INT8, m->not_before);
        r = ask(conn, ENQUEUE, &p, &answer, err);
    }
    once_buf_release(&headers);
    if (r == ONCE_OK)
        snprintf(id, ONCE_UUID_LEN + 1, "%.*s", ONCE_SPAN_ARGS(pg_bytes(answer, 0, 0)));
    PQclear(answer);
    return r;
}

/* ------------------------------------------------------------------ the inbox */

once_result once_pg_consumer(PGconn *conn, const struct once_consumer *consumer, struct once_error *err)
{
    static const char sql[] = "SELECT once.consumer($1, CASE WHEN $2 > 0 THEN $2 * interval '1 millisecond' END, "
                              "CASE WHEN $3 > 0 THEN $3 * interval '1 millisecond' END)";
    struct pg_params p;
    PGresult *answer = NULL;
    once_result r = once_consumer_check(consumer, err);
    if (r != ONCE_OK)
        return r;
    pg_params_init(&p);
    pg_add_bytes(&p, PG_TEXT, consumer->name);
    pg_add_int(&p, PG_INT8, consumer->retention_ms != 0 ? consumer->retention_ms : ONCE_INBOX_RETENTION_MS_DEFAULT);
    pg_add_int(&p, PG_INT8, consumer->redelivery_window_ms);
    r = ask(conn, sql, &p, &answer, err);
    PQclear(answer);
    return r;
}

once_result once_pg_consume(PGconn *conn, once_span consumer, once_span message_id, bool *fresh, struct once_error *err)
{
    struct pg_params p;
    PGresult *answer = NULL;
    once_result r = once_inbox_name_check("consumer", consumer, err);
    if (r == ONCE_OK)
        r = once_inbox_name_check("message id", message_id, err);
    if (r != ONCE_OK)
        return r;
    pg_params_init(&p);
    pg_add_bytes(&p, PG_TEXT, consumer);
    pg_add_bytes(&p, PG_TEXT, message_id);
    r = ask(conn, "SELECT once.consume($1, $2)", &p, &answer, err);
    if (r == ONCE_OK)
        *fresh = pg_bool(answer, 0, 0);
    PQclear(answer);
    return r;
}
