/* trace.c - see trace.h. */
#include "core/http/trace.h"

#include "core/buf.h"
#include "core/http/header.h"
#include "core/span.h"
#include "core/utf8.h"

#include <strings.h>

/* ------------------------------------------------------------------ the header */

/* Lower case only, as the standard requires. */
static int digit(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(const uint8_t *text, size_t len, uint8_t *out)
{
    for (size_t i = 0; i < len; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool is_zero(const uint8_t *bytes, size_t len)
{
    uint8_t any = 0;
    for (size_t i = 0; i < len; i++)
        any |= bytes[i];
    return any == 0;
}

bool once_trace_parse(once_span value, struct once_trace *out)
{
    enum { VERSION = 0, TRACE = 3, SPAN = 36, FLAGS = 53 };
    struct once_trace t;
    uint8_t version, flags;
    if (value.len < ONCE_TRACEPARENT_LEN || value.len > ONCE_TRACEPARENT_LEN_MAX)
        return false;
    const uint8_t *at = value.ptr;
    if (at[TRACE - 1] != '-' || at[SPAN - 1] != '-' || at[FLAGS - 1] != '-' || !read_hex(at + VERSION, 1, &version) ||
        !read_hex(at + TRACE, sizeof t.trace, t.trace) || !read_hex(at + SPAN, sizeof t.span, t.span) ||
        !read_hex(at + FLAGS, 1, &flags))
        return false;
    bool longer = value.len > ONCE_TRACEPARENT_LEN;
    if (version == 0xff || (version == 0 && longer) || (longer && at[ONCE_TRACEPARENT_LEN] != '-'))
        return false;
    if (is_zero(t.trace, sizeof t.trace) || is_zero(t.span, sizeof t.span))
        return false;
    t.sampled = (flags & 1) != 0;
    *out = t;
    return true;
}

void once_trace_hex(const uint8_t *bytes, size_t len, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * len] = '\0';
}

void once_trace_format(const struct once_trace *t, char out[ONCE_TRACEPARENT_LEN + 1])
{
    memcpy(out, "00-", 3);
    once_trace_hex(t->trace, sizeof t->trace, out + 3);
    out[35] = '-';
    once_trace_hex(t->span, sizeof t->span, out + 36);
    memcpy(out + 52, t->sampled ? "-01" : "-00", 4);
}

void once_trace_name_span(uint8_t span[8], const uint8_t random[8])
{
    memcpy(span, random, 8);
    if (is_zero(span, 8))
        span[7] = 1;
}

void once_trace_begin(struct once_trace *t, const uint8_t random[24], bool sampled)
{
    memcpy(t->trace, random, sizeof t->trace);
    if (is_zero(t->trace, sizeof t->trace))
        t->trace[15] = 1;
    once_trace_name_span(t->span, random + sizeof t->trace);
    t->sampled = sampled;
}

/* ------------------------------------------------------------------ texts */

static bool is_plain(once_span bytes)
{
    while (bytes.len > 0) {
        uint32_t code = 0;
        size_t len = once_utf8_decode(bytes, &code);
        if (len == 0 || code < 0x20 || (code >= 0x7f && code < 0xa0) || code == '"' || code == '\\' || code == 0x2028 ||
            code == 0x2029)
            return false;
        bytes = once_span_skip(bytes, len);
    }
    return true;
}

void once_trace_text(once_span bytes, char out[ONCE_TRACE_TEXT_LEN])
{
    size_t used = 0;
    bool plain = is_plain(bytes);
    for (size_t i = 0, step; i < bytes.len; i += step) {
        uint32_t code = 0;
        uint8_t c = bytes.ptr[i];
        step = plain ? once_utf8_decode(once_span_skip(bytes, i), &code) : 1;
        bool escape = !plain && (c < 0x20 || c > 0x7e || c == '"' || c == '\\');
        size_t need = escape ? 4 : step;
        if (used + need >= ONCE_TRACE_TEXT_LEN)
            break;
        if (escape) {
            memcpy(out + used, "\\x", 2);
            char hex[3];
            once_trace_hex(&c, 1, hex);
            memcpy(out + used + 2, hex, 2);
        } else {
            memcpy(out + used, bytes.ptr + i, step);
        }
        used += need;
    }
    out[used] = '\0';
}

/* ------------------------------------------------------------------ among header lines */

static bool is_traceparent(once_span line, once_span *value)
{
    once_span name;
    return once_header_line(&line, &name, value) && once_header_is(name, "traceparent");
}

bool once_trace_find(once_span lines, struct once_trace *out)
{
    once_span line, value, found = { NULL, 0 };
    size_t count = 0;
    while (lines.len > 0) {
        once_span_cut(lines, '\n', &line, &lines);
        if (is_traceparent(line, &value)) {
            found = value;
            count++;
        }
    }
    return count == 1 && once_trace_parse(found, out);
}

void once_trace_replace(once_span lines, const struct once_trace *t, struct once_buf *out)
{
    char text[ONCE_TRACEPARENT_LEN + 1];
    once_span line, value;
    once_trace_format(t, text);
    while (lines.len > 0) {
        bool whole = once_span_cut(lines, '\n', &line, &lines);
        if (is_traceparent(line, &value))
            continue;
        once_buf_add(out, line);
        if (whole)
            once_buf_add_byte(out, '\n');
        else if (line.len > 0)
            once_buf_add(out, ONCE_LIT("\r\n"));
    }
    once_buf_addf(out, "traceparent: %s\r\n", text);
}
