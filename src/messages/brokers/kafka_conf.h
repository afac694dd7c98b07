/*
 * kafka_conf.h - what a client of Kafka is told from outside: the URL, and a file of the operator's.
 *
 * kafka://HOST[:PORT][,HOST[:PORT]...][/TOPIC]; kafkas:// is the same with TLS. Without a TOPIC the message's topic is
 * Kafka's. The file has lines NAME=VALUE with settings of librdkafka: how to log in, certificates of the client, and
 * what only changes speed. What the promises rest on (acks, idempotence, time-outs, verification) cannot be said there.
 */
#ifndef ONCE_MESSAGES_BROKERS_KAFKA_CONF_H
#define ONCE_MESSAGES_BROKERS_KAFKA_CONF_H

#include "once.h"

enum { KAFKA_TOPIC_LEN_MAX = 249, KAFKA_HOSTS_LEN_MAX = 2000 };

struct kafka_url {
    bool tls;
    char hosts[KAFKA_HOSTS_LEN_MAX + 1];
    char topic[KAFKA_TOPIC_LEN_MAX + 1]; /* "": the message's */
};

/* What is wrong with it, or NULL. */
const char *kafka_url_parse(const char *url, struct kafka_url *out);
bool kafka_topic_is_legal(once_span topic);

/* Whether a setting may be in the file. */
bool kafka_setting_is_allowed(once_span name);
/* Calls each(arg, name, value, err) for every line of the file; ends at the first that is not ONCE_OK. */
typedef once_result kafka_setting_fn(void *arg, const char *name, const char *value, struct once_error *err);
once_result kafka_conf_read(const char *file, kafka_setting_fn *each, void *arg, struct once_error *err);

#endif
