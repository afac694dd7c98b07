/* dead_letter_sink.c - see dead_letter_sink.h. */
#include "messages/dead_letters/dead_letter_sink.h"

#include "core/buf.h"
#include "core/err.h"
#include "core/span.h"
#include "core/url.h"
#include "messages/message_id.h"
#include "os/os.h"

#include <inttypes.h>
#include <strings.h>

enum { TURN_MS = 100 };

static void on_done(void *arg, struct outbox_message *message, enum sink_result result, int64_t retry_after_ms,
                    const char *reason)
{
    struct dead_letter_sink *g = arg;
    (void)message, (void)retry_after_ms;
    g->result = result;
    snprintf(g->reason, sizeof g->reason, "%s", reason);
}

once_result dead_letter_sink_open_topic(struct dead_letter_sink *g, const char *url, const char *topic,
                                        const struct sink_options *like, struct once_error *err)
{
    const struct sink_ops *ops = sink_ops_of(url);
    if (ops == NULL) {
        char shown[ONCE_URL_SHOWN_LEN];
        once_url_shown(url, shown);
        return once_fail(err, ONCE_INVALID, "there is no sink for '%s'", shown);
    }
    struct sink_options o = *like;
    o.url = url;
    o.done = on_done;
    o.arg = g;
    g->topic = topic;
    return ops->open(&o, &g->sink, err);
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

/* Why, whose, from where; then its own, but for those of an earlier death. */
static void add_headers(struct once_buf *out, const struct dead_letter_sink *g, const struct delivery *d)
{
    char number[16];
    snprintf(number, sizeof number, "%" PRId32, d->failures);
    add_value(out, MESSAGE_ID_DEAD_HEADER, d->id, true);
    add_value(out, "Dead-Letter-Consumer", g->consumer, true);
    add_value(out, "Dead-Letter-Topic", d->message->topic, true);
    add_value(out, "Dead-Letter-Source", once_span_str(d->message->position), true);
    add_value(out, "Dead-Letter-Attempts", once_span_str(number), false);
    add_value(out, "Dead-Letter-Reason", once_span_str(d->reason), false);
    for (once_span left = d->message->headers, line; left.len > 0;) {
        once_span_cut(left, '\n', &line, &left);
        if (line.len > 1 && line.ptr[line.len - 1] == '\r' && !is_dead_header(line) &&
            out->len + line.len + 1 <= ONCE_MESSAGE_HEADERS_LEN_MAX) {
            once_buf_add(out, line);
            once_buf_add_byte(out, '\n');
        }
    }
}

static once_result publish(struct dead_letter_sink *g, const struct delivery *d, const char *id, struct once_error *err)
{
    const struct incoming *in = d->message;
    struct once_buf headers;
    once_buf_init(&headers, ONCE_MESSAGE_HEADERS_LEN_MAX + (8 << 10));
    add_headers(&headers, g, d);
    struct outbox_message m = { .topic = once_span_str(g->topic),
                                .content_type =
                                    in->content_type.len > 0 ? in->content_type : ONCE_LIT("application/octet-stream"),
                                .headers = once_buf_span(&headers),
                                .payload = in->payload,
                                .key = in->key,
                                .has_key = in->has_key };
    snprintf(m.id, sizeof m.id, "%s", id);
    g->result = 0;
    bool started = headers.result == ONCE_OK && g->sink->ops->start(g->sink, &m);
    while (started && g->result == 0) /* it ends within the sink's timeout */
        g->sink->ops->poll(g->sink, TURN_MS);
    once_buf_release(&headers);
    if (g->result == SINK_CONFIRMED)
        return ONCE_OK;
    return once_fail(err, ONCE_UNAVAILABLE, "the dead letter's topic '%s' did not take it: %s", g->topic,
                     started ? g->reason : "no room");
}

/* ------------------------------------------------------------------ either */

/* The same for the same death, told twice. A letter of the table stays that letter. One of a topic that died again is
 * another message there: under the id of its first death a stream that drops repeats would drop the only copy. */
static void name_dead_letter(const struct dead_letter_sink *g, const struct delivery *d, char out[ONCE_UUID_LEN + 1])
{
    const struct incoming *m = d->message;
    bool of_topic = strcmp(m->dead_letter, CONSUMER_DEAD_LETTER_OF_TOPIC) == 0;
    once_span id = of_topic && m->position[0] != '\0' ? once_span_str(m->position) : d->id;
    if (m->dead_letter[0] != '\0' && !of_topic)
        snprintf(out, ONCE_UUID_LEN + 1, "%s", m->dead_letter);
    else if (id.len > 0)
        dead_letter_id(g->consumer, id, m->payload, out);
    else
        once_key_new(out); /* nobody can tell it from another with the same payload */
}

once_result dead_letter_sink_put(struct dead_letter_sink *g, const struct delivery *d, struct once_error *err)
{
    struct dead_letter dead_letter = { .consumer = g->consumer,
                                       .message_id = d->id,
                                       .message = d->message,
                                       .attempts = d->failures,
                                       .reason = once_span_str(d->reason),
                                       .again = d->message->dead_letter[0] != '\0' };
    name_dead_letter(g, d, dead_letter.id);
    return g->dead_letters != NULL ? g->dead_letters->ops->put(g->dead_letters, &dead_letter, err)
                                   : publish(g, d, dead_letter.id, err);
}

void dead_letter_sink_close(struct dead_letter_sink *g)
{
    dead_letters_close(g->dead_letters);
    if (g->sink != NULL)
        g->sink->ops->close(g->sink);
    *g = (struct dead_letter_sink){ .topic = NULL };
}
