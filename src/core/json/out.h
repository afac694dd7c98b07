/*
 * out.h - writes JSON that is valid whatever the bytes are.
 *
 *     struct once_json json = { .file = stdout };
 *     once_json_open(&json, NULL, '{');
 *     once_json_bytes(&json, "key", key);
 *     once_json_open(&json, "events", '[');
 *     ...
 *     once_json_close(&json);
 *     once_json_close(&json);    the outermost ends its line
 *
 * Names are ours (C strings, plain ASCII), NULL inside an array and outermost. Bytes
 * that are no UTF-8 appear twice: "key" with U+FFFD for what cannot be shown, and
 * "key_hex" with all of them; or, with `base64`, once: as "key" where they are plain text
 * (UTF-8 without control characters but tab, LF and CR), else as "key_base64". Write errors
 * stay in the FILE.
 */
#ifndef ONCE_CORE_JSON_OUT_H
#define ONCE_CORE_JSON_OUT_H

#include "once.h"

#include <stdio.h>

enum { ONCE_JSON_OUT_DEPTH = 12 };

struct once_json {
    FILE *file;
    bool base64;   /* for programs that send the bytes back to us */
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
/* In UTC, as text; null for 0, "never". */
void once_json_time(struct once_json *json, const char *name, once_time time);

#endif
