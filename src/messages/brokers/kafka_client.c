/* kafka_client.c - see kafka_client.h. */
#include "messages/brokers/kafka_client.h"

#include "core/err.h"

#include <string.h>

struct settings {
    rd_kafka_conf_t *conf;
    bool produces;
    bool sasl; /* the file configures a login */
};

once_result kafka_client_set(rd_kafka_conf_t *conf, const char *name, const char *value, struct once_error *err)
{
    char text[256];
    if (rd_kafka_conf_set(conf, name, value, text, sizeof text) == RD_KAFKA_CONF_OK)
        return ONCE_OK;
    return once_fail(err, ONCE_INVALID, "%s", text);
}

static bool is_for_producers(const char *name)
{
    static const char *const producers[] = { "linger.ms",         "batch.size",       "batch.num.messages",
                                             "compression.codec", "compression.type", "compression.level" };
    for (size_t i = 0; i < sizeof producers / sizeof *producers; i++)
        if (strcmp(name, producers[i]) == 0)
            return true;
    return false;
}

static once_result set_from_file(void *arg, const char *name, const char *value, struct once_error *err)
{
    struct settings *settings = arg;
    if (!settings->produces && is_for_producers(name))
        return ONCE_OK;
    settings->sasl |= strncmp(name, "sasl.", 5) == 0;
    return kafka_client_set(settings->conf, name, value, err);
}

once_result kafka_client_configure(const struct kafka_client *client, rd_kafka_conf_t *conf, struct once_error *err)
{
    struct settings settings = { .conf = conf, .produces = client->produces };
    bool tls = client->url->tls;
    once_result r = kafka_client_set(conf, "client.id", client->name, err);
    if (r == ONCE_OK && client->file != NULL)
        r = kafka_conf_read(client->file, set_from_file, &settings, err);
    const char *protocol = settings.sasl ? (tls ? "sasl_ssl" : "sasl_plaintext") : tls ? "ssl" : "plaintext";
    if (r == ONCE_OK)
        r = kafka_client_set(conf, "bootstrap.servers", client->url->hosts, err);
    if (r == ONCE_OK)
        r = kafka_client_set(conf, "security.protocol", protocol, err);
    if (r == ONCE_OK)
        r = kafka_client_set(conf, "allow.auto.create.topics", "false", err);
    if (r == ONCE_OK && tls)
        r = kafka_client_set(conf, "ssl.endpoint.identification.algorithm", "https", err);
    if (r == ONCE_OK && tls && client->ca_file != NULL)
        r = kafka_client_set(conf, "ssl.ca.location", client->ca_file, err);
    return r;
}
