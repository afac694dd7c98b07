/*
 * kafka.c - the sink kafka:// and kafkas://: an idempotent producer that waits for all replicas.
 *
 * The message key is Kafka's key, so that messages of one key are in one partition (chosen by murmur2, as Java's
 * clients do). The message id, the topic and the content type are headers. A message is confirmed by the delivery
 * report of a persisted record.
 *
 * The library retries by itself, in order and without repeats, within the time of one message (message.timeout.ms); its
 * delivery report then says whether the record may have been persisted. After that the relay's rules apply: it does not
 * start the key's next message, and sends this one again. Reports come from rd_kafka_poll() in poll(), so on this
 * thread; the library's own threads call nothing here.
 *
 * The broker refuses a batch as a whole: see flight.h. A producer with a fatal error is replaced by a new one.
 */
#include "messages/brokers/headers.h"
#include "messages/brokers/kafka_client.h"
#include "messages/sinks/flight.h"
#include "messages/sinks/sink.h"

#include "core/err.h"
#include "core/limits.h"
#include "os/os.h"

#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    TIMEOUT_MS_MIN = 3000, /* a producer needs a second to start, and another to notice a timeout */
    SCAN_MS = 1000,
    LATE_MS = 5000, /* how long after its deadline a message waits for the library's report; also after a suspension of
                       the process */
    PROPAGATION_MS_MAX = 3000,                            /* how long a missing topic may have just been created */
    MESSAGE_BYTES_MAX = ONCE_PAYLOAD_LEN_MAX + (1 << 20), /* above every message: only the broker's limit decides */
    QUEUE_KBYTES_MAX = 128 << 10,
};

struct kafka_sink {
    struct sink base;
    struct kafka_url url;
    rd_kafka_t *producer; /* NULL: not connected */
    bool fatal;           /* the producer must be replaced */
    uint64_t uses;        /* counts the uses of slots */
    struct flights flights;
    char last_error[MESSAGE_REASON_LEN]; /* the library's last error about its connections; "": none */
};

static struct kafka_sink *kafka_of(struct sink *sink)
{
    return (struct kafka_sink *)sink;
}

static const char *kafka_fault(const char *url)
{
    struct kafka_url parsed;
    return kafka_url_parse(url, &parsed);
}

/* ------------------------------------------------------------------ what the library says */

/* Cuts the parts that change each time off "sasl_plaintext://host:9092/bootstrap: SASL PLAIN ... failed (after 5ms in
 * state ...)". */
static void note_trouble(struct kafka_sink *s, const char *text)
{
    snprintf(s->last_error, sizeof s->last_error, "%.200s", text);
    char *after = strstr(s->last_error, " (after ");
    if (after != NULL)
        *after = '\0';
    for (char *c = s->last_error; *c != '\0'; c++)
        if (*c < ' ' || *c > '~')
            *c = ' ';
}

static void on_error(rd_kafka_t *producer, int code, const char *text, void *opaque)
{
    struct kafka_sink *s = opaque;
    char fatal[200];
    if (code == RD_KAFKA_RESP_ERR__FATAL) {
        s->fatal = true;
        rd_kafka_fatal_error(producer, fatal, sizeof fatal);
        note_trouble(s, fatal);
    } else if (code != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || s->last_error[0] == '\0') { /* which says less */
        note_trouble(s, text);
    }
}

/* The error is about the broker or the partition, not about the message. */
static bool is_elsewhere(rd_kafka_resp_err_t code)
{
    switch (code) {
    case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
    case RD_KAFKA_RESP_ERR__RESOLVE:
    case RD_KAFKA_RESP_ERR__SSL:
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
    case RD_KAFKA_RESP_ERR__PURGE_QUEUE:
    case RD_KAFKA_RESP_ERR__PURGE_INFLIGHT:
    case RD_KAFKA_RESP_ERR__DESTROY:
    case RD_KAFKA_RESP_ERR__FATAL:
    case RD_KAFKA_RESP_ERR__QUEUE_FULL:
    case RD_KAFKA_RESP_ERR__STATE:
    case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION:
    case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
    case RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION:
    case RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS:
    case RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND:
    case RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR:
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
    case RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER:
    case RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID:
    case RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH:
        return true;
    default:
        return false;
    }
}

static const char *text_of(rd_kafka_resp_err_t code)
{
    return code == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC ? "there is no such topic at the broker" : rd_kafka_err2str(code);
}

static void end_elsewhere(struct kafka_sink *s, struct flight *f, const char *what, bool maybe)
{
    enum sink_result result = maybe ? SINK_REFUSED : SINK_UNREACHED;
    const char *said = s->last_error[0] != '\0' ? s->last_error : what;
    flights_end(&s->flights, f, result, "%s: %.200s", maybe ? "no acknowledgement" : "not sent", said);
}

/* Called from rd_kafka_poll(), exactly once for each produced message. */
static void on_report(rd_kafka_t *producer, const rd_kafka_message_t *report, void *opaque)
{
    struct kafka_sink *s = opaque;
    uint64_t use = (uint64_t)(uintptr_t)report->_private;
    struct flight *f = NULL;
    (void)producer;
    for (size_t i = 0; i < s->flights.max && f == NULL; i++)
        if (s->flights.slots[i].state == FLIGHT_SENT && s->flights.slots[i].tag == use)
            f = &s->flights.slots[i];
    if (f == NULL)
        return; /* it had ended before */
    if (report->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        s->last_error[0] = '\0';
        flights_end(&s->flights, f, SINK_CONFIRMED, "%s", "");
        return;
    }
    bool maybe = rd_kafka_message_status(report) != RD_KAFKA_MSG_STATUS_NOT_PERSISTED;
    if (maybe || is_elsewhere(report->err))
        end_elsewhere(s, f, rd_kafka_err2str(report->err), maybe);
    else
        flights_refuse(&s->flights, f, text_of(report->err));
}

/* ------------------------------------------------------------------ a producer */

static once_result set_number(rd_kafka_conf_t *conf, const char *name, int64_t value, struct once_error *err)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return kafka_client_set(conf, name, text, err);
}

/* The settings that delivery guarantees depend on come after the operator's file, and override it. */
static once_result configure(struct kafka_sink *s, rd_kafka_conf_t *conf, struct once_error *err)
{
    const struct sink_options *o = &s->base.options;
    int64_t message_ms = o->timeout_ms - SCAN_MS;
    const struct kafka_client client = {
        .url = &s->url, .name = "once-relay", .file = o->kafka_conf, .ca_file = o->ca_file, .produces = true
    };
    once_result r = kafka_client_set(conf, "linger.ms", "1", err);
    if (r == ONCE_OK)
        r = kafka_client_configure(&client, conf, err);
    const char *const texts[][2] = {
        { "enable.idempotence", "true" },
        { "acks", "all" },
        { "partitioner", "murmur2_random" },
    };
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        { "message.timeout.ms", message_ms },
        { "request.timeout.ms", message_ms },
        { "socket.timeout.ms", o->timeout_ms },
        { "socket.connection.setup.timeout.ms", o->timeout_ms },
        { "reconnect.backoff.ms", 50 },
        { "reconnect.backoff.max.ms", 1000 },
        { "retry.backoff.ms", 50 },
        { "topic.metadata.propagation.max.ms",
          message_ms / 2 < PROPAGATION_MS_MAX ? message_ms / 2 : PROPAGATION_MS_MAX },
        { "message.max.bytes", MESSAGE_BYTES_MAX },
        { "queue.buffering.max.messages", 10 * MESSAGE_BATCH_MAX },
        { "queue.buffering.max.kbytes", QUEUE_KBYTES_MAX },
    };
    for (size_t i = 0; r == ONCE_OK && i < sizeof texts / sizeof *texts; i++)
        r = kafka_client_set(conf, texts[i][0], texts[i][1], err);
    for (size_t i = 0; r == ONCE_OK && i < sizeof numbers / sizeof *numbers; i++)
        r = set_number(conf, numbers[i].name, numbers[i].value, err);
    return r;
}

/* Connects in the background. */
static once_result produce_anew(struct kafka_sink *s, struct once_error *err)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char text[256];
    if (s->producer != NULL)
        rd_kafka_destroy(s->producer);
    s->producer = NULL;
    s->fatal = false;
    once_result r = configure(s, conf, err);
    if (r != ONCE_OK) {
        rd_kafka_conf_destroy(conf);
        return r;
    }
    rd_kafka_conf_set_opaque(conf, s);
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_log_cb(conf, NULL); /* errors are reported as the reason of a message */
    s->producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    if (s->producer != NULL)
        return ONCE_OK;
    rd_kafka_conf_destroy(conf);
    return once_fail(err, ONCE_INVALID, "'%s': %s", s->base.options.url, text);
}

/* ------------------------------------------------------------------ a message */

static bool add_header(rd_kafka_headers_t *headers, once_span name, once_span value)
{
    return rd_kafka_header_add(headers, (const char *)name.ptr, (ssize_t)name.len,
                               value.len > 0 ? value.ptr : (const void *)"",
                               (ssize_t)value.len) == RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_headers_t *headers_of(const struct message *m)
{
    rd_kafka_headers_t *headers = rd_kafka_headers_new(8);
    once_span lines = m->headers, name, value;
    bool ok = headers != NULL && add_header(headers, ONCE_LIT("Once-Message-Id"), once_span_str(m->id)) &&
              add_header(headers, ONCE_LIT("Once-Topic"), m->topic) &&
              add_header(headers, ONCE_LIT("Content-Type"), m->content_type);
    while (ok && headers_next(&lines, &name, &value))
        if (!headers_name_starts(name, "once-") && !headers_name_is(name, "content-type"))
            ok = add_header(headers, name, value);
    if (ok || headers == NULL)
        return headers;
    rd_kafka_headers_destroy(headers);
    return NULL;
}

static rd_kafka_resp_err_t produce(struct kafka_sink *s, const struct message *m, uint64_t use)
{
    char topic[KAFKA_TOPIC_LEN_MAX + 1];
    rd_kafka_headers_t *headers = headers_of(m);
    if (headers == NULL)
        return RD_KAFKA_RESP_ERR__STATE;
    if (s->url.topic[0] != '\0')
        snprintf(topic, sizeof topic, "%s", s->url.topic);
    else
        snprintf(topic, sizeof topic, "%.*s", ONCE_SPAN_ARGS(m->topic));
    /* An empty payload is not NULL: a NULL would delete the key from a compacted topic. */
    rd_kafka_vu_t arguments[] = {
        { .vtype = RD_KAFKA_VTYPE_TOPIC, .u.cstr = topic },
        { .vtype = RD_KAFKA_VTYPE_VALUE,
          .u.mem = { .ptr = m->payload.len > 0 ? (void *)(uintptr_t)m->payload.ptr : topic, .size = m->payload.len } },
        { .vtype = RD_KAFKA_VTYPE_MSGFLAGS,
          .u.i = RD_KAFKA_MSG_F_COPY }, /* the library may need it after the batch was released */
        { .vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = (void *)(uintptr_t)use },
        { .vtype = RD_KAFKA_VTYPE_TIMESTAMP, .u.i64 = once_os_clock.wall(once_os_clock.arg) - m->age_ms },
        { .vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = headers },
        { .vtype = RD_KAFKA_VTYPE_KEY, .u.mem = { .ptr = (void *)(uintptr_t)m->key.ptr, .size = m->key.len } },
    };
    size_t count = sizeof arguments / sizeof *arguments;
    rd_kafka_error_t *error = rd_kafka_produceva(s->producer, arguments, m->has_key ? count : count - 1);
    rd_kafka_resp_err_t code = error != NULL ? rd_kafka_error_code(error) : RD_KAFKA_RESP_ERR_NO_ERROR;
    if (error != NULL)
        rd_kafka_headers_destroy(headers); /* otherwise the library owns them */
    rd_kafka_error_destroy(error);
    return code;
}

static void send_one(struct kafka_sink *s, struct flight *f)
{
    flights_sent(&s->flights, f, ++s->uses);
    rd_kafka_resp_err_t code = produce(s, f->message, f->tag);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
        return;
    if (is_elsewhere(code))
        end_elsewhere(s, f, rd_kafka_err2str(code), false);
    else
        flights_end(&s->flights, f, SINK_REFUSED, "%.200s", text_of(code));
}

static void pump(struct kafka_sink *s)
{
    for (struct flight *f; (f = flights_next(&s->flights)) != NULL;)
        send_one(s, f);
}

/* ------------------------------------------------------------------ the sink */

static bool kafka_start(struct sink *sink, const struct message *m)
{
    struct kafka_sink *s = kafka_of(sink);
    struct once_error err;
    if (!flights_have_room(&s->flights, m))
        return false;
    if (s->url.topic[0] == '\0' && !kafka_topic_is_legal(m->topic)) {
        s->base.options.done(s->base.options.arg, m, SINK_REFUSED, 0,
                             "its topic is not valid in Kafka: up to 249 of a-z A-Z 0-9 . _ -");
        return true;
    }
    if (s->fatal && s->base.busy > 0)
        return false; /* until all messages that the old producer has have ended */
    if ((s->producer == NULL || s->fatal) && produce_anew(s, &err) != ONCE_OK) {
        s->base.options.done(s->base.options.arg, m, SINK_UNREACHED, 0, err.text);
        return true;
    }
    s->base.busy++;
    flights_add(&s->flights, m, once_os_monotonic_ms() + s->base.options.timeout_ms + LATE_MS);
    pump(s);
    return true;
}

static void kafka_poll(struct sink *sink, int ms)
{
    struct kafka_sink *s = kafka_of(sink);
    if (s->producer != NULL) {
        rd_kafka_poll(s->producer, s->flights.ended > 0 ? 0 : ms);
        if (s->fatal && s->flights.sent > 0)
            rd_kafka_purge(s->producer,
                           RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT | RD_KAFKA_PURGE_F_NON_BLOCKING);
    }
    flights_expire(&s->flights, once_os_monotonic_ms(), LATE_MS);
    pump(s);
    flights_report(&s->flights, &s->base);
}

static void kafka_close(struct sink *sink)
{
    struct kafka_sink *s = kafka_of(sink);
    if (s->producer != NULL) {
        rd_kafka_purge(s->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
        rd_kafka_destroy(s->producer);
    }
    flights_release(&s->flights);
    free(s);
}

static once_result kafka_open(const struct sink_options *options, struct sink **out, struct once_error *err)
{
    if (options->timeout_ms < TIMEOUT_MS_MIN)
        return once_fail(err, ONCE_INVALID, "'%s': --timeout must be at least %d s for Kafka", options->url,
                         TIMEOUT_MS_MIN / 1000);
    struct kafka_sink *s = calloc(1, sizeof *s);
    if (s == NULL || !flights_init(&s->flights, MESSAGE_BATCH_MAX, SIZE_MAX)) {
        free(s);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a sink");
    }
    s->base = (struct sink){ .ops = &sink_kafka, .options = *options };
    kafka_url_parse(options->url, &s->url); /* fault() has checked it */
    once_result r = produce_anew(s, err);
    if (r != ONCE_OK) {
        kafka_close(&s->base);
        return r;
    }
    *out = &s->base;
    return ONCE_OK;
}

const struct sink_ops sink_kafka = {
    .schemes = { "kafka:", "kafkas:" },
    .fault = kafka_fault,
    .open = kafka_open,
    .start = kafka_start,
    .poll = kafka_poll,
    .close = kafka_close,
};
