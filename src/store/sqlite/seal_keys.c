/* seal_keys.c - the ids of the keys that this store was sealed with: rows of once_meta named 'seal:ID'. */
#include "store/sqlite/store.h"

#include "core/err.h"
#include "core/span.h"
#include "store/gather.h"

static once_result put_mark(struct sqlite_store *s, const struct once_seal_key_ref *ref, struct once_error *err)
{
    char name[sizeof "seal:" + sizeof ref->id];
    snprintf(name, sizeof name, "seal:%s", ref->id);
    struct sqlite_query q = sqlite_query(&s->db, SQL_meta_put);
    sqlite_bind_text(&q, name);
    sqlite_bind_blob(&q, once_span_of(ref->proof, sizeof ref->proof));
    return sqlite_run(&q, "note a key", err);
}

static once_result read_marks(struct sqlite_store *s, struct once_seal_key_refs *out, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, SQL_seal_keys);
    once_result r = ONCE_OK;
    while (r == ONCE_OK && sqlite_step(&q))
        r = gather_seal_key(out, sqlite_column_span(&q, 0), sqlite_column_span(&q, 1), err);
    once_result end = sqlite_end(&q, "read the seal keys", r == ONCE_OK ? err : NULL);
    return r != ONCE_OK ? r : end;
}

once_result sqlite_store_seal_keys(struct once_store *base, const struct once_seal_key_ref *add,
                                   struct once_seal_key_refs *out, struct once_error *err)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    once_result r = sqlite_store_begin(s, add != NULL, err);
    if (r != ONCE_OK)
        return r;
    if (add != NULL)
        r = put_mark(s, add, err);
    if (r == ONCE_OK)
        r = read_marks(s, out, err);
    return sqlite_store_end(s, add != NULL, r, err);
}
