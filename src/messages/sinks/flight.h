/*
 * flight.h - the messages in flight at a sink, for brokers that may refuse several messages because of one.
 *
 * RabbitMQ closes a channel, with everything in flight on it, because of one message; Kafka refuses a batch as a whole.
 * Neither says which message was at fault. So messages that were refused together are sent again one by one, under the
 * same ids.
 *
 * Invariants: FLIGHT-1 a message ends exactly once, and is reported after that, only by flights_report().
 *             FLIGHT-2 REFUSED by a broker is reported only for a message that was sent alone: no message becomes a
 *                dead letter because of another.
 *             FLIGHT-3 every message ends by its deadline, and is not sent after it. Where a library's threads report
 *                results, a message that was sent gets some more time after the deadline was noticed: if this
 *                process was suspended, so were those threads, and their report is better than a guess.
 *
 * A message that was refused several times is sent alone from the start, because it cost the others repeats. Not after
 * the first refusal: a broker that crashes leaves every message unconfirmed, and sending all of them alone is slow.
 */
#ifndef ONCE_MESSAGES_SINKS_FLIGHT_H
#define ONCE_MESSAGES_SINKS_FLIGHT_H

#include "messages/sinks/sink.h"

enum flight_state {
    FLIGHT_FREE = 0,
    FLIGHT_WAITING, /* not sent yet */
    FLIGHT_SENT,
    FLIGHT_ENDED,
};

struct flight {
    const struct message *message;
    enum flight_state state;
    bool alone;      /* no other message may be SENT at the same time */
    bool returned;   /* RabbitMQ: no queue accepted it; the confirmation is still to come */
    bool late;       /* its deadline has passed, and was extended once */
    once_time until; /* monotonic */
    uint64_t tag;    /* RabbitMQ's delivery tag; for Kafka it distinguishes the uses of a slot */
    enum sink_result result;
    char reason[MESSAGE_REASON_LEN];
};

struct flights {
    struct flight *slots;
    size_t max, waiting, sent, ended;
    bool alone;              /* a message is SENT alone */
    size_t bytes, bytes_max; /* of SENT payloads */
};

bool flights_init(struct flights *flights, size_t max, size_t bytes_max);
void flights_release(struct flights *flights);

/* Whether a message may be added now. */
bool flights_have_room(const struct flights *flights, const struct message *message);
/* Adds it as WAITING. There must be room. */
struct flight *flights_add(struct flights *flights, const struct message *message, once_time until);
/* The message to send now, or NULL. */
struct flight *flights_next(struct flights *flights);
/* Call it before the first byte is sent. */
void flights_sent(struct flights *flights, struct flight *flight, uint64_t tag);

__attribute__((format(printf, 4, 5))) void flights_end(struct flights *flights, struct flight *flight,
                                                       enum sink_result result, const char *format, ...);
/* The broker refused it, or a message that was sent with it. A message that was alone ends; another one waits to be
 * sent alone. */
void flights_refuse(struct flights *flights, struct flight *flight, const char *reason);
/* Ends messages past their deadline; a SENT one only `late_ms` after the deadline was first noticed (0: at once). */
void flights_expire(struct flights *flights, once_time now, int64_t late_ms);
/* Reports all messages that have ended, and frees their slots. */
void flights_report(struct flights *flights, struct sink *sink);

#endif
