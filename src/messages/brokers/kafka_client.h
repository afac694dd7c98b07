/*
 * kafka_client.h - what every client of Kafka is configured with: where the brokers are, how to log in, TLS.
 *
 * The same for a producer (kafka.c) and a consumer (sources/kafka.c). First our name, then the operator's file
 * (kafka_conf.h), then what is not to be changed by it; a client sets after that what its own promises rest on. The
 * security protocol follows from the URL and from whether the file says how to log in. Brokers' names are verified.
 */
#ifndef ONCE_MESSAGES_BROKERS_KAFKA_CLIENT_H
#define ONCE_MESSAGES_BROKERS_KAFKA_CLIENT_H

#include "messages/brokers/kafka_conf.h"

#include <librdkafka/rdkafka.h>

struct kafka_client {
    const struct kafka_url *url;
    const char *name;    /* client.id, unless the file has another */
    const char *file;    /* settings of librdkafka; NULL: none */
    const char *ca_file; /* trusted besides nothing else; NULL: the system's */
    bool produces;       /* else what the file says to producers is passed over: it may serve relay and consumer */
};

once_result kafka_client_configure(const struct kafka_client *client, rd_kafka_conf_t *conf, struct once_error *err);
once_result kafka_client_set(rd_kafka_conf_t *conf, const char *name, const char *value, struct once_error *err);

#endif
