/* join.c - see reconcile/join.h. */
#include "reconcile/join.h"

#include "core/err.h"
#include "core/span.h"

#include <assert.h>
#include <sqlite3.h>

/* One transaction that is never committed: the data need not be durable. */
static const char schema[] = "PRAGMA journal_mode = OFF;"
                             "PRAGMA synchronous = OFF;"
                             "PRAGMA temp_store = FILE;"
                             "PRAGMA cache_size = -65536;" /* KiB: the approximate bound of memory */
                             "CREATE TABLE charge (key BLOB PRIMARY KEY, line INTEGER, lines INTEGER, dones INTEGER,"
                             "  theirs INTEGER, met INTEGER DEFAULT 0, at INTEGER, said BLOB, vals BLOB, answer BLOB)"
                             "  WITHOUT ROWID;"
                             "CREATE TABLE finding (kind INTEGER, number INTEGER, match BLOB, record BLOB, tenant BLOB,"
                             "  key BLOB, line INTEGER, said BLOB, PRIMARY KEY (kind, number)) WITHOUT ROWID;"
                             "BEGIN";

enum statement { ADD, FIND, MEET, UNMET, REPORT, NEXT, STATEMENT_COUNT };

/* If the lines of a key differ, done (1) wins over undecided (3), and that over not done (2). */
#define OF_CHARGE "line, lines, dones, theirs, at, said, vals, answer"

static const char *const texts[STATEMENT_COUNT] = {
    [ADD] = "INSERT INTO charge (key, " OF_CHARGE ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
            " ON CONFLICT (key) DO UPDATE SET lines = lines + 1, dones = dones + excluded.dones,"
            " theirs = CASE WHEN 1 IN (theirs, excluded.theirs) THEN 1 WHEN 3 IN (theirs, excluded.theirs) THEN 3"
            " ELSE theirs END",
    [FIND] = "SELECT " OF_CHARGE ", met FROM charge WHERE key = ?1",
    [MEET] = "UPDATE charge SET met = 1 WHERE key = ?1",
    [UNMET] = "SELECT " OF_CHARGE ", key FROM charge WHERE met = 0 AND key > ?1 ORDER BY key LIMIT 1",
    [REPORT] = "INSERT INTO finding VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [NEXT] = ("SELECT kind, number, match, record, tenant, key, line, said FROM finding"
              " WHERE (kind, number) > (?1, ?2) ORDER BY kind, number LIMIT 1"),
};

struct reconcile_join {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENT_COUNT];
    uint64_t findings;
};

static once_result fail(struct reconcile_join *join, struct once_error *err)
{
    /* Memory or disk space is exhausted; the store is not the cause. */
    return once_fail(err, ONCE_NO_MEMORY, "cannot write the temporary file: %s; set TMPDIR to use another folder",
                     sqlite3_errmsg(join->db));
}

once_result reconcile_join_open(struct reconcile_join **out, struct once_error *err)
{
    struct reconcile_join *join = calloc(1, sizeof *join);
    if (join == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "out of memory");
    int code = sqlite3_open_v2("", &join->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_exec(join->db, schema, NULL, NULL, NULL);
    for (int i = 0; code == SQLITE_OK && i < STATEMENT_COUNT; i++)
        code = sqlite3_prepare_v3(join->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &join->statements[i], NULL);
    if (code != SQLITE_OK) {
        once_result r = fail(join, err);
        reconcile_join_close(join);
        return r;
    }
    *out = join;
    return ONCE_OK;
}

void reconcile_join_close(struct reconcile_join *join)
{
    if (join == NULL)
        return;
    for (int i = 0; i < STATEMENT_COUNT; i++)
        sqlite3_finalize(join->statements[i]);
    sqlite3_close(join->db);
    free(join);
}

/* ---------------------------------------------------------------- columns */

static sqlite3_stmt *begin(struct reconcile_join *join, enum statement statement)
{
    sqlite3_stmt *s = join->statements[statement];
    sqlite3_reset(s);
    return s;
}

static void bind_span(sqlite3_stmt *s, int at, once_span span)
{
    if (span.len == 0)
        sqlite3_bind_zeroblob(s, at, 0); /* a NULL pointer would bind NULL */
    else
        sqlite3_bind_blob64(s, at, span.ptr, span.len, SQLITE_STATIC);
}

static once_span column_span(sqlite3_stmt *s, int at)
{
    const void *bytes = sqlite3_column_blob(s, at);
    return once_span_of(bytes, bytes != NULL ? (size_t)sqlite3_column_bytes(s, at) : 0);
}

static once_result run(struct reconcile_join *join, sqlite3_stmt *s, struct once_error *err)
{
    int code = sqlite3_step(s);
    once_result r = code == SQLITE_DONE ? ONCE_OK : fail(join, err);
    sqlite3_reset(s);
    return r;
}

static void read_charge(sqlite3_stmt *s, struct reconcile_charge *charge)
{
    *charge = (struct reconcile_charge){
        .line = (uint64_t)sqlite3_column_int64(s, 0),
        .lines = (uint32_t)sqlite3_column_int64(s, 1),
        .dones = (uint32_t)sqlite3_column_int64(s, 2),
        .theirs = (enum reconcile_theirs)sqlite3_column_int(s, 3),
        .at = sqlite3_column_int64(s, 4),
        .said = column_span(s, 5),
        .values = column_span(s, 6),
        .answer = column_span(s, 7),
    };
}

/* ---------------------------------------------------------------- charges */

once_result reconcile_join_add(struct reconcile_join *join, once_span key, const struct reconcile_charge *charge,
                               struct once_error *err)
{
    sqlite3_stmt *s = begin(join, ADD);
    bind_span(s, 1, key);
    sqlite3_bind_int64(s, 2, (int64_t)charge->line);
    sqlite3_bind_int64(s, 3, charge->lines);
    sqlite3_bind_int64(s, 4, charge->dones);
    sqlite3_bind_int64(s, 5, charge->theirs);
    sqlite3_bind_int64(s, 6, charge->at);
    bind_span(s, 7, charge->said);
    bind_span(s, 8, charge->values);
    bind_span(s, 9, charge->answer);
    return run(join, s, err);
}

once_result reconcile_join_find(struct reconcile_join *join, once_span key, struct reconcile_charge *charge, bool *met,
                                struct once_error *err)
{
    sqlite3_stmt *s = begin(join, FIND);
    *charge = (struct reconcile_charge){ .theirs = RECONCILE_ABSENT };
    bind_span(s, 1, key);
    int code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        read_charge(s, charge);
        if (met != NULL)
            *met = sqlite3_column_int(s, 8) != 0;
    }
    return code == SQLITE_ROW || code == SQLITE_DONE ? ONCE_OK : fail(join, err);
}

once_result reconcile_join_match(struct reconcile_join *join, once_span key, struct once_error *err)
{
    /* The statement that found the row must be reset before the row can change. */
    sqlite3_reset(join->statements[FIND]);
    sqlite3_stmt *s = begin(join, MEET);
    bind_span(s, 1, key);
    return run(join, s, err);
}

once_result reconcile_join_next_unmatched(struct reconcile_join *join, once_span after, once_span *key,
                                          struct reconcile_charge *charge, struct once_error *err)
{
    sqlite3_stmt *s = begin(join, UNMET);
    *key = (once_span){ NULL, 0 };
    bind_span(s, 1, after);
    int code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        read_charge(s, charge);
        *key = column_span(s, 8);
    }
    return code == SQLITE_ROW || code == SQLITE_DONE ? ONCE_OK : fail(join, err);
}

/* ---------------------------------------------------------------- findings */

once_result reconcile_join_report(struct reconcile_join *join, const struct reconcile_finding *finding,
                                  struct once_error *err)
{
    sqlite3_stmt *s = begin(join, REPORT);
    struct once_record record = finding->record; /* for this process only: its bytes do */
    once_span none = { NULL, 0 };
    once_span tenant = record.tenant, key = record.key;
    record.tenant = record.key = record.recovery_point = record.checkpoint = record.headers = record.body = none;
    sqlite3_bind_int64(s, 1, finding->kind);
    sqlite3_bind_int64(s, 2, (int64_t)++join->findings);
    bind_span(s, 3, finding->match);
    bind_span(s, 4, once_span_of(&record, sizeof record));
    bind_span(s, 5, tenant);
    bind_span(s, 6, key);
    sqlite3_bind_int64(s, 7, (int64_t)finding->line);
    bind_span(s, 8, finding->said);
    return run(join, s, err);
}

once_result reconcile_join_next(struct reconcile_join *join, struct reconcile_finding *finding, bool *there,
                                struct once_error *err)
{
    sqlite3_stmt *s = begin(join, NEXT);
    sqlite3_bind_int64(s, 1, finding->kind);
    sqlite3_bind_int64(s, 2, (int64_t)finding->number);
    int code = sqlite3_step(s);
    *there = code == SQLITE_ROW;
    if (code != SQLITE_ROW)
        return code == SQLITE_DONE ? ONCE_OK : fail(join, err);
    finding->kind = (enum reconcile_kind)sqlite3_column_int(s, 0);
    finding->number = (uint64_t)sqlite3_column_int64(s, 1);
    finding->match = column_span(s, 2);
    once_span record = column_span(s, 3);
    assert(record.len == sizeof finding->record);
    memcpy(&finding->record, record.ptr, sizeof finding->record);
    finding->record.tenant = column_span(s, 4);
    finding->record.key = column_span(s, 5);
    finding->line = (uint64_t)sqlite3_column_int64(s, 6);
    finding->said = column_span(s, 7);
    return ONCE_OK;
}
