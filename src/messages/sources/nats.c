/*
 * nats.c - the source nats:// and tls://: a durable pull consumer of a JetStream stream.
 *
 *     nats://HOST[:PORT]/STREAM[/SUBJECT]      SUBJECT: only messages that match it
 *
 * The durable consumer has our consumer's name. It is created if it is missing, from the first message on, with
 * explicit acknowledgements and without a limit of deliveries: dead letters are not the broker's decision. A message
 * that is out for longer than a third of the consumer's ack wait is reported as in progress. The id is Nats-Msg-Id, the
 * key Once-Message-Key, as the sink sends them; the position is STREAM/SEQUENCE.
 *
 * As in the sink, the library does not reconnect: connect() starts again. An acknowledgement is a message to the reply
 * subject of the delivered message, so messages of an old connection are acknowledged over the new one.
 *
 * Order: the server delivers again the messages that were out with a crashed process, but only after the ack wait, and
 * until then goes on with later messages. So after a start, while messages are out with others, first deliveries are
 * held back until those have come again, or the ack wait and some seconds have passed. The same is done after a lost
 * connection, for messages that the server had sent and that did not arrive. Messages that are returned at an orderly
 * end come again at once, in order. Several processes on one durable consumer have no order between them: the server
 * has none.
 *
 * This file requests messages itself, not by natsSubscription_Fetch(): when messages of an earlier request come late,
 * that function of libnats 3.4 forgets how many it has room for, and writes past its list.
 */
#include "messages/brokers/headers.h"
#include "messages/brokers/nats_conn.h"
#include "messages/sources/source.h"

#include "core/buf.h"
#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "os/os.h"

#include <nats/nats.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

enum { FETCH_MAX = 64, NAME_LEN = 256, ACK_PENDING_MIN = 1000 };
enum { LATE_MS = 5000 }; /* how long after the ack wait a busy server may take to deliver again */

struct nats_incoming {
    struct incoming base;
    natsMsg *msg;
    uint64_t sequence; /* in the stream */
    struct once_buf headers;
    once_time in_progress_ms;             /* when it was last reported as in progress */
    bool returned;                        /* to be returned to the server */
    struct nats_incoming *before, *after; /* of the list of messages that are out, newest first */
    struct nats_incoming *next_held;
};

struct nats_source {
    struct source base;
    char server[ONCE_URL_LEN_MAX + 1], stream[NAME_LEN], subject[NAME_LEN];
    natsOptions *options;
    natsConnection *conn;
    jsCtx *js;
    natsSubscription *sub;
    int64_t ack_wait_ms;
    bool holds_new;             /* some of the held messages are first deliveries */
    int64_t missing;            /* messages that were out with others at the start, and have not come again */
    once_time missing_until;    /* monotonic: when to stop waiting for them */
    struct nats_incoming *held; /* held back until then, by sequence */
    struct nats_incoming *out;  /* all messages that were handed out, or are held */
    char inbox[NAME_LEN], ask[2 * NAME_LEN + 64]; /* the subject that messages come to, and the subject of requests */
    natsMsg *waiting[FETCH_MAX];                  /* fetched and not handed out; `at` is the next */
    int count, at;
};

static struct nats_source *nats_of(struct source *source)
{
    return (struct nats_source *)source;
}

/* ------------------------------------------------------------------ the URL */

static const char *nats_fault(const char *url)
{
    const char *host = strstr(url, "://");
    host = host != NULL ? host + 3 : "";
    const char *stream = strchr(host, '/');
    if (host[0] == '\0' || host[0] == '/' || stream == NULL || stream[1] == '\0' || stream[1] == '/')
        return "it is not nats://HOST[:PORT]/STREAM[/SUBJECT]";
    if (strpbrk(host, "?# \t\r\n,") != NULL)
        return "it is not nats://HOST[:PORT]/STREAM[/SUBJECT]";
    if (memchr(host, '@', (size_t)(stream - host)) != NULL)
        return "other users can see a login in a URL; use --nats-creds instead";
    size_t len = strcspn(stream + 1, "/");
    const char *subject = stream[1 + len] == '/' ? stream + 2 + len : "";
    if (strlen(url) > ONCE_URL_LEN_MAX || len >= NAME_LEN || strlen(subject) >= NAME_LEN)
        return "it is too long";
    if (memchr(stream + 1, '.', len) != NULL || strpbrk(subject, "/") != NULL ||
        (stream[1 + len] == '/' && subject[0] == '\0'))
        return "it is not nats://HOST[:PORT]/STREAM[/SUBJECT]";
    return NULL;
}

static void split_url(struct nats_source *s, const char *url)
{
    const char *path = strchr(strstr(url, "://") + 3, '/');
    snprintf(s->server, sizeof s->server, "%.*s", (int)(path - url), url);
    size_t len = strcspn(path + 1, "/");
    snprintf(s->stream, sizeof s->stream, "%.*s", (int)len, path + 1);
    snprintf(s->subject, sizeof s->subject, "%s", path[1 + len] == '/' ? path + 2 + len : "");
}

/* ------------------------------------------------------------------ what is out */

static void unlink_message(struct nats_source *s, struct nats_incoming *m)
{
    if (m->before != NULL)
        m->before->after = m->after;
    else
        s->out = m->after;
    if (m->after != NULL)
        m->after->before = m->before;
}

static void free_message(struct nats_source *s, struct nats_incoming *m)
{
    unlink_message(s, m);
    natsMsg_Destroy(m->msg);
    once_buf_release(&m->headers);
    free(m);
}

/* If the acknowledgement is lost, the message comes again, as a duplicate. */
static void tell(struct nats_source *s, natsMsg *msg, const char *what)
{
    const char *reply = natsMsg_GetReply(msg);
    if (s->conn != NULL && reply != NULL)
        natsConnection_PublishString(s->conn, reply, what);
}

static void nats_ack(struct source *source, struct incoming *message)
{
    struct nats_incoming *m = (struct nats_incoming *)message;
    tell(nats_of(source), m->msg, "+ACK");
    free_message(nats_of(source), m);
}

static void nats_nack(struct source *source, struct incoming *message)
{
    (void)source;
    ((struct nats_incoming *)message)->returned = true;
}

/* Oldest first: the server delivers them again in the order in which they are returned. */
static void give_back(struct nats_source *s, bool all)
{
    struct nats_incoming *m = s->out;
    while (m != NULL && m->after != NULL)
        m = m->after;
    while (m != NULL) {
        struct nats_incoming *newer = m->before;
        if (m->returned || all) {
            tell(s, m->msg, "-NAK");
            free_message(s, m);
        }
        m = newer;
    }
}

static once_result nats_keep_alive(struct source *source, bool full, struct once_error *err)
{
    struct nats_source *s = nats_of(source);
    once_time now = once_os_monotonic_ms();
    (void)full; /* the server sends only messages that were requested */
    if (s->conn == NULL || natsConnection_IsClosed(s->conn))
        return once_fail(err, ONCE_UNAVAILABLE, "the connection to %s is lost", s->server);
    give_back(s, false);
    for (struct nats_incoming *m = s->out; m != NULL; m = m->after)
        if (now - m->in_progress_ms >= s->ack_wait_ms / 3) {
            tell(s, m->msg, "+WPI");
            m->in_progress_ms = now;
        }
    return ONCE_OK;
}

/* ------------------------------------------------------------------ connecting */

static void drop_waiting(struct nats_source *s, bool say_so)
{
    for (; s->at < s->count; s->at++) {
        if (say_so)
            tell(s, s->waiting[s->at], "-NAK");
        natsMsg_Destroy(s->waiting[s->at]);
    }
    s->count = s->at = 0;
}

static void disconnect(struct nats_source *s)
{
    natsSubscription_Destroy(s->sub);
    jsCtx_Destroy(s->js);
    natsConnection_Destroy(s->conn);
    s->sub = NULL;
    s->js = NULL;
    s->conn = NULL;
}

static once_result failed(struct nats_source *s, natsStatus status, jsErrCode code, const char *what,
                          struct once_error *err)
{
    once_result r = ONCE_UNAVAILABLE;
    if (status == NATS_NOT_FOUND || code == JSStreamNotFoundErr)
        return once_fail(err, r, "%s: there is no stream '%s'", s->server, s->stream);
    return once_fail(err, r, "%s: cannot %s: %s%s%.0d", s->server, what, natsStatus_GetText(status),
                     code != 0 ? ", JetStream's error " : "", code != 0 ? (int)code : 0);
}

static bool same_filter(const struct nats_source *s, const jsConsumerConfig *c)
{
    return strcmp(c->FilterSubject != NULL ? c->FilterSubject : "", s->subject) == 0;
}

static once_result check_consumer(struct nats_source *s, const jsConsumerConfig *c, struct once_error *err)
{
    const char *name = s->base.options.consumer;
    if (c->AckPolicy != js_AckExplicit || (c->DeliverSubject != NULL && c->DeliverSubject[0] != '\0'))
        return once_fail(err, ONCE_INVALID,
                         "the consumer '%s' of stream '%s' is not a pull consumer with explicit acknowledgements", name,
                         s->stream);
    if (!same_filter(s, c))
        return once_fail(err, ONCE_INVALID, "the consumer '%s' of stream '%s' has the subject '%s', not '%s'", name,
                         s->stream, c->FilterSubject != NULL ? c->FilterSubject : "", s->subject);
    if (c->MaxDeliver > 0)
        return once_fail(err, ONCE_INVALID,
                         "the consumer '%s' of stream '%s' drops messages after %lld deliveries: make that unlimited",
                         name, s->stream, (long long)c->MaxDeliver);
    s->ack_wait_ms = c->AckWait > 0 ? c->AckWait / 1000000 : s->base.options.lease_ms;
    return ONCE_OK;
}

static once_result find_or_make_consumer(struct nats_source *s, struct once_error *err)
{
    const struct source_options *o = &s->base.options;
    jsConsumerInfo *info = NULL;
    jsErrCode code = 0;
    natsStatus status = js_GetConsumerInfo(&info, s->js, s->stream, o->consumer, NULL, &code);
    if (status == NATS_NOT_FOUND || code == JSConsumerNotFoundErr) {
        jsConsumerConfig c;
        jsConsumerConfig_Init(&c);
        c.Durable = o->consumer;
        c.AckPolicy = js_AckExplicit;
        c.DeliverPolicy = js_DeliverAll;
        c.AckWait = o->lease_ms * 1000000;
        c.MaxDeliver = -1;
        c.MaxAckPending = o->window > ACK_PENDING_MIN ? (int64_t)o->window : ACK_PENDING_MIN;
        if (s->subject[0] != '\0')
            c.FilterSubject = s->subject;
        code = 0;
        status = js_AddConsumer(&info, s->js, s->stream, &c, NULL, &code);
    }
    if (status != NATS_OK)
        return failed(s, status, code, "make a consumer", err);
    once_result r = check_consumer(s, info->Config, err);
    s->holds_new = false;
    s->missing = info->NumAckPending;
    for (const struct nats_incoming *m = s->out; m != NULL; m = m->after)
        s->missing -= s->missing > 0;
    s->missing_until = once_os_monotonic_ms() + s->ack_wait_ms + LATE_MS;
    jsConsumerInfo_Destroy(info);
    return r;
}

static once_result subscribe(struct nats_source *s, struct once_error *err)
{
    natsInbox *inbox = NULL;
    natsStatus status = natsInbox_Create(&inbox);
    if (status == NATS_OK) {
        snprintf(s->inbox, sizeof s->inbox, "%s", inbox);
        snprintf(s->ask, sizeof s->ask, "$JS.API.CONSUMER.MSG.NEXT.%s.%s", s->stream, s->base.options.consumer);
        status = natsConnection_SubscribeSync(&s->sub, s->conn, s->inbox);
    }
    natsInbox_Destroy(inbox);
    return status == NATS_OK ? ONCE_OK : failed(s, status, 0, "subscribe", err);
}

static once_result nats_connect(struct source *source, struct once_error *err)
{
    struct nats_source *s = nats_of(source);
    jsOptions js;
    drop_waiting(s, false);
    disconnect(s);
    natsStatus status = natsConnection_Connect(&s->conn, s->options);
    jsOptions_Init(&js);
    js.Wait = s->base.options.timeout_ms;
    if (status == NATS_OK)
        status = natsConnection_JetStream(&s->js, s->conn, &js);
    once_result r = status == NATS_OK ? ONCE_OK : failed(s, status, 0, "connect", err);
    if (r == ONCE_OK)
        r = find_or_make_consumer(s, err);
    if (r == ONCE_OK)
        r = subscribe(s, err);
    if (r != ONCE_OK)
        disconnect(s);
    return r;
}

/* ------------------------------------------------------------------ fetching */

/* Requests the available messages, or, with a timeout, also those that come until then. */
static natsStatus ask(struct nats_source *s, int batch, int64_t ms)
{
    char text[96];
    if (ms > 0)
        snprintf(text, sizeof text, "{\"batch\":%d,\"expires\":%lld}", batch, (long long)ms * 1000000);
    else
        snprintf(text, sizeof text, "{\"batch\":%d,\"no_wait\":true}", batch);
    return natsConnection_PublishRequestString(s->conn, s->ask, s->inbox, text);
}

/* Keeps the next message. NATS_NOT_FOUND: the server has none; NATS_TIMEOUT: the request, or the wait for it, has timed
 * out. */
static natsStatus receive(struct nats_source *s, int64_t ms)
{
    natsMsg *msg = NULL;
    const char *word = NULL;
    natsStatus status = natsSubscription_NextMsg(&msg, s->sub, ms);
    if (status != NATS_OK)
        return status;
    if (natsMsg_GetReply(msg) != NULL) { /* status messages of the server have no reply subject */
        s->waiting[s->count++] = msg;
        return NATS_OK;
    }
    if (natsMsgHeader_Get(msg, "Status", &word) != NATS_OK)
        status = NATS_ERR;
    else if (strcmp(word, "404") == 0)
        status = NATS_NOT_FOUND;
    else
        status = strcmp(word, "408") == 0 ? NATS_TIMEOUT : NATS_ERR;
    natsMsg_Destroy(msg);
    return status;
}

static natsStatus receive_until(struct nats_source *s, int batch, once_time until)
{
    natsStatus status = NATS_OK;
    while (status == NATS_OK && s->count < batch) {
        int64_t left = until - once_os_monotonic_ms();
        status = left > 0 ? receive(s, left) : NATS_TIMEOUT;
    }
    return status;
}

/* Fetches up to `batch` messages: late ones of earlier requests, then the available ones; without any, those that
 * come in time. */
static natsStatus fetch(struct nats_source *s, int batch, int ms)
{
    once_time until = once_os_monotonic_ms() + ms;
    natsStatus status = NATS_OK;
    int late = 0;
    s->count = s->at = 0;
    if (natsSubscription_GetPending(s->sub, &late, NULL) != NATS_OK)
        late = 0; /* it is closed: the request will fail */
    for (; late > 0 && s->count < batch; late--)
        receive(s, 1); /* a status message was about an earlier request */
    if (s->count < batch)
        status = ask(s, batch - s->count, 0);
    if (status == NATS_OK)
        status = receive_until(s, batch, until);
    int64_t left = until - once_os_monotonic_ms();
    if (status == NATS_NOT_FOUND && s->count == 0 && left > 0) {
        status = ask(s, batch, left >= 20 ? left - 10 : left);
        if (status == NATS_OK)
            status = receive_until(s, batch, until);
    }
    if (s->count > 0)
        return NATS_OK;
    return status == NATS_NOT_FOUND ? NATS_TIMEOUT : status;
}

/* ------------------------------------------------------------------ messages */

static void read_headers(struct nats_incoming *m)
{
    const char **names = NULL, *value = NULL;
    int count = 0;
    if (natsMsgHeader_Get(m->msg, "Nats-Msg-Id", &value) == NATS_OK)
        m->base.broker_id = once_span_str(value);
    if (natsMsgHeader_Get(m->msg, "Content-Type", &value) == NATS_OK)
        m->base.message.content_type = once_span_str(value);
    if (natsMsgHeader_Get(m->msg, "Once-Message-Key", &value) == NATS_OK) {
        m->base.message.key = once_span_str(value);
        m->base.message.has_key = true;
    }
    if (natsMsgHeader_Keys(m->msg, &names, &count) != NATS_OK)
        return;
    for (int i = 0; i < count; i++)
        if (strncasecmp(names[i], "nats-", 5) != 0 && strcasecmp(names[i], "content-type") != 0 &&
            strcasecmp(names[i], "once-message-key") != 0 && natsMsgHeader_Get(m->msg, names[i], &value) == NATS_OK)
            headers_add(&m->headers, once_span_str(names[i]), once_span_str(value));
    free((void *)names);
    m->base.message.headers = once_buf_span(&m->headers);
}

static struct nats_incoming *make_message(struct nats_source *s, natsMsg *msg, bool *again)
{
    struct nats_incoming *m = calloc(1, sizeof *m);
    if (m == NULL) {
        natsMsg_Destroy(msg);
        return NULL;
    }
    once_buf_init(&m->headers, SOURCE_HEADERS_LEN_MAX);
    m->msg = msg;
    m->in_progress_ms = once_os_monotonic_ms();
    m->base.message.topic = once_span_str(natsMsg_GetSubject(msg));
    m->base.message.payload = once_span_of(natsMsg_GetData(msg), (size_t)natsMsg_GetDataLength(msg));
    read_headers(m);
    jsMsgMetaData *meta = NULL;
    if (natsMsg_GetMetaData(&meta, msg) == NATS_OK) {
        snprintf(m->base.position, sizeof m->base.position, "%s/%llu", s->stream,
                 (unsigned long long)meta->Sequence.Stream);
        m->sequence = meta->Sequence.Stream;
        *again = meta->NumDelivered > 1;
    }
    jsMsgMetaData_Destroy(meta);
    m->after = s->out;
    if (s->out != NULL)
        s->out->before = m;
    s->out = m;
    return m;
}

static struct incoming *take_held(struct nats_source *s)
{
    struct nats_incoming *m = s->held;
    s->held = m->next_held;
    return &m->base;
}

static void hold(struct nats_source *s, struct nats_incoming *m)
{
    struct nats_incoming **at = &s->held;
    while (*at != NULL && (*at)->sequence < m->sequence)
        at = &(*at)->next_held;
    m->next_held = *at;
    *at = m;
}

/* A redelivery of a message that is still out here: it was never missing. */
static bool is_out_twice(const struct nats_source *s, const struct nats_incoming *m)
{
    for (const struct nats_incoming *other = s->out; other != NULL; other = other->after)
        if (other != m && other->sequence == m->sequence)
            return true;
    return false;
}

/* Hands out a fetched message, if the order allows it. */
static once_result hand_out(struct nats_source *s, struct incoming **out, struct once_error *err)
{
    natsMsg *msg = s->waiting[s->at++];
    bool again = false;
    struct nats_incoming *m = make_message(s, msg, &again);
    if (m == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a message");
    if (s->missing == 0 && s->held == NULL) {
        *out = &m->base;
        return ONCE_OK;
    }
    hold(s, m);
    if (s->missing > 0 && again)
        s->missing -= !is_out_twice(s, m);
    else if (s->missing > 0 && once_os_monotonic_ms() >= s->missing_until)
        s->missing = 0; /* the server has no older messages */
    s->holds_new |= !again;
    return ONCE_OK;
}

static void nap(int ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    nanosleep(&t, NULL);
}

static once_result nats_next(struct source *source, size_t room, int ms, struct incoming **out, struct once_error *err)
{
    struct nats_source *s = nats_of(source);
    *out = NULL;
    if (s->sub == NULL || natsConnection_IsClosed(s->conn))
        return once_fail(err, ONCE_UNAVAILABLE, "the connection to %s is lost", s->server);
    if (s->missing == 0 && s->held != NULL && s->at == s->count) {
        *out = take_held(s);
        return ONCE_OK;
    }
    if (s->missing > 0 && s->holds_new && s->at == s->count && once_os_monotonic_ms() < s->missing_until) {
        nap(ms); /* fetching more would only get later messages */
        return ONCE_OK;
    }
    if (s->at == s->count) {
        natsStatus status = fetch(s, room < FETCH_MAX ? (int)room : FETCH_MAX, ms);
        if (status == NATS_TIMEOUT) {
            if (once_os_monotonic_ms() >= s->missing_until)
                s->missing = 0;
            return ONCE_OK;
        }
        if (status != NATS_OK)
            return failed(s, status, 0, "fetch messages", err);
    }
    return s->at < s->count ? hand_out(s, out, err) : ONCE_OK;
}

/* ------------------------------------------------------------------ questions */

static once_result nats_lag(struct source *source, int64_t *count, struct once_error *err)
{
    struct nats_source *s = nats_of(source);
    jsConsumerInfo *info = NULL;
    jsErrCode code = 0;
    if (s->js == NULL)
        return once_fail(err, ONCE_UNAVAILABLE, "the connection to %s is lost", s->server);
    natsStatus status = js_GetConsumerInfo(&info, s->js, s->stream, s->base.options.consumer, NULL, &code);
    if (status != NATS_OK)
        return failed(s, status, code, "ask about the consumer", err);
    *count = (int64_t)info->NumPending + info->NumAckPending;
    jsConsumerInfo_Destroy(info);
    return ONCE_OK;
}

/* An unacknowledged message comes again for as long as the stream keeps it. */
static once_result nats_redelivery_window(struct source *source, int64_t *ms, struct once_error *err)
{
    struct nats_source *s = nats_of(source);
    jsStreamInfo *info = NULL;
    jsErrCode code = 0;
    natsStatus status = js_GetStreamInfo(&info, s->js, s->stream, NULL, &code);
    if (status != NATS_OK)
        return failed(s, status, code, "ask about the stream", err);
    *ms = info->Config->MaxAge > 0 ? info->Config->MaxAge / 1000000 : ONCE_NEVER;
    jsStreamInfo_Destroy(info);
    return ONCE_OK;
}

static void nats_sink_url(const struct source *source, char *out, size_t size)
{
    snprintf(out, size, "%s", ((const struct nats_source *)source)->server);
}

/* ------------------------------------------------------------------ open, close */

static void nats_close(struct source *source)
{
    struct nats_source *s = nats_of(source);
    give_back(s, true);
    drop_waiting(s, true);
    if (s->conn != NULL)
        natsConnection_FlushTimeout(s->conn, s->base.options.timeout_ms);
    disconnect(s);
    natsOptions_Destroy(s->options);
    free(s);
}

static natsStatus configure(struct nats_source *s)
{
    const struct source_options *o = &s->base.options;
    return nats_conn_configure(&(struct nats_peer){ .url = s->server,
                                                    .name = "once-consume",
                                                    .ca_file = o->ca_file,
                                                    .creds = o->nats_creds,
                                                    .timeout_ms = o->timeout_ms },
                               &s->options);
}

static once_result nats_open(const struct source_options *options, struct source **out, struct once_error *err)
{
    if (strpbrk(options->consumer, ". \t*>/\\") != NULL)
        return once_fail(err, ONCE_INVALID, "'%s' cannot name a consumer of NATS: no white space, no . * > / \\",
                         options->consumer);
    struct nats_source *s = calloc(1, sizeof *s);
    if (s == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a source");
    s->base = (struct source){ .ops = &source_nats, .options = *options };
    split_url(s, options->url);
    natsStatus status = configure(s);
    if (status != NATS_OK) {
        nats_close(&s->base);
        return once_fail(err, ONCE_INVALID, "'%s': %s", options->url, natsStatus_GetText(status));
    }
    *out = &s->base;
    return ONCE_OK;
}

const struct source_ops source_nats = {
    .schemes = { "nats:", "tls:" },
    .fault = nats_fault,
    .open = nats_open,
    .connect = nats_connect,
    .next = nats_next,
    .ack = nats_ack,
    .nack = nats_nack,
    .keep_alive = nats_keep_alive,
    .lag = nats_lag,
    .redelivery_window = nats_redelivery_window,
    .sink_url = nats_sink_url,
    .close = nats_close,
};
