/*
 * text.h - prints bytes, times and durations for people.
 *
 * Stored bytes are never printed to a terminal unescaped: a key may contain escape sequences.
 */
#ifndef ONCE_PROGRAM_TEXT_H
#define ONCE_PROGRAM_TEXT_H

#include "core/buf.h"
#include "core/utc.h" /* once_text_utc() */
#include "once.h"

/* Appends `bytes`; writes invisible characters as \n, \t or \xNN and doubles backslashes.
 * Returns the number of columns, with each wide character as one. */
size_t once_text_escape(struct once_buf *out, once_span bytes);

/* Appends the bytes as one quoted word of a shell command. */
void once_text_quote(struct once_buf *out, once_span bytes);

void once_text_hex(struct once_buf *out, once_span bytes);

/* "2026-08-01 14:00:00 +0200"; "never" for ONCE_NEVER. */
void once_text_local(once_time time, char out[ONCE_TEXT_TIME_LEN]);

/* A duration with at most two units, such as "3h20m". Negative is 0. */
void once_text_about(int64_t ms, char out[ONCE_TEXT_TIME_LEN]);

/* A store's URL without its password. A password that was not escaped may reach past '@' or '?': that part is left
 * out, too. */
void once_text_store(struct once_buf *out, const char *url);

#endif
