/* query.c - see api/query.h. */
#include "daemon/api/query.h"

#include "core/span.h"

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        return (c | 0x20) - 'a' + 10;
    return -1;
}

/* As forms are encoded: "+" is a space, %XX any byte. */
static bool decode(once_span text, struct once_buf *out)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        if (c == '%') {
            int high = text.len - i > 2 ? hex_digit(text.ptr[i + 1]) : -1;
            int low = text.len - i > 2 ? hex_digit(text.ptr[i + 2]) : -1;
            if (high < 0 || low < 0)
                return false;
            c = (uint8_t)(high << 4 | low);
            i += 2;
        } else if (c == '+') {
            c = ' ';
        }
        once_buf_add_byte(out, c);
    }
    return out->result == ONCE_OK;
}

bool api_query_read(struct api_call *call, struct api_parameter *parameters, size_t count)
{
    once_span rest = once_span_str(call->query), item, name, value;
    while (rest.len > 0) {
        once_span_cut(rest, '&', &item, &rest);
        once_span_cut(item, '=', &name, &value);
        size_t i = 0;
        while (i < count && !once_span_equal(name, once_span_str(parameters[i].name)))
            i++;
        char shown[64];
        snprintf(shown, sizeof shown, "%.*s", (int)(name.len < 60 ? name.len : 60), (const char *)name.ptr);
        const char *wrong = NULL;
        if (i == count)
            wrong = "is not a known parameter";
        else if (parameters[i].there)
            wrong = "is repeated";
        else if (!decode(value, &parameters[i].value))
            wrong = "is too long, or has a % without two hex digits behind it";
        if (wrong != NULL) {
            api_answer_problem(&call->answer, API_PROBLEM_INVALID, shown, "parameter '%s' %s", shown, wrong);
            return false;
        }
        parameters[i].there = true;
    }
    return true;
}
