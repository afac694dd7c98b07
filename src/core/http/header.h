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
/* Does a header of this name contain credentials? */
bool once_header_is_secret(once_span name);
/* The names, up to a NULL, of headers that identify a caller and are the same in every retry. So neither anti-forgery
 * tokens nor proofs of possession, which are new in every request. */
const char *const *once_header_credentials(void);
/* Is this header about one connection, or set anew for every request? Then it is not sent again. */
bool once_header_is_of_one_hop(once_span name);

/* Takes the next header off `lines`, its value without blanks around it; false: there is no other. Skips a line without
 * a name and a colon. */
bool once_header_line(once_span *lines, once_span *name, once_span *value);
/* The value of the first header of this name; false: not found. */
bool once_header_find(once_span lines, const char *wanted, once_span *value);
/* Appends "Name: value\r\n". */
void once_header_add(struct once_buf *lines, once_span name, once_span value);

/* Reads Retry-After as a number of seconds, at most max_ms; false: it is not a number. */
bool once_retry_after_seconds(once_span value, int64_t max_ms, int64_t *wait_ms);

#endif
