/*
 * flight.h - the messages that are under way at a sink, for brokers that can refuse several because of one.
 *
 * A channel of RabbitMQ is closed because of one message, and everything on it with it; a batch of Kafka is refused as
 * a whole. Nobody says because of which. So whatever was not alone then is sent again, under the same id, alone.
 *
 * Invariants: FLIGHT-1 a message ends exactly once, and is reported after that, by flights_report() only.
 *             FLIGHT-2 REFUSED for what a broker refused is said only of a message that was alone: an innocent one is
 * never counted towards the dead letters because of its neighbour. FLIGHT-3 every message ends by its deadline, and is
 * not sent after it. Where a library that has threads of its own says what became of one that was sent, it has a while
 * for that after it was seen here that the deadline is over: if this process stood still, so did those threads, and
 * what they are about to say is better than a guess.
 *
 * A message that was refused some times before is sent alone from the start: it cost its neighbours rounds already. Not
 * after the first time: a broker that crashes leaves everything unconfirmed, and one by one that would take long.
 */
#ifndef ONCE_MESSAGES_SINKS_FLIGHT_H
#define ONCE_MESSAGES_SINKS_FLIGHT_H

#include "messages/sinks/sink.h"

enum flight_state {
    FLIGHT_FREE = 0,
    FLIGHT_WAITING, /* to be sent */
    FLIGHT_SENT,
    FLIGHT_ENDED,
};

struct flight {
    const struct message *message;
    enum flight_state state;
    bool alone;      /* nothing else may be, or is, SENT at the same time */
    bool returned;   /* RabbitMQ: no queue took it; the confirmation is still to come */
    bool late;       /* its deadline was seen to be over, and is a later one now */
    once_time until; /* monotonic */
    uint64_t tag;    /* RabbitMQ's delivery tag; for Kafka it tells a slot's uses apart */
    enum sink_result result;
    char reason[MESSAGE_REASON_LEN];
};

struct flights {
    struct flight *slots;
    size_t max, waiting, sent, ended;
    bool alone;              /* one is SENT, and alone */
    size_t bytes, bytes_max; /* of payloads that are SENT */
};

bool flights_init(struct flights *flights, size_t max, size_t bytes_max);
void flights_release(struct flights *flights);

/* Whether a message may be taken now. */
bool flights_have_room(const struct flights *flights, const struct message *message);
/* Takes it; there is room. It is WAITING. */
struct flight *flights_add(struct flights *flights, const struct message *message, once_time until);
/* The one to be sent now, or NULL. */
struct flight *flights_next(struct flights *flights);
/* It is being sent: before the first byte of it. */
void flights_sent(struct flights *flights, struct flight *flight, uint64_t tag);

__attribute__((format(printf, 4, 5))) void flights_end(struct flights *flights, struct flight *flight,
                                                       enum sink_result result, const char *format, ...);
/* The broker refused it, or something that was sent with it: its end if it was alone, else it waits to be. */
void flights_refuse(struct flights *flights, struct flight *flight, const char *reason);
/* Ends what is over time; what was sent, only when it is seen `late_ms` after that was seen first (0: at once). */
void flights_expire(struct flights *flights, once_time now, int64_t late_ms);
/* Reports everything that has ended, and frees it. */
void flights_report(struct flights *flights, struct sink *sink);

#endif
