/*
 * saved.h - a request with its key as it is kept for a later try. The format of once_client_saved_read().
 *
 *     "ONCESND1", then created_at (8 bytes), format (1), and with their lengths (4): key, name of its header, method,
 *     URL, header lines, names of withheld headers (a line each), body; then SHA-256 over all of that
 *
 * Numbers are big-endian. What is read is checked as strictly as what a caller hands in.
 *
 * Invariants: SAVED-1 the bytes are exactly those that were sealed, or it is none (the sum).
 *             SAVED-2 nothing in it can end a header line or the request's first line early.
 *             SAVED-3 credentials are in it only where the caller asked for it: client_is_secret() decides by name.
 */
#ifndef ONCE_CLIENT_SAVED_H
#define ONCE_CLIENT_SAVED_H

#include "core/buf.h"
#include "once_client.h"

/* Does a header of this name look like credentials? Wider than once_header_is_secret(): a wrong yes only means that it
 * has to be given again. */
bool client_is_secret(once_span name);

/* "Name: value" as its parts, trimmed; ONCE_INVALID says what is wrong with it. `key_header` may not be among them. */
once_result client_header_check(once_span line, once_span key_header, once_span *name, once_span *value,
                                struct once_error *err);

once_result client_method_check(once_span method, struct once_error *err);
/* Also: *origin (may be NULL) gets scheme://host:port, up to ONCE_CLIENT_URL_LEN_MAX bytes. */
once_result client_url_check(const char *url, struct once_buf *origin, struct once_error *err);
once_result client_key_check(once_span key, enum once_client_format format, struct once_error *err);
/* Is it a name that a header may have? */
bool client_is_token(once_span s);

/* The value of the header: quoted, or as it is. */
void client_key_write(struct once_buf *out, once_span key, enum once_client_format format);

/* Checks everything and seals it; `out` gets the bytes. */
once_result client_saved_write(const struct once_client_saved *saved, struct once_buf *out, struct once_error *err);

#endif
