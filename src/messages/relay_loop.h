/*
 * relay_loop.h - a relay that goes on until it is told to stop: batch after batch, sleep where there is nothing,
 *                upkeep, and the database's absences.
 *
 * A database that goes away loses nothing: the loop connects again, after longer and longer random times. It looks at
 * relay.must_stop between steps and while it waits, and then ends with what is under way settled.
 * Callers: cli/relay.c (the process is this loop), daemon/relay_thread.c (a thread is). One thread.
 */
#ifndef ONCE_MESSAGES_RELAY_LOOP_H
#define ONCE_MESSAGES_RELAY_LOOP_H

#include "messages/relay.h"

struct relay_loop {
    struct relay *relay;
    bool connected; /* its outbox is, already */
    bool drain;     /* end when nothing is due any more */
    int wake;       /* a descriptor: waiting ends when it is readable */
    /* Between batches, while connected, about every second; may be NULL. */
    void (*tick)(void *arg);
    void *arg;
    /* The loop's own. */
    once_time upkeep_at, count_at;
};

void relay_loop_run(struct relay_loop *loop);

/* Asks the outbox what it holds, for relay->numbers. */
once_result relay_loop_count(struct relay_loop *loop, struct once_error *err);

#endif
