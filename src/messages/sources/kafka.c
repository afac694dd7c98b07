/*
 * kafka.c - the source kafka:// and kafkas://: a topic of Kafka, as a member of a consumer group.
 *
 *     kafka://HOST[:PORT][,HOST[:PORT]...]/TOPIC
 *
 * The group is the consumer's name. The library commits nothing by itself: an offset is committed when that message and
 * all before it in its partition are settled. So a crash or a rebalance delivers again all messages that were not
 * settled, and perhaps more, which are recognised as duplicates. When a rebalance takes a partition away, the
 * deliveries of its messages here go on, but their offsets are not committed any more (the epoch differs); the new
 * owner of the partition waits for their records, which keeps their order.
 *
 * When the consumer is full its partitions are paused, and the library is still polled, because the group would remove
 * a silent member. The id is the header Once-Message-Id, the key Kafka's own, as the sink sends them; the position is
 * TOPIC/PARTITION/OFFSET.
 */
#include "messages/brokers/headers.h"
#include "messages/brokers/kafka_client.h"
#include "messages/sources/source.h"

#include "core/buf.h"
#include "core/err.h"
#include "core/span.h"
#include "os/os.h"

#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>

enum { COMMIT_MS = 200, SESSION_MS_MIN = 500, SESSION_MS_MAX = 300000, PARTITIONS_MAX = 10000 };

struct kafka_incoming {
    struct incoming base;
    int32_t partition;
    int64_t offset;
    struct once_buf headers;
    uint8_t *bytes; /* a copy of the bytes: the library's would belong to its connection */
    uint64_t epoch; /* of its partition */
    bool done;
    struct kafka_incoming *next; /* of its partition */
    struct kafka_incoming *next_waiting;
};

struct partition {
    bool ours;
    uint64_t epoch;
    int64_t reached, committed;          /* the offset after the last settled message; -1: none yet */
    struct kafka_incoming *first, *last; /* handed out and not settled */
};

struct kafka_source {
    struct source base;
    struct kafka_url url;
    rd_kafka_t *consumer;
    struct partition *partitions;
    int32_t partition_count;
    uint64_t epoch;
    bool paused;
    once_time commit_at;
    struct kafka_incoming *waiting,
        *last_waiting;    /* received while the consumer was full: few, because partitions are paused then */
    char last_error[240]; /* the library's last error */
};

static struct kafka_source *kafka_of(struct source *source)
{
    return (struct kafka_source *)source;
}

static const char *kafka_fault(const char *url)
{
    struct kafka_url parsed;
    const char *fault = kafka_url_parse(url, &parsed);
    return fault != NULL ? fault : parsed.topic[0] == '\0' ? "it has no topic: kafka://HOST[:PORT]/TOPIC" : NULL;
}

/* ------------------------------------------------------------------ offsets */

static void free_message(struct kafka_incoming *m)
{
    once_buf_release(&m->headers);
    free(m->bytes);
    free(m);
}

/* Advances `reached` over the settled messages at the front. Those of an earlier epoch are only freed. */
static void advance(struct partition *p)
{
    while (p->first != NULL && p->first->done) {
        struct kafka_incoming *m = p->first;
        p->first = m->next;
        if (p->first == NULL)
            p->last = NULL;
        if (m->epoch == p->epoch && p->ours)
            p->reached = m->offset + 1;
        free_message(m);
    }
}

static bool commit(struct kafka_source *s, bool wait)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(4);
    for (int32_t i = 0; list != NULL && i < s->partition_count; i++) {
        struct partition *p = &s->partitions[i];
        if (p->ours && p->reached > p->committed) {
            rd_kafka_topic_partition_list_add(list, s->url.topic, i)->offset = p->reached;
            p->committed = p->reached;
        }
    }
    bool ok = list != NULL;
    if (ok && list->cnt > 0)
        ok = rd_kafka_commit(s->consumer, list, wait ? 0 : 1) == RD_KAFKA_RESP_ERR_NO_ERROR;
    if (list != NULL)
        rd_kafka_topic_partition_list_destroy(list);
    return ok;
}

/* ------------------------------------------------------------------ the group */

static void on_rebalance(rd_kafka_t *consumer, rd_kafka_resp_err_t what, rd_kafka_topic_partition_list_t *list,
                         void *arg)
{
    struct kafka_source *s = arg;
    bool given = what == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
    if (!given)
        commit(s, true); /* the settled messages, before the partitions are taken away */
    for (int i = 0; i < list->cnt; i++) {
        int32_t n = list->elems[i].partition;
        if (n < 0 || n >= s->partition_count)
            continue;
        struct partition *p = &s->partitions[n];
        p->ours = given;
        p->epoch = ++s->epoch;
        p->reached = p->committed = -1;
    }
    s->paused = false;
    if (given)
        rd_kafka_assign(consumer, list);
    else
        rd_kafka_assign(consumer, NULL);
}

static void on_error(rd_kafka_t *consumer, int code, const char *reason, void *arg)
{
    struct kafka_source *s = arg;
    (void)consumer, (void)code;
    snprintf(s->last_error, sizeof s->last_error, "%.200s", reason);
}

static void pause_all(struct kafka_source *s, bool on)
{
    rd_kafka_topic_partition_list_t *list = NULL;
    if (s->paused == on || rd_kafka_assignment(s->consumer, &list) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return;
    if (on)
        rd_kafka_pause_partitions(s->consumer, list);
    else
        rd_kafka_resume_partitions(s->consumer, list);
    s->paused = on;
    rd_kafka_topic_partition_list_destroy(list);
}

/* ------------------------------------------------------------------ connecting */

static once_result configure(struct kafka_source *s, rd_kafka_conf_t *conf, struct once_error *err)
{
    const struct source_options *o = &s->base.options;
    int64_t session = o->lease_ms < SESSION_MS_MIN   ? SESSION_MS_MIN
                      : o->lease_ms > SESSION_MS_MAX ? SESSION_MS_MAX
                                                     : o->lease_ms;
    char session_text[24], beat_text[24];
    snprintf(session_text, sizeof session_text, "%" PRId64, session);
    snprintf(beat_text, sizeof beat_text, "%" PRId64, session / 4);
    const struct kafka_client client = {
        .url = &s->url, .name = "once-consume", .file = o->kafka_conf, .ca_file = o->ca_file
    };
    once_result r = kafka_client_configure(&client, conf, err);
    const char *const texts[][2] = {
        { "group.id", o->consumer },
        { "enable.auto.commit", "false" },
        { "enable.auto.offset.store", "false" },
        { "auto.offset.reset", "earliest" },
        { "partition.assignment.strategy", "range" },
        { "session.timeout.ms", session_text },
        { "heartbeat.interval.ms", beat_text },
        { "queued.max.messages.kbytes", "16384" },
        { "fetch.wait.max.ms", "100" },
        { "isolation.level", "read_committed" },
    };
    for (size_t i = 0; r == ONCE_OK && i < sizeof texts / sizeof *texts; i++)
        r = kafka_client_set(conf, texts[i][0], texts[i][1], err);
    return r;
}

static once_result make_consumer(struct kafka_source *s, struct once_error *err)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char text[256];
    once_result r = configure(s, conf, err);
    if (r != ONCE_OK) {
        rd_kafka_conf_destroy(conf);
        return r;
    }
    rd_kafka_conf_set_opaque(conf, s);
    rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_log_cb(conf, NULL);
    s->consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    if (s->consumer == NULL) {
        rd_kafka_conf_destroy(conf);
        return once_fail(err, ONCE_INVALID, "'%s': %s", s->base.options.url, text);
    }
    rd_kafka_poll_set_consumer(s->consumer);
    return ONCE_OK;
}

/* The number of partitions; fails if the topic does not exist. */
static once_result look_at_topic(struct kafka_source *s, struct once_error *err)
{
    const struct rd_kafka_metadata *md = NULL;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(s->consumer, s->url.topic, NULL);
    rd_kafka_resp_err_t code = topic == NULL
                                   ? rd_kafka_last_error()
                                   : rd_kafka_metadata(s->consumer, 0, topic, &md, (int)s->base.options.timeout_ms);
    int32_t count = 0;
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR && md->topic_cnt == 1) {
        code = md->topics[0].err;
        for (int i = 0; i < md->topics[0].partition_cnt; i++)
            count = md->topics[0].partitions[i].id >= count ? md->topics[0].partitions[i].id + 1 : count;
    }
    if (md != NULL)
        rd_kafka_metadata_destroy(md);
    if (topic != NULL)
        rd_kafka_topic_destroy(topic);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR || count < 1 || count > PARTITIONS_MAX)
        return once_fail(err, ONCE_UNAVAILABLE, "%s: topic '%s': %s", s->url.hosts, s->url.topic,
                         code != RD_KAFKA_RESP_ERR_NO_ERROR ? rd_kafka_err2str(code) : "it has no partitions");
    if (count > s->partition_count) {
        struct partition *more = realloc(s->partitions, (size_t)count * sizeof *more);
        if (more == NULL)
            return once_fail(err, ONCE_NO_MEMORY, "no memory for %" PRId32 " partitions", count);
        memset(more + s->partition_count, 0, (size_t)(count - s->partition_count) * sizeof *more);
        s->partitions = more;
        s->partition_count = count;
    }
    return ONCE_OK;
}

/* Deliveries under way go on; their offsets are not committed any more. */
static void disconnect(struct kafka_source *s)
{
    for (; s->waiting != NULL; s->waiting = s->waiting->next_waiting)
        s->waiting->done = true; /* it was never handed out */
    for (int32_t i = 0; i < s->partition_count; i++) {
        s->partitions[i].ours = false;
        s->partitions[i].epoch = ++s->epoch;
        advance(&s->partitions[i]);
    }
    if (s->consumer == NULL)
        return;
    rd_kafka_consumer_close(s->consumer);
    rd_kafka_destroy(s->consumer);
    s->consumer = NULL;
}

static once_result kafka_connect(struct source *source, struct once_error *err)
{
    struct kafka_source *s = kafka_of(source);
    disconnect(s);
    once_result r = make_consumer(s, err);
    if (r == ONCE_OK)
        r = look_at_topic(s, err);
    if (r == ONCE_OK) {
        rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(list, s->url.topic, RD_KAFKA_PARTITION_UA);
        rd_kafka_resp_err_t code = rd_kafka_subscribe(s->consumer, list);
        rd_kafka_topic_partition_list_destroy(list);
        if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
            r = once_fail(err, ONCE_UNAVAILABLE, "%s: cannot subscribe: %s", s->url.hosts, rd_kafka_err2str(code));
    }
    if (r != ONCE_OK && s->consumer != NULL) {
        rd_kafka_destroy(s->consumer);
        s->consumer = NULL;
    }
    return r;
}

/* ------------------------------------------------------------------ messages */

static void read_headers(struct kafka_incoming *m, rd_kafka_message_t *message)
{
    rd_kafka_headers_t *headers = NULL;
    const char *name = NULL;
    const void *bytes = NULL;
    size_t len = 0;
    if (rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return;
    for (size_t i = 0; rd_kafka_header_get_all(headers, i, &name, &bytes, &len) == RD_KAFKA_RESP_ERR_NO_ERROR; i++) {
        once_span n = once_span_str(name), value = once_span_of(bytes, bytes != NULL ? len : 0);
        if (headers_name_is(n, "once-message-id"))
            m->base.broker_id = value;
        else if (headers_name_is(n, "once-topic"))
            m->base.message.topic = value;
        else if (headers_name_is(n, "content-type"))
            m->base.message.content_type = value;
        else
            headers_add(&m->headers, n, value);
    }
    m->base.message.headers = once_buf_span(&m->headers);
}

/* Copies the bytes that point into the library's message. */
static bool own_bytes(struct kafka_incoming *m)
{
    once_span *spans[] = { &m->base.message.topic, &m->base.message.key, &m->base.broker_id,
                           &m->base.message.content_type, &m->base.message.payload };
    size_t len = 1, at = 0;
    for (size_t i = 0; i < 5; i++)
        len += spans[i]->len;
    m->bytes = malloc(len);
    for (size_t i = 0; m->bytes != NULL && i < 5; at += spans[i++]->len) {
        if (spans[i]->len > 0)
            memcpy(m->bytes + at, spans[i]->ptr, spans[i]->len);
        spans[i]->ptr = m->bytes + at;
    }
    return m->bytes != NULL;
}

static bool read_message(struct kafka_source *s, struct kafka_incoming *m, rd_kafka_message_t *message)
{
    once_buf_init(&m->headers, SOURCE_HEADERS_LEN_MAX);
    m->partition = message->partition;
    m->offset = message->offset;
    m->epoch = s->partitions[m->partition].epoch;
    m->base.message.topic = once_span_str(s->url.topic);
    m->base.message.payload = once_span_of(message->payload, message->payload != NULL ? message->len : 0);
    m->base.message.has_key = message->key != NULL && message->key_len > 0;
    m->base.message.key = once_span_of(message->key, m->base.message.has_key ? message->key_len : 0);
    read_headers(m, message);
    snprintf(m->base.position, sizeof m->base.position, "%s/%" PRId32 "/%" PRId64, s->url.topic, m->partition,
             m->offset);
    return own_bytes(m);
}

/* After a failure the message is delivered again: nothing after it is committed before a new connection. */
static once_result keep(struct kafka_source *s, rd_kafka_message_t *message, struct kafka_incoming **out,
                        struct once_error *err)
{
    bool known = message->partition >= 0 && message->partition < s->partition_count;
    struct partition *p = known ? &s->partitions[message->partition] : NULL;
    if (known && !p->ours)
        return ONCE_OK; /* the partition has another owner by now */
    struct kafka_incoming *m = known ? calloc(1, sizeof *m) : NULL;
    if (m == NULL)
        return once_fail(err, ONCE_UNAVAILABLE, known ? "no memory for a message" : "the topic has more partitions");
    if (!read_message(s, m, message)) {
        free_message(m);
        return once_fail(err, ONCE_UNAVAILABLE, "no memory for a message");
    }
    if (p->last != NULL)
        p->last->next = m;
    else
        p->first = m;
    p->last = m;
    *out = m;
    return ONCE_OK;
}

static bool needs_anew(rd_kafka_resp_err_t code)
{
    return code == RD_KAFKA_RESP_ERR__FATAL || code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ||
           code == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC || code == RD_KAFKA_RESP_ERR__MAX_POLL_EXCEEDED ||
           code == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED ||
           code == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED || code == RD_KAFKA_RESP_ERR_INVALID_SESSION_TIMEOUT ||
           code == RD_KAFKA_RESP_ERR__AUTHENTICATION;
}

static once_result receive(struct kafka_source *s, int ms, struct kafka_incoming **out, struct once_error *err)
{
    *out = NULL;
    if (s->consumer == NULL)
        return once_fail(err, ONCE_UNAVAILABLE, "%s: not connected", s->url.hosts);
    rd_kafka_message_t *message = rd_kafka_consumer_poll(s->consumer, ms);
    if (message == NULL)
        return ONCE_OK;
    once_result r = ONCE_OK; /* the library recovers from most errors by itself */
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR)
        r = keep(s, message, out, err);
    else if (needs_anew(message->err))
        r = once_fail(err, ONCE_UNAVAILABLE, "%s: topic '%s': %s", s->url.hosts, s->url.topic,
                      rd_kafka_message_errstr(message));
    rd_kafka_message_destroy(message);
    return r;
}

static once_result kafka_next(struct source *source, size_t room, int ms, struct incoming **out, struct once_error *err)
{
    struct kafka_source *s = kafka_of(source);
    struct kafka_incoming *m = s->waiting;
    (void)room;
    *out = NULL;
    if (m != NULL)
        s->waiting = m->next_waiting;
    if (s->consumer != NULL)
        pause_all(s, false);
    once_result r = m == NULL ? receive(s, ms, &m, err) : ONCE_OK;
    if (r == ONCE_OK && m != NULL)
        *out = &m->base;
    return r;
}

static once_result kafka_keep_alive(struct source *source, bool full, struct once_error *err)
{
    struct kafka_source *s = kafka_of(source);
    once_time now = once_os_monotonic_ms();
    once_result r = ONCE_OK;
    if (s->consumer == NULL)
        return once_fail(err, ONCE_UNAVAILABLE, "%s: not connected", s->url.hosts);
    if (full) { /* polled even then: the group removes a silent member */
        struct kafka_incoming *m = NULL;
        pause_all(s, true);
        r = receive(s, 0, &m, err);
        if (m != NULL && s->waiting != NULL)
            s->last_waiting->next_waiting = m;
        else if (m != NULL)
            s->waiting = m;
        s->last_waiting = m != NULL ? m : s->last_waiting;
    }
    if (now >= s->commit_at) {
        s->commit_at = now + COMMIT_MS;
        commit(s, false);
    }
    return r;
}

static void kafka_ack(struct source *source, struct incoming *message)
{
    struct kafka_source *s = kafka_of(source);
    struct kafka_incoming *m = (struct kafka_incoming *)message;
    m->done = true;
    advance(&s->partitions[m->partition]);
}

/* No offset at or after it is committed: the next owner of the partition gets it again. */
static void kafka_nack(struct source *source, struct incoming *message)
{
    struct kafka_source *s = kafka_of(source);
    struct kafka_incoming *m = (struct kafka_incoming *)message;
    struct partition *p = &s->partitions[m->partition];
    if (m->epoch == p->epoch && p->ours) { /* offsets reached before stay committed; later ones do not count */
        commit(s, true);
        p->ours = false;
    }
    m->done = true;
    advance(p);
}

/* ------------------------------------------------------------------ questions */

static once_result kafka_lag(struct source *source, int64_t *count, struct once_error *err)
{
    struct kafka_source *s = kafka_of(source);
    rd_kafka_topic_partition_list_t *list = NULL;
    int timeout = (int)s->base.options.timeout_ms;
    *count = -1;
    if (s->consumer == NULL)
        return once_fail(err, ONCE_UNAVAILABLE, "%s: not connected", s->url.hosts);
    rd_kafka_resp_err_t code = rd_kafka_assignment(s->consumer, &list);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR && list->cnt > 0) {
        code = rd_kafka_committed(s->consumer, list, timeout);
        *count = 0;
    }
    for (int i = 0; code == RD_KAFKA_RESP_ERR_NO_ERROR && i < list->cnt; i++) {
        int64_t low = 0, high = 0;
        int32_t n = list->elems[i].partition;
        code = rd_kafka_query_watermark_offsets(s->consumer, s->url.topic, n, &low, &high, timeout);
        int64_t at = n < s->partition_count && s->partitions[n].reached >= 0 ? s->partitions[n].reached
                     : list->elems[i].offset >= 0                            ? list->elems[i].offset
                                                                             : low;
        *count += high > at ? high - at : 0;
    }
    if (list != NULL)
        rd_kafka_topic_partition_list_destroy(list);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        return once_fail(err, ONCE_UNAVAILABLE, "%s: cannot ask for offsets: %s", s->url.hosts, rd_kafka_err2str(code));
    return ONCE_OK;
}

/* retention.ms of the topic; 0 if the consumer may not read the topic's configuration. */
static int64_t read_retention(rd_kafka_event_t *event)
{
    const rd_kafka_DescribeConfigs_result_t *result = rd_kafka_event_DescribeConfigs_result(event);
    size_t count = 0, entries = 0;
    const rd_kafka_ConfigResource_t **resources =
        result != NULL ? rd_kafka_DescribeConfigs_result_resources(result, &count) : NULL;
    if (count != 1 || rd_kafka_ConfigResource_error(resources[0]) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return 0;
    const rd_kafka_ConfigEntry_t **entry = rd_kafka_ConfigResource_configs(resources[0], &entries);
    for (size_t i = 0; i < entries; i++) {
        const char *value = rd_kafka_ConfigEntry_value(entry[i]);
        if (strcmp(rd_kafka_ConfigEntry_name(entry[i]), "retention.ms") == 0 && value != NULL) {
            long long ms = strtoll(value, NULL, 10);
            return ms < 0 || ms > ONCE_RETENTION_MS_MAX ? ONCE_NEVER : ms;
        }
    }
    return 0;
}

static once_result kafka_redelivery_window(struct source *source, int64_t *ms, struct once_error *err)
{
    struct kafka_source *s = kafka_of(source);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(s->consumer);
    rd_kafka_ConfigResource_t *topic = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, s->url.topic);
    (void)err;
    *ms = 0;
    rd_kafka_DescribeConfigs(s->consumer, &topic, 1, NULL, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, (int)s->base.options.timeout_ms);
    if (event != NULL)
        *ms = read_retention(event);
    rd_kafka_event_destroy(event);
    rd_kafka_ConfigResource_destroy(topic);
    rd_kafka_queue_destroy(queue);
    return ONCE_OK;
}

static void kafka_sink_url(const struct source *source, char *out, size_t size)
{
    const struct kafka_source *s = (const struct kafka_source *)source;
    snprintf(out, size, "%s://%s", s->url.tls ? "kafkas" : "kafka", s->url.hosts);
}

/* ------------------------------------------------------------------ open, close */

static void kafka_close(struct source *source)
{
    struct kafka_source *s = kafka_of(source);
    if (s->consumer != NULL)
        commit(s, true);
    for (int32_t i = 0; i < s->partition_count; i++) {
        s->partitions[i].ours = false;
        for (struct kafka_incoming *m = s->partitions[i].first; m != NULL; m = m->next)
            m->done = true;
    }
    disconnect(s);
    free(s->partitions);
    free(s);
}

static once_result kafka_open(const struct source_options *options, struct source **out, struct once_error *err)
{
    struct kafka_source *s = calloc(1, sizeof *s);
    if (s == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a source");
    s->base = (struct source){ .ops = &source_kafka, .options = *options };
    kafka_url_parse(options->url, &s->url); /* fault() has checked it */
    *out = &s->base;
    return ONCE_OK;
}

const struct source_ops source_kafka = {
    .schemes = { "kafka:", "kafkas:" },
    .fault = kafka_fault,
    .open = kafka_open,
    .connect = kafka_connect,
    .next = kafka_next,
    .ack = kafka_ack,
    .nack = kafka_nack,
    .keep_alive = kafka_keep_alive,
    .lag = kafka_lag,
    .redelivery_window = kafka_redelivery_window,
    .sink_url = kafka_sink_url,
    .close = kafka_close,
};
