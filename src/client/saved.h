/*
 * saved.h - the format of a saved request, which once_client_saved_read() reads, and the checks of its parts.
 *
 *     "ONCESND1", then created_at (8 bytes), format (1), and, each with its length (4): key, name of its header,
 * method, URL, header lines, names of withheld headers (a line each), body; then SHA-256 of all bytes before it
 *
 * Numbers are big-endian. The reader checks everything as strictly as a caller's input.
 *
 * Invariants: SAVED-1 a request with a changed byte is refused (SHA-256).
 *             SAVED-2 no part of it can end a header line or the request line early.
 *             SAVED-3 it contains credentials only if the caller asked for that: client_is_secret() decides by name.
 */
#ifndef ONCE_CLIENT_SAVED_H
#define ONCE_CLIENT_SAVED_H

#include "core/buf.h"
#include "once_client.h"

/* Does a header of this name look like credentials? Wider than once_header_is_secret(), since a wrong yes only means
 * that the caller must give it again. */
bool client_is_secret(once_span name);

/* Splits "Name: value" and trims it. ONCE_INVALID if it is malformed or not allowed, as `key_header` is not. */
once_result client_header_check(once_span line, once_span key_header, once_span *name, once_span *value,
                                struct once_error *err);

once_result client_method_check(once_span method, struct once_error *err);
/* *origin (may be NULL) gets scheme://host:port, up to ONCE_CLIENT_URL_LEN_MAX bytes. */
once_result client_url_check(const char *url, struct once_buf *origin, struct once_error *err);
once_result client_key_check(once_span key, enum once_client_format format, struct once_error *err);
/* May a header have this name? */
bool client_is_token(once_span s);

/* Appends the value of the key's header: quoted, or the bare key. */
void client_key_write(struct once_buf *out, once_span key, enum once_client_format format);

/* Checks everything and writes the saved form to `out`. */
once_result client_saved_write(const struct once_client_saved *saved, struct once_buf *out, struct once_error *err);

#endif
