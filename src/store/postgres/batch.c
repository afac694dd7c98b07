/* batch.c - see postgres/batch.h. */
#include "store/postgres/batch.h"

#include "core/err.h"
#include "core/key.h"
#include "core/record.h"
#include "core/span.h"
#include "os/os.h"
#include "store/format.h"
#include "store/postgres/answer.h"
#include "store/postgres/ask.h"
#include "store/postgres/param.h"

#include <stdlib.h>
#include <unistd.h>

enum { RETRIES_MAX = 10, RETRY_PAUSE_US = 2000 };

static once_result send_plain(struct pg_conn *pg, enum pg_statement statement, struct once_error *err)
{
    struct pg_params p;
    pg_params_init(&p);
    once_result r = pg_conn_call(pg, statement, &p, err);
    pg_params_release(&p);
    return r;
}

static once_result send_settings(struct pg_conn *pg, struct once_error *err)
{
    struct pg_params p;
    pg_params_init(&p);
    once_result r = pg_send(pg->conn, pg->settings, &p, err);
    pg_params_release(&p);
    return r;
}

/* The clock of a test. The database uses it only if its store was made for tests. */
static once_result send_clock(struct pg_conn *pg, struct once_error *err)
{
    struct pg_params p;
    pg_params_init(&p);
    char text[24];
    int len = snprintf(text, sizeof text, "%lld", (long long)pg->clock->wall(pg->clock->arg));
    pg_add_bytes(&p, PG_TEXT, once_span_of(text, (size_t)len));
    once_result r = pg_send(pg->conn, "SELECT set_config('once.now_ms', $1, true)", &p, err);
    pg_params_release(&p);
    return r;
}

/* The operations of a batch in the order in which they are sent, a statement for each kind: claims, claims with rare
 * terms, finishes that were sent before (their function looks at older attempts, too), other finishes, finishes of
 * grants that this process remembers, then the rest one by one. Operations of one record keep their order: an operation
 * of an earlier kind than the one before it begins another stage. */
struct batch {
    struct item {
        struct once_op *op;
        size_t index;
        unsigned stage;
        enum kind {
            KIND_CLAIM,
            KIND_CLAIM_TERMS,
            KIND_FINISH_AGAIN,
            KIND_FINISH,
            KIND_FINISH_GRANTED,
            KIND_OTHER
        } kind;
        struct pg_grant granted; /* KIND_FINISH_GRANTED */
    } * items;
    struct once_op **ops;     /* of the items */
    struct pg_grant *granted; /* likewise */
    size_t count;
    bool twice;                                       /* two claims of one record go into one statement */
    enum way { WAY_SETS, WAY_FAST, WAY_REPLAYS } way; /* of this try */
    bool replays_first;                               /* WAY_SETS: most claims are expected to be replays */
};

/* An estimate of the database's clock: its last reading plus the time since. 0: there was no reading. */
static once_time about_now(const struct pg_conn *pg, const struct pg_recent_batches *recent)
{
    if (pg->clock != NULL)
        return pg->clock->wall(pg->clock->arg);
    return recent->database_at != 0 ? recent->database_at + once_os_monotonic_ms() - recent->steady_at : 0;
}

/* The database decides whether the time in a key is outside its window. But most keys are new: those that are less than
 * half as old as they may be surely are inside, and can go the fast way. */
static bool is_surely_inside(const struct once_claim *claim, once_time now)
{
    if (!claim->key_time || claim->retention_ms == ONCE_NEVER)
        return true;
    once_time born = once_key_time(claim->key);
    if (born == ONCE_NEVER)
        return true;
    int64_t skew = once_key_skew(claim->retention_ms);
    return now != 0 && born - now < skew / 2 && now - born < (claim->retention_ms - skew) / 2;
}

static enum kind kind_of_claim(const struct once_claim *claim, once_time now)
{
    if (claim->request.len > 0)
        return KIND_OTHER;
    return claim->body_retention_ms == 0 && is_surely_inside(claim, now) ? KIND_CLAIM : KIND_CLAIM_TERMS;
}

static enum kind kind_of(const struct pg_conn *pg, const struct once_op *op, once_time now, struct pg_grant *granted)
{
    if (op->request->verb == ONCE_VERB_CLAIM)
        return kind_of_claim(&op->request->claim, now);
    if (op->request->verb != ONCE_VERB_FINISH)
        return KIND_OTHER;
    if (op->again)
        return KIND_FINISH_AGAIN;
    return pg->direct && pg_grants_find(pg->grants, &op->request->grant, granted) ? KIND_FINISH_GRANTED : KIND_FINISH;
}

static bool is_claim(enum kind kind)
{
    return kind == KIND_CLAIM || kind == KIND_CLAIM_TERMS;
}

static bool is_finish(enum kind kind)
{
    return kind == KIND_FINISH || kind == KIND_FINISH_AGAIN || kind == KIND_FINISH_GRANTED;
}

static int by_record(const void *left, const void *right)
{
    const struct item *a = left, *b = right;
    int order = memcmp(a->op->record, b->op->record, sizeof a->op->record);
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

static bool same_record(const struct item *a, const struct item *b)
{
    return memcmp(a->op->record, b->op->record, sizeof a->op->record) == 0;
}

static int by_fence(const struct item *a, const struct item *b)
{
    uint64_t x = a->op->request->grant.fence, y = b->op->request->grant.fence;
    return x != y ? (x < y ? -1 : 1) : (a->index > b->index) - (a->index < b->index);
}

/* All batches lock rows in one order, so that two of them do not deadlock. */
static int by_statement(const void *left, const void *right)
{
    const struct item *a = left, *b = right;
    if (a->stage != b->stage)
        return a->stage < b->stage ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return is_finish(a->kind) ? by_fence(a, b) : by_record(a, b);
}

static void batch_release(struct batch *b)
{
    free(b->items);
    free(b->ops);
    free(b->granted);
}

static bool batch_init(struct batch *b, const struct pg_conn *pg, once_time now, struct once_op *const *ops,
                       size_t count)
{
    *b = (struct batch){ .items = calloc(count, sizeof *b->items),
                         .ops = calloc(count, sizeof *b->ops),
                         .granted = calloc(count, sizeof *b->granted),
                         .count = count };
    if (b->items == NULL || b->ops == NULL || b->granted == NULL) {
        batch_release(b);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        b->items[i] = (struct item){ .op = ops[i], .index = i };
        b->items[i].kind = kind_of(pg, ops[i], now, &b->items[i].granted);
    }
    qsort(b->items, count, sizeof *b->items, by_record);
    for (size_t i = 1; i < count; i++) {
        struct item *before = &b->items[i - 1], *at = &b->items[i];
        if (same_record(before, at))
            at->stage = before->stage + (at->kind < before->kind);
        b->twice = b->twice || (at->kind == KIND_CLAIM && before->kind == KIND_CLAIM && same_record(before, at));
    }
    qsort(b->items, count, sizeof *b->items, by_statement);
    for (size_t i = 0; i < count; i++) {
        b->ops[i] = b->items[i].op;
        b->granted[i] = b->items[i].granted;
    }
    return true;
}

/* A fence names the slot of its claim; finishes of our own grants go one slot at a time. */
static bool same_slot(const struct item *a, const struct item *b)
{
    return a->kind != KIND_FINISH_GRANTED ||
           ((a->op->request->grant.fence ^ b->op->request->grant.fence) & PG_SLOT_MASK) == 0;
}

static bool same_statement(const struct item *a, const struct item *b)
{
    return a->kind == b->kind && a->stage == b->stage && same_slot(a, b);
}

/* How many operations, from `at` on, are of one statement's kind. */
static size_t batch_run(const struct batch *b, size_t at)
{
    size_t end = at + 1;
    if (b->items[at].kind != KIND_OTHER)
        while (end < b->count && same_statement(&b->items[at], &b->items[end]))
            end++;
    return end - at;
}

/* The operations from `at` on that one fast statement takes: claims, and the finishes right after them. */
static struct pg_fast_batch batch_fast_part(const struct batch *b, size_t at)
{
    struct pg_fast_batch fast = { .ops = b->ops + at };
    if (b->way != WAY_FAST)
        return fast;
    if (b->items[at].kind == KIND_CLAIM)
        fast.claims = batch_run(b, at);
    size_t next = at + fast.claims;
    if (next < b->count && b->items[next].kind == KIND_FINISH_GRANTED && b->items[next].stage == b->items[at].stage)
        fast.finishes = batch_run(b, next);
    fast.granted = b->granted + next;
    return fast;
}

/* How many operations, from `at` on, go into one statement. */
static size_t batch_statement(const struct batch *b, size_t at)
{
    if (b->way == WAY_REPLAYS)
        return b->count;
    struct pg_fast_batch fast = batch_fast_part(b, at);
    size_t count = fast.claims + fast.finishes;
    return count > 0 ? count : batch_run(b, at);
}

static once_result send_statement(struct pg_conn *pg, const struct batch *b, size_t at, size_t count,
                                  struct once_error *err)
{
    if (b->way == WAY_REPLAYS)
        return pg_ask_replays(pg, b->ops, b->count, err);
    struct pg_fast_batch fast = batch_fast_part(b, at);
    if (fast.claims + fast.finishes > 0)
        return pg_ask_fast_batch(pg, &fast, err);
    enum kind kind = b->items[at].kind;
    return is_claim(kind)    ? pg_ask_claims(pg, b->ops + at, count, b->replays_first, err)
           : is_finish(kind) ? pg_ask_finishes(pg, b->ops + at, count, err)
                             : pg_ask_other(pg, b->ops[at], err);
}

static once_result send_batch(struct pg_conn *pg, const struct batch *b, struct once_error *err)
{
    once_result r = send_plain(pg, PG_STATEMENT_BEGIN, err);
    if (r == ONCE_OK && !pg->direct)
        r = send_settings(pg, err);
    if (r == ONCE_OK && pg->clock != NULL)
        r = send_clock(pg, err);
    for (size_t at = 0, count; r == ONCE_OK && at < b->count; at += count) {
        count = batch_statement(b, at);
        r = send_statement(pg, b, at, count, err);
    }
    if (r == ONCE_OK)
        r = send_plain(pg, PG_STATEMENT_COMMIT, err);
    if (r == ONCE_OK && !PQpipelineSync(pg->conn))
        r = once_fail(err, ONCE_UNAVAILABLE, "cannot send to the database: %s", PQerrorMessage(pg->conn));
    return r;
}

struct receipt {
    once_result result;      /* the first failure of our own */
    enum pg_failure failure; /* of the server */
    bool failed, rolled_back;
    bool has_other; /* WAY_REPLAYS: one was not a replay; nothing was written */
};

static void note_failure(struct pg_conn *pg, const PGresult *r, struct receipt *receipt, struct once_error *err)
{
    if (receipt->failed)
        return;
    receipt->failed = true;
    receipt->failure = pg_failure_of(pg, r);
    const char *message = r != NULL ? PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    if (message == NULL)
        message = pg->silent ? "no answer" : PQerrorMessage(pg->conn);
    once_fail(err, ONCE_UNAVAILABLE, "database: %.*s", (int)strcspn(message, "\n"), message);
}

/* One statement's result, and the NULL that ends it. */
static PGresult *receive(struct pg_conn *pg, struct receipt *receipt, struct once_error *err)
{
    PGresult *r = pg_conn_result(pg), *next;
    ExecStatusType status = PQresultStatus(r);
    if (r == NULL || status == PGRES_FATAL_ERROR || status == PGRES_BAD_RESPONSE)
        note_failure(pg, r, receipt, err);
    else if (status == PGRES_COMMAND_OK && strcmp(PQcmdStatus(r), "ROLLBACK") == 0)
        receipt->rolled_back = true;
    while (PQstatus(pg->conn) == CONNECTION_OK && (next = pg_conn_result(pg)) != NULL)
        PQclear(next);
    return r;
}

static void receive_plain(struct pg_conn *pg, struct receipt *receipt, struct once_error *err)
{
    PQclear(receive(pg, receipt, err));
}

static once_result read_statement(const PGresult *r, const struct batch *b, size_t at, size_t count, bool *has_other,
                                  struct once_error *err)
{
    if (b->way == WAY_REPLAYS) {
        bool all = false;
        once_result result = pg_read_replays(r, b->ops, b->count, &all, err);
        *has_other = !all;
        return result;
    }
    struct pg_fast_batch fast = batch_fast_part(b, at);
    if (fast.claims + fast.finishes > 0)
        return pg_read_fast_batch(r, &fast, err);
    enum kind kind = b->items[at].kind;
    return is_claim(kind)    ? pg_read_claims(r, b->ops + at, count, err)
           : is_finish(kind) ? pg_read_finishes(r, b->ops + at, count, err)
                             : pg_read_other(r, b->ops[at], err);
}

static void receive_answers(struct pg_conn *pg, const struct batch *b, size_t at, size_t count, struct receipt *receipt,
                            struct once_error *err)
{
    PGresult *r = receive(pg, receipt, err);
    if (PQresultStatus(r) == PGRES_TUPLES_OK && !receipt->failed && receipt->result == ONCE_OK)
        receipt->result = read_statement(r, b, at, count, &receipt->has_other, err);
    PQclear(r);
}

static void receive_sync(struct pg_conn *pg)
{
    PGresult *r = NULL;
    for (int i = 0; i < 4 && PQstatus(pg->conn) == CONNECTION_OK; i++) {
        r = pg_conn_result(pg);
        bool sync = PQresultStatus(r) == PGRES_PIPELINE_SYNC;
        PQclear(r);
        if (sync)
            return;
    }
}

static struct receipt receive_batch(struct pg_conn *pg, const struct batch *b, struct once_error *err)
{
    struct receipt receipt = { .result = ONCE_OK };
    receive_plain(pg, &receipt, err); /* BEGIN */
    if (!pg->direct) {
        PGresult *settings = receive(pg, &receipt, err);
        pg_conn_note_server(pg, settings);
        PQclear(settings);
    }
    if (pg->clock != NULL)
        receive_plain(pg, &receipt, err);
    for (size_t at = 0, count; at < b->count; at += count) {
        count = batch_statement(b, at);
        receive_answers(pg, b, at, count, &receipt, err);
    }
    pg->warned = false;
    receive_plain(pg, &receipt, err); /* COMMIT */
    receive_sync(pg);
    return receipt;
}

static void roll_back(struct pg_conn *pg)
{
    PQexitPipelineMode(pg->conn);
    if (pg_conn_exec(pg, "ROLLBACK", NULL, NULL) != ONCE_OK)
        pg_conn_close(pg);
}

static once_result result_of(enum pg_failure failure)
{
    switch (failure) {
    case PG_FAILURE_LOST:
        return ONCE_UNKNOWN;
    case PG_FAILURE_RETRY:
    case PG_FAILURE_LOCKED:
        return ONCE_BUSY;
    case PG_FAILURE_INPUT:
        return ONCE_INVALID;
    case PG_FAILURE_LIMIT:
        return ONCE_LIMIT;
    default:
        return ONCE_UNAVAILABLE;
    }
}

static void drop_replies(const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        once_reply_release(&b->ops[i]->reply);
}

/* Replays and look-ups write nothing. */
static bool has_written(const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        enum once_arm arm = b->ops[i]->reply.arm;
        if (arm == ONCE_ARM_EXECUTE || arm == ONCE_ARM_PROBE || arm == ONCE_ARM_DONE || arm == ONCE_ARM_UNKNOWN)
            return true;
    }
    return false;
}

/* Remembers new grants, so that their finishes can go the fast way. */
static void remember_grants(struct pg_conn *pg, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->ops[i]->reply.arm == ONCE_ARM_EXECUTE || b->ops[i]->reply.arm == ONCE_ARM_PROBE)
            pg_grants_add(pg->grants, &b->ops[i]->reply.record);
}

/* Reads the database's clock from the times of grants and outcomes. */
static void note_clock(struct pg_recent_batches *recent, const struct batch *b)
{
    once_time at = 0;
    for (size_t i = 0; i < b->count; i++) {
        const struct once_reply *reply = &b->ops[i]->reply;
        once_time of = reply->arm == ONCE_ARM_EXECUTE ? reply->record.claimed_at
                       : reply->arm == ONCE_ARM_DONE  ? reply->record.finished_at
                                                      : 0;
        at = of > at ? of : at;
    }
    if (at == 0)
        return;
    recent->database_at = at;
    recent->steady_at = once_os_monotonic_ms();
}

/* ------------------------------------------------------------------ which way */

enum { STREAK_BATCH_MIN = 8, STREAK_WANTED_MIN = 2, FAST_WANTED_MAX = 64, REPLAYS_WANTED_MAX = 8 };

/* The fast ways are much cheaper, but where they fail the whole batch has to be done again. So a streak of batches has
 * to come first, and a longer one after each failure: up to FAST_WANTED_MAX, or to REPLAYS_WANTED_MAX where a failure
 * has written nothing. Small batches have little to gain. */
static unsigned streak_wanted(const struct pg_streak *streak)
{
    return streak->wanted > STREAK_WANTED_MIN ? streak->wanted : STREAK_WANTED_MIN;
}

static bool streak_holds(const struct pg_streak *streak)
{
    return streak->lasted >= streak_wanted(streak);
}

/* A batch was expected to continue the streak, and did not. */
static void streak_fails(struct pg_streak *streak, unsigned wanted_max)
{
    streak->lasted = 0;
    streak->wanted = streak_wanted(streak) < wanted_max / 2 ? 2 * streak_wanted(streak) : wanted_max;
}

static void streak_note(struct pg_streak *streak, bool continued, size_t batch)
{
    if (!continued)
        streak->lasted = 0;
    else if (batch < STREAK_BATCH_MIN)
        return;
    else if (streak->lasted < FAST_WANTED_MAX)
        streak->lasted++;
    else
        streak->wanted = STREAK_WANTED_MIN;
}

void pg_recent_batches_clear(struct pg_recent_batches *recent)
{
    recent->all_new.lasted = recent->all_replays.lasted = 0;
}

static bool is_all_claims(const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (!is_claim(b->items[i].kind))
            return false;
    return true;
}

static void choose_way(const struct pg_recent_batches *recent, struct batch *b)
{
    b->replays_first = recent->half_replays;
    if (b->count < STREAK_BATCH_MIN)
        return;
    if (streak_holds(&recent->all_replays) && is_all_claims(b))
        b->way = WAY_REPLAYS;
    else if (!b->twice && streak_holds(&recent->all_new))
        b->way = WAY_FAST;
}

static void note_failed_way(struct pg_recent_batches *recent, const struct batch *b)
{
    if (b->way == WAY_FAST)
        streak_fails(&recent->all_new, FAST_WANTED_MAX);
    if (b->way == WAY_REPLAYS)
        streak_fails(&recent->all_replays, REPLAYS_WANTED_MAX);
}

static void note_replays(struct pg_recent_batches *recent, const struct batch *b)
{
    size_t claims = 0, replays = 0;
    for (size_t i = 0; i < b->count; i++) {
        claims += is_claim(b->items[i].kind);
        replays += is_claim(b->items[i].kind) && b->ops[i]->reply.arm == ONCE_ARM_REPLAY;
    }
    if (claims > 0) {
        recent->half_replays = 2 * replays >= claims;
        streak_note(&recent->all_replays, replays == claims, claims);
    }
}

static void note_answers(struct pg_recent_batches *recent, const struct batch *b)
{
    note_clock(recent, b);
    note_replays(recent, b);
    bool all_new = true;
    for (size_t i = 0; i < b->count && all_new; i++)
        all_new = (is_claim(b->items[i].kind) && b->ops[i]->reply.arm == ONCE_ARM_EXECUTE) ||
                  b->ops[i]->reply.arm == ONCE_ARM_DONE || b->items[i].kind == KIND_OTHER;
    streak_note(&recent->all_new, all_new, b->count);
}

/* One try. *again: the same transaction may succeed if repeated. */
static once_result try_batch(struct pg_conn *pg, struct pg_recent_batches *recent, const struct batch *b, bool *wrote,
                             bool *again, struct once_error *err)
{
    *again = false;
    if (!PQenterPipelineMode(pg->conn))
        return once_fail(err, ONCE_UNAVAILABLE, "the connection is not usable");
    once_result r = send_batch(pg, b, err);
    if (r != ONCE_OK) { /* part of it may have been sent, COMMIT included */
        pg_conn_close(pg);
        return r == ONCE_NO_MEMORY ? r : ONCE_UNKNOWN;
    }
    struct receipt receipt = receive_batch(pg, b, err);
    if (receipt.failed && receipt.failure == PG_FAILURE_LOST) {
        pg_conn_close(pg);
        return ONCE_UNKNOWN;
    }
    if (receipt.failed) {
        roll_back(pg);
        if (pg->conn == NULL) /* nothing was changed, but it has to be sent again over another connection */
            return ONCE_UNKNOWN;
        *again = receipt.failure == PG_FAILURE_RETRY ||
                 (b->way == WAY_FAST && receipt.failure == PG_FAILURE_FAST_PATH) ||
                 b->way == WAY_REPLAYS; /* whatever it was: sets may do */
        return result_of(receipt.failure);
    }
    PQexitPipelineMode(pg->conn);
    if (pg->warned)
        return once_fail(err, ONCE_UNKNOWN, "the server warned during COMMIT: it may not be replicated");
    if (receipt.rolled_back)
        return once_fail(err, ONCE_UNAVAILABLE, "the server rolled the transaction back");
    if (pg_conn_meet_server(pg, err) != ONCE_OK)
        return ONCE_UNKNOWN; /* it answered, but its answers may not be durable */
    if (receipt.has_other) {
        *again = true;
        return ONCE_BUSY;
    }
    *wrote = has_written(b);
    remember_grants(pg, b);
    note_answers(recent, b);
    /* Committed, but there was no memory for all answers: the engine asks again, one by one. */
    return receipt.result == ONCE_OK ? ONCE_OK : receipt.result == ONCE_NO_MEMORY ? ONCE_UNKNOWN : receipt.result;
}

once_result pg_batch_apply(struct pg_conn *pg, struct pg_recent_batches *recent, struct once_op *const *ops,
                           size_t count, bool *wrote, struct once_error *err)
{
    struct batch b;
    if (!batch_init(&b, pg, about_now(pg, recent), ops, count))
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a batch");
    *wrote = false;
    once_result r = ONCE_OK;
    bool again = true;
    choose_way(recent, &b);
    for (int i = 0; again && i < RETRIES_MAX; i++) {
        if (i > 0 && b.way == WAY_SETS)
            usleep((useconds_t)(once_os_monotonic_ns() % (RETRY_PAUSE_US << i)));
        if (i > 0)
            b.way = WAY_SETS;
        r = try_batch(pg, recent, &b, wrote, &again, err);
        if (again)
            note_failed_way(recent, &b);
        if (r != ONCE_OK)
            drop_replies(&b);
    }
    batch_release(&b);
    return r;
}
