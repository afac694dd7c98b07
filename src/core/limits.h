/*
 * limits.h - every bound that is not part of the public API, with its reason.
 *
 * The public ones are in once.h. A full queue answers BUSY; it does not grow.
 */
#ifndef ONCE_CORE_LIMITS_H
#define ONCE_CORE_LIMITS_H

#include "once.h"

#include <assert.h>

/* Operations that may wait for a writer: 64 threads times a burst; more would only wait longer. */
#define ONCE_QUEUE_LEN_DEFAULT 4096
#define ONCE_QUEUE_LEN_MAX 65536
/* Operations in one commit: larger batches gain nothing and make each caller wait for all. */
#define ONCE_BATCH_LEN_DEFAULT 1024
#define ONCE_BATCH_LEN_MAX 4096
/* The retry_after_ms for a record that waits for a completer: about the interval of the completer's rounds. */
#define ONCE_COMPLETER_PAUSE_MS 1000
/* Claims that wait for another attempt's outcome. */
#define ONCE_WAITER_LEN_DEFAULT 4096
#define ONCE_WAITER_LEN_MAX 65536
/* How long a short-lived process waits for the lock of the store's file. */
#define ONCE_LOCK_WAIT_MS_DEFAULT 10000
#define ONCE_LOCK_WAIT_MS_MAX 600000
/* PostgreSQL: how long a server may be silent, when connecting or after a query, before the connection counts as
 * lost. Longer than any batch takes, but not longer than a COMMIT that waits for an absent standby. */
#define ONCE_PG_ANSWER_MS 30000
#define ONCE_PG_CONNECT_S 10
/* Server processes behind a pooler that are remembered; meeting a forgotten one again costs a barrier. */
#define ONCE_PG_SERVERS_MET 64
/* Redis: how long a server may be silent before the connection counts as lost; how long a write waits for replicas
 * (WAIT) if the URL asks for replicas without a time. */
#define ONCE_REDIS_ANSWER_MS 30000
#define ONCE_REDIS_CONNECT_MS 5000
#define ONCE_REDIS_GOODBYE_MS 1000
#define ONCE_REDIS_WAIT_MS 1000
#define ONCE_REDIS_WAIT_MS_MAX 20000 /* less than ONCE_REDIS_ANSWER_MS: the answer must come before that */
/* The pause after a failed connection, doubled up to the second value, so that a restarted server is not overrun. */
#define ONCE_REDIS_PAUSE_MS 10
#define ONCE_REDIS_PAUSE_MS_MAX 250
/* Keys that one SCAN reads: it occupies Redis for well under a millisecond. */
#define ONCE_REDIS_SCAN_COUNT 200
/* Bytes of commands that are sent together; a batch of large bodies is sent in parts of half of that. */
#define ONCE_REDIS_SEND_LEN_MAX ((size_t)64 << 20)
/* A URL fits on a line. */
#define ONCE_URL_LEN_MAX 4096
/* Rows that one listing call reads, so that a filter without matches does not occupy the writer. */
#define ONCE_LIST_SCAN_MAX 10000
#define ONCE_LIST_LIMIT_DEFAULT 100
/* Rows that one step of a check reads. */
#define ONCE_CHECK_SCAN_MAX 10000
/* Records one expiry step removes: keeps a step near 10 ms. */
#define ONCE_EXPIRE_BUDGET_DEFAULT 1000
#define ONCE_EXPIRE_BUDGET_MAX 10000
/* Attempts that a history shows. */
#define ONCE_HISTORY_LEN_MAX 1000
/* Length of an actor's name in the audit trail. */
#define ONCE_ACTOR_LEN_MAX 255
/* Routes are stored as numbers of six bits; 0: without a route (ADR 33). */
#define ONCE_ROUTE_OTHER 63
#define ONCE_ROUTE_OTHER_NAME "other"
/* Shorter bodies are not compressed. */
#define ONCE_COMPRESS_LEN_MIN 512
/* An encoded outcome: header, lines, body, sum (core/outcome.c). */
#define ONCE_OUTCOME_LEN_MAX (64 + ONCE_HEADERS_LEN_MAX + ONCE_BODY_LEN_MAX)
/* A sealed outcome is stored as a body: the encoded outcome in an envelope (core/seal.h). So stores accept bodies,
 * requests and checkpoints that are this much longer than the public limits. */
#define ONCE_SEALED_MORE 128
#define ONCE_STORED_BODY_LEN_MAX (ONCE_OUTCOME_LEN_MAX + ONCE_SEALED_MORE)

static_assert(ONCE_BATCH_LEN_DEFAULT <= ONCE_QUEUE_LEN_DEFAULT, "a batch comes out of the queue");
static_assert(ONCE_LIST_LIMIT_MAX <= ONCE_LIST_SCAN_MAX, "a full page must be reachable in one scan");
static_assert(ONCE_ROUTE_COUNT_MAX < ONCE_ROUTE_OTHER, "the last number stands for all other routes");
static_assert(ONCE_BODY_LEN_MAX <= UINT32_MAX / 2, "lengths are stored in 32 bits");

#endif
