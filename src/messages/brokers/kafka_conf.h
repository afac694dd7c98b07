/*
 * kafka_conf.h - parses the URL of a Kafka client, and the operator's file of settings.
 *
 * kafka://HOST[:PORT][,HOST[:PORT]...][/TOPIC]; kafkas:// is the same with TLS. Without a TOPIC, Kafka's topic is the
 * message's. The file has lines NAME=VALUE with settings of librdkafka: login, client certificates, and tuning. It
 * cannot change settings that delivery guarantees depend on: acks, idempotence, timeouts, verification.
 */
#ifndef ONCE_MESSAGES_BROKERS_KAFKA_CONF_H
#define ONCE_MESSAGES_BROKERS_KAFKA_CONF_H

#include "once.h"

enum { KAFKA_TOPIC_LEN_MAX = 249, KAFKA_HOSTS_LEN_MAX = 2000 };

struct kafka_url {
    bool tls;
    char hosts[KAFKA_HOSTS_LEN_MAX + 1];
    char topic[KAFKA_TOPIC_LEN_MAX + 1]; /* "": the message's topic */
};

/* Returns NULL, or what is wrong with the URL. */
const char *kafka_url_parse(const char *url, struct kafka_url *out);
bool kafka_topic_is_legal(once_span topic);

/* Whether the file may contain this setting. */
bool kafka_setting_is_allowed(once_span name);
/* Calls each(arg, name, value, err) for every line of the file; ends at the first that is not ONCE_OK. */
typedef once_result kafka_setting_fn(void *arg, const char *name, const char *value, struct once_error *err);
once_result kafka_conf_read(const char *file, kafka_setting_fn *each, void *arg, struct once_error *err);

#endif
