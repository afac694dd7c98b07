/*
 * nats.c - the source nats:// and tls://: a durable pull consumer of a JetStream stream.
 *
 *     nats://HOST[:PORT]/STREAM[/SUBJECT]      SUBJECT: only those that match it
 *
 * The durable consumer has the name of ours and is made where it is missing, from the first message on, with explicit
 * acknowledgements and no limit of deliveries: giving up is not the broker's. A message that is out longer than a third
 * of the consumer's ack wait is said to be in progress. The id is Nats-Msg-Id, the key Once-Message-Key, as the sink
 * sends them; the position is STREAM/SEQUENCE.
 *
 * As in the sink, a connection that broke is not mended by the library: connect() begins anew. An acknowledgement is a
 * message to the subject that a message came with, so those of an old connection are acknowledged over the new one.
 *
 * Order: the server delivers again what was out with one that died, but only when its ack wait is over, and until then
 * it goes on with later messages. So after a start, where something is out with others, what comes for the first time
 * is held back until that has come again, or the ack wait and some seconds are over; and so it is after a connection
 * was lost, for what the server had sent and never came. What is given back at an orderly end comes at once, in its
 * order. With several processes on one durable consumer there is no order between them: the server has none.
 *
 * Messages are asked for here, not by natsSubscription_Fetch(): where some of an earlier request come late, that of
 * libnats 3.4 forgets how many it has room for, and writes past its list.
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
enum { LATE_MS = 5000 }; /* a server on a busy machine delivers again that much after the ack wait, not more */

struct nats_incoming {
    struct incoming base;
    natsMsg *msg;
    uint64_t sequence; /* in the stream */
    struct once_buf headers;
    once_time told_ms;                    /* when the server last heard of it */
    bool back;                            /* to be given back */
    struct nats_incoming *before, *after; /* of all that is out, newest first */
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
    bool holds_new;             /* among those are some that came for the first time */
    int64_t owed;               /* messages that were out when we came, are not here, and have not come again */
    once_time owed_until;       /* monotonic: then they have */
    struct nats_incoming *held; /* until then, by sequence */
    struct nats_incoming *out;  /* everything that was handed out, or waits here */
    char inbox[NAME_LEN], ask[2 * NAME_LEN + 64]; /* where messages come to, and who is asked for them */
    natsMsg *waiting[FETCH_MAX];                  /* fetched, not handed out; `at` is the next */
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
        return "a user in a URL is seen by everybody who lists processes; use --nats-creds instead";
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

/* One that gets lost is a duplicate later. */
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
    ((struct nats_incoming *)message)->back = true;
}

/* Oldest first: the server delivers them again in the order in which it gets them back. */
static void give_back(struct nats_source *s, bool all)
{
    struct nats_incoming *m = s->out;
    while (m != NULL && m->after != NULL)
        m = m->after;
    while (m != NULL) {
        struct nats_incoming *newer = m->before;
        if (m->back || all) {
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
    (void)full; /* nothing comes that was not fetched */
    if (s->conn == NULL || natsConnection_IsClosed(s->conn))
        return once_fail(err, ONCE_UNAVAILABLE, "the connection to %s is lost", s->server);
    give_back(s, false);
    for (struct nats_incoming *m = s->out; m != NULL; m = m->after)
        if (now - m->told_ms >= s->ack_wait_ms / 3) {
            tell(s, m->msg, "+WPI");
            m->told_ms = now;
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
                         "the consumer '%s' of stream '%s' is no pull consumer with explicit acknowledgements", name,
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
    s->owed = info->NumAckPending;
    for (const struct nats_incoming *m = s->out; m != NULL; m = m->after)
        s->owed -= s->owed > 0;
    s->owed_until = once_os_monotonic_ms() + s->ack_wait_ms + LATE_MS;
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

/* For what there is, or, with a time, for what comes until then. */
static natsStatus ask(struct nats_source *s, int batch, int64_t ms)
{
    char text[96];
    if (ms > 0)
        snprintf(text, sizeof text, "{\"batch\":%d,\"expires\":%lld}", batch, (long long)ms * 1000000);
    else
        snprintf(text, sizeof text, "{\"batch\":%d,\"no_wait\":true}", batch);
    return natsConnection_PublishRequestString(s->conn, s->ask, s->inbox, text);
}

/* The next that comes is kept. NATS_NOT_FOUND: the server has none; NATS_TIMEOUT: it has waited long enough, or we. */
static natsStatus receive(struct nats_source *s, int64_t ms)
{
    natsMsg *msg = NULL;
    const char *word = NULL;
    natsStatus status = natsSubscription_NextMsg(&msg, s->sub, ms);
    if (status != NATS_OK)
        return status;
    if (natsMsg_GetReply(msg) != NULL) { /* where it is acknowledged: a word of the server has none */
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

/* Up to `batch` messages: those of earlier requests that came late, then what the server has; where both is nothing,
 * what comes in time. */
static natsStatus fetch(struct nats_source *s, int batch, int ms)
{
    once_time until = once_os_monotonic_ms() + ms;
    natsStatus status = NATS_OK;
    int late = 0;
    s->count = s->at = 0;
    if (natsSubscription_GetPending(s->sub, &late, NULL) != NATS_OK)
        late = 0; /* it is closed: asking says so */
    for (; late > 0 && s->count < batch; late--)
        receive(s, 1); /* a word of the server was about an earlier request */
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
    m->told_ms = once_os_monotonic_ms();
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

/* It came again, and the one that came before is still here: that was never owed. */
static bool is_out_twice(const struct nats_source *s, const struct nats_incoming *m)
{
    for (const struct nats_incoming *other = s->out; other != NULL; other = other->after)
        if (other != m && other->sequence == m->sequence)
            return true;
    return false;
}

/* One of those that were fetched, if it is its turn. */
static once_result hand_out(struct nats_source *s, struct incoming **out, struct once_error *err)
{
    natsMsg *msg = s->waiting[s->at++];
    bool again = false;
    struct nats_incoming *m = make_message(s, msg, &again);
    if (m == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a message");
    if (s->owed == 0 && s->held == NULL) {
        *out = &m->base;
        return ONCE_OK;
    }
    hold(s, m);
    if (s->owed > 0 && again)
        s->owed -= !is_out_twice(s, m);
    else if (s->owed > 0 && once_os_monotonic_ms() >= s->owed_until)
        s->owed = 0; /* the server has nothing older */
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
    if (s->owed == 0 && s->held != NULL && s->at == s->count) {
        *out = take_held(s);
        return ONCE_OK;
    }
    if (s->owed > 0 && s->holds_new && s->at == s->count && once_os_monotonic_ms() < s->owed_until) {
        nap(ms); /* more would be later ones still */
        return ONCE_OK;
    }
    if (s->at == s->count) {
        natsStatus status = fetch(s, room < FETCH_MAX ? (int)room : FETCH_MAX, ms);
        if (status == NATS_TIMEOUT) {
            if (once_os_monotonic_ms() >= s->owed_until)
                s->owed = 0;
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

/* What was not acknowledged comes again for as long as the stream keeps it. */
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

static once_result open_as(const struct source_ops *ops, const struct source_options *options, struct source **out,
                           struct once_error *err)
{
    if (strpbrk(options->consumer, ". \t*>/\\") != NULL)
        return once_fail(err, ONCE_INVALID, "'%s' cannot name a consumer of NATS: no white space, no . * > / \\",
                         options->consumer);
    struct nats_source *s = calloc(1, sizeof *s);
    if (s == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a source");
    s->base = (struct source){ .ops = ops, .options = *options };
    split_url(s, options->url);
    natsStatus status = configure(s);
    if (status != NATS_OK) {
        nats_close(&s->base);
        return once_fail(err, ONCE_INVALID, "'%s': %s", options->url, natsStatus_GetText(status));
    }
    *out = &s->base;
    return ONCE_OK;
}

static once_result nats_plain_open(const struct source_options *options, struct source **out, struct once_error *err)
{
    return open_as(&source_nats, options, out, err);
}

static once_result nats_tls_open(const struct source_options *options, struct source **out, struct once_error *err)
{
    return open_as(&source_nats_tls, options, out, err);
}

#define OPS(name, open_function)                                                                                       \
    {                                                                                                                  \
        .scheme = name, .fault = nats_fault, .open = open_function, .connect = nats_connect, .next = nats_next,        \
        .ack = nats_ack, .nack = nats_nack, .keep_alive = nats_keep_alive, .lag = nats_lag,                            \
        .redelivery_window = nats_redelivery_window, .sink_url = nats_sink_url, .close = nats_close,                   \
    }

const struct source_ops source_nats = OPS("nats:", nats_plain_open);
const struct source_ops source_nats_tls = OPS("tls:", nats_tls_open);
