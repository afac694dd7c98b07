/* out.c - see json/out.h. */
#include "core/json/out.h"

#include "core/span.h"
#include "core/utc.h"
#include "core/utf8.h"

#include <assert.h>
#include <nettle/base64.h>

/* One character that JSON requires to be escaped, or an invalid byte (len 0). */
static void write_escaped(FILE *file, size_t len, uint32_t code)
{
    if (len == 0)
        fputs("\\ufffd", file);
    else if (code == '"' || code == '\\')
        fprintf(file, "\\%c", (int)code);
    else if (code == '\n' || code == '\r' || code == '\t')
        fprintf(file, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
    else
        fprintf(file, "\\u%04x", code);
}

static void write_string(FILE *file, once_span bytes)
{
    putc('"', file);
    size_t plain = 0; /* bytes at the front that go out as they are */
    while (plain < bytes.len) {
        uint32_t code = 0;
        size_t len = once_utf8_decode(once_span_skip(bytes, plain), &code);
        if (len > 0 && code >= 0x20 && code != 0x7f && code != '"' && code != '\\') {
            plain += len;
            continue;
        }
        fwrite(bytes.ptr, 1, plain, file);
        write_escaped(file, len, code);
        bytes = once_span_skip(bytes, plain + (len > 0 ? len : 1));
        plain = 0;
    }
    if (plain > 0)
        fwrite(bytes.ptr, 1, plain, file);
    putc('"', file);
}

/* Writes the comma and the name before a value. */
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
    assert(json->depth < ONCE_JSON_OUT_DEPTH);
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

static bool is_plain_text(once_span bytes)
{
    for (size_t i = 0; i < bytes.len; i++) {
        uint8_t c = bytes.ptr[i];
        if (c == 0x7f || (c < 0x20 && c != '\n' && c != '\r' && c != '\t'))
            return false;
    }
    return once_utf8_valid(bytes);
}

static void write_base64(struct once_json *json, const char *name, once_span bytes)
{
    enum { STEP = 3 << 10 }; /* a multiple of 3: only the last has padding */
    char name_base64[64], text[BASE64_ENCODE_RAW_LENGTH(STEP)];
    snprintf(name_base64, sizeof name_base64, "%s_base64", name);
    begin(json, name_base64);
    putc('"', json->file);
    while (bytes.len > 0) {
        size_t len = bytes.len < STEP ? bytes.len : STEP;
        base64_encode_raw(text, len, bytes.ptr);
        fwrite(text, 1, BASE64_ENCODE_RAW_LENGTH(len), json->file);
        bytes = once_span_skip(bytes, len);
    }
    putc('"', json->file);
}

void once_json_bytes(struct once_json *json, const char *name, once_span bytes)
{
    if (json->base64 && !is_plain_text(bytes)) {
        write_base64(json, name, bytes);
        return;
    }
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

void once_json_fence(struct once_json *json, const char *name, uint64_t fence)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)fence);
    if (json->text_ids)
        once_json_text(json, name, text);
    else
        once_json_uint(json, name, fence);
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
