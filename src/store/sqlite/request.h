/*
 * request.h - the request that is kept with a record until it is finished.
 *
 * The row belongs to the newest attempt: a takeover moves it, a final outcome deletes it. A flag of the claim says
 * whether there is one, so that other attempts cost nothing.
 */
#ifndef ONCE_STORE_SQLITE_REQUEST_H
#define ONCE_STORE_SQLITE_REQUEST_H

#include "store/sqlite/attempt.h"

once_result sqlite_request_put(struct sqlite_protocol *p, struct once_grant grant, once_span request,
                               struct once_error *err);
/* Appends the request to `out`, if there is one. */
once_result sqlite_request_get(struct sqlite_protocol *p, struct once_grant grant, struct once_buf *out,
                               struct once_error *err);
once_result sqlite_request_move(struct sqlite_protocol *p, uint64_t from, uint64_t to, struct once_error *err);
once_result sqlite_request_drop(struct sqlite_protocol *p, uint64_t fence, struct once_error *err);

#endif
