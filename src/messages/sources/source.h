/*
 * source.h - where messages come from: a broker that delivers at least once and wants to be told when one is dealt
 * with.
 *
 * A source hands out messages (next); each is given back exactly once: source_ack() after its outcome is durable (K13),
 * or source_nack() so that the broker delivers it again. Until then, however long that takes, source_keep_alive() keeps
 * the broker from delivering it to others. What a broker that lost its connection to us does with messages that we
 * still have is its business: they come again, and are duplicates then. One thread, but the bytes of a message may be
 * read from any.
 */
#ifndef ONCE_MESSAGES_SOURCES_SOURCE_H
#define ONCE_MESSAGES_SOURCES_SOURCE_H

#include "messages/message.h"

#define SOURCE_POSITION_LEN 400            /* of what names a message's place at its broker, with its NUL */
#define SOURCE_PAYLOAD_LEN_MAX (128 << 20) /* RabbitMQ's own limit; others have less */
#define SOURCE_HEADERS_LEN_MAX (64 << 10)  /* more header lines than that are left out */

struct incoming {
    struct message message;
    once_span broker_id; /* by the broker's own convention, the one that `once relay` uses; empty: none */
    char position[SOURCE_POSITION_LEN]; /* "STREAM/SEQUENCE", "TOPIC/PARTITION/OFFSET"; empty: it has none that stays */
    bool is_dead_letter; /* tried again; message.id is its id in the table, empty if it came from a topic */
};

struct source_options {
    const char *url;
    const char *consumer;   /* names the durable subscription, the group */
    const char *ca_file;    /* trusted besides nothing else; NULL: the system's */
    const char *nats_creds; /* NATS: a file with credentials; NULL: none */
    const char *amqp_login; /* RabbitMQ: a file with USER:PASSWORD; NULL: guest, guest */
    const char *kafka_conf; /* Kafka: a file with settings of librdkafka; NULL: none */
    size_t window;          /* messages that may be out at a time */
    int64_t lease_ms;       /* after which others may have what was out with one that died */
    int64_t timeout_ms;     /* of connecting, and of one question */
};

struct source;

struct source_ops {
    const char *scheme; /* "nats:" */
    const char *(*fault)(const char *url);
    once_result (*open)(const struct source_options *options, struct source **out, struct once_error *err);
    once_result (*connect)(struct source *source, struct once_error *err);
    once_result (*next)(struct source *source, size_t room, int ms, struct incoming **out, struct once_error *err);
    void (*ack)(struct source *source, struct incoming *message);
    void (*nack)(struct source *source, struct incoming *message);
    once_result (*keep_alive)(struct source *source, bool full, struct once_error *err);
    once_result (*lag)(struct source *source, int64_t *count, struct once_error *err);
    once_result (*redelivery_window)(struct source *source, int64_t *ms, struct once_error *err);
    void (*sink_url)(const struct source *source, char *out, size_t size);
    void (*close)(struct source *source);
};

struct source {
    const struct source_ops *ops;
    struct source_options options;
};

/* The functions below check their arguments and the implementation's answer; nothing else calls source->ops. */

/* What is wrong with a URL, or NULL. */
const char *source_fault(const char *url);
/* Does not connect. The URL has no fault. */
once_result source_open(const struct source_options *options, struct source **out, struct once_error *err);
/* Also again, after any failure. Messages that were handed out before stay out; whether an acknowledgement of them
 * still reaches the broker differs. */
once_result source_connect(struct source *source, struct once_error *err);
/* The next message, or NULL if none came within `ms`. `room`: how many are wanted, this one included. */
once_result source_next(struct source *source, size_t room, int ms, struct incoming **out, struct once_error *err);
/* The broker may forget the message: its outcome is durable (K13). */
void source_ack(struct source *source, struct incoming *message);
/* The broker shall deliver it again. Sent by source_keep_alive() or source_close(), in order. */
void source_nack(struct source *source, struct incoming *message);
/* Called now and then: the messages that are out are still being worked on. `full`: no more are wanted now. */
once_result source_keep_alive(struct source *source, bool full, struct once_error *err);
/* How many messages wait at the broker; -1: it does not tell. */
once_result source_lag(struct source *source, int64_t *count, struct once_error *err);
/* For how long the broker may deliver a message again; ONCE_NEVER: without end; 0: not known. */
once_result source_redelivery_window(struct source *source, int64_t *ms, struct once_error *err);
/* The URL of a sink on the same broker. */
void source_sink_url(const struct source *source, char *out, size_t size);
/* Waits until the broker has the acknowledgements, within the timeout. NULL is fine. */
void source_close(struct source *source);
/* The schemes, for messages to people. */
const char *source_schemes(void);

#if ONCE_HAVE_NATS
extern const struct source_ops source_nats, source_nats_tls;
#endif
#if ONCE_HAVE_AMQP
extern const struct source_ops source_amqp, source_amqps;
#endif
#if ONCE_HAVE_KAFKA
extern const struct source_ops source_kafka, source_kafkas;
#endif

#endif
