/*
 * sink.h - where messages are published: one that confirms, or says why not.
 *
 * A sink takes some messages at a time (start), and reports each exactly once (poll). CONFIRMED means that
 * the receiver has it for good; REFUSED that it, or whoever stands before it, said something about this message, or
 * that nobody knows what became of it; UNREACHED that nothing was said about it, and that certainly nothing of it was
 * sent, or that it would have to be sent again to find out.
 * Whoever calls keeps order: it starts a message only after the one before it was confirmed.
 */
#ifndef ONCE_MESSAGES_SINKS_SINK_H
#define ONCE_MESSAGES_SINKS_SINK_H

#include "messages/message.h"

enum sink_result {
    SINK_CONFIRMED = 1,
    SINK_REFUSED,
    SINK_UNREACHED,
};

/* `retry_after_ms`: the receiver asked for that much time, or 0. */
typedef void sink_done_fn(void *arg, const struct message *message, enum sink_result result, int64_t retry_after_ms,
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
    const char *scheme; /* "https:" */
    const char *(*fault)(const char *url);
    once_result (*open)(const struct sink_options *options, struct sink **out, struct once_error *err);
    bool (*start)(struct sink *sink, const struct message *message);
    void (*poll)(struct sink *sink, int ms);
    void (*close)(struct sink *sink);
};

struct sink {
    const struct sink_ops *ops;
    struct sink_options options;
    size_t busy; /* started and not done */
};

/* The functions below check their arguments and the implementation's answer; nothing else calls sink->ops. */

/* What is wrong with a URL, or NULL. */
const char *sink_fault(const char *url);
/* Does not connect: a receiver that is away now may come back. The URL has no fault. */
once_result sink_open(const struct sink_options *options, struct sink **out, struct once_error *err);
/* False: no room now. The message stays as it is until done() was called for it, which may be before this returns. */
bool sink_start(struct sink *sink, const struct message *message);
/* Calls done() for the messages that have ended; waits for one up to `ms`. Also called while nothing is under way, for
 * heartbeats. */
void sink_poll(struct sink *sink, int ms);
void sink_close(struct sink *sink); /* NULL is fine */
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
