/*
 * consumer_thread.h - `once daemon --consume`: consume_loop.h in a thread of the daemon.
 *
 * It has its own connections to the store and to the broker: claims do not wait for it, nor it for them. A store or
 * broker that is away, also at the start, does not end the daemon: the thread tries again, says so in the log, and
 * once_consume_up is 0. A mistake that only the store or the broker can tell, such as a retention that is too short for
 * the broker, ends the thread with a line in the log.
 */
#ifndef ONCE_DAEMON_CONSUMER_THREAD_H
#define ONCE_DAEMON_CONSUMER_THREAD_H

#include "messages/consume_loop.h"

struct consumer_thread;

/* `options` has its store_url and counters; the thread fills in the rest, and owns it until consumer_thread_stop().
 * `store` says how to open the store. */
once_result consumer_thread_start(struct consume_options *options, const struct once_options *store,
                                  struct consumer_thread **out, struct once_error *err);
/* It begins no more deliveries. NULL is fine, here and below. */
void consumer_thread_end(struct consumer_thread *t);
/* Waits until the deliveries that are under way have ended, up to their timeout, and are settled. */
void consumer_thread_stop(struct consumer_thread *t);

#endif
