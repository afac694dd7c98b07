/*
 * out.h - writes valid JSON, whatever the bytes are.
 *
 *     struct once_json json = { .file = stdout };
 *     once_json_open(&json, NULL, '{');
 *     once_json_bytes(&json, "key", key);
 *     once_json_open(&json, "events", '[');
 *     ...
 *     once_json_close(&json);
 *     once_json_close(&json);    the outermost ends its line
 *
 * Names are plain ASCII; NULL inside an array and for the outermost value. Bytes that are
 * not UTF-8 appear twice: as "key", with U+FFFD for invalid bytes, and as "key_hex" with all
 * of them; or, with `base64`, once: as "key" if they are plain text (UTF-8 without control
 * characters except tab, LF and CR), else as "key_base64".
 *
 * It is in core although it writes to a FILE, because it only formats: the caller opens the
 * stream (stdout, or memory), checks it for errors and closes it.
 */
#ifndef ONCE_CORE_JSON_OUT_H
#define ONCE_CORE_JSON_OUT_H

#include "once.h"

#include <stdio.h>

enum { ONCE_JSON_OUT_DEPTH = 12 };

struct once_json {
    FILE *file;
    bool base64;   /* for programs that send the same bytes back */
    bool text_ids; /* fences as text: a number of JavaScript has 53 bits */
    int depth;
    char closing[ONCE_JSON_OUT_DEPTH];
    bool filled[ONCE_JSON_OUT_DEPTH]; /* the next member needs a comma */
};

void once_json_open(struct once_json *json, const char *name, char bracket); /* '{' or '[' */
void once_json_close(struct once_json *json);
void once_json_bytes(struct once_json *json, const char *name, once_span bytes);
void once_json_text(struct once_json *json, const char *name, const char *text); /* NULL: null */
void once_json_hex(struct once_json *json, const char *name, once_span bytes);
void once_json_int(struct once_json *json, const char *name, int64_t value);
void once_json_uint(struct once_json *json, const char *name, uint64_t value);
void once_json_fence(struct once_json *json, const char *name, uint64_t fence);
void once_json_bool(struct once_json *json, const char *name, bool value);
void once_json_null(struct once_json *json, const char *name);
/* In UTC, as text; null for 0, "never" for ONCE_NEVER. */
void once_json_time(struct once_json *json, const char *name, once_time time);

#endif
