/* conn.c - see conn.h. */
#include "daemon/socket/conn.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "engine/daemon_api.h"
#include "os/crash_point.h"
#include "os/os.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CALLS_MAX = 1024,        /* under way, of one connection: as many as a batch */
    READ_LEN = 64 << 10,     /* at a time */
    READS_MAX = 4,           /* then the other connections are read */
    OUT_LEN_MAX = 8 << 20,   /* unsent answers: above this the client is not read */
    OUT_LEN_FULL = 64 << 20, /* above this answers with a body become ONCE_BUSY */
    SMALL_LEN_MAX = 1 << 20, /* a partial frame up to this size is always read to its end */
};
#define BUFFERED_MAX (256ull << 20)

/* One operation under way. */
struct call {
    struct conn *conn;
    uint32_t id;
    enum once_verb verb;
    uint64_t fence; /* of the grant that the call uses */
    bool rerun;
    bool is_twin;      /* CLAIM, TAKE_OVER: the same call came over another connection while this one was under way */
    uint8_t nonce[16]; /* CLAIM, TAKE_OVER */
    struct call *next; /* CLAIM, TAKE_OVER: in its bucket */
    struct call_log_entry *call_log_entry; /* for logs and traces; usually NULL */
};

/* Whether its answer may be a grant. */
static bool asks_for_grant(const struct call *call)
{
    return call->verb == ONCE_VERB_CLAIM || call->verb == ONCE_VERB_TAKE_OVER;
}

static struct call **bucket_of(struct server_shared *shared, const uint8_t nonce[16])
{
    return &shared->claims[(nonce[0] << 8 | nonce[1]) % CLAIM_BUCKETS];
}

static void enter_claim(struct server_shared *shared, struct call *call)
{
    struct call **bucket = bucket_of(shared, call->nonce);
    for (struct call *other = *bucket; other != NULL; other = other->next)
        if (memcmp(other->nonce, call->nonce, sizeof call->nonce) == 0)
            other->is_twin = call->is_twin = true;
    call->next = *bucket;
    *bucket = call;
}

static void leave_claim(struct server_shared *shared, struct call *call)
{
    for (struct call **at = bucket_of(shared, call->nonce); *at != NULL; at = &(*at)->next)
        if (*at == call) {
            *at = call->next;
            return;
        }
}

static void move_to_closed(struct conn *c)
{
    *c->at = c->next;
    if (c->next != NULL)
        c->next->at = c->at;
    c->shared->count--;
    c->next = c->shared->closed;
    c->shared->closed = c;
}

void conns_free_closed(struct server_shared *shared)
{
    for (struct conn *c = shared->closed, *next; c != NULL; c = next) {
        next = c->next;
        once_buf_release(&c->in);
        once_buf_release(&c->out);
        free(c);
    }
    shared->closed = NULL;
}

/* ------------------------------------------------------------------ clients that hang up */

static void on_ended_early(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    (void)arg, (void)result, (void)err; /* if it failed, the lease ends by itself */
    once_reply_release(reply);
}

static void end_lease(void *arg, const struct once_grant *grant)
{
    struct server_shared *shared = arg;
    struct once_request request = { .verb = ONCE_VERB_EXTEND, .grant = *grant, .extend = { .lease_ms = 1 } };
    if (once_submit(shared->options.once, &request, on_ended_early, NULL, NULL) != ONCE_OK)
        return; /* the lease ends by itself */
}

static void forget_buffered(struct conn *c)
{
    c->shared->buffered -= c->in.len - c->parsed;
    c->parsed = c->in.len;
    c->shared->resume_reading = true;
    if (c->shared->large == c)
        c->shared->large = NULL;
}

bool conn_is_quiet(const struct conn *c)
{
    return c->pending == 0 && c->out.len == c->sent;
}

/* ------------------------------------------------------------------ answers */

/* K3: a client holds the grants that it was sent. */
static void note_grant(struct conn *c, const struct call *call, const struct once_reply *reply)
{
    bool granted = reply->arm == ONCE_ARM_EXECUTE || reply->arm == ONCE_ARM_PROBE;
    bool rerun = call->verb == ONCE_VERB_TAKE_OVER ? reply->record.takeover == ONCE_TAKEOVER_RERUN : call->rerun;
    if (asks_for_grant(call) && granted && rerun)
        client_grants_add(&c->shared->client_grants, c, &reply->record.grant);
    if (call->verb == ONCE_VERB_EXTEND && reply->arm == ONCE_ARM_DONE && reply->record.takeover == ONCE_TAKEOVER_RERUN)
        client_grants_renew(&c->shared->client_grants, c, &reply->record.grant);
    if (call->verb == ONCE_VERB_FINISH || call->verb == ONCE_VERB_RELEASE)
        client_grants_remove(&c->shared->client_grants, call->fence);
}

static void note_unknown(const struct call *call, const struct once_reply *reply)
{
    struct server_shared *shared = call->conn->shared;
    once_time since;
    const char *why = shared->options.escalated != NULL ? unknown_reason(call->verb, reply, &since) : NULL;
    if (why != NULL)
        shared->options.escalated(shared->options.arg, reply->record.grant, since, why);
}

/* The client is gone and was never sent its grant, so nothing was executed: the grant is released. If the client claims
 * again, the release is applied first, because operations of a record keep their order. But if the same call came over
 * another connection (is_twin), that one gets, or already has, the same grant, which must not be released (K1). */
static void release_unsent(struct server_shared *shared, const struct call *call, once_result result,
                           const struct once_reply *reply)
{
    if (!asks_for_grant(call) || result != ONCE_OK || reply->arm != ONCE_ARM_EXECUTE || call->is_twin)
        return;
    struct once_request request = { .verb = ONCE_VERB_RELEASE, .grant = reply->record.grant };
    if (once_submit(shared->options.once, &request, on_ended_early, NULL, NULL) != ONCE_OK)
        return; /* the lease ends by itself */
}

static void on_done(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    struct call *call = arg;
    struct conn *c = call->conn;
    c->pending--;
    if (asks_for_grant(call))
        leave_claim(c->shared, call);
    ONCE_CRASH_POINT("daemon.answer");
    if (result == ONCE_OK)
        note_unknown(call, reply);
    if (call->call_log_entry != NULL)
        call_log_end(&c->shared->options.call_log, call->call_log_entry, result, reply, once_dispatched_waited());
    if (c->fd < 0) {
        release_unsent(c->shared, call, result, reply);
        if (c->pending == 0)
            move_to_closed(c);
    } else if (result == ONCE_OK && reply->record.body.len > 0 && c->out.len - c->sent > OUT_LEN_FULL) {
        /* Safe to refuse: an operation whose answer has a body changed nothing. */
        wire_put_failed(&c->out, call->id, ONCE_BUSY, "too many answers wait to be read");
    } else if (result == ONCE_OK) {
        note_grant(c, call, reply);
        wire_put_reply(&c->out, call->id, reply);
    } else {
        wire_put_failed(&c->out, call->id, result, err->text);
    }
    once_reply_release(reply);
    free(call);
}

void conn_answer_admin_query(struct admin_query *job)
{
    struct conn *c = job->asker;
    c->pending--;
    if (c->fd >= 0)
        once_buf_add(&c->out, once_buf_span(&job->answer));
    else if (c->pending == 0)
        move_to_closed(c);
    admin_query_release(job);
}

/* ------------------------------------------------------------------ frames */

static void refuse(struct conn *c, uint32_t id, const struct once_error *err)
{
    wire_put_failed(&c->out, id, err->result, err->text);
}

/* The rest of the stream cannot be parsed. */
static void refuse_all(struct conn *c, uint32_t id, const struct once_error *err)
{
    refuse(c, id, err);
    c->ending = true;
    forget_buffered(c);
}

static void greet(struct conn *c, const struct wire_frame *frame)
{
    struct once_error err = { .result = ONCE_OK };
    struct wire_hello hello;
    once_result r = frame->type == WIRE_HELLO ? wire_get_hello(frame->payload, &hello, &err)
                                              : once_fail(&err, ONCE_INVALID, "the first frame must be a hello");
    if (r == ONCE_OK && hello.version != WIRE_VERSION)
        r = once_fail(&err, ONCE_INVALID, "this daemon supports version %d of the protocol, not %u", WIRE_VERSION,
                      hello.version);
    if (r != ONCE_OK) {
        refuse_all(c, frame->id, &err);
        return;
    }
    struct wire_welcome welcome = { .version = WIRE_VERSION,
                                    .best_effort = once_is_best_effort(c->shared->options.once) };
    memcpy(welcome.secret, once_secret(c->shared->options.once)->key, sizeof welcome.secret);
    wire_put_welcome(&c->out, frame->id, &welcome);
    explicit_bzero(&welcome, sizeof welcome);
    c->greeted = true;
}

static once_result submit_call(struct conn *c, const struct wire_frame *frame, struct once_error *err)
{
    struct wire_call wire;
    once_result r = wire_get_call(frame->payload, &wire, err);
    if (r != ONCE_OK)
        return r;
    struct call *call = malloc(sizeof *call);
    if (call == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a call");
    *call = (struct call){ .conn = c,
                           .id = frame->id,
                           .verb = wire.request.verb,
                           .fence = wire.request.grant.fence,
                           .rerun = wire.request.verb == ONCE_VERB_CLAIM &&
                                    wire.request.claim.takeover == ONCE_TAKEOVER_RERUN };
    if (asks_for_grant(call)) {
        bool claim = call->verb == ONCE_VERB_CLAIM;
        uint8_t *nonce = claim ? wire.request.claim.nonce : wire.request.take_over.nonce;
        once_os_nonce(nonce); /* a random one if the client sent none */
        memcpy(call->nonce, nonce, sizeof call->nonce);
    }
    call->call_log_entry = call_log_begin(&c->shared->options.call_log, &c->context, frame->id,
                                          once_secret(c->shared->options.once), &wire.request);
    bool named = wire.request.verb == ONCE_VERB_ADVANCE || wire.request.verb == ONCE_VERB_RESOLVE ||
                 wire.request.verb == ONCE_VERB_FORGET;
    r = once_submit_for(c->shared->options.once, &wire.request, named ? wire.nonce : NULL, wire.again, on_done, call,
                        err);
    if (r != ONCE_OK) {
        call_log_end(&c->shared->options.call_log, call->call_log_entry, r, NULL, false);
        free(call);
        return r;
    }
    c->shared->submitted = true;
    if (call->verb == ONCE_VERB_CLAIM && wire.request.claim.takeover == ONCE_TAKEOVER_COMPLETER &&
        c->shared->options.deferred != NULL)
        c->shared->options.deferred(c->shared->options.arg, wire.request.claim.request);
    if (asks_for_grant(call))
        enter_claim(c->shared, call); /* its callback comes later, on this thread */
    return ONCE_OK;
}

/* One-way frames (CONTEXT, SPANS): not answered, except with FAILED if malformed. */
static void take_one_way(struct conn *c, const struct wire_frame *frame)
{
    struct once_error err = { .result = ONCE_OK };
    struct wire_context context;
    struct once_trace_report report;
    uint32_t lost = 0;
    if (frame->type == WIRE_CONTEXT) {
        if (wire_get_context(frame->payload, &context, &err) == ONCE_OK)
            call_log_context_set(&c->context, &context);
    } else if (wire_get_spans(frame->payload, &lost, &report, &err) == ONCE_OK) {
        exporter_lost(c->shared->options.call_log.exporter, lost);
        tracer_report(c->shared->options.call_log.exporter, &report);
    }
    if (err.result != ONCE_OK)
        refuse(c, frame->id, &err);
}

static void take_frame(struct conn *c, const struct wire_frame *frame)
{
    struct once_error err = { .result = ONCE_OK };
    if (!c->greeted) {
        greet(c, frame);
        return;
    }
    if (frame->type == WIRE_STATUS && c->shared->options.status != NULL) { /* at once, even if the store hangs */
        c->shared->options.status(c->shared->options.arg, c->shared->count, &c->out, frame->id);
        return;
    }
    if (frame->type == WIRE_CONTEXT || frame->type == WIRE_SPANS) {
        take_one_way(c, frame);
        return;
    }
    if (frame->type != WIRE_CALL && c->hung_up)
        return; /* the client is gone, and a query has no effect besides its answer */
    once_result r = frame->type == WIRE_CALL ? submit_call(c, frame, &err)
                                             : admin_queries_submit(c->shared->admin_queries, c, frame, &err);
    if (r == ONCE_OK)
        c->pending++;
    else
        refuse(c, frame->id, &err);
}

/* ------------------------------------------------------------------ bytes */

/* A client that hung up gets no answers, and the rest of its frames fits into a socket's buffer. */
static bool has_room(const struct conn *c)
{
    return !c->ending && (c->hung_up || (c->pending < CALLS_MAX && c->out.len - c->sent < OUT_LEN_MAX));
}

/* If the bytes of all partial frames exceed their bound, one connection with a large frame is read at a time. */
static bool may_read(struct conn *c)
{
    struct server_shared *shared = c->shared;
    if (shared->stopping || !has_room(c))
        return false;
    if (shared->buffered < BUFFERED_MAX || c->in.len - c->parsed < SMALL_LEN_MAX)
        return true;
    if (shared->large == NULL)
        shared->large = c;
    return shared->large == c;
}

static void parse(struct conn *c)
{
    while (has_room(c) && !c->shared->stopping && c->parsed < c->in.len) {
        struct wire_frame frame;
        struct once_error err;
        size_t used = 0;
        if (wire_next(once_span_skip(once_buf_span(&c->in), c->parsed), &frame, &used, &err) != ONCE_OK) {
            refuse_all(c, 0, &err);
            return;
        }
        if (used == 0)
            return;
        c->parsed += used;
        c->shared->buffered -= used;
        c->shared->resume_reading = c->shared->resume_reading || used > SMALL_LEN_MAX;
        if (c->shared->large == c)
            c->shared->large = NULL;
        take_frame(c, &frame);
    }
}

/* The bounds count what buffers hold, so an empty large buffer is freed. */
static void shrink(struct once_buf *buf)
{
    if (buf->len == 0 && buf->cap > SMALL_LEN_MAX)
        once_buf_release(buf);
}

/* How many bytes were read; 0: none now; -1: the client hung up, or there is no memory. */
static ssize_t receive_some(struct conn *c)
{
    if (c->parsed > 0) { /* remove parsed frames */
        memmove(c->in.ptr, c->in.ptr + c->parsed, c->in.len - c->parsed);
        c->in.len -= c->parsed;
        c->parsed = 0;
        shrink(&c->in);
    }
    uint8_t *at = once_buf_reserve(&c->in, READ_LEN);
    if (at == NULL)
        return -1;
    ssize_t n = recv(c->fd, at, READ_LEN, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) {
        c->hung_up = true;
        return -1;
    }
    c->in.len += (size_t)n;
    c->shared->buffered += (size_t)n;
    return n;
}

/* False: the client hung up. */
static bool receive(struct conn *c)
{
    for (int i = 0; i < READS_MAX && may_read(c); i++) {
        ssize_t n = receive_some(c);
        if (n < 0)
            return false;
        parse(c);
        if (n < READ_LEN) /* that was all; epoll reports more */
            return true;
    }
    return true;
}

/* Reads what the client sent before it hung up: perhaps a finish that only it knows of. Bounded, because a client that
 * closed only its reading side may go on writing. */
static void receive_last(struct conn *c)
{
    ssize_t n = 0;
    size_t all = 0;
    do {
        parse(c);
        all += (size_t)n;
        n = c->ending || c->shared->stopping || all >= OUT_LEN_MAX ? 0 : receive_some(c);
    } while (n > 0);
}

/* False: the client hung up, or answers were lost. */
static bool flush(struct conn *c)
{
    if (c->out.result != ONCE_OK)
        return false; /* no memory for an answer: the client has to reconnect and ask again */
    while (c->sent < c->out.len) {
        ssize_t n = send(c->fd, c->out.ptr + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        c->hung_up = n < 0;
        if (c->hung_up)
            return false;
        c->sent += (size_t)n;
    }
    once_buf_clear(&c->out);
    shrink(&c->out);
    c->sent = 0;
    return true;
}

void conn_end(struct conn *c)
{
    if (c->fd < 0)
        return;
    if (c->hung_up)
        receive_last(c);
    forget_buffered(c);
    close(c->fd);
    c->fd = -1;
    client_grants_forget(&c->shared->client_grants, c, c->hung_up && !c->shared->stopping ? end_lease : NULL,
                         c->shared);
    if (c->pending == 0)
        move_to_closed(c);
    else
        admin_queries_forget(c->shared->admin_queries, c);
}

static void ask_epoll(struct conn *c)
{
    uint32_t events = (may_read(c) ? EPOLLIN : 0u) | (c->sent < c->out.len ? EPOLLOUT : 0u);
    if (events == c->events)
        return;
    c->events = events;
    struct epoll_event event = { .events = events, .data.ptr = &c->event_source };
    epoll_ctl(c->shared->epoll, EPOLL_CTL_MOD, c->fd, &event);
}

void conn_continue(struct conn *c)
{
    if (c->fd < 0)
        return;
    parse(c); /* frames that waited for room */
    if (!flush(c) || (c->ending && conn_is_quiet(c)))
        conn_end(c);
    else
        ask_epoll(c);
}

static void on_ready(struct event_source *event_source, uint32_t events)
{
    struct conn *c = (struct conn *)event_source;
    if (c->fd < 0)
        return;
    c->hung_up = (events & (EPOLLERR | EPOLLHUP)) != 0;
    if (c->hung_up || ((events & EPOLLIN) != 0 && !receive(c))) {
        conn_end(c);
        return;
    }
    conn_continue(c);
}

once_result conn_open(struct server_shared *shared, int fd, struct once_error *err)
{
    struct conn *c = calloc(1, sizeof *c);
    if (c == NULL) {
        close(fd);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a connection");
    }
    *c = (struct conn){ .event_source = { on_ready },
                        .shared = shared,
                        .fd = fd,
                        .events = EPOLLIN,
                        .next = shared->first,
                        .at = &shared->first };
    once_buf_init(&c->in, WIRE_FRAME_LEN_MAX + 4 + READ_LEN);
    once_buf_init(&c->out, 2 * (size_t)OUT_LEN_FULL + WIRE_FRAME_LEN_MAX);
    if (shared->first != NULL)
        shared->first->at = &c->next;
    shared->first = c;
    shared->count++;
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = &c->event_source };
    if (epoll_ctl(shared->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        once_fail(err, ONCE_UNAVAILABLE, "cannot watch a connection: %s", strerror(errno));
        conn_end(c);
        return ONCE_UNAVAILABLE;
    }
    return ONCE_OK;
}
