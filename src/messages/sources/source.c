/* source.c - see source.h: chooses the implementation by its URL, and checks the calls into it. */
#include "messages/sources/source.h"

#include <assert.h>
#include <string.h>

static const struct source_ops *const all[] = {
#if ONCE_HAVE_NATS
    &source_nats,
#endif
#if ONCE_HAVE_AMQP
    &source_amqp,
#endif
#if ONCE_HAVE_KAFKA
    &source_kafka,
#endif
    NULL,
};

static const struct source_ops *ops_of(const char *url)
{
    for (size_t i = 0; all[i] != NULL; i++)
        for (size_t j = 0; j < 2; j++)
            if (strncmp(url, all[i]->schemes[j], strlen(all[i]->schemes[j])) == 0)
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

const char *source_fault(const char *url)
{
    const struct source_ops *ops = ops_of(url);
    return ops != NULL ? ops->fault(url) : "there is no such source";
}

once_result source_open(const struct source_options *options, struct source **out, struct once_error *err)
{
    assert(source_fault(options->url) == NULL);
    assert(options->window > 0 && options->lease_ms > 0 && options->timeout_ms > 0);
    once_result r = ops_of(options->url)->open(options, out, err);
    assert(r != ONCE_OK || (*out)->ops != NULL);
    return r;
}

once_result source_connect(struct source *source, struct once_error *err)
{
    return source->ops->connect(source, err);
}

once_result source_next(struct source *source, size_t room, int ms, struct incoming **out, struct once_error *err)
{
    assert(room > 0 && room <= source->options.window);
    *out = NULL;
    once_result r = source->ops->next(source, room, ms, out, err);
    assert(r == ONCE_OK || *out == NULL);
    return r;
}

void source_ack(struct source *source, struct incoming *message)
{
    assert(message != NULL);
    source->ops->ack(source, message);
}

void source_nack(struct source *source, struct incoming *message)
{
    assert(message != NULL);
    source->ops->nack(source, message);
}

once_result source_keep_alive(struct source *source, bool full, struct once_error *err)
{
    return source->ops->keep_alive(source, full, err);
}

once_result source_lag(struct source *source, int64_t *count, struct once_error *err)
{
    once_result r = source->ops->lag(source, count, err);
    assert(r != ONCE_OK || *count >= -1);
    return r;
}

once_result source_redelivery_window(struct source *source, int64_t *ms, struct once_error *err)
{
    once_result r = source->ops->redelivery_window(source, ms, err);
    assert(r != ONCE_OK || *ms >= 0 || *ms == ONCE_NEVER);
    return r;
}

void source_sink_url(const struct source *source, char *out, size_t size)
{
    source->ops->sink_url(source, out, size);
    assert(out[0] != '\0');
}

void source_close(struct source *source)
{
    if (source != NULL)
        source->ops->close(source);
}
