/*
 * consumer.h - delivers messages, each under its own record: claim, deliver, finish; in order per key, several at a
 * time.
 *
 * Model: one thread admits messages and takes those that have ended; `parallel` threads deliver. A message's record is
 *        (consumer, message id) in a store, so that a process that gets the message again, after any crash, finds its
 *        outcome. A message that failed waits here, with the later ones of its key behind it, and is retried.
 *
 * Invariants: CONSUMER-1 a message ends as DONE only after its outcome is durable in the store, as succeeded (K4, K13).
 *             CONSUMER-2 of one key, one message at a time, in the order of admission; the next one begins after DONE
 *                or DEAD_LETTER.
 *             CONSUMER-3 the number of failures is kept in the record, so that a crash does not reset it.
 *             CONSUMER-4 at most `window` messages are here. The admitting thread stops reading then.
 *
 * Not here: the broker (sources/source.h), dead letters (dead_letters/dead_letters.h), waiting and stopping
 * (consume_loop.h).
 */
#ifndef ONCE_MESSAGES_CONSUMER_H
#define ONCE_MESSAGES_CONSUMER_H

#include "messages/deliver.h"
#include "trace/tracer.h"

#define CONSUMER_PARALLEL_MAX 256
#define CONSUMER_WINDOW_MAX 10000
#define CONSUMER_ATTEMPTS_MAX 1000000

enum consumer_verdict {
    CONSUMER_RETRY = 0,   /* not ended: it will be tried again */
    CONSUMER_DONE,        /* acknowledge it (CONSUMER-1) */
    CONSUMER_DEAD_LETTER, /* store it as a dead letter, then acknowledge it */
    CONSUMER_RETURN,      /* the consumer stopped before the next attempt: return it to the broker */
};

struct delivery {
    struct incoming *incoming;
    once_span id; /* the claim's key; the admitting thread owns its bytes, as it owns the message */
    void *owner;  /* for the admitting thread */
    /* The result. */
    enum consumer_verdict verdict;
    int32_t failures;
    char reason[DELIVER_REASON_LEN];
    /* Private to consumer.c. */
    bool tried, exhausted, refused;
    int32_t delays; /* consecutive attempts that do not count as failures */
    int64_t retry_after_ms;
    once_time due_ms; /* monotonic */
    enum deliver_end end;
    struct delivery *next, *behind, *in_bucket;
};

struct consumer_counts {
    uint64_t done, duplicates, failed, delayed, dead;
};

struct consumer_options {
    struct once *once;
    once_span name; /* the tenant of its records */
    struct target target;
    int64_t lease_ms, retention_ms, backoff_ms, backoff_ms_max;
    enum once_takeover takeover;
    int32_t attempts_max;
    size_t parallel, window;
    const struct tracer *tracer; /* NULL: trace headers are passed on unchanged */
};

struct consumer;

/* `options` is copied. Starts the threads. */
once_result consumer_open(const struct consumer_options *options, struct consumer **out, struct once_error *err);
/* Admits a message with `incoming`, `id` and `owner` set, and the rest zero. consumer_take() returns it. */
void consumer_admit(struct consumer *c, struct delivery *delivery);
/* The next message that has ended, or NULL; waits for it up to `ms`. */
struct delivery *consumer_take(struct consumer *c, int ms);
/* How many messages were admitted and not taken. */
size_t consumer_busy(struct consumer *c);
/* Starts no more deliveries. consumer_working(): how many are under way. */
void consumer_stop(struct consumer *c);
size_t consumer_working(struct consumer *c);
/* Waits for those under way; the other messages end as CONSUMER_RETURN. */
void consumer_join(struct consumer *c);
void consumer_counts(struct consumer *c, struct consumer_counts *counts);
/* The last failure of the store or the target, which is then forgotten; false: there is no failure. */
bool consumer_last_failure(struct consumer *c, char text[DELIVER_REASON_LEN]);
/* Call it after every message was taken. */
void consumer_close(struct consumer *c);

#endif
