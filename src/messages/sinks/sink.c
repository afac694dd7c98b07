/* sink.c - see sink.h: the sinks there are. */
#include "messages/sinks/sink.h"

#include <string.h>

static const struct sink_ops *const all[] = {
    &sink_https, &sink_http,
#if ONCE_HAVE_NATS
    &sink_nats,  &sink_nats_tls,
#endif
#if ONCE_HAVE_AMQP
    &sink_amqp,  &sink_amqps,
#endif
#if ONCE_HAVE_KAFKA
    &sink_kafka, &sink_kafkas,
#endif
};

const struct sink_ops *sink_ops_of(const char *url)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strncmp(url, all[i]->scheme, strlen(all[i]->scheme)) == 0)
            return all[i];
    return NULL;
}

#if ONCE_HAVE_NATS
#define NATS ", nats://, tls://"
#define NO_NATS ""
#else
#define NATS ""
#define NO_NATS "; this program was built without libnats"
#endif
#if ONCE_HAVE_AMQP
#define AMQP ", amqp://, amqps://"
#define NO_AMQP ""
#else
#define AMQP ""
#define NO_AMQP "; this program was built without librabbitmq"
#endif
#if ONCE_HAVE_KAFKA
#define KAFKA ", kafka://, kafkas://"
#define NO_KAFKA ""
#else
#define KAFKA ""
#define NO_KAFKA "; this program was built without librdkafka"
#endif

const char *sink_schemes(void)
{
    return "https://, http://" NATS AMQP KAFKA NO_NATS NO_AMQP NO_KAFKA;
}
