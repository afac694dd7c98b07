/*
 * header.h - HTTP header names, and headers as lines "Name: value\r\n".
 */
#ifndef ONCE_CORE_HTTP_HEADER_H
#define ONCE_CORE_HTTP_HEADER_H

#include "core/buf.h"

/* Names are compared without regard to case. */
bool once_header_is(once_span name, const char *wanted);
/* Is the name among these, one per line ("Name\n")? */
bool once_header_is_listed(once_span name, once_span names);
/* May a header, or a method, have this name (a token of RFC 9110)? */
bool once_header_is_token(once_span name);
/* Does a header of this name identify or authenticate somebody? */
bool once_header_is_secret(once_span name);
/* The names, up to a NULL, of headers by which a service knows its caller, and which are the same when the caller asks
 * again. So neither tokens against forgery nor proofs of possession, which are new with every request. */
const char *const *once_header_credentials(void);
/* Is it about one connection, or made anew for every request? */
bool once_header_is_of_one_hop(once_span name);

/* Takes the next header off `lines`; false after the last. The value is without blanks around it. A line without a name
 * and a colon is passed over. */
bool once_header_line(once_span *lines, once_span *name, once_span *value);
/* The value of the first header of this name; false: there is none. */
bool once_header_find(once_span lines, const char *wanted, once_span *value);
/* Appends "Name: value\r\n". */
void once_header_add(struct once_buf *lines, once_span name, once_span value);

/* Reads Retry-After as a number of seconds, at most max_ms; false: it is not a number. */
bool once_retry_after_seconds(once_span value, int64_t max_ms, int64_t *wait_ms);

#endif
