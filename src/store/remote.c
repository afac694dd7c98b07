/*
 * remote.c - a store that a daemon owns, over its unix socket: once:PATH.
 *
 * A batch is sent as one frame per operation and answered in any order. The daemon commits the operations of all its
 * clients together.
 *
 * Invariants: K4 the daemon answers after its store did.
 *             K10 a connection lost before all answers were there is ONCE_UNKNOWN. The engine
 *                reopens, and sends each operation again with its nonce: the daemon's store
 *                recognises it. A connection lost before the daemon said welcome is ONCE_UNAVAILABLE: nothing was sent.
 */
#include "core/buf.h"
#include "core/err.h"
#include "core/limits.h"
#include "core/record.h"
#include "core/span.h"
#include "os/os.h"
#include "store/gather.h"
#include "store/store.h"
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* After so long without an answer the daemon is taken for dead; its own timeouts are shorter. */
enum { SILENCE_MS_MAX = 120 * 1000, READ_LEN = 64 << 10 };
/* All frames of a batch; one frame more than that would be too large anyway. */
#define SEND_LEN_MAX ((size_t)ONCE_BATCH_LEN_MAX * WIRE_FRAME_LEN_MAX)

struct remote_store {
    struct once_store base;
    struct sockaddr_un address;
    int fd;       /* -1: not connected */
    bool opened;  /* secret and tier are known: callers read them, they never change */
    bool welcome; /* on this connection */
    uint32_t next_id;
    struct once_buf out, in;
    size_t sent;   /* of out */
    size_t parsed; /* of in */
};

/* ------------------------------------------------------------------ the connection */

static void disconnect(struct remote_store *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    s->welcome = false;
    once_buf_clear(&s->out);
    once_buf_clear(&s->in);
    s->sent = s->parsed = 0;
}

static once_result lost(struct remote_store *s, struct once_error *err, const char *why)
{
    bool asked = s->welcome;
    disconnect(s);
    return asked ? once_fail(err, ONCE_UNKNOWN, "the daemon's answer was lost: %s", why)
                 : once_fail(err, ONCE_UNAVAILABLE, "the daemon at '%s' does not say welcome: %s", s->address.sun_path,
                             why);
}

/* A daemon that closed the connection may have said why: so only reading reports a failure, sending does not. */
static void send_some(struct remote_store *s)
{
    ssize_t n = send(s->fd, s->out.ptr + s->sent, s->out.len - s->sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EPIPE && errno != ECONNRESET)
        return; /* later */
    s->sent = n < 0 ? s->out.len : s->sent + (size_t)n;
    if (s->sent == s->out.len) {
        once_buf_clear(&s->out);
        s->sent = 0;
    }
}

static once_result receive_some(struct remote_store *s, struct once_error *err)
{
    if (s->parsed == s->in.len) {
        once_buf_clear(&s->in);
        s->parsed = 0;
    } else if (s->parsed > READ_LEN) { /* moves the unread rest to the front */
        memmove(s->in.ptr, s->in.ptr + s->parsed, s->in.len - s->parsed);
        s->in.len -= s->parsed;
        s->parsed = 0;
    }
    uint8_t *at = once_buf_reserve(&s->in, READ_LEN);
    if (at == NULL)
        return lost(s, err, "no memory for it");
    ssize_t n = recv(s->fd, at, READ_LEN, 0);
    if (n == 0)
        return lost(s, err, "it closed the connection");
    if (n < 0 && errno != EINTR && errno != EAGAIN)
        return lost(s, err, strerror(errno));
    s->in.len += n > 0 ? (size_t)n : 0;
    return ONCE_OK;
}

/* The next frame. Sends meanwhile: otherwise both sides could wait with full buffers. */
static once_result next_frame(struct remote_store *s, struct wire_frame *frame, struct once_error *err)
{
    for (;;) {
        size_t used = 0;
        once_result r = wire_next(once_span_skip(once_buf_span(&s->in), s->parsed), frame, &used, err);
        if (r != ONCE_OK)
            return lost(s, err, "it is not understood");
        s->parsed += used;
        if (used > 0)
            return ONCE_OK;
        struct pollfd fd = { .fd = s->fd, .events = (short)(POLLIN | (s->out.len > 0 ? POLLOUT : 0)) };
        int ready = poll(&fd, 1, SILENCE_MS_MAX);
        if (ready == 0)
            return lost(s, err, "it is silent");
        if (ready < 0)
            continue; /* interrupted */
        if ((fd.revents & POLLOUT) != 0)
            send_some(s);
        if ((fd.revents & (POLLIN | POLLHUP | POLLERR)) != 0)
            r = receive_some(s, err);
        if (r != ONCE_OK)
            return r;
    }
}

static once_result greet(struct remote_store *s, struct once_error *err)
{
    wire_put_hello(&s->out, s->next_id++, &(struct wire_hello){ .version = WIRE_VERSION, .name = ONCE_LIT("libonce") });
    struct wire_frame frame;
    once_result r = next_frame(s, &frame, err);
    if (r != ONCE_OK)
        return r;
    if (frame.type == WIRE_FAILED) {
        r = wire_get_failed(frame.payload, err);
        disconnect(s);
        return r;
    }
    struct wire_welcome welcome;
    if (frame.type != WIRE_WELCOME || wire_get_welcome(frame.payload, &welcome, NULL) != ONCE_OK)
        return lost(s, err, "it says something else");
    bool other = s->opened && (memcmp(s->base.secret.key, welcome.secret, sizeof welcome.secret) != 0 ||
                               s->base.best_effort != welcome.best_effort);
    if (!s->opened) {
        once_mac_init(&s->base.secret, once_span_of(welcome.secret, sizeof welcome.secret));
        s->base.best_effort = welcome.best_effort;
    }
    explicit_bzero(welcome.secret, sizeof welcome.secret);
    if (other) {
        disconnect(s);
        return once_fail(err, ONCE_UNAVAILABLE, "the daemon at '%s' has another store now: open it again",
                         s->address.sun_path);
    }
    s->opened = s->welcome = true;
    return ONCE_OK;
}

static once_result connect_daemon(struct remote_store *s, struct once_error *err)
{
    disconnect(s);
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = { .tv_sec = SILENCE_MS_MAX / 1000 }; /* the queue of connections to accept may be long */
    if (s->fd < 0 || setsockopt(s->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0 ||
        connect(s->fd, (struct sockaddr *)&s->address, sizeof s->address) != 0) {
        once_fail(err, ONCE_UNAVAILABLE, "cannot reach the daemon at '%s': %s", s->address.sun_path, strerror(errno));
        disconnect(s);
        return ONCE_UNAVAILABLE;
    }
    fcntl(s->fd, F_SETFL, O_NONBLOCK);
    return greet(s, err);
}

static once_result reopen(struct once_store *base, enum once_fate *fate, struct once_error *err)
{
    *fate = ONCE_FATE_UNSURE;
    return connect_daemon((struct remote_store *)base, err);
}

/* ------------------------------------------------------------------ operations */

static void put_op(struct remote_store *s, uint32_t id, const struct once_op *op)
{
    struct wire_call call = { .request = *op->request, .again = op->again };
    memcpy(call.nonce, op->nonce, sizeof call.nonce);
    if (call.request.verb == ONCE_VERB_CLAIM)
        call.request.claim.wait_ms = 0; /* the engine waits, not the batch */
    wire_put_call(&s->out, id, &call);
}

/* The daemon did not come to the operation: its answer says nothing about an earlier try. */
static bool is_no_answer(once_result r)
{
    return r == ONCE_BUSY || r == ONCE_UNAVAILABLE || r == ONCE_NO_MEMORY;
}

static once_result take_answer(struct once_op *op, const struct wire_frame *frame, struct once_error *err)
{
    if (frame->type == WIRE_FAILED) {
        op->result = wire_get_failed(frame->payload, &op->err);
        return ONCE_OK;
    }
    enum once_arm arm;
    int64_t retry_after_ms;
    struct once_record record;
    if (frame->type != WIRE_REPLY)
        return once_fail(err, ONCE_INVALID, "a frame of type %u in answer to a call", frame->type);
    once_result r = wire_get_reply(frame->payload, &arm, &retry_after_ms, &record, err);
    if (r == ONCE_OK)
        r = once_reply_set(&op->reply, arm, record.grant.fence != 0 ? &record : NULL, err);
    if (r == ONCE_OK) {
        op->result = ONCE_OK;
        op->reply.retry_after_ms = retry_after_ms;
    }
    return r;
}

static once_result apply(struct once_store *base, struct once_op *const *ops, size_t count, struct once_error *err)
{
    struct remote_store *s = (struct remote_store *)base;
    if (s->fd < 0) {
        once_result r = connect_daemon(s, err);
        if (r != ONCE_OK)
            return r;
    }
    uint32_t first = s->next_id;
    s->next_id += (uint32_t)count;
    for (size_t i = 0; i < count; i++)
        put_op(s, first + (uint32_t)i, ops[i]);
    if (s->out.result != ONCE_OK) { /* nothing was sent */
        disconnect(s);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a batch");
    }
    for (size_t i = 0; i < count; i++) {
        struct wire_frame frame;
        once_result r = next_frame(s, &frame, err);
        if (r != ONCE_OK)
            return r;
        uint32_t at = frame.id - first;
        if (at >= count || ops[at]->reply.memory != NULL)
            return lost(s, err, "it answers what was not asked");
        r = take_answer(ops[at], &frame, err);
        if (r != ONCE_OK)
            return lost(s, err, "it could not be kept");
    }
    /* K10: an operation that is applied again (always alone) stays in doubt until the store has looked. */
    if (count == 1 && ops[0]->again && is_no_answer(ops[0]->result)) {
        if (err != NULL)
            *err = ops[0]->err;
        return ops[0]->result;
    }
    return ONCE_OK;
}

/* ------------------------------------------------------------------ the rest */

/* Sends what is in the buffer and waits for the one answer, of this type. */
static once_result ask(struct remote_store *s, enum wire_type wanted, struct wire_frame *frame, struct once_error *err)
{
    once_result r = next_frame(s, frame, err);
    if (r != ONCE_OK)
        return r;
    if (frame->type == WIRE_FAILED)
        return wire_get_failed(frame->payload, err);
    return frame->type == wanted ? ONCE_OK : lost(s, err, "it answers something else");
}

/* Connects where there is no connection. */
static once_result ready(struct remote_store *s, struct once_error *err)
{
    return s->fd >= 0 ? ONCE_OK : connect_daemon(s, err);
}

/* Reading changes nothing: a lost answer is ONCE_UNAVAILABLE, not ONCE_UNKNOWN. */
static once_result looked(once_result r)
{
    return r == ONCE_UNKNOWN || r == ONCE_INVALID ? ONCE_UNAVAILABLE : r;
}

static once_result list(struct once_store *base, const struct once_filter *f, struct once_page *page,
                        struct once_error *err)
{
    struct remote_store *s = (struct remote_store *)base;
    struct wire_frame frame;
    struct wire_reader reader;
    struct once_record record;
    struct gather_page g = { .count = 0 };
    once_result r = ready(s, err);
    if (r != ONCE_OK)
        return r;
    wire_put_list(&s->out, s->next_id++, f);
    r = ask(s, WIRE_PAGE, &frame, err);
    if (r == ONCE_OK)
        r = wire_read_page(frame.payload, &reader, &page->next, err);
    if (r == ONCE_OK)
        r = gather_page_init(&g, f->limit, err);
    for (bool more = true; r == ONCE_OK && more;) {
        r = wire_read_record(&reader, &record, &more, err);
        if (r == ONCE_OK && more && g.count < f->limit)
            gather_record(&g, &record);
    }
    if (r == ONCE_OK)
        r = gather_page_make(&g, page, err);
    gather_page_release(&g);
    return looked(r);
}

static once_result history(struct once_store *base, const uint8_t record[16], struct once_history *h,
                           struct once_error *err)
{
    struct remote_store *s = (struct remote_store *)base;
    struct wire_frame frame;
    struct wire_reader reader;
    struct gather_history t = { .count = 0 };
    once_result r = ready(s, err);
    if (r != ONCE_OK)
        return r;
    wire_put_history(&s->out, s->next_id++, record);
    r = ask(s, WIRE_EVENTS, &frame, err);
    if (r == ONCE_OK)
        r = wire_read_events(frame.payload, &reader, err);
    if (r == ONCE_OK)
        r = gather_history_init(&t, err);
    for (bool more = true; r == ONCE_OK && more;) {
        struct once_event event;
        once_span what;
        r = wire_read_event(&reader, &event, &what, &more, err);
        if (r == ONCE_OK && more) {
            event.what = gather_event_name(what);
            gather_event(&t, event);
        }
    }
    if (r == ONCE_OK)
        r = gather_history_make(&t, h, err);
    gather_history_release(&t);
    return looked(r);
}

static once_result expire(struct once_store *base, uint32_t budget, uint64_t *removed, bool *more,
                          struct once_error *err)
{
    struct remote_store *s = (struct remote_store *)base;
    struct wire_frame frame;
    once_result r = ready(s, err);
    if (r != ONCE_OK)
        return r;
    wire_put_number(&s->out, s->next_id++, WIRE_EXPIRE, budget);
    r = ask(s, WIRE_EXPIRED, &frame, err);
    return looked(r == ONCE_OK ? wire_get_expired(frame.payload, removed, more, err) : r);
}

static once_result tell_problems(struct wire_reader *reader, once_problem_fn *each, void *arg, struct once_error *err)
{
    once_result r = ONCE_OK;
    for (bool more = true; r == ONCE_OK && more;) {
        once_span invariant, text;
        uint64_t fence;
        r = wire_read_problem(reader, &fence, &invariant, &text, &more, err);
        if (r != ONCE_OK || !more || each == NULL)
            continue;
        char name[32], problem[500];
        snprintf(name, sizeof name, "%.*s", ONCE_SPAN_ARGS(invariant));
        snprintf(problem, sizeof problem, "%.*s", ONCE_SPAN_ARGS(text));
        each(arg, &(struct once_problem){ name, fence, problem });
    }
    return r;
}

static once_result check(struct once_store *base, uint64_t *cursor, once_problem_fn *each, void *arg,
                         struct once_check_report *report, struct once_error *err)
{
    struct remote_store *s = (struct remote_store *)base;
    struct wire_frame frame;
    struct wire_reader reader;
    struct once_check_report step = { .records = 0 };
    once_result r = ready(s, err);
    if (r != ONCE_OK)
        return r;
    wire_put_number(&s->out, s->next_id++, WIRE_CHECK, *cursor);
    r = ask(s, WIRE_CHECKED, &frame, err);
    if (r == ONCE_OK)
        r = wire_read_checked(frame.payload, &reader, cursor, &step, err);
    if (r == ONCE_OK)
        r = tell_problems(&reader, each, arg, err);
    report->records += step.records;
    report->attempts += step.attempts;
    report->problems += step.problems;
    return looked(r);
}

static once_result stats(struct once_store *base, struct once_stats *stats, struct once_error *err)
{
    struct remote_store *s = (struct remote_store *)base;
    struct wire_frame frame;
    once_result r = ready(s, err);
    if (r != ONCE_OK)
        return r;
    wire_put_number(&s->out, s->next_id++, WIRE_STATS, 0);
    r = ask(s, WIRE_COUNTS, &frame, err);
    return looked(r == ONCE_OK ? wire_get_counts(frame.payload, stats, err) : r);
}

static once_result read_clock(struct once_store *base, once_time *now, struct once_error *err)
{
    struct once_stats counted = { .now = 0 };
    once_result r = stats(base, &counted, err);
    *now = counted.now;
    return r;
}

/* The daemon says only that its store is of the best-effort tier, and there is one such store. */
static const struct once_gap *gaps(const struct once_store *base, size_t *count)
{
    return base->best_effort ? once_store_redis_gaps(count) : NULL;
}

/* ------------------------------------------------------------------ open, close */

static void close_store(struct once_store *base)
{
    struct remote_store *s = (struct remote_store *)base;
    disconnect(s);
    once_buf_release(&s->out);
    once_buf_release(&s->in);
    explicit_bzero(&s->base.secret, sizeof s->base.secret);
    free(s);
}

static const struct once_store_ops ops = {
    .name = "remote",
    .apply = apply,
    .reopen = reopen,
    .list = list,
    .history = history,
    .expire = expire,
    .check = check,
    .stats = stats,
    .clock = read_clock,
    .gaps = gaps,
    .close = close_store,
};

/* PATH, without what is behind a '?': there are no parameters. */
static once_result socket_path(once_span rest, once_span *path, struct once_error *err)
{
    static const char *const known[] = { NULL };
    const size_t max = sizeof((struct sockaddr_un *)NULL)->sun_path - 1;
    once_span query;
    once_span_cut(rest, '?', path, &query);
    once_result r = once_url_check(query, known, err);
    if (r == ONCE_OK && (path->len == 0 || path->len > max))
        r = once_fail(err, ONCE_INVALID, "'once:%.*s' does not name a daemon's socket: a path of 1 to %zu bytes",
                      ONCE_SPAN_ARGS(*path), max);
    return r;
}

once_result once_store_remote_url_check(once_span rest, struct once_error *err)
{
    once_span path;
    return socket_path(rest, &path, err);
}

once_result once_store_remote_open(once_span rest, struct once_store **out, struct once_error *err)
{
    struct remote_store *s = calloc(1, sizeof *s);
    if (s == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a store");
    s->base.ops = &ops;
    s->base.shared = true;
    s->fd = -1;
    s->address.sun_family = AF_UNIX;
    once_buf_init(&s->out, SEND_LEN_MAX);
    once_buf_init(&s->in, WIRE_FRAME_LEN_MAX + 4 + 2 * READ_LEN);
    once_span path;
    once_result r = socket_path(rest, &path, err);
    if (r == ONCE_OK) {
        memcpy(s->address.sun_path, path.ptr, path.len);
        r = connect_daemon(s, err);
    }
    if (r != ONCE_OK) {
        close_store(&s->base);
        return r;
    }
    *out = &s->base;
    return ONCE_OK;
}
