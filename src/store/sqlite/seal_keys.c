/* seal_keys.c - the ids of the keys that this store was sealed with: rows of once_meta named 'seal:ID'. */
#include "store/sqlite/store.h"

#include "core/err.h"
#include "core/span.h"

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
    while (r == ONCE_OK && sqlite_step(&q)) {
        once_span id = sqlite_column_span(&q, 0), proof = sqlite_column_span(&q, 1);
        struct once_seal_key_ref *ref = &out->refs[out->count];
        if (out->count == ONCE_SEAL_KEY_REFS_MAX || id.len >= sizeof ref->id || proof.len != sizeof ref->proof) {
            r = once_fail(err, ONCE_CORRUPT, "the list of keys that the store was sealed with is damaged");
            continue;
        }
        memcpy(ref->id, id.ptr, id.len);
        ref->id[id.len] = '\0';
        memcpy(ref->proof, proof.ptr, proof.len);
        out->count++;
    }
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
