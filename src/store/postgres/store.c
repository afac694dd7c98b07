/*
 * store.c - the store for many machines: PostgreSQL behind the same interface.
 *
 * The protocol itself is in the database's functions (sql/postgres), the same that a service
 * calls in its own transaction. A batch is one pipeline (postgres/batch.h).
 *
 * Invariants: K10 after a lost answer the engine reopens, and applies each operation again:
 *                its insert conflicts with, and waits for, the transaction in doubt.
 *             Another client's commit is believed only when it is durable: its wait for the standby may
 *                have been cut short. So every new connection, ours or a pooler's, begins with a
 *                barrier, and transactions that only read wait as well (once.lock_ring).
 */
#include "store/store.h"
#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "os/os.h"
#include "postgres_sql.h"
#include "store/gather.h"
#include "store/postgres/answer.h"
#include "store/postgres/batch.h"
#include "store/postgres/conn.h"
#include "store/postgres/param.h"
#include "store/postgres/route.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
    SWEEP_SPAN = 1000,  /* attempts of one sweep: about 10 ms, for which batches wait */
    UNKNOWN_SPAN = 100, /* records of one listing of unknown ones: finding the claim of each reads many block ranges */
};

struct postgres_store {
    struct once_store base;
    struct pg_conn pg;
    struct postgres_store *first; /* the first handle of the store, or itself */
    atomic_uint_fast64_t commits; /* in the first handle: of all handles */
    uint64_t settled;             /* swept up to here, and nothing can appear before it any more */
    uint64_t newest, marked;      /* the newest fence of the last sweep; that of the sweep before the mark was set */
    int64_t marked_edge;          /* transactions before this one may still commit fences up to the mark */
    uint64_t emptied;             /* records removed with a slot and not reported yet */
    struct pg_routes routes;
    struct pg_recent_batches recent;
};

/* ------------------------------------------------------------------ operations */

/* After a lock timeout: a key that a service's own transaction holds must not fail the others of its batch. */
static once_result apply_one_by_one(struct postgres_store *s, struct once_op *const *ops, size_t count,
                                    struct once_error *err)
{
    for (size_t i = 0; i < count; i++) {
        struct once_error own;
        bool wrote = false;
        once_result r = pg_batch_apply(&s->pg, &s->recent, &ops[i], 1, &wrote, &own);
        s->first->commits += wrote;
        if (r == ONCE_UNKNOWN) { /* the rest was not sent, but the engine settles all alike */
            if (err != NULL)
                *err = own;
            return r;
        }
        if (r != ONCE_OK) {
            ops[i]->result = r;
            ops[i]->err = own;
        }
    }
    return ONCE_OK;
}

static once_result reopen(struct once_store *base, enum once_fate *fate, struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    *fate = ONCE_FATE_UNSURE;
    pg_grants_forget(s->pg.grants);
    pg_recent_batches_clear(&s->recent);
    struct pg_session lost = s->pg.session;
    once_result r = pg_conn_open(&s->pg, err);
    if (r == ONCE_OK) {
        pg_conn_end_lost(&s->pg, lost);
        r = pg_conn_barrier(&s->pg, err);
    }
    if (r != ONCE_OK)
        pg_conn_close(&s->pg);
    return r;
}

static once_result apply(struct once_store *base, struct once_op *const *ops, size_t count, struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    enum once_fate fate;
    once_result r = s->pg.conn != NULL ? ONCE_OK : reopen(base, &fate, err); /* closed for want of memory, or lost */
    if (r != ONCE_OK)
        return r;
    bool wrote = false;
    pg_routes_find(&s->routes, &s->pg, ops, count);
    if (s->pg.conn == NULL) /* lost just now; nothing of the batch was sent */
        r = reopen(base, &fate, err);
    if (r != ONCE_OK)
        return r;
    r = pg_batch_apply(&s->pg, &s->recent, ops, count, &wrote, err);
    s->first->commits += wrote;
    if (r == ONCE_BUSY && count > 1)
        return apply_one_by_one(s, ops, count, err);
    if (count == 1 && (r == ONCE_INVALID || r == ONCE_LIMIT)) { /* the function refused this operation, not the batch */
        ops[0]->result = r;
        if (err != NULL)
            ops[0]->err = *err;
        return ONCE_OK;
    }
    return r;
}

/* ------------------------------------------------------------------ looking */

/* A question outside of any batch; connects again by itself. */
static once_result ask(struct postgres_store *s, const char *sql, struct pg_params *p, PGresult **out,
                       struct once_error *err)
{
    if (s->pg.conn == NULL || PQstatus(s->pg.conn) != CONNECTION_OK) {
        enum once_fate fate;
        once_result r = reopen(&s->base, &fate, err);
        if (r != ONCE_OK)
            return r;
    }
    char set[80];
    if (s->pg.clock != NULL)
        snprintf(set, sizeof set, "SELECT set_config('once.now_ms', '%lld', true)",
                 (long long)s->pg.clock->wall(s->pg.clock->arg));
    return pg_conn_ask(&s->pg, s->pg.clock != NULL ? set : NULL, sql, p, out, err);
}

/* The same, with parameters that are all of type bigint. */
static once_result ask_numbers(struct postgres_store *s, const char *sql, const int64_t *numbers, size_t count,
                               PGresult **out, struct once_error *err)
{
    struct pg_params p;
    pg_params_init(&p);
    for (size_t i = 0; i < count; i++)
        pg_add_int(&p, PG_INT8, numbers[i]);
    once_result r = ask(s, sql, &p, out, err);
    pg_params_release(&p);
    return r;
}

static once_time now_of(struct postgres_store *s)
{
    return s->pg.clock != NULL ? s->pg.clock->wall(s->pg.clock->arg) : once_os_clock.wall(NULL);
}

static once_result list(struct once_store *base, const struct once_filter *f, struct once_page *page,
                        struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    bool unknown_only = f->states == 1u << ONCE_STATE_UNKNOWN; /* they have an index */
    int64_t numbers[] = { f->before != 0 && f->before < INT64_MAX ? (int64_t)f->before : INT64_MAX,
                          unknown_only ? UNKNOWN_SPAN : ONCE_LIST_SCAN_MAX };
    PGresult *r = NULL;
    struct gather_page g = { .count = 0 };
    once_result result = ask_numbers(s,
                                     unknown_only ? "SELECT l.next, (l.answer).* FROM once.list_unknown($1, $2) l"
                                                  : "SELECT l.next, (l.answer).* FROM once.list($1, $2) l",
                                     numbers, 2, &r, err);
    if (result == ONCE_OK)
        result = gather_page_init(&g, f->limit, err);
    /* The last row says only where to go on; a full page goes on after its own last record. */
    int rows = result == ONCE_OK ? PQntuples(r) : 0;
    for (int row = 0; row < rows && g.count < f->limit; row++) {
        struct once_record record = pg_read_record(r, row, 1);
        page->next = (uint64_t)pg_int(r, row, 0);
        if (!PQgetisnull(r, row, 1 + PG_ANSWER_FENCE) && gather_matches(f, &record, now_of(s)))
            gather_record(&g, &record);
    }
    if (result == ONCE_OK)
        result = gather_page_make(&g, page, err);
    gather_page_release(&g);
    PQclear(r);
    return result;
}

/* Fences grow, but are not committed in their order: a running transaction may still commit a fence that was swept
 * over. So the sweep goes back until all transactions that could have one have ended. A transaction takes a fence a
 * moment before it has a number, so the newest fence of the sweep before is the one that counts. */
static void settle_sweep(struct postgres_store *handle, struct once_sweep *w, const PGresult *r, int row)
{
    struct postgres_store *s = handle->first; /* all handles of a store share one sweep */
    uint64_t newest = (uint64_t)pg_int(r, row, 4);
    int64_t horizon = pg_int(r, row, 5), edge = pg_int(r, row, 6);
    if (s->marked != 0 && horizon >= s->marked_edge) {
        s->settled = s->marked;
        s->marked = 0;
    }
    if (s->marked == 0) {
        s->marked = s->newest;
        s->marked_edge = edge;
    }
    s->newest = newest;
    if (!w->more && w->after > s->settled)
        w->after = s->settled;
}

static once_result sweep(struct once_store *base, struct once_sweep *w, struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    int64_t numbers[] = { (int64_t)w->after, SWEEP_SPAN };
    PGresult *r = NULL;
    once_result result = ask_numbers(s, "SELECT * FROM once.unfinished_attempts($1, $2)", numbers, 2, &r, err);
    int last = result == ONCE_OK ? PQntuples(r) - 1 : 0;
    for (int row = 0; row < last && w->count < w->room; row++) {
        struct once_unfinished *unfinished = &w->found[w->count++];
        *unfinished = (struct once_unfinished){ .fence = (uint64_t)pg_int(r, row, 1),
                                                .due = pg_int(r, row, 2),
                                                .failed = pg_bool(r, row, 3),
                                                .has_request = pg_bool(r, row, 7) };
        once_span record = pg_bytes(r, row, 0);
        memcpy(unfinished->record, record.ptr, record.len < 16 ? record.len : 16);
    }
    if (result == ONCE_OK) {
        bool all = w->count == (size_t)last;
        w->now = pg_int(r, last, 2);
        w->after = all ? (uint64_t)pg_int(r, last, 1) : w->found[w->count - 1].fence;
        w->more = w->after < (uint64_t)pg_int(r, last, 4);
        settle_sweep(s, w, r, last);
    }
    PQclear(r);
    return result;
}

static once_result lookup_many(struct once_store *base, const struct once_unfinished *wanted, size_t count,
                               struct once_page *page, struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    struct pg_params p;
    pg_params_init(&p);
    pg_array_begin(&p, PG_UUID, count);
    for (size_t i = 0; i < count; i++)
        pg_array_bytes(&p, once_span_of(wanted[i].record, 16));
    PGresult *r = NULL;
    struct gather_page g = { .count = 0 };
    once_result result = ask(s, "SELECT l.n, (l.answer).* FROM once.lookup_many($1) l", &p, &r, err);
    if (result == ONCE_OK && (size_t)PQntuples(r) != count)
        result = once_fail(err, ONCE_CORRUPT, "the database's functions are not ours");
    if (result == ONCE_OK)
        result = gather_page_init(&g, (uint32_t)count, err);
    for (size_t i = 0; result == ONCE_OK && i < count; i++) {
        struct once_record record = pg_read_record(r, (int)i, 1);
        gather_record(&g, &record);
        if (PQgetisnull(r, (int)i, 1 + PG_ANSWER_FENCE))
            g.records[i].state = ONCE_STATE_NONE;
    }
    if (result == ONCE_OK)
        result = gather_page_make(&g, page, err);
    gather_page_release(&g);
    PQclear(r);
    pg_params_release(&p);
    return result;
}

static once_result history(struct once_store *base, const uint8_t record[16], struct once_history *h,
                           struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    struct pg_params p;
    pg_params_init(&p);
    pg_add_bytes(&p, PG_UUID, once_span_of(record, 16));
    PGresult *r = NULL;
    struct gather_history t = { .count = 0 };
    once_result result = ask(s, "SELECT * FROM once.history($1)", &p, &r, err);
    if (result == ONCE_OK)
        result = gather_history_init(&t, err);
    for (int row = 0; result == ONCE_OK && row < PQntuples(r); row++)
        gather_event(&t, (struct once_event){ .at = pg_int(r, row, 0),
                                              .what = gather_event_name(pg_bytes(r, row, 1)),
                                              .fence = (uint64_t)pg_int(r, row, 2),
                                              .attempt = (uint32_t)pg_int(r, row, 3),
                                              .state = (enum once_state)pg_int(r, row, 4),
                                              .status = (int32_t)pg_int(r, row, 5),
                                              .actor = pg_bytes(r, row, 6),
                                              .reason = pg_bytes(r, row, 7) });
    if (result == ONCE_OK)
        result = gather_history_make(&t, h, err);
    gather_history_release(&t);
    PQclear(r);
    pg_params_release(&p);
    return result;
}

/* ------------------------------------------------------------------ upkeep */

static once_result expire(struct once_store *base, uint32_t budget, uint64_t *removed, bool *more,
                          struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    struct pg_params p;
    pg_params_init(&p);
    pg_add_int(&p, PG_INT4, budget);
    PGresult *r = NULL;
    once_result result = ask(s, "SELECT once.drop_requests($1)", &p, &r, err);
    PQclear(r);
    r = NULL;
    if (result == ONCE_OK)
        result = ask(s, "SELECT removed, more FROM once.expire($1)", &p, &r, err);
    if (result == ONCE_OK) { /* a slot is emptied as a whole: report it in steps of the budget */
        s->emptied += (uint64_t)pg_int(r, 0, 0);
        *removed = s->emptied < budget ? s->emptied : budget;
        s->emptied -= *removed;
        *more = pg_bool(r, 0, 1) || s->emptied > 0;
    }
    PQclear(r);
    pg_params_release(&p);
    return result;
}

static once_result ask_problems(struct postgres_store *s, const char *sql, const int64_t *numbers, size_t count,
                                struct gather_problems *to, struct once_error *err)
{
    PGresult *r = NULL;
    once_result result = ask_numbers(s, sql, numbers, count, &r, err);
    for (int row = 0; result == ONCE_OK && row < PQntuples(r); row++) {
        once_span name = pg_bytes(r, row, 0), text = pg_bytes(r, row, 2);
        char invariant[16];
        snprintf(invariant, sizeof invariant, "%.*s", ONCE_SPAN_ARGS(name));
        gather_problem(to, invariant, (uint64_t)pg_int(r, row, 1), "%.*s", ONCE_SPAN_ARGS(text));
    }
    PQclear(r);
    return result;
}

/* How many attempts and records there are among the fences of this step. */
static once_result count_rows(struct postgres_store *s, const int64_t range[2], uint64_t *cursor,
                              struct once_check_report *report, struct once_error *err)
{
    PGresult *r = NULL;
    once_result result =
        ask_numbers(s, "SELECT attempts, records, next FROM once.check_counts($1, $2)", range, 2, &r, err);
    if (result == ONCE_OK) {
        report->attempts += (uint64_t)pg_int(r, 0, 0);
        report->records += (uint64_t)pg_int(r, 0, 1);
        *cursor = (uint64_t)pg_int(r, 0, 2);
    }
    PQclear(r);
    return result;
}

static once_result check(struct once_store *base, uint64_t *cursor, once_problem_fn *each, void *arg,
                         struct once_check_report *report, struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    int64_t range[] = { (int64_t)*cursor, ONCE_CHECK_SCAN_MAX };
    struct gather_problems to = { each, arg, report };
    once_result r = ONCE_OK;
    if (*cursor == 0)
        r = ask_problems(s, "SELECT * FROM once.check_orphans()", NULL, 0, &to, err);
    if (r == ONCE_OK)
        r = ask_problems(s, "SELECT * FROM once.check_rows($1, $2)", range, 2, &to, err);
    return r == ONCE_OK ? count_rows(s, range, cursor, report, err) : r;
}

static once_result stats(struct once_store *base, struct once_stats *stats, struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    PGresult *r = NULL;
    once_result result = ask_numbers(s, "SELECT attempts, bytes, now_ms FROM once.counts()", NULL, 0, &r, err);
    if (result == ONCE_OK) {
        stats->attempts = (uint64_t)pg_int(r, 0, 0);
        stats->bytes = (uint64_t)pg_int(r, 0, 1);
        stats->now = pg_int(r, 0, 2);
        stats->commits = s->first->commits;
    }
    PQclear(r);
    return result;
}

static once_result read_clock(struct once_store *base, once_time *now, struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    struct pg_params p;
    pg_params_init(&p);
    PGresult *r = NULL;
    once_result result = ask(s, "SELECT once.now_ms()", &p, &r, err);
    if (result == ONCE_OK)
        *now = pg_int(r, 0, 0);
    PQclear(r);
    pg_params_release(&p);
    return result;
}

static once_result usage(struct once_store *base, struct once_usage *t, struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    int64_t numbers[] = { (int64_t)t->after, (int64_t)t->last, SWEEP_SPAN };
    PGresult *r = NULL;
    once_result result = ask_numbers(
        s, "SELECT tenant, records, bytes, next, final, now_ms FROM once.usage($1, $2, $3)", numbers, 3, &r, err);
    int last = result == ONCE_OK ? PQntuples(r) - 1 : 0;
    for (int row = 0; row < last; row++) {
        once_span tenant = pg_bytes(r, row, 0);
        if (tenant.len <= ONCE_TENANT_LEN_MAX)
            t->each(t->arg, tenant, (uint64_t)pg_int(r, row, 1), (uint64_t)pg_int(r, row, 2));
    }
    if (result == ONCE_OK) {
        t->after = (uint64_t)pg_int(r, last, 3);
        t->last = (uint64_t)pg_int(r, last, 4);
        t->more = t->after < t->last;
        t->now = pg_int(r, last, 5);
    }
    PQclear(r);
    return result;
}

/* ------------------------------------------------------------------ keys */

static once_result seal_keys(struct once_store *base, const struct once_seal_key_ref *add,
                             struct once_seal_key_refs *out, struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    struct pg_params p;
    pg_params_init(&p);
    if (add != NULL) {
        pg_add_bytes(&p, PG_TEXT, once_span_str(add->id));
        pg_add_bytes(&p, PG_BYTEA, once_span_of(add->proof, sizeof add->proof));
    }
    PGresult *r = NULL;
    once_result result =
        ask(s, add != NULL ? "SELECT * FROM once.add_seal_key($1, $2)" : "SELECT * FROM once.seal_keys()", &p, &r, err);
    for (int row = 0; result == ONCE_OK && row < PQntuples(r); row++)
        result = gather_seal_key(out, pg_bytes(r, row, 0), pg_bytes(r, row, 1), err);
    PQclear(r);
    pg_params_release(&p);
    return result;
}

/* ------------------------------------------------------------------ open, close */

static void close_store(struct once_store *base)
{
    struct postgres_store *s = (struct postgres_store *)base;
    pg_conn_close(&s->pg);
    if (s->first == s)
        pg_grants_free(s->pg.grants);
    free(s->pg.url);
    explicit_bzero(&s->base.secret, sizeof s->base.secret);
    free(s);
}

static once_result open_another(struct once_store *base, struct once_store **out, struct once_error *err);

static const struct once_store_ops ops = {
    .name = "postgres",
    .apply = apply,
    .reopen = reopen,
    .list = list,
    .sweep = sweep,
    .lookup_many = lookup_many,
    .history = history,
    .expire = expire,
    .check = check,
    .stats = stats,
    .clock = read_clock,
    .usage = usage,
    .seal_keys = seal_keys,
    .open_another = open_another,
    .close = close_store,
};

/* Opens a handle; `first` is the store's first handle (NULL: this one), which counts for all. */
static once_result open_handle(const char *url, const struct once_clock *clock, struct postgres_store *first,
                               struct once_store **out, struct once_error *err)
{
    struct postgres_store *s = calloc(1, sizeof *s);
    if (s == NULL || (s->pg.url = strdup(url)) == NULL) {
        free(s);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a store");
    }
    s->base.ops = &ops;
    s->base.shared = true;
    s->base.has_sweep = true;
    s->base.schema_version = postgres_migration_count;
    s->first = first != NULL ? first : s;
    s->pg.clock = clock;
    s->pg.grants = first != NULL ? first->pg.grants : pg_grants_new();
    if (s->pg.grants == NULL) {
        close_store(&s->base);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a store");
    }
    once_result r = pg_conn_open(&s->pg, err);
    if (r == ONCE_OK)
        r = pg_conn_barrier(&s->pg, err);
    if (r != ONCE_OK) {
        close_store(&s->base);
        return r;
    }
    s->base.secret = s->pg.secret;
    *out = &s->base;
    return ONCE_OK;
}

static once_result open_another(struct once_store *base, struct once_store **out, struct once_error *err)
{
    struct postgres_store *s = (struct postgres_store *)base;
    return open_handle(s->pg.url, s->pg.clock, s->first, out, err);
}

once_result once_store_postgres_open(const char *url, const struct once_options *options, struct once_store **out,
                                     struct once_error *err)
{
    const struct once_clock *clock = options->clock != &once_os_clock ? options->clock : NULL;
    once_result r = open_handle(url, clock, NULL, out, err);
    if (r != ONCE_OK)
        once_error_prefix(err, "PostgreSQL");
    return r;
}
