/* utf8.c - see utf8.h. The table of RFC 3629, section 4, as ranges of code points. */
#include "core/utf8.h"

#include "core/span.h"

static size_t sequence_len(uint8_t lead)
{
    if (lead < 0x80)
        return 1;
    if (lead >= 0xc2 && lead <= 0xdf)
        return 2;
    if (lead >= 0xe0 && lead <= 0xef)
        return 3;
    if (lead >= 0xf0 && lead <= 0xf4)
        return 4;
    return 0;
}

size_t once_utf8_decode(once_span s, uint32_t *code)
{
    static const uint32_t min[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    static const uint8_t lead_bits[5] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    size_t len = s.len > 0 ? sequence_len(s.ptr[0]) : 0;
    if (len == 0 || len > s.len)
        return 0;
    uint32_t c = s.ptr[0] & lead_bits[len];
    for (size_t i = 1; i < len; i++) {
        if ((s.ptr[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (s.ptr[i] & 0x3f);
    }
    if (c < min[len] || (c >= 0xd800 && c <= 0xdfff) || c > 0x10ffff)
        return 0;
    *code = c;
    return len;
}

bool once_utf8_valid(once_span s)
{
    while (s.len > 0) {
        uint32_t code;
        size_t len = once_utf8_decode(s, &code);
        if (len == 0)
            return false;
        s = once_span_skip(s, len);
    }
    return true;
}
