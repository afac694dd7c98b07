/*
 * seal.c - a store around a store: it encrypts bodies, requests and checkpoints, so that the files alone do not show
 * them.
 *
 * Going in, bodies with their header lines, stored requests and checkpoints become envelopes (core/seal.h); coming out,
 * they are opened. Everything else (tenants, keys, fingerprints, states, times, names of recovery points) passes as it
 * is. A sealed outcome is one whose only header line is "Once-Sealed: ID" and whose body is the envelope of the encoded
 * outcome: the stores below know nothing of this, and a reader that goes around this wrapper sees that it is sealed,
 * and with which key.
 *
 * Invariants: SEAL-2 an envelope that was changed is ONCE_CORRUPT, as a wrong checksum is.
 *             SEAL-3 nothing is stored in plain, whatever fails: an empty outcome passes, all else is sealed or
 *                refused.
 *             SEAL-4 without its key an answer is shown as not kept (`body_dropped`), never executed again: the state
 *                that K5 needs is not sealed. A checkpoint, or a request to be sent again, that cannot be opened makes
 *                its record unknown (K10): its holder cannot go on, and how far it got is not known.
 * The store keeps the ids of the keys without a tenant that it was sealed with (once_store_seal_keys): it is not opened
 * without all of them.
 *
 * Sealing runs on the writer's thread, since a finish does not name its tenant: tenants of recent claims are
 * remembered, others are looked up, and only if tenants have their own keys.
 */
#include "core/err.h"
#include "core/limits.h"
#include "core/outcome.h"
#include "core/record.h"
#include "core/seal_ring.h"
#include "core/span.h"
#include "store/wrap/seal_keys.h"
#include "store/wrap/wrap.h"

static_assert(ONCE_SEAL_OVERHEAD_MAX <= ONCE_SEALED_MORE, "stores have room for an envelope");

#define MARK "Once-Sealed: "
enum { KNOWN_LEN = 16384 }; /* records under way whose key is remembered */

struct known {
    uint8_t record[16];
    const struct once_seal_key *key;
};

struct seal_store {
    struct wrap_store wrap;
    struct once_seal_ring *ring; /* NULL: without keys, for reading only */
    bool owns_ring;              /* the first handle's; others of the same store borrow it */
    struct known *known;         /* KNOWN_LEN of them, where tenants have keys */
};

/* An operation as the inner store gets it. */
struct sealed {
    struct once_op op;
    struct once_request request;
    const struct once_seal_key *key;
    struct once_buf bytes, encoded; /* what its spans point to */
};

struct batch {
    struct sealed *sealed;  /* of each operation; unused where nothing has to be sealed */
    struct once_op **inner; /* what the inner store is given */
    size_t count;           /* of those */
};

/* ------------------------------------------------------------------ whose key */

static struct known *known_slot(const struct seal_store *s, const uint8_t record[16])
{
    uint32_t n;
    memcpy(&n, record, sizeof n);
    return &s->known[n % KNOWN_LEN];
}

static const struct once_seal_key *common_key(const struct seal_store *s)
{
    return once_seal_ring_for(s->ring, once_span_of(NULL, 0));
}

static const struct once_seal_key *know(struct seal_store *s, const uint8_t record[16], once_span tenant)
{
    if (s->known == NULL)
        return common_key(s);
    struct known *k = known_slot(s, record);
    memcpy(k->record, record, 16);
    k->key = once_seal_ring_for(s->ring, tenant);
    return k->key;
}

/* NULL: it is not known. */
static const struct once_seal_key *key_of(const struct seal_store *s, const struct once_op *op)
{
    const struct once_request *q = op->request;
    if (q->verb == ONCE_VERB_CLAIM)
        return once_seal_ring_for(s->ring, q->claim.tenant);
    if (q->verb == ONCE_VERB_RESOLVE)
        return once_seal_ring_for(s->ring, q->resolve.tenant);
    if (s->known == NULL)
        return common_key(s);
    const struct known *k = known_slot(s, op->record);
    return k->key != NULL && memcmp(k->record, op->record, 16) == 0 ? k->key : NULL;
}

static const struct once_outcome *outcome_of(const struct once_request *q)
{
    return q->verb == ONCE_VERB_FINISH                                               ? &q->outcome
           : q->verb == ONCE_VERB_RESOLVE && q->resolve.verdict == ONCE_VERDICT_DONE ? &q->resolve.outcome
                                                                                     : NULL;
}

static bool has_secret(const struct once_request *q)
{
    const struct once_outcome *outcome = outcome_of(q);
    return (outcome != NULL && (outcome->headers.len > 0 || outcome->body.len > 0)) ||
           (q->verb == ONCE_VERB_CLAIM && q->claim.request.len > 0) ||
           (q->verb == ONCE_VERB_ADVANCE && q->advance.checkpoint.len > 0);
}

/* Looks up the tenants of these records. A record that does not exist has none: its operation will store nothing. */
static once_result look_up_keys(struct seal_store *s, struct sealed *const *wanted, struct once_op *asked,
                                struct once_op **pointers, size_t count, struct once_error *err)
{
    static const struct once_request question = { .verb = ONCE_VERB_LOOKUP };
    for (size_t i = 0; i < count; i++) {
        asked[i].request = &question;
        memcpy(asked[i].record, wanted[i]->op.record, 16);
        pointers[i] = &asked[i];
    }
    once_result r = once_store_apply(s->wrap.inner, pointers, count, err);
    if (r == ONCE_UNKNOWN) { /* reading changes nothing: ask again here, so that no operation is in doubt */
        for (size_t i = 0; i < count; i++)
            once_reply_release(&asked[i].reply);
        if (once_store_reopen(s->wrap.inner, NULL, err) == ONCE_OK)
            r = once_store_apply(s->wrap.inner, pointers, count, err);
    }
    for (size_t i = 0; i < count; i++) {
        const struct once_record *found = &asked[i].reply.record; /* a forgotten record has no tenant */
        if (r == ONCE_OK && asked[i].result == ONCE_OK && asked[i].reply.arm == ONCE_ARM_FOUND && !found->forgotten)
            wanted[i]->key = know(s, asked[i].record, found->tenant);
        once_reply_release(&asked[i].reply);
    }
    return r;
}

static once_result find_keys(struct seal_store *s, struct sealed *sealed, struct once_op *const *ops, size_t count,
                             struct once_error *err)
{
    struct sealed **wanted = calloc(count, sizeof(struct sealed *));
    struct once_op *asked = calloc(count, sizeof *asked), **pointers = calloc(count, sizeof(struct once_op *));
    once_result r = ONCE_OK;
    size_t n = 0;
    if (wanted == NULL || asked == NULL || pointers == NULL)
        r = once_fail(err, ONCE_NO_MEMORY, "no memory to seal %zu operations", count);
    for (size_t i = 0; r == ONCE_OK && i < count; i++) {
        sealed[i].key = has_secret(ops[i]->request) ? key_of(s, ops[i]) : common_key(s);
        if (sealed[i].key != NULL)
            continue;
        sealed[i].key = common_key(s);
        memcpy(sealed[i].op.record, ops[i]->record, 16);
        wanted[n++] = &sealed[i];
    }
    if (r == ONCE_OK && n > 0)
        r = look_up_keys(s, wanted, asked, pointers, n, err);
    free(wanted);
    free(asked);
    free(pointers);
    return r;
}

/* ------------------------------------------------------------------ going in */

static once_result seal_outcome(struct sealed *to, struct once_outcome *outcome, struct once_error *err)
{
    if (outcome->headers.len == 0 && outcome->body.len == 0)
        return ONCE_OK;
    struct once_buf plain;
    once_buf_init(&plain, ONCE_OUTCOME_LEN_MAX);
    once_result r = once_outcome_encode(outcome, 0, &plain, err);
    once_buf_addf(&to->bytes, MARK "%s\r\n", to->key->id);
    size_t head = to->bytes.len;
    if (r == ONCE_OK)
        once_seal_close(to->key, ONCE_SEAL_OUTCOME, to->op.record, once_buf_span(&plain), &to->bytes);
    once_buf_release(&plain);
    if (r == ONCE_OK && to->bytes.result != ONCE_OK)
        r = once_fail(err, to->bytes.result, "no memory to seal an answer");
    outcome->headers = once_span_of(to->bytes.ptr, head);
    outcome->body = once_span_skip(once_buf_span(&to->bytes), head);
    return r;
}

static once_result seal_bytes(struct sealed *to, enum once_seal_field field, once_span *bytes, struct once_error *err)
{
    if (bytes->len == 0)
        return ONCE_OK;
    once_seal_close(to->key, field, to->op.record, *bytes, &to->bytes);
    if (to->bytes.result != ONCE_OK)
        return once_fail(err, to->bytes.result, "no memory to seal %zu bytes", bytes->len);
    *bytes = once_buf_span(&to->bytes);
    return ONCE_OK;
}

/* As once.c encodes for a store that wants it. */
static once_result encode(const struct seal_store *s, struct sealed *to, struct once_error *err)
{
    const struct once_request *q = &to->request;
    if (q->verb != ONCE_VERB_FINISH || !s->wrap.inner->encoded)
        return ONCE_OK;
    const struct once_outcome *o = &q->outcome;
    uint64_t seal = once_outcome_sum_seed(q->grant, o);
    once_result r = once_outcome_encode(o, seal, &to->encoded, err);
    to->op.outcome = once_buf_span(&to->encoded);
    return r;
}

static once_result seal_op(const struct seal_store *s, const struct once_op *op, struct sealed *to,
                           struct once_error *err)
{
    once_buf_init(&to->bytes, ONCE_STORED_BODY_LEN_MAX + ONCE_SEALED_MORE);
    once_buf_init(&to->encoded, ONCE_STORED_BODY_LEN_MAX + 2 * ONCE_SEALED_MORE);
    to->op = *op;
    to->request = *op->request;
    to->op.request = &to->request;
    once_result r = ONCE_OK;
    switch (op->request->verb) {
    case ONCE_VERB_CLAIM:
        r = seal_bytes(to, ONCE_SEAL_REQUEST, &to->request.claim.request, err);
        break;
    case ONCE_VERB_ADVANCE:
        r = seal_bytes(to, ONCE_SEAL_CHECKPOINT, &to->request.advance.checkpoint, err);
        break;
    case ONCE_VERB_FINISH:
        r = seal_outcome(to, &to->request.outcome, err);
        break;
    default:
        r = seal_outcome(to, &to->request.resolve.outcome, err);
    }
    return r == ONCE_OK ? encode(s, to, err) : r;
}

/* Without keys, refuses operations that store bytes, and claims: their holders could not finish. */
static bool is_refused(const struct seal_store *s, struct once_op *op)
{
    enum once_verb verb = op->request->verb;
    if (s->ring != NULL)
        return false;
    bool refused = verb == ONCE_VERB_CLAIM || verb == ONCE_VERB_TAKE_OVER || verb == ONCE_VERB_ADVANCE ||
                   verb == ONCE_VERB_FINISH || has_secret(op->request);
    if (refused)
        op->result =
            once_fail(&op->err, ONCE_INVALID,
                      "this store's bytes are sealed: it needs its keys for that (--seal-keys, or ONCE_SEAL_KEYS)");
    return refused;
}

static bool needs_copy(const struct seal_store *s, const struct once_request *q)
{
    return s->ring != NULL && (has_secret(q) || q->verb == ONCE_VERB_FINISH);
}

static void batch_release(struct batch *b, struct once_op *const *ops, size_t count)
{
    for (size_t i = 0; b->sealed != NULL && i < count; i++) {
        struct sealed *sealed = &b->sealed[i];
        if (sealed->op.request == NULL)
            continue;
        struct once_op done = sealed->op; /* the results; the request stays the caller's */
        done.request = ops[i]->request;
        done.outcome = ops[i]->outcome;
        *ops[i] = done;
        once_buf_release(&sealed->bytes);
        once_buf_release(&sealed->encoded);
    }
    free(b->sealed);
    free(b->inner);
}

static once_result batch_make(struct seal_store *s, struct batch *b, struct once_op *const *ops, size_t count,
                              struct once_error *err)
{
    b->sealed = calloc(count, sizeof *b->sealed);
    b->inner = calloc(count, sizeof(struct once_op *));
    if (b->sealed == NULL || b->inner == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory to seal %zu operations", count);
    once_result r = s->ring != NULL ? find_keys(s, b->sealed, ops, count, err) : ONCE_OK;
    for (size_t i = 0; r == ONCE_OK && i < count; i++) {
        if (is_refused(s, ops[i]))
            continue;
        bool copy = needs_copy(s, ops[i]->request);
        if (copy)
            r = seal_op(s, ops[i], &b->sealed[i], err);
        b->inner[b->count++] = copy ? &b->sealed[i].op : ops[i];
    }
    return r;
}

/* ------------------------------------------------------------------ coming out */

enum opened { OPENED, SHREDDED, CHANGED, NO_MEMORY };

static enum opened open_bytes(const struct seal_store *s, const uint8_t record[16], enum once_seal_field field,
                              once_span sealed, struct once_buf *out, struct once_error *err)
{
    once_span id;
    if (once_seal_id(sealed, &id, err) != ONCE_OK)
        return CHANGED;
    const struct once_seal_key *key = once_seal_ring_find(s->ring, id);
    if (key == NULL)
        return SHREDDED;
    once_result r = once_seal_open(key, field, record, sealed, out, err);
    return r == ONCE_OK ? OPENED : r == ONCE_CORRUPT ? CHANGED : NO_MEMORY;
}

static bool is_sealed_outcome(const struct once_record *r)
{
    return once_span_starts(r->headers, ONCE_LIT(MARK)) && once_seal_is(r->body);
}

/* A reply under way: the record with its spans as they will be, and what holds them. */
struct opening {
    struct once_record record;
    struct once_buf outcome, body, request, checkpoint;
    bool lost; /* a request or checkpoint cannot be opened */
    bool any;
};

static enum opened open_outcome(const struct seal_store *s, struct opening *o, struct once_error *err)
{
    struct once_record *r = &o->record;
    if (!is_sealed_outcome(r))
        return OPENED;
    o->any = true;
    enum opened how = open_bytes(s, r->grant.record, ONCE_SEAL_OUTCOME, r->body, &o->outcome, err);
    if (how == SHREDDED) { /* SEAL-4 */
        r->headers = r->body = once_span_of(NULL, 0);
        r->body_dropped = r->body_sealed = true;
    } else if (how == OPENED) {
        once_result result =
            once_outcome_decode(once_buf_span(&o->outcome), 0, &o->body, &r->headers, &r->body, &r->body_dropped, err);
        how = result == ONCE_OK ? OPENED : result == ONCE_CORRUPT ? CHANGED : NO_MEMORY;
    }
    return how == SHREDDED ? OPENED : how;
}

static enum opened open_part(const struct seal_store *s, struct opening *o, enum once_seal_field field, once_span *part,
                             struct once_buf *to, struct once_error *err)
{
    if (!once_seal_is(*part))
        return OPENED;
    o->any = true;
    enum opened how = open_bytes(s, o->record.grant.record, field, *part, to, err);
    *part = how == OPENED ? once_buf_span(to) : once_span_of(NULL, 0);
    o->lost = o->lost || how == SHREDDED || how == CHANGED;
    return how == SHREDDED ? OPENED : how;
}

/* The grant was made and cannot be used: ends it as unknown, and answers so. ONCE_UNKNOWN: the answer to that was lost.
 */
static once_result give_up(struct seal_store *s, struct once_op *op)
{
    struct sealed ended = { .request = { .verb = ONCE_VERB_FINISH,
                                         .grant = op->reply.record.grant,
                                         .outcome = { .state = ONCE_STATE_UNKNOWN } } };
    struct once_record record = op->reply.record;
    once_buf_init(&ended.encoded, 256);
    ended.op.request = &ended.request;
    memcpy(ended.op.record, op->record, 16);
    struct once_op *one = &ended.op;
    once_result r = encode(s, &ended, &op->err);
    if (r == ONCE_OK)
        r = once_store_apply(s->wrap.inner, &one, 1, &op->err);
    if (r == ONCE_OK && (r = one->result) != ONCE_OK)
        op->err = one->err;
    if (r == ONCE_OK && one->reply.arm != ONCE_ARM_DONE)
        r = once_fail(&op->err, ONCE_BUSY, "it changed while it was read");
    struct once_reply before = op->reply;
    op->reply = (struct once_reply){ .arm = ONCE_ARM_NONE };
    if (r == ONCE_OK) {
        record.state = ONCE_STATE_UNKNOWN;
        record.lease_live = false;
        record.lease_until = 0;
        record.finished_at = one->reply.record.finished_at;
        record.expires_at = ONCE_NEVER;
        record.checkpoint = record.request = once_span_of(NULL, 0);
        r = once_reply_set(&op->reply, ONCE_ARM_UNKNOWN, &record, &op->err);
    }
    op->result = r;
    once_reply_release(&before);
    once_reply_release(&one->reply);
    once_buf_release(&ended.encoded);
    return r == ONCE_UNKNOWN ? r : ONCE_OK;
}

/* Replaces the envelopes in an answer by their contents. `certain`: the answer is committed. ONCE_UNKNOWN: this took
 * another step of the store, whose answer was lost. */
static once_result open_reply(struct seal_store *s, struct once_op *op, bool certain)
{
    struct opening o = { .record = op->reply.record };
    once_buf_init(&o.outcome, ONCE_STORED_BODY_LEN_MAX);
    once_buf_init(&o.body, ONCE_BODY_LEN_MAX + 1);
    once_buf_init(&o.request, ONCE_REQUEST_LEN_MAX + ONCE_SEALED_MORE);
    once_buf_init(&o.checkpoint, ONCE_CHECKPOINT_LEN_MAX + ONCE_SEALED_MORE);
    bool granted = op->reply.arm == ONCE_ARM_EXECUTE || op->reply.arm == ONCE_ARM_PROBE;
    once_result step = ONCE_OK;
    enum opened how = open_outcome(s, &o, &op->err);
    if (how == OPENED)
        how = open_part(s, &o, ONCE_SEAL_CHECKPOINT, &o.record.checkpoint, &o.checkpoint, &op->err);
    if (how == OPENED)
        how = open_part(s, &o, ONCE_SEAL_REQUEST, &o.record.request, &o.request, &op->err);
    o.record.has_request = o.record.has_request && (op->reply.record.request.len == 0 || o.record.request.len > 0);
    if (granted && o.lost && certain) {
        step = give_up(s, op);
    } else if ((granted && o.lost) || how == NO_MEMORY || how == CHANGED) {
        once_reply_release(&op->reply); /* a grant that may be committed is asked for again, by its nonce */
        op->result = how == CHANGED && !granted ? ONCE_CORRUPT : ONCE_UNKNOWN;
        op->err.result = op->result;
    } else if (o.any) {
        struct once_reply before = op->reply;
        op->result = once_reply_set(&op->reply, before.arm, &o.record, &op->err);
        op->reply.retry_after_ms = before.retry_after_ms;
        once_reply_release(&before);
    }
    once_buf_release(&o.outcome);
    once_buf_release(&o.body);
    once_buf_release(&o.request);
    once_buf_release(&o.checkpoint);
    return step;
}

static void remember(struct seal_store *s, const struct once_op *op)
{
    bool granted = op->reply.arm == ONCE_ARM_EXECUTE || op->reply.arm == ONCE_ARM_PROBE;
    if (granted && op->request->verb == ONCE_VERB_CLAIM)
        know(s, op->record, op->request->claim.tenant);
    else if (granted && op->request->verb == ONCE_VERB_TAKE_OVER)
        know(s, op->record, op->reply.record.tenant);
}

static once_result apply(struct once_store *base, struct once_op *const *ops, size_t count, struct once_error *err)
{
    struct seal_store *s = (struct seal_store *)base;
    struct batch b = { .count = 0 };
    once_result r = batch_make(s, &b, ops, count, err);
    if (r == ONCE_OK && b.count > 0)
        r = once_store_apply(s->wrap.inner, b.inner, b.count, err);
    batch_release(&b, ops, count);
    for (size_t i = 0; i < count && (r == ONCE_OK || r == ONCE_UNKNOWN); i++) {
        if (ops[i]->result != ONCE_OK)
            continue;
        if (s->ring != NULL)
            remember(s, ops[i]);
        if (open_reply(s, ops[i], r == ONCE_OK) == ONCE_UNKNOWN) { /* the engine settles it before anything new (K10) */
            r = ONCE_UNKNOWN;
            if (err != NULL)
                *err = ops[i]->err;
        }
    }
    return r;
}

/* ------------------------------------------------------------------ open, close */

static void close_store(struct once_store *base)
{
    struct seal_store *s = (struct seal_store *)base;
    if (s->owns_ring)
        once_seal_ring_free(s->ring);
    free(s->known);
    wrap_close(base);
}

static once_result open_another(struct once_store *base, struct once_store **out, struct once_error *err);

static const struct once_store_ops ops = {
    .name = "seal",
    .apply = apply,
    .reopen = wrap_reopen,
    WRAP_OPS_REST,
    .open_another = open_another,
    .close = close_store,
};

/* Owns the inner store from then on, even when it fails; the ring only on success. */
static once_result wrap(struct once_store *inner, struct once_seal_ring *ring, bool owns, struct once_store **out,
                        struct once_error *err)
{
    struct seal_store *s = wrap_create(sizeof *s, &ops, inner, err);
    if (s == NULL)
        return ONCE_NO_MEMORY;
    s->wrap.base.encoded = false; /* it is the plain outcome that is sealed */
    if (ring != NULL && once_seal_ring_has_tenants(ring) && (s->known = calloc(KNOWN_LEN, sizeof *s->known)) == NULL) {
        close_store(&s->wrap.base);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a store");
    }
    s->ring = ring;
    s->owns_ring = owns;
    *out = &s->wrap.base;
    return ONCE_OK;
}

static once_result open_another(struct once_store *base, struct once_store **out, struct once_error *err)
{
    struct seal_store *s = (struct seal_store *)base;
    struct once_store *inner = NULL;
    once_result r = once_store_open_another(s->wrap.inner, &inner, err);
    return r == ONCE_OK ? wrap(inner, s->ring, false, out, err) : r;
}

/* Checks that the ring has every key that this store was sealed with. */
static once_result check_marks(const struct once_seal_ring *ring, const struct once_seal_key_refs *refs,
                               struct once_error *err)
{
    for (size_t i = 0; i < refs->count; i++) {
        const struct once_seal_key_ref *ref = &refs->refs[i];
        const struct once_seal_key *key = once_seal_ring_find(ring, once_span_str(ref->id));
        uint8_t proof[16];
        if (key == NULL && once_seal_ring_is_gone(ring, once_span_str(ref->id)))
            continue;
        if (key == NULL)
            return once_fail(err, ONCE_UNAVAILABLE,
                             "bytes of this store are sealed with key '%s', which is not among the keys: add its line; "
                             "or 'ID gone', to give up the bytes that it sealed",
                             ref->id);
        once_seal_proof(key, proof);
        if (memcmp(proof, ref->proof, sizeof proof) != 0)
            return once_fail(err, ONCE_UNAVAILABLE, "key '%s' is not the one that this store was sealed with", ref->id);
    }
    return ONCE_OK;
}

/* Stores the id of the key for new bytes before the first of them is sealed. */
static once_result add_mark(struct once_store *store, const struct once_seal_ring *ring,
                            struct once_seal_key_refs *refs, struct once_error *err)
{
    const struct once_seal_key *key = once_seal_ring_for(ring, once_span_of(NULL, 0));
    for (size_t i = 0; i < refs->count; i++)
        if (strcmp(refs->refs[i].id, key->id) == 0)
            return ONCE_OK;
    if (refs->count == ONCE_SEAL_KEY_REFS_MAX)
        return once_fail(err, ONCE_LIMIT, "this store had %d keys already, the limit", ONCE_SEAL_KEY_REFS_MAX);
    struct once_seal_key_ref ref = { .id = "" };
    snprintf(ref.id, sizeof ref.id, "%s", key->id);
    once_seal_proof(key, ref.proof);
    once_result r = once_store_seal_keys(store, &ref, refs, err);
    return r == ONCE_OK ? check_marks(ring, refs, err) : r == ONCE_UNKNOWN ? ONCE_UNAVAILABLE : r;
}

static once_result fetch_ring(const struct once_options *options, struct once_seal_ring **ring, struct once_error *err)
{
    if (options->seal_keys != NULL && options->seal_keys_command != NULL)
        return once_fail(err, ONCE_INVALID, "keys come from a file or from a command, not from both");
    if (options->seal_keys != NULL)
        return once_seal_keys_file(options->seal_keys, ring, err);
    if (options->seal_keys_command != NULL)
        return once_seal_keys_command(options->seal_keys_command, ring, err);
    return ONCE_OK;
}

once_result once_store_seal(struct once_store **store, const struct once_options *options, struct once_error *err)
{
    bool wanted = options->seal_keys != NULL || options->seal_keys_command != NULL;
    struct once_seal_ring *ring = NULL;
    struct once_seal_key_refs *refs = NULL;
    if ((*store)->ops->seal_keys == NULL && !wanted)
        return ONCE_OK;
    if ((*store)->ops->seal_keys == NULL)
        return once_fail(err, ONCE_INVALID, "the daemon that owns this store seals it: give the keys to the daemon");
    once_result r = fetch_ring(options, &ring, err);
    if (r == ONCE_OK && (refs = calloc(1, sizeof *refs)) == NULL)
        r = once_fail(err, ONCE_NO_MEMORY, "no memory for a store");
    if (r == ONCE_OK)
        r = once_store_seal_keys(*store, NULL, refs, err);
    if (r == ONCE_OK && ring != NULL)
        r = check_marks(ring, refs, err);
    if (r == ONCE_OK && ring != NULL)
        r = add_mark(*store, ring, refs, err);
    bool sealed = r == ONCE_OK && refs->count > 0;
    if (sealed && ring == NULL && !options->without_keys)
        r = once_fail(err, ONCE_UNAVAILABLE, "bytes of this store are sealed, with key '%s' for one: it needs its keys",
                      refs->refs[0].id);
    if (r == ONCE_OK && sealed) {
        r = wrap(*store, ring, true, store, err);
        if (r == ONCE_OK)
            ring = NULL;
        else
            *store = NULL; /* it was closed */
    }
    once_seal_ring_free(ring);
    free(refs);
    return r;
}
