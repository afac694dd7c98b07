/*
 * relay_thread.h - `once daemon --relay`: relay_loop.h in a thread of the daemon.
 *
 * It has its own connection to the outbox, apart from the engine's, and its own sinks: claims do not wait for it, nor
 * it for them. An outbox that is down, also at the start, does not end the daemon: the thread tries again, logs that,
 * and once_relay_up is 0.
 */
#ifndef ONCE_DAEMON_RELAY_THREAD_H
#define ONCE_DAEMON_RELAY_THREAD_H

#include "messages/relay.h"

struct relay_thread;

/* `relay` has its outbox, not connected, its sinks and counters; the thread owns it until relay_thread_stop(). */
once_result relay_thread_start(struct relay *relay, struct relay_thread **out, struct once_error *err);
/* It starts no more messages. NULL is fine, here and below. */
void relay_thread_end(struct relay_thread *r);
/* Waits until the messages in flight have ended, up to the sinks' timeout, and are settled. */
void relay_thread_stop(struct relay_thread *r);

#endif
