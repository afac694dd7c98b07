/* store.c - see redis/store.h. Batches, and opening. */
#include "store/redis/store.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "os/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ a batch */

/* One pipeline: which operations are in it, which have to be sent again. */
struct batch {
    struct redis_store *s;
    struct once_op *const *ops;
    size_t count;
    bool unsent[ONCE_BATCH_LEN_MAX]; /* not to be sent: it has its answer or its failure */
    bool wrote;
    bool gone; /* this server takes no writes: reconnect next time */
    bool flushed;
};

/* A handle's count of writes only grows. If it does not, the server lost data while the connection stayed: a FLUSHALL,
 * or a proxy switched servers. Reconnecting makes the store again. */
static void notice_loss(struct batch *b, uint64_t writes)
{
    struct redis_store *s = b->s;
    if (writes > s->seen)
        return;
    uint64_t lost = s->told >= writes ? s->told - (writes - 1) : 0;
    s->lost += lost;
    redis_store_warn(s,
                     "LOST: %" PRIu64 " acknowledged writes of this process were lost while it was connected: "
                     "their operations may be executed again",
                     lost);
    s->told = s->seen = writes - 1;
    b->gone = true;
}

static void take_reply(struct batch *b, size_t i, const redisReply *reply, once_result *fatal, struct once_error *err)
{
    struct redis_store *s = b->s;
    struct once_op *op = b->ops[i];
    uint64_t writes = 0;
    if (reply->type == REDIS_REPLY_ERROR) {
        bool gone = false;
        if (once_span_starts(once_span_of(reply->str, (size_t)reply->len), ONCE_LIT("NOSCRIPT"))) {
            b->flushed = true;
            return;
        }
        b->unsent[i] = true;
        op->result = redis_error(reply, &gone, &op->err);
        b->gone = b->gone || gone;
        return;
    }
    b->unsent[i] = true;
    *fatal = redis_op_take(reply, op, &s->scratch, &writes, err);
    if (writes > 0) {
        notice_loss(b, writes);
        s->seen = writes;
    }
    b->wrote = b->wrote || writes > 0;
    if (op->reply.record.grant.fence > s->floor)
        s->floor = op->reply.record.grant.fence;
}

/* Reads the replies of [from, to). */
static once_result read_replies(struct batch *b, size_t from, size_t to, const bool *sent, struct once_error *err)
{
    for (size_t i = from; i < to; i++) {
        if (!sent[i])
            continue;
        redisReply *reply = NULL;
        once_result fatal = ONCE_OK, r = redis_conn_next(&b->s->conn, &reply, err);
        if (r != ONCE_OK)
            return r;
        take_reply(b, i, reply, &fatal, err);
        freeReplyObject(reply);
        if (fatal != ONCE_OK) { /* it was executed, but there is no memory for the answer: the engine asks again */
            redis_conn_close(&b->s->conn);
            redis_conn_init(&b->s->conn, &b->s->url);
            return ONCE_UNKNOWN;
        }
    }
    return ONCE_OK;
}

static struct redis_context context_of(struct redis_store *s)
{
    return (struct redis_context){ .url = &s->url,
                                   .sha = s->sha[REDIS_SCRIPT_ONCE],
                                   .handle = s->handle,
                                   .now = s->clock != NULL ? s->clock->wall(s->clock->arg) : 0,
                                   .sync = s->url.replicas > 0 || s->url.fsync,
                                   .floor = s->floor };
}

/* Sends the batch in parts that fit into the buffer. */
static once_result send_batch(struct batch *b, struct once_error *err)
{
    struct redis_context context = context_of(b->s);
    bool sent[ONCE_BATCH_LEN_MAX] = { false };
    size_t from = 0;
    for (size_t i = 0; i < b->count; i++) {
        if (!b->unsent[i]) {
            once_result r = redis_op_put(&b->s->conn, &context, b->ops[i], &b->ops[i]->err);
            sent[i] = r == ONCE_OK;
            b->unsent[i] = r != ONCE_OK;
            if (r != ONCE_OK)
                b->ops[i]->result = r;
        }
        if (i + 1 < b->count && b->s->conn.out.len < ONCE_REDIS_SEND_LEN_MAX / 2)
            continue;
        once_result r = read_replies(b, from, i + 1, sent, err);
        if (r != ONCE_OK)
            return r;
        from = i + 1;
    }
    return ONCE_OK;
}

/* Waits until the writes are on as many replicas, or on disk, as the URL asks for (K4, as far as Redis goes). */
static once_result await_copies(struct redis_store *s, struct once_error *err)
{
    char replicas[12], ms[12];
    snprintf(replicas, sizeof replicas, "%u", s->url.replicas);
    snprintf(ms, sizeof ms, "%u", s->url.wait_ms);
    once_span wait[] = { ONCE_LIT("WAIT"), once_span_str(replicas), once_span_str(ms) };
    once_span waitaof[] = { ONCE_LIT("WAITAOF"), ONCE_LIT("1"), once_span_str(replicas), once_span_str(ms) };
    redisReply *reply = NULL;
    once_result r = redis_conn_ask(&s->conn, s->url.fsync ? 4 : 3, s->url.fsync ? waitaof : wait, &reply, err);
    if (r != ONCE_OK)
        return r;
    bool enough = false;
    if (reply->type == REDIS_REPLY_INTEGER)
        enough = reply->integer >= (long long)s->url.replicas;
    else if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2)
        enough = reply->element[0]->integer >= 1 && reply->element[1]->integer >= (long long)s->url.replicas;
    freeReplyObject(reply);
    s->waiting = !enough;
    return enough ? ONCE_OK
                  : once_fail(err, ONCE_UNKNOWN, "not %s within %u ms: it may be lost if Redis fails now",
                              s->url.fsync ? "on disk" : "on enough replicas", s->url.wait_ms);
}

static once_result apply(struct once_store *base, struct once_op *const *ops, size_t count, struct once_error *err)
{
    struct redis_store *s = (struct redis_store *)base;
    struct batch b = { .s = s, .ops = ops, .count = count };
    assert(count <= ONCE_BATCH_LEN_MAX);
    once_result r = s->conn.fd >= 0 ? ONCE_OK : redis_store_connect(s, err);
    if (r != ONCE_OK)
        return r;
    r = send_batch(&b, err);
    for (int round = 0; r == ONCE_OK && b.flushed && round < 3; round++) { /* the scripts were flushed */
        b.flushed = false;
        r = redis_store_load(s, err);
        r = r == ONCE_OK ? send_batch(&b, err) : ONCE_UNKNOWN;
    }
    if (r == ONCE_OK && b.wrote) {
        s->commits++;
        if (s->url.replicas > 0 || s->url.fsync)
            r = await_copies(s, err);
        if (r == ONCE_OK)
            s->told = s->seen;
    }
    if (b.gone && r == ONCE_OK) {
        redis_conn_close(&s->conn);
        redis_conn_init(&s->conn, &s->url);
    }
    /* K10: an operation that is applied again (always alone) stays in doubt until the script has looked. */
    once_result first = ops[0]->result;
    if (r == ONCE_OK && count == 1 && ops[0]->again && (first == ONCE_BUSY || first == ONCE_UNAVAILABLE)) {
        if (err != NULL)
            *err = ops[0]->err;
        return first;
    }
    return r;
}

/* An open connection has no reply outstanding: a lost reply closes it. If a WAIT timed out it is repeated; after that
 * the answers count. */
static once_result reopen(struct once_store *base, enum once_fate *fate, struct once_error *err)
{
    struct redis_store *s = (struct redis_store *)base;
    *fate = ONCE_FATE_UNSURE;
    if (s->conn.fd < 0)
        return redis_store_connect(s, err);
    if (!s->waiting)
        return ONCE_OK;
    if (await_copies(s, err) != ONCE_OK)
        return s->conn.fd < 0 ? redis_store_connect(s, err) : ONCE_UNAVAILABLE;
    s->told = s->seen;
    *fate = ONCE_FATE_COMMITTED;
    return ONCE_OK;
}

/* Redis itself removes records past their retention (TTL), uncounted. It leaves the ids of retryable failures in the
 * set of unfinished records. */
static once_result expire(struct once_store *base, uint32_t budget, uint64_t *removed, bool *more,
                          struct once_error *err)
{
    *removed = 0;
    *more = false;
    return redis_store_tidy((struct redis_store *)base, budget, more, err);
}

/* Nothing here is sealed, and nothing can be. */
static once_result seal_keys(struct once_store *base, const struct once_seal_key_ref *add,
                             struct once_seal_key_refs *out, struct once_error *err)
{
    (void)base;
    out->count = 0;
    return add == NULL ? ONCE_OK
                       : once_fail(err, ONCE_INVALID, "the best-effort tier seals nothing: leave the keys out");
}

/* ------------------------------------------------------------------ open, close */

/* Removes this handle's count of writes. */
static void say_goodbye(struct redis_store *s)
{
    char key[REDIS_PREFIX_MAX + 16];
    redisReply *reply = NULL;
    snprintf(key, sizeof key, "%switness", s->url.prefix);
    once_span argv[] = { ONCE_LIT("HDEL"), once_span_str(key), once_span_str(s->handle) };
    s->conn.patience_ms = ONCE_REDIS_GOODBYE_MS;
    if (s->opened && s->conn.fd >= 0 && redis_conn_ask(&s->conn, 3, argv, &reply, NULL) == ONCE_OK)
        freeReplyObject(reply);
}

static void close_store(struct once_store *base)
{
    struct redis_store *s = (struct redis_store *)base;
    say_goodbye(s);
    redis_conn_close(&s->conn);
    once_buf_release(&s->scratch);
    explicit_bzero(&s->base.secret, sizeof s->base.secret);
    explicit_bzero(s->url.password, sizeof s->url.password);
    free(s);
}

static once_result read_clock(struct once_store *base, once_time *now, struct once_error *err)
{
    return redis_store_now((struct redis_store *)base, now, err);
}

/* Who wants a record for ever does not want it where it may be lost. */
static once_result accepts(const struct once_store *base, const struct once_request *request, struct once_error *err)
{
    (void)base;
    if (request->verb == ONCE_VERB_FORGET)
        return once_fail(err, ONCE_INVALID,
                         "the best-effort tier does not forget single records: they end with their "
                         "retention");
    if (request->verb == ONCE_VERB_CLAIM && request->claim.retention_ms == ONCE_NEVER)
        return once_fail(
            err, ONCE_INVALID,
            "retention 'never' is not to be had on the best-effort tier: use a duration, or another store");
    return ONCE_OK;
}

static const struct once_gap *gaps(const struct once_store *base, size_t *count)
{
    (void)base;
    return once_store_redis_gaps(count);
}

static const struct once_store_ops ops = {
    .name = "redis",
    .apply = apply,
    .reopen = reopen,
    .list = redis_store_list,
    .lookup_many = redis_store_lookup_many,
    .history = redis_store_history,
    .expire = expire,
    .check = redis_store_check,
    .stats = redis_store_stats,
    .clock = read_clock,
    .accepts = accepts,
    .gaps = gaps,
    .seal_keys = seal_keys,
    .close = close_store,
};

once_result once_store_redis_open(once_span url, const struct once_options *options, struct once_store **out,
                                  struct once_error *err)
{
    struct redis_store *s = calloc(1, sizeof *s);
    if (s == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a store");
    s->base.ops = &ops;
    s->base.shared = true;
    s->base.encoded = true;
    s->base.best_effort = true;
    s->base.schema_version = 1;
    s->clock = options->clock != &once_os_clock ? options->clock : NULL;
    s->may_make = !options->no_migrate;
    s->warn = options->warn;
    s->warn_arg = options->warn_arg;
    once_buf_init(&s->scratch, ONCE_BODY_LEN_MAX + 1);
    uint64_t chance[2];
    once_os_random(chance, sizeof chance);
    snprintf(s->handle, sizeof s->handle, "%012" PRIx64 "%016" PRIx64 "%016" PRIx64,
             (uint64_t)once_os_clock.wall(NULL) & 0xffffffffffff, chance[0], chance[1]);
    once_result r = redis_url_parse(url, &s->url, err);
    redis_conn_init(&s->conn, &s->url);
    if (r == ONCE_OK) {
        r = redis_store_connect(s, err);
        if (r != ONCE_OK)
            once_error_prefix(err, "Redis");
    }
    if (r != ONCE_OK) {
        close_store(&s->base);
        return r;
    }
    *out = &s->base;
    return ONCE_OK;
}
