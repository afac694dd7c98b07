/*
 * text.h - bytes, times and lengths of time for a person to read.
 *
 * Stored bytes never reach a terminal as they are: a key may hold escape sequences.
 */
#ifndef ONCE_PROGRAM_TEXT_H
#define ONCE_PROGRAM_TEXT_H

#include "core/buf.h"
#include "core/utc.h" /* its once_text_utc() belongs here, too */
#include "once.h"

/* Appends `bytes` with everything that is not plain visible text as \n, \t or \xNN, and
 * backslashes doubled. Returns how many columns that takes, wide characters not counted
 * as such. */
size_t once_text_escape(struct once_buf *out, once_span bytes);

/* Appends one word of a shell command that means exactly these bytes. */
void once_text_quote(struct once_buf *out, once_span bytes);

void once_text_hex(struct once_buf *out, once_span bytes);

/* "2026-08-01 14:00:00 +0200"; "never" for ONCE_NEVER. */
void once_text_local(once_time time, char out[ONCE_TEXT_TIME_LEN]);

/* A length of time to two units, "3h20m": nobody reads more. Negative is 0. */
void once_text_about(int64_t ms, char out[ONCE_TEXT_TIME_LEN]);

/* A store's URL without a password, and without what may be part of one that should have been escaped. */
void once_text_store(struct once_buf *out, const char *url);

#endif
