/*
 * conn.h - a connection to a PostgreSQL that holds a store: is it one that can be
 * trusted, and what do its errors mean?
 *
 * It may lead to a pooler that gives each transaction another server process (pgbouncer,
 * transaction mode). So nothing is kept in the session: what a transaction needs, it sets for
 * itself (`settings`), also against what another client may have left there. Only where it
 * leads straight to a server (`direct`) are settings and prepared statements the session's.
 *
 * Nothing waits for ever: a server that says nothing for `answer_ms` is taken for lost, and its
 * socket is closed; a COMMIT is never cancelled (FACT-6, FAULT-20).
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

/* Which server process served a transaction. */
struct pg_server {
    int64_t pid;
    int64_t started_us; /* its postmaster, since 2000 */
};

/* The server process that is ours alone, where no pooler is between. */
struct pg_session {
    int64_t pid; /* 0: none */
    int64_t began_us;
};

/* What batches were like for a while: so many of them; and how many it takes for the next to be expected so. */
struct pg_streak {
    unsigned lasted, wanted;
};

struct pg_conn {
    PGconn *conn;
    struct pg_session session; /* the last one, also when it is lost */
    char *url;
    struct once_mac secret;
    const struct once_clock *clock;            /* of the tests' own; NULL: the database's */
    struct pg_grants *grants;                  /* the store's; NULL: for migrations */
    bool warned;                               /* a WARNING came since this was last cleared */
    bool direct;                               /* no pooler between us and the server */
    bool silent;                               /* lost for not answering */
    int64_t answer_ms;                         /* the URL's tcp_user_timeout, or the default */
    char settings[400];                        /* SQL: the first statement of every transaction */
    struct pg_server server;                   /* of the last transaction */
    struct pg_server met[ONCE_PG_SERVERS_MET]; /* those that a barrier was written after */
    size_t met_count;
    once_time seen_at;     /* postgres/batch.c: the database's clock, as it last told it; 0: it has not */
    once_time seen_steady; /* our own steady clock then */
    struct pg_streak fast_streak, replay_streak; /* postgres/batch.c: all was as usual; all were replays */
    bool replays;                                /* postgres/batch.c: of the last batch's claims, half at least */
};

/* What became of a statement that failed. */
enum pg_failure {
    PG_FAILURE_LOST,   /* the connection is gone: it may have taken effect */
    PG_FAILURE_RETRY,  /* deadlock or serialisation: the same transaction again */
    PG_FAILURE_LOCKED, /* somebody holds a lock for too long */
    PG_FAILURE_INPUT,  /* the caller's value was refused */
    PG_FAILURE_LIMIT,
    PG_FAILURE_FAST_PATH, /* something was in the way of what is usually not looked at */
    PG_FAILURE_OTHER,
};

/* Connects and refuses what cannot be trusted: an old server, a read-only one, one that does
 * not wait for its disk, a missing or newer schema, a role that may not call the functions. */
once_result pg_conn_open(struct pg_conn *c, struct once_error *err);
void pg_conn_close(struct pg_conn *c);

/* Ends a session that was lost, if its server process is still waiting to read: what it would read then must not
 * be done after its callers were answered and have gone on (FAULT-19). One that is at work, perhaps committing, is left
 * alone: who settles waits for it. */
void pg_conn_end_lost(struct pg_conn *c, struct pg_session lost);

/* Connects without looking for a store: for migrations. */
once_result pg_conn_plain(struct pg_conn *c, struct once_error *err);

/* Waits until what was committed before is durable where it has to be (FACT-6). */
once_result pg_conn_barrier(struct pg_conn *c, struct once_error *err);
/* A pooler connects again without telling us. So a transaction notes who served it, from the
 * result of its settings, and what it says is believed after a barrier on that server. */
void pg_conn_note_server(struct pg_conn *c, const PGresult *settings);
once_result pg_conn_meet_server(struct pg_conn *c, struct once_error *err);

/* One statement by itself, outside of a pipeline; the result is the caller's to clear. */
once_result pg_conn_exec(struct pg_conn *c, const char *sql, PGresult **result, struct once_error *err);
/* A question with its settings, and with `before` (may be NULL), in one transaction. */
once_result pg_conn_ask(struct pg_conn *c, const char *before, const char *sql, struct pg_params *p, PGresult **result,
                        struct once_error *err);

/* Sends a statement of the batch, in pipeline mode. */
once_result pg_conn_call(struct pg_conn *c, enum pg_statement statement, struct pg_params *p, struct once_error *err);

/* PQgetResult(), but it does not wait for ever. */
PGresult *pg_conn_result(struct pg_conn *c);

enum pg_failure pg_failure_of(const struct pg_conn *c, const PGresult *result);

#endif
