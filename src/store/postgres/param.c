/* param.c - see postgres/param.h. */
#include "store/postgres/param.h"

#include "core/err.h"
#include "core/span.h"

enum { PARAMS_LEN_MAX = 1 << 30 }; /* PostgreSQL's own limit for a value */

static Oid array_of(Oid element)
{
    switch (element) {
    case PG_UUID:
        return 2951;
    case PG_BYTEA:
        return 1001;
    case PG_INT8:
        return 1016;
    default:
        return 1007;
    }
}

void pg_params_init(struct pg_params *p)
{
    *p = (struct pg_params){ .count = 0 };
    once_buf_init(&p->bytes, PARAMS_LEN_MAX);
}

void pg_params_release(struct pg_params *p)
{
    once_buf_release(&p->bytes);
}

static void begin(struct pg_params *p, Oid type)
{
    assert(p->count < PG_PARAMS_MAX);
    p->starts[p->count] = p->bytes.len;
    p->types[p->count] = type;
    p->formats[p->count] = 1;
    p->absent[p->count] = false;
    p->count++;
}

static void add_number(struct pg_params *p, Oid type, int64_t value)
{
    if (type == PG_INT8)
        once_buf_add_u64(&p->bytes, (uint64_t)value);
    else
        once_buf_add_u32(&p->bytes, (uint32_t)value);
}

void pg_add_int(struct pg_params *p, Oid type, int64_t value)
{
    begin(p, type);
    add_number(p, type, value);
}

void pg_add_bytes(struct pg_params *p, Oid type, once_span bytes)
{
    begin(p, type);
    once_buf_add(&p->bytes, bytes);
}

void pg_array_begin(struct pg_params *p, Oid element_type, size_t count)
{
    begin(p, array_of(element_type));
    once_buf_add_u32(&p->bytes, 1); /* dimensions */
    once_buf_add_u32(&p->bytes, 1); /* may hold NULLs */
    once_buf_add_u32(&p->bytes, element_type);
    once_buf_add_u32(&p->bytes, (uint32_t)count);
    once_buf_add_u32(&p->bytes, 1); /* lower bound */
}

void pg_array_absent(struct pg_params *p, Oid element_type)
{
    begin(p, array_of(element_type));
    p->absent[p->count - 1] = true;
}

void pg_array_int(struct pg_params *p, Oid type, int64_t value)
{
    once_buf_add_u32(&p->bytes, type == PG_INT8 ? 8 : 4);
    add_number(p, type, value);
}

void pg_array_bytes(struct pg_params *p, once_span bytes)
{
    once_buf_add_u32(&p->bytes, (uint32_t)bytes.len);
    once_buf_add(&p->bytes, bytes);
}

void pg_array_null(struct pg_params *p)
{
    once_buf_add_u32(&p->bytes, UINT32_MAX);
}

static once_result complete(struct pg_params *p, struct once_error *err)
{
    if (p->bytes.result != ONCE_OK)
        return once_fail(err, p->bytes.result, "no memory for a batch");
    for (int i = 0; i < p->count; i++) {
        size_t end = i + 1 < p->count ? p->starts[i + 1] : p->bytes.len;
        /* libpq takes NULL for NULL, but empty is not absent. */
        p->values[i] = p->absent[i] ? NULL : end > p->starts[i] ? (const char *)p->bytes.ptr + p->starts[i] : "";
        p->lengths[i] = (int)(end - p->starts[i]);
    }
    return ONCE_OK;
}

static once_result sent(PGconn *conn, int good, struct once_error *err)
{
    return good ? ONCE_OK : once_fail(err, ONCE_UNAVAILABLE, "cannot send to the database: %s", PQerrorMessage(conn));
}

once_result pg_send(PGconn *conn, const char *sql, struct pg_params *p, struct once_error *err)
{
    once_result r = complete(p, err);
    if (r != ONCE_OK)
        return r;
    return sent(conn, PQsendQueryParams(conn, sql, p->count, p->types, p->values, p->lengths, p->formats, 1), err);
}

once_result pg_send_prepared(PGconn *conn, const char *name, struct pg_params *p, struct once_error *err)
{
    once_result r = complete(p, err);
    if (r != ONCE_OK)
        return r;
    return sent(conn, PQsendQueryPrepared(conn, name, p->count, p->values, p->lengths, p->formats, 1), err);
}

static uint64_t number(const uint8_t *p, int len)
{
    uint64_t value = 0;
    for (int i = 0; i < len && i < 8; i++)
        value = value << 8 | p[i];
    return value;
}

int64_t pg_int(const PGresult *result, int row, int column)
{
    if (PQgetisnull(result, row, column))
        return 0;
    int len = PQgetlength(result, row, column);
    uint64_t value = number((const uint8_t *)PQgetvalue(result, row, column), len);
    return len == 4 ? (int32_t)value : (int64_t)value;
}

bool pg_bool(const PGresult *result, int row, int column)
{
    return !PQgetisnull(result, row, column) && PQgetlength(result, row, column) == 1 &&
           PQgetvalue(result, row, column)[0] == 1;
}

once_span pg_bytes(const PGresult *result, int row, int column)
{
    return once_span_of(PQgetvalue(result, row, column), (size_t)PQgetlength(result, row, column));
}

void pg_uuid(const PGresult *result, int row, int column, char out[ONCE_UUID_LEN + 1])
{
    static const char digits[] = "0123456789abcdef";
    once_span bytes = pg_bytes(result, row, column);
    size_t n = 0;
    for (size_t i = 0; i < bytes.len && i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            out[n++] = '-';
        out[n++] = digits[bytes.ptr[i] >> 4];
        out[n++] = digits[bytes.ptr[i] & 15];
    }
    out[n] = '\0';
}

/* Its head: dimensions, whether there are NULLs, the type; for one dimension its length and
 * lower bound. Then each element with its length before it. */
enum { ARRAY_HEAD_LEN = 12, ARRAY_DIMENSION_LEN = 8, ARRAY_LENGTH_LEN = 4 };

struct pg_array pg_array(const PGresult *result, int row, int column, size_t width)
{
    struct pg_array none = { .count = 0 };
    once_span bytes = pg_bytes(result, row, column);
    if (bytes.len < ARRAY_HEAD_LEN + ARRAY_DIMENSION_LEN || number(bytes.ptr, 4) != 1)
        return none;
    size_t count = number(bytes.ptr + ARRAY_HEAD_LEN, 4), stride = ARRAY_LENGTH_LEN + width;
    if (bytes.len - ARRAY_HEAD_LEN - ARRAY_DIMENSION_LEN != count * stride) /* also where one is NULL */
        return none;
    return (struct pg_array){ bytes.ptr + ARRAY_HEAD_LEN + ARRAY_DIMENSION_LEN, count, width };
}

const uint8_t *pg_array_at(const struct pg_array *array, size_t i)
{
    return array->elements + i * (ARRAY_LENGTH_LEN + array->width) + ARRAY_LENGTH_LEN;
}

int64_t pg_array_int64(const struct pg_array *array, size_t i)
{
    return (int64_t)number(pg_array_at(array, i), 8);
}
