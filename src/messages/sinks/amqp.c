/*
 * amqp.c - the sink amqp:// and amqps://: RabbitMQ, with publisher confirms.
 *
 * Every message is persistent and mandatory: RabbitMQ returns a message that no queue accepts (basic.return) before it
 * confirms it, and such a message is refused. Only basic.ack confirms. The message-id property is the message id;
 * RabbitMQ does not drop repeats, consumers must.
 *
 * One connection, one channel, one thread: poll() reads the frames. When the broker closes the channel, everything in
 * flight on it ends too; flight.h says what happens then. After a lost connection the result of the messages that were
 * sent on it is not known; the next message connects again.
 *
 * The library has no timeout for writing. A broker that is short of memory stops reading, so the socket has one
 * (TCP_USER_TIMEOUT), and no more is written at a time than fits into buffers while most of it is being returned.
 */
#include "messages/brokers/amqp_conn.h"
#include "messages/brokers/headers.h"
#include "messages/sinks/flight.h"
#include "messages/sinks/sink.h"

#include "core/err.h"
#include "core/limits.h"
#include "os/os.h"

#include <amqp.h>
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    CHANNEL = 1,
    UNCONFIRMED_BYTES_MAX = 1 << 20,
    HEADERS_MAX = 256, /* a message with more is refused: 16 KiB hardly hold more */
};
static_assert(AMQP_REASON_LEN <= MESSAGE_REASON_LEN, "a reason of the connection is one of a message");

struct amqp_sink {
    struct sink base;
    struct amqp_url url;
    struct amqp_peer peer;
    amqp_connection_state_t conn; /* NULL: not connected */
    uint64_t tag;                 /* delivery tag of the last message on this channel */
    struct flights flights;
    once_time heard_ms; /* when the broker last sent something */
    bool returning;     /* a message is being returned; its header is next */
    char return_reason[MESSAGE_REASON_LEN];
    char blocked[MESSAGE_REASON_LEN]; /* why the broker accepts nothing now; "": it accepts */
};

static struct amqp_sink *amqp_of(struct sink *sink)
{
    return (struct amqp_sink *)sink;
}

static const char *amqp_fault(const char *url)
{
    struct amqp_url parsed;
    return amqp_url_parse(url, &parsed);
}

/* ------------------------------------------------------------------ connecting */

static void disconnect(struct amqp_sink *s)
{
    if (s->conn != NULL)
        amqp_destroy_connection(s->conn);
    s->conn = NULL;
    s->returning = false;
    s->blocked[0] = '\0';
}

/* Checks that the exchange exists: publishing to a missing one would close the channel. */
static bool open_channel(struct amqp_sink *s, char *reason)
{
    amqp_channel_open(s->conn, CHANNEL);
    if (!amqp_conn_succeeded(amqp_get_rpc_reply(s->conn), "cannot open a channel", reason))
        return false;
    if (s->url.exchange[0] != '\0') {
        amqp_exchange_declare(s->conn, CHANNEL, amqp_cstring_bytes(s->url.exchange), amqp_cstring_bytes("direct"), 1, 0,
                              0, 0, amqp_empty_table);
        if (!amqp_conn_succeeded(amqp_get_rpc_reply(s->conn), "cannot find the exchange", reason))
            return false;
    }
    amqp_confirm_select(s->conn, CHANNEL);
    return amqp_conn_succeeded(amqp_get_rpc_reply(s->conn), "cannot enable confirmations", reason);
}

static bool connect_now(struct amqp_sink *s, int64_t timeout_ms, char *reason)
{
    disconnect(s);
    s->tag = 0;
    bool ok = amqp_conn_open(&s->peer, timeout_ms, &s->conn, reason) && open_channel(s, reason);
    if (!ok)
        disconnect(s);
    s->heard_ms = once_os_monotonic_ms();
    return ok;
}

/* ------------------------------------------------------------------ a message */

/* Headers that would change the routing, or that only Once sets. */
static bool is_reserved(once_span name)
{
    return headers_name_is(name, "cc") || headers_name_is(name, "bcc") || headers_name_starts(name, "once-");
}

static amqp_bytes_t bytes_of(once_span s)
{
    return (amqp_bytes_t){ .len = s.len, .bytes = (void *)(uintptr_t)s.ptr };
}

static void add_header(amqp_table_t *table, once_span name, once_span value)
{
    table->entries[table->num_entries++] =
        (amqp_table_entry_t){ .key = bytes_of(name),
                              .value = { .kind = AMQP_FIELD_KIND_UTF8, .value.bytes = bytes_of(value) } };
}

/* False: too many headers, or a name that is too long for AMQP. */
static bool add_headers(amqp_table_t *table, const struct message *m)
{
    once_span lines = m->headers, name, value;
    add_header(table, ONCE_LIT("Once-Topic"), m->topic);
    if (m->has_key)
        add_header(table, ONCE_LIT("Once-Message-Key"), m->key);
    while (headers_next(&lines, &name, &value)) {
        if (is_reserved(name))
            continue;
        if (table->num_entries == HEADERS_MAX || name.len > AMQP_NAME_LEN_MAX)
            return false;
        add_header(table, name, value);
    }
    return true;
}

/* AMQP_STATUS_OK, or the error of the connection. */
static int publish(struct amqp_sink *s, const struct message *m, const amqp_table_t *headers)
{
    amqp_bytes_t key = s->url.routing_key[0] != '\0' ? amqp_cstring_bytes(s->url.routing_key) : bytes_of(m->topic);
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG |
                  AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_TIMESTAMP_FLAG,
        .content_type = bytes_of(m->content_type),
        .delivery_mode = AMQP_DELIVERY_PERSISTENT,
        .message_id = amqp_cstring_bytes(m->id),
        .timestamp = (uint64_t)((once_os_clock.wall(once_os_clock.arg) - m->age_ms) / 1000),
        .headers = *headers,
    };
    return amqp_basic_publish(s->conn, CHANNEL, amqp_cstring_bytes(s->url.exchange), key, 1, 0, &properties,
                              bytes_of(m->payload));
}

/* Closes the connection: the messages that were sent on it are not confirmed any more. */
static void lose(struct amqp_sink *s, const char *why)
{
    for (size_t i = 0; i < s->flights.max; i++)
        if (s->flights.slots[i].state == FLIGHT_SENT)
            flights_end(&s->flights, &s->flights.slots[i], SINK_REFUSED, "no confirmation: %.200s", why);
    disconnect(s);
}

static void send_one(struct amqp_sink *s, struct flight *f)
{
    amqp_table_entry_t entries[HEADERS_MAX];
    amqp_table_t headers = { .entries = entries };
    if (!add_headers(&headers, f->message)) {
        flights_end(&s->flights, f, SINK_REFUSED,
                    "it has more than %d headers, or one with a name of more than %d bytes", HEADERS_MAX - 2,
                    AMQP_NAME_LEN_MAX);
        return;
    }
    flights_sent(&s->flights, f, ++s->tag);
    int status = publish(s, f->message, &headers);
    if (status != AMQP_STATUS_OK)
        lose(s, amqp_error_string2(status));
}

/* ------------------------------------------------------------------ frames */

static void on_confirm(struct amqp_sink *s, uint64_t tag, bool multiple, bool taken)
{
    for (size_t i = 0; i < s->flights.max; i++) {
        struct flight *f = &s->flights.slots[i];
        if (f->state != FLIGHT_SENT || (multiple ? f->tag > tag : f->tag != tag))
            continue;
        if (!taken)
            flights_end(&s->flights, f, SINK_REFUSED, "the broker rejected it (basic.nack)");
        else if (f->returned)
            flights_end(&s->flights, f, SINK_REFUSED, "the broker returned it: %s", s->return_reason);
        else
            flights_end(&s->flights, f, SINK_CONFIRMED, "%s", "");
    }
}

static void on_returned(struct amqp_sink *s, const amqp_frame_t *frame)
{
    const amqp_basic_properties_t *p = frame->payload.properties.decoded;
    s->returning = false;
    for (size_t i = 0; i < s->flights.max; i++) {
        struct flight *f = &s->flights.slots[i];
        if (f->state == FLIGHT_SENT && p->message_id.len == strlen(f->message->id) &&
            memcmp(p->message_id.bytes, f->message->id, p->message_id.len) == 0)
            f->returned = true;
    }
}

/* The broker closed the channel because of a message, without saying which. */
static void on_channel_closed(struct amqp_sink *s, const amqp_channel_close_t *close)
{
    char reason[MESSAGE_REASON_LEN];
    amqp_conn_say_close(reason, close->reply_code, close->reply_text);
    for (size_t i = 0; i < s->flights.max; i++)
        if (s->flights.slots[i].state == FLIGHT_SENT)
            flights_refuse(&s->flights, &s->flights.slots[i], reason);
    disconnect(s);
}

static void on_method(struct amqp_sink *s, const amqp_method_t *method)
{
    char reason[MESSAGE_REASON_LEN];
    switch (method->id) {
    case AMQP_BASIC_ACK_METHOD: {
        const amqp_basic_ack_t *ack = method->decoded;
        on_confirm(s, ack->delivery_tag, ack->multiple != 0, true);
        break;
    }
    case AMQP_BASIC_NACK_METHOD: {
        const amqp_basic_nack_t *nack = method->decoded;
        on_confirm(s, nack->delivery_tag, nack->multiple != 0, false);
        break;
    }
    case AMQP_BASIC_RETURN_METHOD: {
        const amqp_basic_return_t *returning = method->decoded;
        amqp_conn_say_close(s->return_reason, returning->reply_code, returning->reply_text);
        s->returning = true;
        break;
    }
    case AMQP_CHANNEL_CLOSE_METHOD:
        on_channel_closed(s, method->decoded);
        break;
    case AMQP_CONNECTION_CLOSE_METHOD: {
        const amqp_connection_close_t *close = method->decoded;
        amqp_conn_say_close(reason, close->reply_code, close->reply_text);
        lose(s, reason);
        break;
    }
    case AMQP_CONNECTION_BLOCKED_METHOD: {
        const amqp_connection_blocked_t *blocked = method->decoded;
        snprintf(s->blocked, sizeof s->blocked, "the broker accepts no messages now: %.*s",
                 blocked->reason.len < 100 ? (int)blocked->reason.len : 100, (const char *)blocked->reason.bytes);
        break;
    }
    case AMQP_CONNECTION_UNBLOCKED_METHOD:
        s->blocked[0] = '\0';
        break;
    default:
        break;
    }
}

static void on_frame(struct amqp_sink *s, const amqp_frame_t *frame)
{
    if (frame->frame_type == AMQP_FRAME_METHOD)
        on_method(s, &frame->payload.method);
    else if (frame->frame_type == AMQP_FRAME_HEADER && s->returning)
        on_returned(s, frame);
    /* the bodies of returned messages are ignored */
}

/* Handles all frames that have arrived, after waiting for the first. */
static void serve(struct amqp_sink *s, int ms)
{
    amqp_frame_t frame;
    while (s->conn != NULL) {
        struct timeval timeout = amqp_conn_timeval(s->flights.ended > 0 ? 0 : ms);
        int status = amqp_simple_wait_frame_noblock(s->conn, &frame, &timeout);
        ms = 0;
        if (status == AMQP_STATUS_TIMEOUT)
            return;
        if (status != AMQP_STATUS_OK) {
            lose(s, amqp_error_string2(status));
            return;
        }
        s->heard_ms = once_os_monotonic_ms();
        on_frame(s, &frame);
        if (s->conn != NULL)
            amqp_maybe_release_buffers(s->conn);
    }
}

/* ------------------------------------------------------------------ the sink */

/* False: the message ends here, unsent. */
static bool is_ready(struct amqp_sink *s, once_time until, char *reason)
{
    if (s->conn == NULL) {
        int64_t left = until - once_os_monotonic_ms();
        return connect_now(s, left > 1 ? left : 1, reason);
    }
    snprintf(reason, MESSAGE_REASON_LEN, "%s", s->blocked);
    return s->blocked[0] == '\0';
}

/* Sends the waiting messages that may be sent. */
static void pump(struct amqp_sink *s)
{
    char reason[MESSAGE_REASON_LEN];
    for (struct flight *f; (f = flights_next(&s->flights)) != NULL;) {
        if (is_ready(s, f->until, reason))
            send_one(s, f);
        else
            flights_end(&s->flights, f, SINK_UNREACHED, "%.230s", reason);
    }
}

static bool amqp_start(struct sink *sink, const struct message *m)
{
    struct amqp_sink *s = amqp_of(sink);
    char reason[MESSAGE_REASON_LEN];
    once_time until = once_os_monotonic_ms() + s->base.options.timeout_ms;
    if (!flights_have_room(&s->flights, m))
        return false;
    serve(s, 0); /* reads returned messages between writes, and notices a closed connection */
    if (!flights_have_room(&s->flights, m))
        return false;
    if (!is_ready(s, until, reason)) {
        s->base.options.done(s->base.options.arg, m, SINK_UNREACHED, 0, reason);
        return true;
    }
    s->base.busy++;
    flights_add(&s->flights, m, until);
    pump(s);
    return true;
}

static void amqp_poll(struct sink *sink, int ms)
{
    struct amqp_sink *s = amqp_of(sink);
    serve(s, ms);
    once_time now = once_os_monotonic_ms();
    size_t ended = s->flights.ended;
    flights_expire(&s->flights, now, 0);
    /* If the broker was silent all the time, the next message uses another connection. */
    if (s->flights.ended > ended && now - s->heard_ms >= s->base.options.timeout_ms)
        lose(s, "timeout");
    pump(s);
    flights_report(&s->flights, &s->base);
}

static void amqp_close(struct sink *sink)
{
    struct amqp_sink *s = amqp_of(sink);
    if (s->conn != NULL) { /* an orderly close, which the broker does not log as a loss */
        struct timeval soon = amqp_conn_timeval(1000);
        amqp_set_rpc_timeout(s->conn, &soon);
        amqp_connection_close(s->conn, AMQP_REPLY_SUCCESS);
    }
    disconnect(s);
    flights_release(&s->flights);
    free(s);
}

/* Does not connect: the broker may be down now. */
static once_result amqp_open(const struct sink_options *options, struct sink **out, struct once_error *err)
{
    struct amqp_sink *s = calloc(1, sizeof *s);
    if (s == NULL || !flights_init(&s->flights, MESSAGE_BATCH_MAX, UNCONFIRMED_BYTES_MAX)) {
        free(s);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a sink");
    }
    s->base = (struct sink){ .ops = &sink_amqp, .options = *options };
    amqp_url_parse(options->url, &s->url); /* fault() has checked it */
    s->peer = (struct amqp_peer){
        .url = &s->url, .name = "once-relay", .ca_file = options->ca_file, .timeout_ms = options->timeout_ms
    };
    once_result r = amqp_peer_login(&s->peer, options->amqp_login, err);
    if (r == ONCE_OK && s->url.tls && access(amqp_peer_ca_file(&s->peer), R_OK) != 0)
        r = once_fail(err, ONCE_INVALID, "'%s': certificates to trust, '%s': %s", options->url,
                      amqp_peer_ca_file(&s->peer), strerror(errno));
    if (r != ONCE_OK) {
        amqp_close(&s->base);
        return r;
    }
    *out = &s->base;
    return ONCE_OK;
}

const struct sink_ops sink_amqp = {
    .schemes = { "amqp:", "amqps:" },
    .fault = amqp_fault,
    .open = amqp_open,
    .start = amqp_start,
    .poll = amqp_poll,
    .close = amqp_close,
};
