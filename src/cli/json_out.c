/* json_out.c - see json_out.h. */
#include "cli/json_out.h"

#include "cli/text.h"
#include "cli/utf8.h"
#include "core/span.h"

#include <assert.h>

static void write_string(FILE *file, once_span bytes)
{
    putc('"', file);
    while (bytes.len > 0) {
        uint32_t code;
        size_t len = once_utf8_decode(bytes, &code);
        if (len == 0) {
            fputs("\\ufffd", file);
            len = 1;
        } else if (code < 0x20 || code == 0x7f) {
            fprintf(file, "\\u%04x", code);
        } else {
            if (code == '"' || code == '\\')
                putc('\\', file);
            fwrite(bytes.ptr, 1, len, file);
        }
        bytes = once_span_skip(bytes, len);
    }
    putc('"', file);
}

/* What comes in front of a value: a comma, a name. */
static void begin(struct once_json *json, const char *name)
{
    if (json->depth > 0) {
        assert((name != NULL) == (json->closing[json->depth - 1] == '}'));
        if (json->filled[json->depth - 1])
            fputs(",", json->file);
        json->filled[json->depth - 1] = true;
    }
    if (name != NULL) {
        write_string(json->file, once_span_str(name));
        putc(':', json->file);
    }
}

void once_json_open(struct once_json *json, const char *name, char bracket)
{
    assert(json->depth < ONCE_JSON_DEPTH_MAX);
    begin(json, name);
    putc(bracket, json->file);
    json->closing[json->depth] = bracket == '{' ? '}' : ']';
    json->filled[json->depth] = false;
    json->depth++;
}

void once_json_close(struct once_json *json)
{
    assert(json->depth > 0);
    putc(json->closing[--json->depth], json->file);
    if (json->depth == 0)
        putc('\n', json->file);
}

void once_json_hex(struct once_json *json, const char *name, once_span bytes)
{
    begin(json, name);
    putc('"', json->file);
    for (size_t i = 0; i < bytes.len; i++)
        fprintf(json->file, "%02x", bytes.ptr[i]);
    putc('"', json->file);
}

void once_json_bytes(struct once_json *json, const char *name, once_span bytes)
{
    begin(json, name);
    write_string(json->file, bytes);
    if (once_utf8_valid(bytes))
        return;
    char name_hex[64];
    snprintf(name_hex, sizeof name_hex, "%s_hex", name);
    once_json_hex(json, name_hex, bytes);
}

void once_json_text(struct once_json *json, const char *name, const char *text)
{
    begin(json, name);
    if (text == NULL)
        fputs("null", json->file);
    else
        write_string(json->file, once_span_str(text));
}

void once_json_int(struct once_json *json, const char *name, int64_t value)
{
    begin(json, name);
    fprintf(json->file, "%lld", (long long)value);
}

void once_json_uint(struct once_json *json, const char *name, uint64_t value)
{
    begin(json, name);
    fprintf(json->file, "%llu", (unsigned long long)value);
}

void once_json_bool(struct once_json *json, const char *name, bool value)
{
    begin(json, name);
    fputs(value ? "true" : "false", json->file);
}

void once_json_null(struct once_json *json, const char *name)
{
    once_json_text(json, name, NULL);
}

void once_json_time(struct once_json *json, const char *name, once_time time)
{
    char text[ONCE_TEXT_TIME_LEN];
    if (time == 0) {
        once_json_null(json, name);
        return;
    }
    once_text_utc(time, text);
    once_json_text(json, name, text);
}
