/* dead_letter_sink.c - see dead_letter_sink.h. */
#include "messages/dead_letters/dead_letter_sink.h"

#include "core/buf.h"
#include "core/err.h"
#include "core/span.h"
#include "messages/message_id.h"
#include "os/os.h"

#include <inttypes.h>
#include <strings.h>

enum { POLL_MS = 100 };

static void on_done(void *arg, const struct message *message, enum sink_result result, int64_t retry_after_ms,
                    const char *reason)
{
    struct dead_letter_sink *s = arg;
    (void)message, (void)retry_after_ms;
    s->result = result;
    snprintf(s->reason, sizeof s->reason, "%s", reason);
}

once_result dead_letter_sink_open_topic(struct dead_letter_sink *s, const char *topic,
                                        const struct sink_options *options, struct once_error *err)
{
    struct sink_options o = *options;
    o.done = on_done;
    o.arg = s;
    s->topic = topic;
    return sink_open(&o, &s->sink, err);
}

/* ------------------------------------------------------------------ to a topic */

static void add_value(struct once_buf *out, const char *name, once_span value, bool escape)
{
    once_buf_addf(out, "%s: ", name);
    for (size_t i = 0; i < value.len; i++) {
        uint8_t c = value.ptr[i];
        bool plain = c > ' ' && c <= '~' && c != '%';
        if (escape)
            once_buf_addf(out, plain ? "%c" : "%%%02X", c);
        else
            once_buf_add_byte(out, c >= ' ' && c <= '~' ? c : '?');
    }
    once_buf_add(out, ONCE_LIT("\r\n"));
}

static bool is_dead_header(once_span line)
{
    return line.len >= 12 && strncasecmp((const char *)line.ptr, "dead-letter-", 12) == 0;
}

/* Reason, consumer and origin; then the message's own headers, without the Dead-Letter headers of an earlier time. */
static void add_headers(struct once_buf *out, const struct dead_letter_sink *s, const struct delivery *d)
{
    char number[16];
    snprintf(number, sizeof number, "%" PRId32, d->failures);
    add_value(out, MESSAGE_ID_DEAD_HEADER, d->id, true);
    add_value(out, "Dead-Letter-Consumer", s->consumer, true);
    add_value(out, "Dead-Letter-Topic", d->incoming->message.topic, true);
    add_value(out, "Dead-Letter-Source", once_span_str(d->incoming->position), true);
    add_value(out, "Dead-Letter-Attempts", once_span_str(number), false);
    add_value(out, "Dead-Letter-Reason", once_span_str(d->reason), false);
    for (once_span left = d->incoming->message.headers, line; left.len > 0;) {
        once_span_cut(left, '\n', &line, &left);
        if (line.len > 1 && line.ptr[line.len - 1] == '\r' && !is_dead_header(line) &&
            out->len + line.len + 1 <= ONCE_MESSAGE_HEADERS_LEN_MAX) {
            once_buf_add(out, line);
            once_buf_add_byte(out, '\n');
        }
    }
}

static once_result publish(struct dead_letter_sink *s, const struct delivery *d, const char *id, struct once_error *err)
{
    struct once_buf headers;
    once_buf_init(&headers, ONCE_MESSAGE_HEADERS_LEN_MAX + (8 << 10));
    add_headers(&headers, s, d);
    struct message m = d->incoming->message;
    snprintf(m.id, sizeof m.id, "%s", id);
    m.topic = once_span_str(s->topic);
    m.headers = once_buf_span(&headers);
    if (m.content_type.len == 0)
        m.content_type = ONCE_LIT("application/octet-stream");
    s->result = 0;
    bool started = headers.result == ONCE_OK && sink_start(s->sink, &m);
    while (started && s->result == 0) /* it ends within the sink's timeout */
        sink_poll(s->sink, POLL_MS);
    once_buf_release(&headers);
    if (s->result == SINK_CONFIRMED)
        return ONCE_OK;
    return once_fail(err, ONCE_UNAVAILABLE, "the topic '%s' did not accept a dead letter: %s", s->topic,
                     started ? s->reason : "no room");
}

/* ------------------------------------------------------------------ either */

/* A message that is stored twice gets the same id twice. A letter of the table keeps its id. A letter of a topic that
 * fails again is a new message there: a stream that drops repeats would drop it under its first id. */
static void make_id(const struct dead_letter_sink *s, const struct delivery *d, char out[ONCE_UUID_LEN + 1])
{
    const struct incoming *in = d->incoming;
    bool of_topic = in->is_dead_letter && in->message.id[0] == '\0';
    once_span id = of_topic && in->position[0] != '\0' ? once_span_str(in->position) : d->id;
    if (in->message.id[0] != '\0')
        snprintf(out, ONCE_UUID_LEN + 1, "%s", in->message.id);
    else if (id.len > 0)
        dead_letter_id(s->consumer, id, in->message.payload, out);
    else
        once_key_new(out); /* without an id it cannot be told from another message with the same payload */
}

once_result dead_letter_sink_put(struct dead_letter_sink *s, const struct delivery *d, struct once_error *err)
{
    struct dead_letter dead_letter = { .consumer = s->consumer,
                                       .message_id = d->id,
                                       .incoming = d->incoming,
                                       .attempts = d->failures,
                                       .reason = once_span_str(d->reason),
                                       .again = d->incoming->is_dead_letter };
    make_id(s, d, dead_letter.id);
    return s->table != NULL ? dead_letters_put(s->table, &dead_letter, err) : publish(s, d, dead_letter.id, err);
}

void dead_letter_sink_close(struct dead_letter_sink *s)
{
    dead_letters_close(s->table);
    sink_close(s->sink);
    *s = (struct dead_letter_sink){ .topic = NULL };
}
