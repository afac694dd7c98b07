/*
 * relay_loop.h - relays until it is told to stop: batches, waiting, upkeep, and reconnecting to the database.
 *
 * When the database goes away no message is lost: the loop connects again, with growing random delays. It checks
 * relay.must_stop between steps and while it waits; then it settles the messages in flight and returns.
 * Callers: cli/relay.c (the process is this loop), daemon/relay_thread.c. One thread.
 */
#ifndef ONCE_MESSAGES_RELAY_LOOP_H
#define ONCE_MESSAGES_RELAY_LOOP_H

#include "messages/relay.h"

struct relay_loop {
    struct relay *relay;
    bool connected; /* the outbox is already connected */
    bool drain;     /* return when no message is due */
    int wake;       /* a descriptor: waiting ends when it is readable */
    /* Called between batches, while connected, about every second; may be NULL. */
    void (*tick)(void *arg);
    void *arg;
    /* Private to the loop. */
    once_time upkeep_at, count_at;
};

void relay_loop_run(struct relay_loop *loop);

/* Reads the outbox's counts into relay->counters. */
once_result relay_loop_count(struct relay_loop *loop, struct once_error *err);

#endif
