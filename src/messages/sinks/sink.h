/*
 * sink.h - where messages are published: one that confirms, or says why not.
 *
 * A sink takes some messages at a time (start), and reports each exactly once (turn). CONFIRMED means that
 * the receiver has it for good; REFUSED that it, or whoever stands before it, said something about this message, or
 * that nobody knows what became of it; UNREACHED that nothing was said about it, and that certainly nothing of it was
 * sent, or that it would have to be sent again to find out.
 * Whoever calls keeps order: it starts a message only after the one before it was confirmed.
 */
#ifndef ONCE_MESSAGES_SINKS_SINK_H
#define ONCE_MESSAGES_SINKS_SINK_H

#include "messages/outbox/outbox.h"

enum sink_result {
    SINK_CONFIRMED = 1,
    SINK_REFUSED,
    SINK_UNREACHED,
};

/* `retry_after_ms`: the receiver asked for that much time, or 0. */
typedef void sink_done_fn(void *arg, struct outbox_message *message, enum sink_result result, int64_t retry_after_ms,
                          const char *reason);

struct sink_options {
    const char *url;
    const char *secret_file; /* webhooks: keys to sign with; NULL: unsigned */
    const char *ca_file;     /* trusted besides nothing else; NULL: the system's */
    const char *nats_creds;  /* NATS: a file with credentials; NULL: none */
    const char *amqp_login;  /* RabbitMQ: a file with USER:PASSWORD; NULL: guest, guest */
    const char *kafka_conf;  /* Kafka: a file with settings of librdkafka; NULL: none */
    int64_t timeout_ms;      /* of one publish, connecting included */
    sink_done_fn *done;
    void *arg;
};

struct sink;

struct sink_ops {
    const char *scheme;                    /* "https:" */
    const char *(*fault)(const char *url); /* what is wrong with it, or NULL */
    once_result (*open)(const struct sink_options *options, struct sink **out, struct once_error *err);
    bool (*start)(struct sink *sink, struct outbox_message *message); /* false: no room now */
    /* Waits that long at most; calls done(). Called also when nothing is under way: for heartbeats. */
    void (*poll)(struct sink *sink, int ms);
    void (*close)(struct sink *sink);
};

struct sink {
    const struct sink_ops *ops;
    struct sink_options options;
    size_t busy; /* started and not done */
};

/* NULL: no sink has this scheme. */
const struct sink_ops *sink_ops_of(const char *url);
/* The schemes, for messages to people. */
const char *sink_schemes(void);

extern const struct sink_ops sink_http, sink_https;
#if ONCE_HAVE_NATS
extern const struct sink_ops sink_nats, sink_nats_tls;
#endif
#if ONCE_HAVE_AMQP
extern const struct sink_ops sink_amqp, sink_amqps;
#endif
#if ONCE_HAVE_KAFKA
extern const struct sink_ops sink_kafka, sink_kafkas;
#endif

#endif
