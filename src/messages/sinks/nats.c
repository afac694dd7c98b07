/*
 * nats.c - the sink nats:// and tls://: JetStream, which stores a message and acknowledges it.
 *
 * The subject is the message's topic. Nats-Msg-Id is the message id, so that the stream drops repeats within its
 * duplicate window. Messages are published without waiting; each is confirmed by its own acknowledgement (PubAck).
 * Plain NATS confirms nothing, so a message whose subject belongs to no stream stays in the outbox.
 *
 * Acknowledgements arrive on a thread of the library: its handler records them, under the lock, by message id, and
 * poll() reports them. The library does not reconnect: after a lost connection the messages in flight end here, and the
 * next start connects again.
 */
#include "messages/brokers/headers.h"
#include "messages/brokers/nats_conn.h"
#include "messages/sinks/sink.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "os/os.h"
#include "os/thread.h"

#include <nats/nats.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { PENDING_MAX = 256 };

struct pending {
    const struct message *message; /* NULL: the slot is free */
    once_time until;               /* monotonic; after that the result is not known */
    enum sink_result result;       /* 0: in flight */
    char reason[MESSAGE_REASON_LEN];
};

struct nats_sink {
    struct sink base;
    natsOptions *options;
    natsConnection *conn;
    jsCtx *js;
    pthread_mutex_t lock; /* guards `pending` */
    pthread_cond_t ended;
    struct pending pending[PENDING_MAX];
    struct nats_sink *next_closed;
};

/* The library's threads may call the handler until the library is closed: closed sinks are freed after that. */
static size_t open_count;
static struct nats_sink *closed;

static struct nats_sink *nats_of(struct sink *sink)
{
    return (struct nats_sink *)sink;
}

static const char *nats_fault(const char *url)
{
    const char *host = strstr(url, "://");
    if (host == NULL)
        return "it is not nats://HOST[:PORT] or tls://HOST[:PORT]";
    host += 3;
    if (*host == '\0' || strpbrk(host, "/?# \t\r\n,") != NULL)
        return "it is not nats://HOST[:PORT] or tls://HOST[:PORT]; subjects are the topics";
    if (strchr(host, '@') != NULL)
        return "other users can see a login in a URL; use --nats-creds instead";
    if (strlen(url) > ONCE_URL_LEN_MAX)
        return "it is too long";
    return NULL;
}

/* ------------------------------------------------------------------ acknowledgements */

static void on_ack(jsCtx *js, natsMsg *msg, jsPubAck *ack, jsPubAckErr *error, void *closure)
{
    struct nats_sink *s = closure;
    const char *id = NULL;
    (void)js;
    natsMsgHeader_Get(msg, "Nats-Msg-Id", &id);
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; id != NULL && i < PENDING_MAX; i++) {
        struct pending *p = &s->pending[i];
        if (p->message == NULL || p->result != 0 || strcmp(p->message->id, id) != 0)
            continue;
        bool nobody = error != NULL && error->Err == NATS_NO_RESPONDERS;
        p->result = ack != NULL ? SINK_CONFIRMED : nobody ? SINK_UNREACHED : SINK_REFUSED;
        if (nobody)
            snprintf(p->reason, sizeof p->reason, "no stream has this subject");
        else if (error != NULL)
            snprintf(p->reason, sizeof p->reason, "%.150s",
                     error->ErrText != NULL && error->ErrText[0] != '\0' ? error->ErrText
                                                                         : natsStatus_GetText(error->Err));
    }
    pthread_cond_signal(&s->ended);
    pthread_mutex_unlock(&s->lock);
    natsMsg_Destroy(msg);
}

/* ------------------------------------------------------------------ connecting */

static void disconnect(struct nats_sink *s)
{
    jsCtx_Destroy(s->js);
    natsConnection_Destroy(s->conn);
    s->js = NULL;
    s->conn = NULL;
}

static natsStatus connect_now(struct nats_sink *s)
{
    jsOptions js;
    disconnect(s);
    natsStatus status = natsConnection_Connect(&s->conn, s->options);
    jsOptions_Init(&js);
    js.PublishAsync.MaxPending = PENDING_MAX;
    js.PublishAsync.AckHandler = on_ack;
    js.PublishAsync.AckHandlerClosure = s;
    if (status == NATS_OK)
        status = natsConnection_JetStream(&s->js, s->conn, &js);
    if (status != NATS_OK)
        disconnect(s);
    return status;
}

/* ------------------------------------------------------------------ a message */

/* Non-empty tokens separated by dots, without wildcards. */
static bool is_subject(once_span topic)
{
    bool token = false;
    for (size_t i = 0; i < topic.len; i++) {
        if (topic.ptr[i] == '*' || topic.ptr[i] == '>' || (topic.ptr[i] == '.' && !token))
            return false;
        token = topic.ptr[i] != '.';
    }
    return token;
}

static natsStatus add_headers(natsMsg *msg, const struct message *m)
{
    char name[128], value[ONCE_MESSAGE_HEADERS_LEN_MAX + 1];
    once_span lines = m->headers, left, right;
    snprintf(value, sizeof value, "%.*s", ONCE_SPAN_ARGS(m->content_type));
    natsStatus status = natsMsgHeader_Set(msg, "Content-Type", value);
    if (status == NATS_OK && m->has_key) {
        snprintf(value, sizeof value, "%.*s", ONCE_SPAN_ARGS(m->key));
        for (char *c = value; *c != '\0'; c++)
            if ((unsigned char)*c < ' ')
                *c = '?'; /* a header is one line */
        status = natsMsgHeader_Set(msg, "Once-Message-Key", value);
    }
    while (status == NATS_OK && headers_next(&lines, &left, &right)) {
        if (left.len >= sizeof name)
            continue;
        snprintf(name, sizeof name, "%.*s", ONCE_SPAN_ARGS(left));
        snprintf(value, sizeof value, "%.*s", ONCE_SPAN_ARGS(right));
        /* Headers that the server interprets, or that only Once sets: receivers take the order from the key. */
        if (!headers_name_starts(left, "nats-") && !headers_name_starts(left, "once-") &&
            !headers_name_is(left, "content-type"))
            status = natsMsgHeader_Set(msg, name, value);
    }
    return status;
}

static natsStatus send_message(struct nats_sink *s, const struct message *m)
{
    char subject[ONCE_TOPIC_LEN_MAX + 1];
    natsMsg *msg = NULL;
    jsPubOptions options;
    snprintf(subject, sizeof subject, "%.*s", ONCE_SPAN_ARGS(m->topic));
    natsStatus status = natsMsg_Create(&msg, subject, NULL, (const char *)m->payload.ptr, (int)m->payload.len);
    if (status == NATS_OK)
        status = add_headers(msg, m);
    jsPubOptions_Init(&options);
    options.MsgId = m->id;
    options.MaxWait = s->base.options.timeout_ms;
    if (status == NATS_OK)
        status = js_PublishMsgAsync(s->js, &msg, &options);
    natsMsg_Destroy(msg); /* NULL if the library took it over */
    return status;
}

/* Reasons to fail that are known before anything is sent; 0: none. */
static enum sink_result refuse_early(struct nats_sink *s, const struct message *m, char reason[MESSAGE_REASON_LEN])
{
    if (!is_subject(m->topic)) {
        snprintf(reason, MESSAGE_REASON_LEN,
                 "its topic is not a NATS subject: tokens separated by dots, without * and >");
        return SINK_REFUSED;
    }
    natsStatus status = s->conn == NULL || natsConnection_IsClosed(s->conn) ? connect_now(s) : NATS_OK;
    if (status != NATS_OK) {
        snprintf(reason, MESSAGE_REASON_LEN, "cannot connect: %s", natsStatus_GetText(status));
        return SINK_UNREACHED;
    }
    int64_t largest = natsConnection_GetMaxPayload(s->conn);
    if (largest > 0 && (int64_t)(m->payload.len + m->headers.len + 1024) > largest) {
        snprintf(reason, MESSAGE_REASON_LEN, "it is larger than the server accepts (%lld bytes)", (long long)largest);
        return SINK_REFUSED;
    }
    return 0;
}

static bool nats_start(struct sink *sink, const struct message *m)
{
    struct nats_sink *s = nats_of(sink);
    char reason[MESSAGE_REASON_LEN];
    if (s->base.busy == PENDING_MAX)
        return false;
    enum sink_result early = refuse_early(s, m, reason);
    if (early != 0) {
        s->base.options.done(s->base.options.arg, m, early, 0, reason);
        return true;
    }
    size_t i = 0;
    pthread_mutex_lock(&s->lock);
    while (s->pending[i].message != NULL)
        i++;
    s->pending[i] = (struct pending){ .message = m, .until = once_os_monotonic_ms() + s->base.options.timeout_ms };
    pthread_mutex_unlock(&s->lock);
    s->base.busy++;
    natsStatus status = send_message(s, m);
    if (status == NATS_OK)
        return true;
    pthread_mutex_lock(&s->lock);
    s->pending[i].result = SINK_REFUSED; /* parts of it may have been sent */
    snprintf(s->pending[i].reason, MESSAGE_REASON_LEN, "cannot publish: %s", natsStatus_GetText(status));
    pthread_mutex_unlock(&s->lock);
    return true;
}

/* ------------------------------------------------------------------ reports */

/* Under the lock: ends messages whose acknowledgement cannot come any more. True: a message has ended. */
static bool end_overdue(struct nats_sink *s)
{
    once_time now = once_os_monotonic_ms();
    bool lost = s->conn == NULL || natsConnection_IsClosed(s->conn), any = false;
    for (size_t i = 0; i < PENDING_MAX; i++) {
        struct pending *p = &s->pending[i];
        if (p->message != NULL && p->result == 0 && (lost || now >= p->until)) {
            p->result = SINK_REFUSED;
            snprintf(p->reason, sizeof p->reason, "no acknowledgement: %s",
                     lost ? "the connection is lost" : "timeout");
        }
        any |= p->message != NULL && p->result != 0;
    }
    return any;
}

static void nats_poll(struct sink *sink, int ms)
{
    struct nats_sink *s = nats_of(sink);
    struct pending ended[PENDING_MAX];
    size_t count = 0;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ms % 1000 * 1000000L;
    until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&s->lock);
    while (!end_overdue(s) && pthread_cond_timedwait(&s->ended, &s->lock, &until) == 0)
        ;
    end_overdue(s);
    for (size_t i = 0; i < PENDING_MAX; i++)
        if (s->pending[i].message != NULL && s->pending[i].result != 0) {
            ended[count++] = s->pending[i];
            s->pending[i].message = NULL;
        }
    pthread_mutex_unlock(&s->lock);
    s->base.busy -= count;
    for (size_t i = 0; i < count; i++)
        s->base.options.done(s->base.options.arg, ended[i].message, ended[i].result, 0, ended[i].reason);
}

/* ------------------------------------------------------------------ open, close */

static void nats_close(struct sink *sink)
{
    enum { WAIT_MS = 5000 };
    struct nats_sink *s = nats_of(sink);
    disconnect(s);
    natsOptions_Destroy(s->options);
    s->next_closed = closed;
    closed = s;
    if (--open_count > 0)
        return;
    if (nats_CloseAndWait(WAIT_MS) != NATS_OK)
        return; /* a thread of the library still runs: the memory is not freed */
    while (closed != NULL) {
        struct nats_sink *next = closed->next_closed;
        pthread_cond_destroy(&closed->ended);
        pthread_mutex_destroy(&closed->lock);
        free(closed);
        closed = next;
    }
}

static natsStatus configure(struct nats_sink *s)
{
    const struct sink_options *o = &s->base.options;
    return nats_conn_configure(&(struct nats_peer){ .url = o->url,
                                                    .name = "once-relay",
                                                    .ca_file = o->ca_file,
                                                    .creds = o->nats_creds,
                                                    .timeout_ms = o->timeout_ms },
                               &s->options);
}

/* Does not connect: the broker may be down now. */
static once_result nats_open(const struct sink_options *options, struct sink **out, struct once_error *err)
{
    struct nats_sink *s = calloc(1, sizeof *s);
    if (s == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a sink");
    s->base = (struct sink){ .ops = &sink_nats, .options = *options };
    pthread_mutex_init(&s->lock, NULL);
    once_cond_init(&s->ended);
    open_count++;
    natsStatus status = configure(s);
    if (status != NATS_OK) {
        nats_close(&s->base);
        return once_fail(err, ONCE_INVALID, "'%s': %s", options->url, natsStatus_GetText(status));
    }
    *out = &s->base;
    return ONCE_OK;
}

const struct sink_ops sink_nats = {
    .schemes = { "nats:", "tls:" },
    .fault = nats_fault,
    .open = nats_open,
    .start = nats_start,
    .poll = nats_poll,
    .close = nats_close,
};
