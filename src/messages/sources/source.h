/*
 * source.h - a broker that messages are consumed from; it delivers at least once, and expects acknowledgements.
 *
 * A source hands out messages (next); each is settled exactly once: source_ack() after its outcome is durable (K13), or
 * source_nack() so that the broker delivers it again. Until then, however long that takes, source_keep_alive() keeps
 * the broker from delivering it to others. After a lost connection the broker may deliver messages again that are still
 * out: those are duplicates. One thread, but any thread may read the bytes of a message.
 */
#ifndef ONCE_MESSAGES_SOURCES_SOURCE_H
#define ONCE_MESSAGES_SOURCES_SOURCE_H

#include "messages/message.h"

#define SOURCE_POSITION_LEN 400            /* of a message's position at its broker, with its NUL */
#define SOURCE_PAYLOAD_LEN_MAX (128 << 20) /* RabbitMQ's own limit; others have less */
#define SOURCE_HEADERS_LEN_MAX (64 << 10)  /* header lines beyond that are left out */

struct incoming {
    struct message message;
    once_span broker_id;                /* the broker's message id, or the one that `once relay` sends; empty: none */
    char position[SOURCE_POSITION_LEN]; /* "STREAM/SEQUENCE", "TOPIC/PARTITION/OFFSET"; empty: the broker has no stable
                                           position */
    bool is_dead_letter; /* it is being retried; message.id is its id in the table, empty if it came from a topic */
};

struct source_options {
    const char *url;
    const char *consumer;   /* name of the durable subscription or group */
    const char *ca_file;    /* the only trusted certificates; NULL: the system's */
    const char *nats_creds; /* NATS: a file with credentials; NULL: none */
    const char *amqp_login; /* RabbitMQ: a file with USER:PASSWORD; NULL: guest, guest */
    const char *kafka_conf; /* Kafka: a file with settings of librdkafka; NULL: none */
    size_t window;          /* how many messages may be out at a time */
    int64_t lease_ms;       /* after which the broker may deliver the messages of a crashed consumer to others */
    int64_t timeout_ms;     /* of connecting, and of one request */
};

struct source;

struct source_ops {
    const char *schemes[2]; /* "nats:", "tls:" */
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

/* Returns NULL, or what is wrong with the URL. */
const char *source_fault(const char *url);
/* Does not connect. The URL has no fault. */
once_result source_open(const struct source_options *options, struct source **out, struct once_error *err);
/* Also called after any failure. Messages that were handed out before stay out; some brokers cannot acknowledge them
 * over the new connection. */
once_result source_connect(struct source *source, struct once_error *err);
/* The next message, or NULL if none came within `ms`. `room`: how many are wanted, this one included. */
once_result source_next(struct source *source, size_t room, int ms, struct incoming **out, struct once_error *err);
/* The broker may forget the message: its outcome is durable (K13). */
void source_ack(struct source *source, struct incoming *message);
/* The broker is to deliver it again. Sent by source_keep_alive() or source_close(), in order. */
void source_nack(struct source *source, struct incoming *message);
/* Call it now and then: the messages that are out are still being worked on. `full`: no more are wanted now. */
once_result source_keep_alive(struct source *source, bool full, struct once_error *err);
/* How many messages wait at the broker; -1 if it does not tell. */
once_result source_lag(struct source *source, int64_t *count, struct once_error *err);
/* For how long the broker may deliver a message again; ONCE_NEVER: without end; 0: not known. */
once_result source_redelivery_window(struct source *source, int64_t *ms, struct once_error *err);
/* The URL of a sink on the same broker. */
void source_sink_url(const struct source *source, char *out, size_t size);
/* Waits until the broker has the acknowledgements, within the timeout. NULL is fine. */
void source_close(struct source *source);
/* The supported schemes, for error messages. */
const char *source_schemes(void);

#if ONCE_HAVE_NATS
extern const struct source_ops source_nats;
#endif
#if ONCE_HAVE_AMQP
extern const struct source_ops source_amqp;
#endif
#if ONCE_HAVE_KAFKA
extern const struct source_ops source_kafka;
#endif

#endif
