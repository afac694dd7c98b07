/*
 * source.h - where messages come from: a broker that delivers at least once and wants to be told when one is dealt
 * with.
 *
 * A source hands out messages (next); each is given back exactly once: done() after its outcome is durable (K13), or
 * back() for somebody to get it again. Between the two, however long that takes, turn() keeps the broker from
 * delivering it to others. What a broker that lost its connection to us does with messages that we still have is its
 * business: they come again, and are duplicates then. One thread, but the bytes of a message may be read from any.
 */
#ifndef ONCE_MESSAGES_SOURCES_SOURCE_H
#define ONCE_MESSAGES_SOURCES_SOURCE_H

#include "once.h"

#define SOURCE_POSITION_LEN 400            /* of what names a message's place at its broker, with its NUL */
#define SOURCE_PAYLOAD_LEN_MAX (128 << 20) /* RabbitMQ's own limit; others have less */
#define SOURCE_HEADERS_LEN_MAX (64 << 10)  /* more header lines than that are left out */

struct incoming {
    once_span topic, content_type, headers, payload; /* headers: lines "name: value" CR LF */
    once_span key;                                   /* messages of one key are in order */
    bool has_key;
    once_span id; /* by the broker's own convention, the one that `once relay` uses; empty: none */
    char position[SOURCE_POSITION_LEN]; /* "STREAM/SEQUENCE", "TOPIC/PARTITION/OFFSET"; empty: it has none that stays */
    char dead_letter[ONCE_UUID_LEN + 1]; /* it is a dead letter that is tried again: which one; else empty */
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
    const char *scheme;                    /* "nats:" */
    const char *(*fault)(const char *url); /* what is wrong with it, or NULL */
    once_result (*open)(const struct source_options *options, struct source **out, struct once_error *err);
    /* Also again, after any failure. What is out from before stays out; whether done() still reaches the broker
     * differs. */
    once_result (*connect)(struct source *source, struct once_error *err);
    /* The next one, or NULL if none came within `ms`. `room`: more are wanted after it. */
    once_result (*next)(struct source *source, size_t room, int ms, struct incoming **out, struct once_error *err);
    void (*ack)(struct source *source, struct incoming *message);
    void (*nack)(struct source *source, struct incoming *message); /* told by turn() or close(), in order */
    /* Now and then: what is out is still being worked on. `full`: nothing more is wanted now. */
    once_result (*keep_alive)(struct source *source, bool full, struct once_error *err);
    /* How many wait at the broker; -1: it does not tell. */
    once_result (*lag)(struct source *source, int64_t *count, struct once_error *err);
    /* For how long a message may be delivered again; ONCE_NEVER: no end; 0: not known. */
    once_result (*redelivery_window)(struct source *source, int64_t *ms, struct once_error *err);
    /* For a sink on the same broker. */
    void (*sink_url)(const struct source *source, char *out, size_t size);
    void (*close)(struct source *source); /* waits until what was done() is told, within the timeout */
};

struct source {
    const struct source_ops *ops;
    struct source_options options;
};

/* NULL: no source has this scheme. */
const struct source_ops *source_ops_of(const char *url);
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
