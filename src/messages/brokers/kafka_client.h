/*
 * kafka_client.h - the common configuration of Kafka clients: brokers, login, TLS.
 *
 * Used by the producer (sinks/kafka.c) and the consumer (sources/kafka.c). First come our defaults, then the operator's
 * file (kafka_conf.h), then settings that the file must not change; a client adds the settings that its guarantees
 * depend on. The security protocol follows from the URL, and from whether the file configures a login. The brokers'
 * host names are verified.
 */
#ifndef ONCE_MESSAGES_BROKERS_KAFKA_CLIENT_H
#define ONCE_MESSAGES_BROKERS_KAFKA_CLIENT_H

#include "messages/brokers/kafka_conf.h"

#include <librdkafka/rdkafka.h>

struct kafka_client {
    const struct kafka_url *url;
    const char *name;    /* client.id, unless the file has another */
    const char *file;    /* settings of librdkafka; NULL: none */
    const char *ca_file; /* the only trusted certificates; NULL: the system's */
    bool produces; /* otherwise the file's settings for producers are ignored: one file may serve relay and consumer */
};

once_result kafka_client_configure(const struct kafka_client *client, rd_kafka_conf_t *conf, struct once_error *err);
once_result kafka_client_set(rd_kafka_conf_t *conf, const char *name, const char *value, struct once_error *err);

#endif
