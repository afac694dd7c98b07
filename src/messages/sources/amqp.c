/*
 * amqp.c - the source amqp:// and amqps://: a queue of RabbitMQ, with manual acknowledgements.
 *
 *     amqp://HOST[:PORT][/VHOST]?queue=NAME
 *
 * The queue must exist: the operator decides its arguments. The prefetch count is the window, so that the broker stops
 * when the consumer is full. When a connection ends, for any reason, RabbitMQ puts unacknowledged messages back to
 * their places in the queue. So order survives crashes, and holds between several processes if the queue has
 * x-single-active-consumer. The id is the message-id property, the key the header Once-Message-Key, as the sink sends
 * them.
 *
 * One thread: next() and keep_alive() read the frames, which also answers heartbeats. Delivery tags belong to a
 * channel: messages of an earlier connection (generation) cannot be acknowledged any more, and are delivered again.
 */
#include "messages/brokers/amqp_conn.h"
#include "messages/brokers/headers.h"
#include "messages/sources/source.h"

#include "core/buf.h"
#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "os/os.h"

#include <amqp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHANNEL = 1 };

struct amqp_incoming {
    struct incoming base;
    amqp_envelope_t envelope;
    struct once_buf headers;
    uint64_t generation;
    struct amqp_incoming *next; /* of the messages that were not handed out yet */
};

struct amqp_source {
    struct source base;
    struct amqp_url url;
    char queue[AMQP_NAME_LEN_MAX + 1];
    struct amqp_peer peer;
    amqp_connection_state_t conn; /* NULL: not connected */
    uint64_t generation;
    struct amqp_incoming *first, *last; /* received and not handed out yet */
    char reason[AMQP_REASON_LEN];       /* of the last failure */
};

static struct amqp_source *amqp_of(struct source *source)
{
    return (struct amqp_source *)source;
}

/* ------------------------------------------------------------------ the URL */

static const char shape[] = "it is not amqp://HOST[:PORT][/VHOST]?queue=NAME";

/* Splits the URL into the part before the ?, and the queue's name, percent-decoded. */
static const char *split_url(const char *url, struct amqp_url *out, char queue[AMQP_NAME_LEN_MAX + 1])
{
    char place[ONCE_URL_LEN_MAX + 1];
    const char *query = strstr(url, "?queue=");
    if (strlen(url) > ONCE_URL_LEN_MAX)
        return "it is too long";
    if (query == NULL || query[7] == '\0' || strpbrk(query + 7, "&?#/ \t\r\n") != NULL)
        return shape;
    snprintf(place, sizeof place, "%.*s", (int)(query - url), url);
    const char *fault = amqp_url_parse(place, out);
    if (fault != NULL)
        return fault;
    size_t len = 0;
    for (const char *c = query + 7; *c != '\0'; c++) {
        unsigned byte = (unsigned char)*c;
        char pair[3] = { 0 }, *end = NULL;
        if (*c == '%') {
            memcpy(pair, c + 1, strnlen(c + 1, 2));
            byte = (unsigned)strtoul(pair, &end, 16);
            if (end != pair + 2 || byte == 0)
                return "its queue is badly encoded";
            c += 2;
        }
        if (len == AMQP_NAME_LEN_MAX)
            return "its queue's name is too long";
        queue[len++] = (char)byte;
    }
    queue[len] = '\0';
    return NULL;
}

static const char *amqp_fault(const char *url)
{
    struct amqp_url parsed;
    char queue[AMQP_NAME_LEN_MAX + 1];
    return split_url(url, &parsed, queue);
}

/* ------------------------------------------------------------------ connecting */

static void disconnect(struct amqp_source *s)
{
    if (s->conn != NULL)
        amqp_destroy_connection(s->conn);
    s->conn = NULL;
    s->generation++;
}

static once_result lost(struct amqp_source *s, const char *why, struct once_error *err)
{
    disconnect(s);
    return once_fail(err, ONCE_UNAVAILABLE, "%s:%d: %s", s->url.host, s->url.port, why);
}

/* -1: there is no such queue, and RabbitMQ has closed the channel. */
static int64_t count_messages(struct amqp_source *s)
{
    const amqp_queue_declare_ok_t *ok =
        amqp_queue_declare(s->conn, CHANNEL, amqp_cstring_bytes(s->queue), 1, 0, 0, 0, amqp_empty_table);
    return amqp_conn_succeeded(amqp_get_rpc_reply(s->conn), "cannot find the queue", s->reason) && ok != NULL
               ? (int64_t)ok->message_count
               : -1;
}

static bool subscribe(struct amqp_source *s)
{
    uint16_t prefetch = s->base.options.window < UINT16_MAX ? (uint16_t)s->base.options.window : UINT16_MAX;
    amqp_channel_open(s->conn, CHANNEL);
    if (!amqp_conn_succeeded(amqp_get_rpc_reply(s->conn), "cannot open a channel", s->reason) || count_messages(s) < 0)
        return false;
    amqp_basic_qos(s->conn, CHANNEL, 0, prefetch, 0);
    if (!amqp_conn_succeeded(amqp_get_rpc_reply(s->conn), "cannot set the prefetch", s->reason))
        return false;
    amqp_basic_consume(s->conn, CHANNEL, amqp_cstring_bytes(s->queue), amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
    return amqp_conn_succeeded(amqp_get_rpc_reply(s->conn), "cannot consume from the queue", s->reason);
}

static void free_message(struct amqp_incoming *m)
{
    amqp_destroy_envelope(&m->envelope);
    once_buf_release(&m->headers);
    free(m);
}

static void drop_waiting(struct amqp_source *s)
{
    while (s->first != NULL) {
        struct amqp_incoming *m = s->first;
        s->first = m->next;
        free_message(m);
    }
    s->last = NULL;
}

static once_result amqp_connect(struct source *source, struct once_error *err)
{
    struct amqp_source *s = amqp_of(source);
    drop_waiting(s); /* the broker delivers them again */
    disconnect(s);
    return amqp_conn_open(&s->peer, s->base.options.timeout_ms, &s->conn, s->reason) && subscribe(s)
               ? ONCE_OK
               : lost(s, s->reason, err);
}

/* ------------------------------------------------------------------ a message */

static once_span span_of(amqp_bytes_t bytes)
{
    return once_span_of(bytes.bytes, bytes.len);
}

/* Text, or a type that has exactly one textual form. */
static bool value_text(const amqp_field_value_t *v, char number[32], once_span *out)
{
    switch (v->kind) {
    case AMQP_FIELD_KIND_UTF8:
    case AMQP_FIELD_KIND_BYTES:
        *out = span_of(v->value.bytes);
        return true;
    case AMQP_FIELD_KIND_BOOLEAN:
        *out = v->value.boolean ? ONCE_LIT("true") : ONCE_LIT("false");
        return true;
    case AMQP_FIELD_KIND_I8:
        snprintf(number, 32, "%d", v->value.i8);
        break;
    case AMQP_FIELD_KIND_I16:
        snprintf(number, 32, "%d", v->value.i16);
        break;
    case AMQP_FIELD_KIND_I32:
        snprintf(number, 32, "%" PRId32, v->value.i32);
        break;
    case AMQP_FIELD_KIND_I64:
        snprintf(number, 32, "%" PRId64, v->value.i64);
        break;
    default:
        return false;
    }
    *out = once_span_str(number);
    return true;
}

static void read_headers(struct amqp_incoming *m, const amqp_table_t *table)
{
    for (int i = 0; i < table->num_entries; i++) {
        char number[32];
        once_span name = span_of(table->entries[i].key), value;
        if (!value_text(&table->entries[i].value, number, &value))
            continue;
        if (once_span_equal(name, ONCE_LIT("Once-Message-Key"))) {
            m->base.message.key = value;
            m->base.message.has_key = true;
        } else if (once_span_equal(name, ONCE_LIT("Once-Topic"))) {
            m->base.message.topic = value;
        } else {
            headers_add(&m->headers, name, value);
        }
    }
    m->base.message.headers = once_buf_span(&m->headers);
}

static void read_message(struct amqp_source *s, struct amqp_incoming *m)
{
    const amqp_basic_properties_t *p = &m->envelope.message.properties;
    once_buf_init(&m->headers, SOURCE_HEADERS_LEN_MAX);
    m->generation = s->generation;
    m->base.message.topic = span_of(m->envelope.routing_key);
    m->base.message.payload = span_of(m->envelope.message.body);
    if ((p->_flags & AMQP_BASIC_MESSAGE_ID_FLAG) != 0)
        m->base.broker_id = span_of(p->message_id);
    if ((p->_flags & AMQP_BASIC_CONTENT_TYPE_FLAG) != 0)
        m->base.message.content_type = span_of(p->content_type);
    if ((p->_flags & AMQP_BASIC_HEADERS_FLAG) != 0)
        read_headers(m, &p->headers);
}

/* Handles a frame that is not a message. */
static once_result other_frame(struct amqp_source *s, struct once_error *err)
{
    amqp_frame_t frame;
    int status = amqp_simple_wait_frame(s->conn, &frame);
    if (status != AMQP_STATUS_OK)
        return lost(s, amqp_error_string2(status), err);
    if (frame.frame_type != AMQP_FRAME_METHOD)
        return ONCE_OK;
    switch (frame.payload.method.id) {
    case AMQP_CHANNEL_CLOSE_METHOD: {
        const amqp_channel_close_t *close = frame.payload.method.decoded;
        amqp_conn_say_close(s->reason, close->reply_code, close->reply_text);
        return lost(s, s->reason, err);
    }
    case AMQP_CONNECTION_CLOSE_METHOD: {
        const amqp_connection_close_t *close = frame.payload.method.decoded;
        amqp_conn_say_close(s->reason, close->reply_code, close->reply_text);
        return lost(s, s->reason, err);
    }
    case AMQP_BASIC_CANCEL_METHOD:
        return lost(s, "the queue was deleted, or is elsewhere now", err);
    default:
        return ONCE_OK;
    }
}

/* Queues one message, if one comes within `ms`. */
static once_result receive(struct amqp_source *s, int ms, bool *came, struct once_error *err)
{
    struct timeval timeout = amqp_conn_timeval(ms);
    *came = false;
    if (s->conn == NULL)
        return once_fail(err, ONCE_UNAVAILABLE, "%s:%d: not connected", s->url.host, s->url.port);
    struct amqp_incoming *m = calloc(1, sizeof *m);
    if (m == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a message");
    amqp_maybe_release_buffers(s->conn);
    amqp_rpc_reply_t reply = amqp_consume_message(s->conn, &m->envelope, &timeout, 0);
    if (reply.reply_type == AMQP_RESPONSE_NORMAL) {
        read_message(s, m);
        if (s->last != NULL)
            s->last->next = m;
        else
            s->first = m;
        s->last = m;
        *came = true;
        return ONCE_OK;
    }
    free(m);
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION && reply.library_error == AMQP_STATUS_TIMEOUT)
        return ONCE_OK;
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION && reply.library_error == AMQP_STATUS_UNEXPECTED_STATE)
        return other_frame(s, err);
    amqp_conn_succeeded(reply, "cannot receive messages", s->reason);
    return lost(s, s->reason, err);
}

static once_result amqp_next(struct source *source, size_t room, int ms, struct incoming **out, struct once_error *err)
{
    struct amqp_source *s = amqp_of(source);
    bool came;
    (void)room; /* the prefetch count is the window */
    *out = NULL;
    once_result r = s->first == NULL ? receive(s, ms, &came, err) : ONCE_OK;
    struct amqp_incoming *m = s->first;
    if (r != ONCE_OK || m == NULL)
        return r;
    s->first = m->next;
    if (s->first == NULL)
        s->last = NULL;
    *out = &m->base;
    return ONCE_OK;
}

/* Reading answers heartbeats. */
static once_result amqp_keep_alive(struct source *source, bool full, struct once_error *err)
{
    struct amqp_source *s = amqp_of(source);
    bool came = true;
    once_result r = s->conn != NULL ? ONCE_OK : once_fail(err, ONCE_UNAVAILABLE, "%s: not connected", s->url.host);
    while (r == ONCE_OK && full && came)
        r = receive(s, 0, &came, err);
    return r;
}

/* If the acknowledgement is lost, the message is delivered again. */
static void amqp_ack(struct source *source, struct incoming *message)
{
    struct amqp_source *s = amqp_of(source);
    struct amqp_incoming *m = (struct amqp_incoming *)message;
    if (m->generation == s->generation && s->conn != NULL)
        amqp_basic_ack(s->conn, CHANNEL, m->envelope.delivery_tag, 0);
    free_message(m);
}

static void amqp_nack(struct source *source, struct incoming *message)
{
    struct amqp_source *s = amqp_of(source);
    struct amqp_incoming *m = (struct amqp_incoming *)message;
    if (m->generation == s->generation && s->conn != NULL)
        amqp_basic_nack(s->conn, CHANNEL, m->envelope.delivery_tag, 0, 1); /* requeue: it goes back to its place */
    free_message(m);
}

/* ------------------------------------------------------------------ questions */

static once_result amqp_lag(struct source *source, int64_t *count, struct once_error *err)
{
    struct amqp_source *s = amqp_of(source);
    if (s->conn == NULL)
        return once_fail(err, ONCE_UNAVAILABLE, "%s: not connected", s->url.host);
    int64_t waiting = count_messages(s);
    if (waiting < 0)
        return lost(s, s->reason, err);
    for (const struct amqp_incoming *m = s->first; m != NULL; m = m->next)
        waiting++;
    *count = waiting;
    return ONCE_OK;
}

/* A queue may have a time to live; AMQP has no request for it. */
static once_result amqp_redelivery_window(struct source *source, int64_t *ms, struct once_error *err)
{
    (void)source, (void)err;
    *ms = 0;
    return ONCE_OK;
}

/* The default exchange: the topic is the queue. */
static void amqp_sink_url(const struct source *source, char *out, size_t size)
{
    const char *url = source->options.url;
    snprintf(out, size, "%.*s", (int)strcspn(url, "?"), url);
}

/* ------------------------------------------------------------------ open, close */

static void amqp_close(struct source *source)
{
    struct amqp_source *s = amqp_of(source);
    drop_waiting(s);
    if (s->conn != NULL) { /* waits until the broker has processed the acknowledgements before it */
        amqp_connection_close(s->conn, AMQP_REPLY_SUCCESS);
        disconnect(s);
    }
    free(s);
}

static once_result amqp_open(const struct source_options *options, struct source **out, struct once_error *err)
{
    struct amqp_source *s = calloc(1, sizeof *s);
    if (s == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a source");
    s->base = (struct source){ .ops = &source_amqp, .options = *options };
    split_url(options->url, &s->url, s->queue); /* fault() has checked it */
    s->peer = (struct amqp_peer){ .url = &s->url,
                                  .name = "once-consume",
                                  .ca_file = options->ca_file,
                                  .timeout_ms = options->timeout_ms,
                                  .place_is_said = true };
    once_result r = amqp_peer_login(&s->peer, options->amqp_login, err);
    if (r != ONCE_OK)
        amqp_close(&s->base);
    else
        *out = &s->base;
    return r;
}

const struct source_ops source_amqp = {
    .schemes = { "amqp:", "amqps:" },
    .fault = amqp_fault,
    .open = amqp_open,
    .connect = amqp_connect,
    .next = amqp_next,
    .ack = amqp_ack,
    .nack = amqp_nack,
    .keep_alive = amqp_keep_alive,
    .lag = amqp_lag,
    .redelivery_window = amqp_redelivery_window,
    .sink_url = amqp_sink_url,
    .close = amqp_close,
};
