/*
 * naive_outbox.h - the relays that Once's is measured against: a table with a mark, and a loop.
 *
 * NAIVE_POLL reads 100 messages every 500 ms, publishes one after the other, and marks them with one UPDATE. NAIVE_ROWS
 * does not sleep while there are any, and marks each with an UPDATE of its own, so that a crash repeats one at most.
 * Both publish through the same sinks as the relay does, and wait for each confirmation: that is what keeps order. The
 * table is in a schema of its own, which is dropped.
 */
#ifndef ONCE_BENCH_NAIVE_OUTBOX_H
#define ONCE_BENCH_NAIVE_OUTBOX_H

#include "messages/sinks/sink.h"

#include <stdatomic.h>

enum naive_design { NAIVE_POLL, NAIVE_ROWS };

struct naive_outbox;

once_result naive_outbox_open(const char *url, struct naive_outbox **out, struct once_error *err);
void naive_outbox_close(struct naive_outbox *n);

/* Empties the table, and puts messages numbered from `first` on into it: `head` and the number, filled up to `len`
 * bytes. */
once_result naive_outbox_fill(struct naive_outbox *n, uint64_t first, uint64_t count, size_t len, uint64_t keys,
                              struct once_error *err);

/* Publishes until `stop`, or, with `drain`, until nothing is left. `confirmed` counts. What is no confirmation ends it.
 */
once_result naive_outbox_run(struct naive_outbox *n, enum naive_design design, struct sink *sink, bool drain,
                             const atomic_bool *stop, struct once_error *err);

/* For sink_options.done while it runs, with the naive_outbox as its arg. */
void naive_outbox_done(struct naive_outbox *n, enum sink_result result, const char *reason);

#endif
