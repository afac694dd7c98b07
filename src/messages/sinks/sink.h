/*
 * sink.h - a receiver that messages are published to: a webhook, NATS, RabbitMQ or Kafka.
 *
 * A sink accepts several messages at a time (start), and reports each exactly once (poll):
 *   CONFIRMED  the receiver has stored it;
 *   REFUSED    the receiver, or a proxy before it, rejected this message, or the result is not known;
 *   UNREACHED  nothing was said about this message: it was certainly not sent, or was sent and must be sent again.
 * The caller keeps the order: it starts a message only after the one before it was confirmed.
 */
#ifndef ONCE_MESSAGES_SINKS_SINK_H
#define ONCE_MESSAGES_SINKS_SINK_H

#include "messages/message.h"

enum sink_result {
    SINK_CONFIRMED = 1,
    SINK_REFUSED,
    SINK_UNREACHED,
};

/* `retry_after_ms`: how long the receiver asked to wait, or 0. */
typedef void sink_done_fn(void *arg, const struct message *message, enum sink_result result, int64_t retry_after_ms,
                          const char *reason);

struct sink_options {
    const char *url;
    const char *secret_file; /* webhooks: keys to sign with; NULL: unsigned */
    const char *ca_file;     /* the only trusted certificates; NULL: the system's */
    const char *nats_creds;  /* NATS: a file with credentials; NULL: none */
    const char *amqp_login;  /* RabbitMQ: a file with USER:PASSWORD; NULL: guest, guest */
    const char *kafka_conf;  /* Kafka: a file with settings of librdkafka; NULL: none */
    int64_t timeout_ms;      /* of publishing one message, connecting included */
    sink_done_fn *done;
    void *arg;
};

struct sink;

struct sink_ops {
    const char *schemes[2]; /* "nats:", "tls:" */
    const char *(*fault)(const char *url);
    once_result (*open)(const struct sink_options *options, struct sink **out, struct once_error *err);
    bool (*start)(struct sink *sink, const struct message *message);
    void (*poll)(struct sink *sink, int ms);
    void (*close)(struct sink *sink);
};

struct sink {
    const struct sink_ops *ops;
    struct sink_options options;
    size_t busy; /* messages that were started and not reported */
};

/* The functions below check their arguments and the implementation's answer; nothing else calls sink->ops. */

/* Returns NULL, or what is wrong with the URL. */
const char *sink_fault(const char *url);
/* Does not connect, so that a receiver may be down now. The URL has no fault. */
once_result sink_open(const struct sink_options *options, struct sink **out, struct once_error *err);
/* False: no room now. The message must stay unchanged until done() was called for it, perhaps before this returns. */
bool sink_start(struct sink *sink, const struct message *message);
/* Calls done() for the messages that have ended; waits for one up to `ms`. Call it also while nothing is in flight, for
 * heartbeats. */
void sink_poll(struct sink *sink, int ms);
void sink_close(struct sink *sink); /* NULL is fine */
/* The supported schemes, for error messages. */
const char *sink_schemes(void);

extern const struct sink_ops sink_webhook;
#if ONCE_HAVE_NATS
extern const struct sink_ops sink_nats;
#endif
#if ONCE_HAVE_AMQP
extern const struct sink_ops sink_amqp;
#endif
#if ONCE_HAVE_KAFKA
extern const struct sink_ops sink_kafka;
#endif

#endif
