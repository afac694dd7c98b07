/*
 * fuzz_json.c - any bytes as a JSON text.
 *
 * Input:      [pointer *( "\n" pointer ) NUL] text. No JSON has a NUL, so nothing is lost.
 * Properties: a form exists or `out` is empty; it is at most three times the text; the
 *             form of the form is itself (JSON-2); what is written without excluded members
 *             is a form as well.
 */
#include "core/json/json.h"
#include "core/span.h"

#include "fuzz.h"

/* Longer texts only repeat what shorter ones show, slowly. */
enum { TEXT_LEN_MAX = 1 << 20 };

static bool canonicalise(once_span text, const once_span *exclude, size_t count, struct once_buf *out)
{
    bool canonical = true;
    struct once_error err = { .text = "" };
    once_result r = once_json_canonical(text, exclude, count, out, &canonical, &err);
    HOLDS(r == ONCE_OK || ((r == ONCE_INVALID || r == ONCE_LIMIT) && count > 0 && err.text[0] != '\0'));
    HOLDS(out->result == ONCE_OK);
    HOLDS(canonical == (out->len > 0));
    return canonical;
}

static void check_form(const struct once_buf *form)
{
    struct once_buf again;
    once_buf_init(&again, form->len);
    HOLDS(canonicalise(once_buf_span(form), NULL, 0, &again));
    HOLDS(once_span_equal(once_buf_span(form), once_buf_span(&again)));
    once_buf_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > TEXT_LEN_MAX)
        return 0;
    once_span lines, text;
    if (!once_span_cut(once_span_of(data, size), '\0', &lines, &text)) {
        text = lines;
        lines = (once_span){ NULL, 0 };
    }
    once_span exclude[ONCE_JSON_EXCLUDE_COUNT_MAX + 1];
    size_t count = 0;
    bool more = lines.len > 0;
    while (more && count <= ONCE_JSON_EXCLUDE_COUNT_MAX)
        more = once_span_cut(lines, '\n', &exclude[count++], &lines);

    struct once_buf plain, without;
    once_buf_init(&plain, ONCE_JSON_GROWTH_MAX * text.len);
    once_buf_init(&without, ONCE_JSON_GROWTH_MAX * text.len);
    bool has_form = canonicalise(text, NULL, 0, &plain);
    if (has_form)
        check_form(&plain);
    if (count > 0 && canonicalise(text, exclude, count, &without)) {
        HOLDS(has_form);
        HOLDS(without.len <= plain.len);
        check_form(&without);
    }
    once_buf_release(&plain);
    once_buf_release(&without);
    return 0;
}
