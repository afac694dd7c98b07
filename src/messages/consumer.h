/*
 * consumer.h - delivers messages, each under its own record: claim, deliver, finish; in order per key, some at a time.
 *
 * Model: one thread admits messages and takes those that have ended; `parallel` threads deliver. A message's record is
 *        (consumer, message id) of a store, so that whoever gets it again, here or elsewhere, after any crash, finds
 * what became of it. What failed waits here, with the later ones of its key behind it, and is tried again.
 *
 * Invariants: CONSUMER-1 a message ends as DONE only after its outcome is durable in the store, as succeeded (K4, K13).
 *             CONSUMER-2 of one key, one at a time, in the order they were admitted; the next one begins after DONE or
 * DEAD. CONSUMER-3 how often it failed is kept in the record, so that a crash does not begin the counting anew.
 *             CONSUMER-4 bounded: at most `window` are here. Whoever admits stops reading then.
 *
 * Not here: the broker (messages/sources/source.h), dead letters (messages/dead_letters/letters.h), waiting and signals
 * (cli/consume.c).
 */
#ifndef ONCE_MESSAGES_CONSUMER_H
#define ONCE_MESSAGES_CONSUMER_H

#include "messages/deliver.h"
#include "trace/tracer.h"

#define CONSUMER_PARALLEL_MAX 256
#define CONSUMER_WINDOW_MAX 10000
#define CONSUMER_ATTEMPTS_MAX 1000000

enum consumer_verdict {
    CONSUMER_RETRY = 0,   /* not ended */
    CONSUMER_DONE,        /* CONSUMER-1: acknowledge */
    CONSUMER_DEAD_LETTER, /* given up: keep it as a dead letter, then acknowledge */
    CONSUMER_RETURN,      /* stopped before it was tried, or before it was tried again: give it back */
};

struct delivery {
    struct incoming *incoming;
    once_span id; /* the claim's key; its bytes belong to whoever admitted it, as the message does */
    void *owner;  /* the admitter's */
    /* What became of it. */
    enum consumer_verdict verdict;
    int32_t failures;
    char reason[DELIVER_REASON_LEN];
    /* Ours. */
    bool tried, exhausted, refused;
    int32_t delays; /* tries that count for nothing, in a row */
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
    const struct tracer *tracer; /* NULL: traces pass through as they are */
};

struct consumer;

/* `options` is copied. Starts the threads. */
once_result consumer_open(const struct consumer_options *options, struct consumer **out, struct once_error *err);
/* A message of which `incoming`, `id` and `owner` are set; the rest is zero. It comes back by consumer_take(). */
void consumer_admit(struct consumer *c, struct delivery *delivery);
/* The next one that has ended, or NULL; waits for it up to `ms`. */
struct delivery *consumer_take(struct consumer *c, int ms);
/* How many are here: admitted and not taken. */
size_t consumer_busy(struct consumer *c);
/* Begin nothing more. How many are still under way is asked by consumer_working(). */
void consumer_stop(struct consumer *c);
size_t consumer_working(struct consumer *c);
/* Waits for those; what was not begun comes back as CONSUMER_RETURN. */
void consumer_join(struct consumer *c);
void consumer_counts(struct consumer *c, struct consumer_counts *counts);
/* The last trouble with the store or the target, and forgets it; false: there was none. */
bool consumer_trouble(struct consumer *c, char text[DELIVER_REASON_LEN]);
/* After everything was taken. */
void consumer_close(struct consumer *c);

#endif
