/* sink.c - see sink.h: chooses the implementation by its URL, and checks the calls into it. */
#include "messages/sinks/sink.h"

#include <assert.h>
#include <string.h>

static const struct sink_ops *const all[] = {
    &sink_webhook,
#if ONCE_HAVE_NATS
    &sink_nats,
#endif
#if ONCE_HAVE_AMQP
    &sink_amqp,
#endif
#if ONCE_HAVE_KAFKA
    &sink_kafka,
#endif
};

static const struct sink_ops *ops_of(const char *url)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (size_t j = 0; j < 2; j++)
            if (strncmp(url, all[i]->schemes[j], strlen(all[i]->schemes[j])) == 0)
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

const char *sink_fault(const char *url)
{
    const struct sink_ops *ops = ops_of(url);
    return ops != NULL ? ops->fault(url) : "there is no such sink";
}

once_result sink_open(const struct sink_options *options, struct sink **out, struct once_error *err)
{
    assert(sink_fault(options->url) == NULL);
    assert(options->timeout_ms > 0 && options->done != NULL);
    once_result r = ops_of(options->url)->open(options, out, err);
    assert(r != ONCE_OK || ((*out)->ops != NULL && (*out)->busy == 0));
    return r;
}

bool sink_start(struct sink *sink, const struct message *message)
{
    assert(strlen(message->id) == ONCE_UUID_LEN && message->topic.len > 0);
    size_t busy = sink->busy;
    bool started = sink->ops->start(sink, message);
    assert(started || sink->busy == busy);
    return started;
}

void sink_poll(struct sink *sink, int ms)
{
    assert(ms >= 0);
    size_t busy = sink->busy;
    sink->ops->poll(sink, ms);
    assert(sink->busy <= busy);
}

void sink_close(struct sink *sink)
{
    if (sink != NULL)
        sink->ops->close(sink);
}
