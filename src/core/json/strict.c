/* strict.c - see json/strict.h. */
#include "core/json/strict.h"

#include "core/span.h"

/* The value of four hex digits at `at`, or -1. */
static int read_hex4(once_span text, size_t at)
{
    if (text.len < 4 || at > text.len - 4)
        return -1;
    int value = 0;
    for (size_t i = at; i < at + 4; i++) {
        uint8_t c = text.ptr[i];
        if (c >= '0' && c <= '9')
            value = value << 4 | (c - '0');
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            value = value << 4 | ((c | 0x20) - 'a' + 10);
        else
            return -1;
    }
    return value;
}

/* The length of the escape whose backslash is at `at`; a pair of surrogates is one.
 * 0: incomplete, or half a pair. yajl checks the letter after the backslash. */
static size_t escape_len(once_span text, size_t at)
{
    if (text.len - at < 2)
        return 0;
    if (text.ptr[at + 1] != 'u')
        return 2;
    int unit = read_hex4(text, at + 2);
    if (unit < 0 || (unit & 0xfc00) == 0xdc00)
        return 0;
    if ((unit & 0xfc00) != 0xd800)
        return 6;
    if (text.len - at < 12 || text.ptr[at + 6] != '\\' || text.ptr[at + 7] != 'u')
        return 0;
    int low = read_hex4(text, at + 8);
    return low >= 0 && (low & 0xfc00) == 0xdc00 ? 12 : 0;
}

/* The length of the UTF-8 character at `at`, or 0: overlong, a surrogate, beyond
 * U+10FFFF, truncated. The range of the second byte excludes the first three. */
static size_t utf8_len(once_span text, size_t at)
{
    uint8_t lead = text.ptr[at];
    uint8_t low = 0x80, high = 0xbf;
    size_t len;
    if (lead < 0x80)
        return 1;
    if (lead >= 0xc2 && lead <= 0xdf)
        len = 2;
    else if (lead >= 0xe0 && lead <= 0xef)
        len = 3;
    else if (lead >= 0xf0 && lead <= 0xf4)
        len = 4;
    else
        return 0;
    if (len > text.len - at)
        return 0;
    if (lead == 0xe0)
        low = 0xa0;
    else if (lead == 0xed)
        high = 0x9f;
    else if (lead == 0xf0)
        low = 0x90;
    else if (lead == 0xf4)
        high = 0x8f;
    if (text.ptr[at + 1] < low || text.ptr[at + 1] > high)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((text.ptr[at + i] & 0xc0) != 0x80)
            return 0;
    return len;
}

/* The place after the string whose opening quote is before `at`, or 0. */
static size_t string_end(once_span text, size_t at)
{
    while (at < text.len) {
        uint8_t c = text.ptr[at];
        if (c == '"')
            return at + 1;
        size_t len = c == '\\' ? escape_len(text, at) : utf8_len(text, at);
        if (len == 0 || c < 0x20)
            return 0;
        at += len;
    }
    return 0;
}

/* False: not JSON, for a reason that yajl does not check. True: yajl decides. */
bool once_json_is_strict(once_span text)
{
    size_t at = 0;
    while (at < text.len) {
        uint8_t c = text.ptr[at];
        if (c == '\v' || c == '\f' || c >= 0x80)
            return false;
        at = c == '"' ? string_end(text, at + 1) : at + 1;
        if (at == 0)
            return false;
    }
    return text.len > 0;
}
