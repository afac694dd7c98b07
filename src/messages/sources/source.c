/* source.c - see source.h: the sources there are. */
#include "messages/sources/source.h"

#include <string.h>

static const struct source_ops *const all[] = {
#if ONCE_HAVE_NATS
    &source_nats,  &source_nats_tls,
#endif
#if ONCE_HAVE_AMQP
    &source_amqp,  &source_amqps,
#endif
#if ONCE_HAVE_KAFKA
    &source_kafka, &source_kafkas,
#endif
    NULL,
};

const struct source_ops *source_ops_of(const char *url)
{
    for (size_t i = 0; all[i] != NULL; i++)
        if (strncmp(url, all[i]->scheme, strlen(all[i]->scheme)) == 0)
            return all[i];
    return NULL;
}

#if ONCE_HAVE_NATS
#define NATS "nats://, tls://"
#else
#define NATS "not nats:// (this program was built without libnats)"
#endif
#if ONCE_HAVE_AMQP
#define AMQP ", amqp://, amqps://"
#else
#define AMQP ", not amqp:// (built without librabbitmq)"
#endif
#if ONCE_HAVE_KAFKA
#define KAFKA ", kafka://, kafkas://"
#else
#define KAFKA ", not kafka:// (built without librdkafka)"
#endif

const char *source_schemes(void)
{
    return NATS AMQP KAFKA;
}
