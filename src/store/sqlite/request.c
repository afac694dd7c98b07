/* request.c - see sqlite/request.h. */
#include "store/sqlite/request.h"

#include "core/err.h"
#include "core/span.h"

#include <xxhash.h>

/* The checksum does not cover the fence: the row moves from attempt to attempt. */
static int64_t sum_of(const uint8_t record[16], once_span request)
{
    return (int64_t)XXH64(request.ptr, request.len, XXH64(record, 16, 0));
}

once_result sqlite_request_put(struct sqlite_protocol *p, struct once_grant grant, once_span request,
                               struct once_error *err)
{
    struct sqlite_query q = sqlite_query(p->db, SQL_request_put);
    sqlite_bind_int(&q, (int64_t)grant.fence);
    sqlite_bind_blob(&q, request);
    sqlite_bind_int(&q, sum_of(grant.record, request));
    return sqlite_run(&q, "store a request", err);
}

once_result sqlite_request_get(struct sqlite_protocol *p, struct once_grant grant, struct once_buf *out,
                               struct once_error *err)
{
    struct sqlite_query q = sqlite_query(p->db, SQL_request_get);
    sqlite_bind_int(&q, (int64_t)grant.fence);
    once_result r = ONCE_OK;
    if (sqlite_step(&q)) {
        once_span request = sqlite_column_span(&q, 0);
        once_buf_add(out, request);
        if (out->result != ONCE_OK)
            r = once_fail(err, out->result, "no memory for a stored request of %zu bytes", request.len);
        else if (sum_of(grant.record, request) != sqlite_column_int(&q, 1))
            r = once_fail(err, ONCE_CORRUPT, "the request stored with fence %llu does not match its checksum",
                          (unsigned long long)grant.fence);
    }
    once_result end = sqlite_end(&q, "read a stored request", r == ONCE_OK ? err : NULL);
    return r != ONCE_OK ? r : end;
}

once_result sqlite_request_move(struct sqlite_protocol *p, uint64_t from, uint64_t to, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(p->db, SQL_request_move);
    sqlite_bind_int(&q, (int64_t)from);
    sqlite_bind_int(&q, (int64_t)to);
    return sqlite_run(&q, "hand a stored request on", err);
}

once_result sqlite_request_drop(struct sqlite_protocol *p, uint64_t fence, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(p->db, SQL_request_delete);
    sqlite_bind_int(&q, (int64_t)fence);
    sqlite_bind_int(&q, (int64_t)fence);
    return sqlite_run(&q, "drop a stored request", err);
}
