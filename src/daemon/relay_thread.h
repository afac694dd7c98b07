/*
 * relay_thread.h - the relay as a background job of the daemon: relay_loop.h in a thread of its own.
 *
 * It has its own connection to the outbox, which is not the engine's, and its own sinks: nothing here waits for the
 * gateway's claims, and none of them waits for this. An outbox that is away, also at the start, is not the
 * daemon's end: the thread tries again, says so in the log, and once_relay_up is 0.
 */
#ifndef ONCE_DAEMON_RELAY_THREAD_H
#define ONCE_DAEMON_RELAY_THREAD_H

#include "messages/relay.h"

struct relay_thread;

/* `relay` has its outbox, not connected, its sinks and numbers; it is the thread's until relay_thread_stop(). */
once_result relay_thread_start(struct relay *relay, struct relay_thread **out, struct once_error *err);
/* It starts nothing more. NULL is fine, here and below. */
void relay_thread_end(struct relay_thread *r);
/* Waits for its end: for what is under way, up to the sinks' timeout, and that it is settled. */
void relay_thread_stop(struct relay_thread *r);

#endif
