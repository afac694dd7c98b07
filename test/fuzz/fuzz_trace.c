/*
 * fuzz_trace.c - any bytes as a traceparent, as header lines, and as a text for a log.
 *
 * Properties: what is read is never all zero, and written again it is read as the same; a refusal changes nothing.
 *             After replacing there is exactly one traceparent among the lines, ours. A text has no quote, no control
 *             character, and every backslash begins \xNN.
 */
#include "core/buf.h"
#include "core/http/trace.h"
#include "core/span.h"

#include "fuzz.h"

#include <string.h>

static void check_parse(once_span value)
{
    static const uint8_t zeros[16];
    struct once_trace t, again;
    char text[ONCE_TRACEPARENT_LEN + 1];
    memset(&t, 0, sizeof t);
    if (!once_trace_parse(value, &t)) {
        HOLDS(memcmp(t.trace, zeros, 16) == 0 && !t.sampled);
        return;
    }
    HOLDS(memcmp(t.trace, zeros, 16) != 0 && memcmp(t.span, zeros, 8) != 0);
    once_trace_format(&t, text);
    HOLDS(strlen(text) == ONCE_TRACEPARENT_LEN);
    HOLDS(once_trace_parse(once_span_str(text), &again));
    HOLDS(memcmp(t.trace, again.trace, 16) == 0 && memcmp(t.span, again.span, 8) == 0 && t.sampled == again.sampled);
    HOLDS(memcmp(text + 3, value.ptr + 3, 49) == 0);
}

static void check_lines(once_span lines)
{
    struct once_trace ours = { .trace = { 1 }, .span = { 2 }, .sampled = true }, found;
    struct once_buf out;
    once_buf_init(&out, lines.len + 128);
    (void)once_trace_find(lines, &found);
    once_trace_replace(lines, &ours, &out);
    HOLDS(out.result == ONCE_OK);
    HOLDS(once_trace_find(once_buf_span(&out), &found));
    HOLDS(memcmp(found.trace, ours.trace, 16) == 0 && memcmp(found.span, ours.span, 8) == 0);
    once_buf_release(&out);
}

static void check_text(once_span bytes)
{
    char out[ONCE_TRACE_TEXT_LEN];
    once_trace_text(bytes, out);
    for (const char *c = out; *c != '\0'; c++) {
        HOLDS((uint8_t)*c >= 0x20 && *c != 0x7f && *c != '"');
        if (*c == '\\')
            HOLDS(c[1] == 'x' && strspn(c + 2, "0123456789abcdef") >= 2);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    once_span bytes = { data, size };
    check_parse(bytes);
    check_lines(bytes);
    check_text(bytes);
    return 0;
}
