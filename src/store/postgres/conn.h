/*
 * conn.h - a connection to a PostgreSQL that holds a store: checks the server, waits with a limit, classifies errors.
 *
 * It may lead to a pooler that gives each transaction another server process (pgbouncer,
 * transaction mode). So nothing is kept in the session: each transaction sets what it needs for itself (`settings`),
 * whatever another client may have left there. Only a connection without a pooler (`direct`) keeps settings and
 * prepared statements in the session.
 *
 * No wait is endless: a server that is silent for `answer_ms` is taken for lost, and its socket is closed. A COMMIT is
 * never cancelled (FACT-6, FAULT-20).
 */
#ifndef ONCE_STORE_POSTGRES_CONN_H
#define ONCE_STORE_POSTGRES_CONN_H

#include "core/limits.h"
#include "core/mac.h"
#include "once.h"
#include "store/postgres/grants.h"
#include "store/postgres/param.h"
#include "store/postgres/statement.h"

#include <libpq-fe.h>

/* The server process that served a transaction. */
struct pg_server {
    int64_t pid;
    int64_t started_us; /* its postmaster, since 2000 */
};

/* Our server process, if there is no pooler. */
struct pg_session {
    int64_t pid; /* 0: none */
    int64_t began_us;
};

struct pg_conn {
    PGconn *conn;
    struct pg_session session; /* the last one, even after it was lost */
    char *url;
    struct once_mac secret;
    const struct once_clock *clock;            /* a test's; NULL: the database's */
    struct pg_grants *grants;                  /* the store's; NULL: for migrations */
    bool warned;                               /* a WARNING came since this was last cleared */
    bool direct;                               /* there is no pooler */
    bool silent;                               /* lost because it did not answer */
    int64_t answer_ms;                         /* the URL's tcp_user_timeout, or the default */
    char settings[400];                        /* SQL: the first statement of every transaction */
    struct pg_server server;                   /* of the last transaction */
    struct pg_server met[ONCE_PG_SERVERS_MET]; /* those whose commits a barrier has made certain */
    size_t met_count;
};

/* Why a statement failed. */
enum pg_failure {
    PG_FAILURE_LOST,   /* the connection is gone: it may have taken effect */
    PG_FAILURE_RETRY,  /* deadlock or serialisation: the same transaction again */
    PG_FAILURE_LOCKED, /* another transaction held a lock for too long */
    PG_FAILURE_INPUT,  /* the caller's value was refused */
    PG_FAILURE_LIMIT,
    PG_FAILURE_FAST_PATH, /* a constraint refused a row of the fast way */
    PG_FAILURE_OTHER,
};

/* Connects. Refuses an old server, a read-only one, one that does not sync commits, a missing or newer schema, and a
 * role that may not call the functions. */
once_result pg_conn_open(struct pg_conn *c, struct once_error *err);
void pg_conn_close(struct pg_conn *c);

/* Ends a lost session if its server process is idle, waiting to read: statements that arrive late must not be executed
 * after their callers were answered (FAULT-19). A process that is working, perhaps committing, is left alone: settling
 * waits for it. */
void pg_conn_end_lost(struct pg_conn *c, struct pg_session lost);

/* Connects without looking for a store: for migrations. */
once_result pg_conn_plain(struct pg_conn *c, struct once_error *err);

/* Waits until all earlier commits are durable where they have to be (FACT-6). */
once_result pg_conn_barrier(struct pg_conn *c, struct once_error *err);
/* A pooler reconnects without telling us. So each transaction reads from the result of its settings which server
 * process served it, and its answers are believed after a barrier on that server. */
void pg_conn_note_server(struct pg_conn *c, const PGresult *settings);
once_result pg_conn_meet_server(struct pg_conn *c, struct once_error *err);

/* One statement outside of a pipeline; the caller clears the result. */
once_result pg_conn_exec(struct pg_conn *c, const char *sql, PGresult **result, struct once_error *err);
/* A query with its settings, and with `before` (may be NULL), in one transaction. */
once_result pg_conn_ask(struct pg_conn *c, const char *before, const char *sql, struct pg_params *p, PGresult **result,
                        struct once_error *err);

/* Sends a statement of the batch, in pipeline mode. */
once_result pg_conn_call(struct pg_conn *c, enum pg_statement statement, struct pg_params *p, struct once_error *err);

/* PQgetResult() with a time limit. */
PGresult *pg_conn_result(struct pg_conn *c);

enum pg_failure pg_failure_of(const struct pg_conn *c, const PGresult *result);

#endif
