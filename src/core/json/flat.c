/* flat.c - see json/flat.h. */
#include "core/json/flat.h"

#include "core/span.h"

#include <string.h>

enum {
    MEMBERS_MAX = 32, /* sorted by insertion */
    TEXT_LEN_MAX = 4096,
};

struct member {
    once_span name;  /* without quotes */
    once_span value; /* as it is written */
};

struct reader {
    const uint8_t *at, *end;
};

static void skip_space(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static bool take(struct reader *r, uint8_t byte)
{
    bool is = r->at < r->end && *r->at == byte;
    r->at += is;
    return is;
}

/* Accepts only strings without escapes, which the canonical form repeats byte by byte. */
static bool take_string(struct reader *r, once_span *inside)
{
    if (!take(r, '"'))
        return false;
    const uint8_t *start = r->at;
    while (r->at < r->end && *r->at >= 0x20 && *r->at < 0x80 && *r->at != '"' && *r->at != '\\')
        r->at++;
    *inside = once_span_of(start, (size_t)(r->at - start));
    return take(r, '"');
}

static bool take_digits(struct reader *r)
{
    const uint8_t *start = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
    return r->at > start;
}

static bool take_number(struct reader *r)
{
    (void)take(r, '-');
    if (!take(r, '0') && !take_digits(r))
        return false;
    if (take(r, '.') && !take_digits(r))
        return false;
    if (!take(r, 'e') && !take(r, 'E'))
        return true;
    (void)(take(r, '+') || take(r, '-'));
    return take_digits(r);
}

static bool take_word(struct reader *r, once_span word)
{
    if ((size_t)(r->end - r->at) < word.len || memcmp(r->at, word.ptr, word.len) != 0)
        return false;
    r->at += word.len;
    return true;
}

static bool take_value(struct reader *r, once_span *value)
{
    const uint8_t *start = r->at;
    once_span inside;
    bool taken = start < r->end && *start == '"' ? take_string(r, &inside)
                                                 : take_word(r, ONCE_LIT("true")) || take_word(r, ONCE_LIT("false")) ||
                                                       take_word(r, ONCE_LIT("null")) || take_number(r);
    *value = once_span_of(start, (size_t)(r->at - start));
    return taken;
}

static int compare(once_span a, once_span b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int order = len > 0 ? memcmp(a.ptr, b.ptr, len) : 0;
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

/* False: there are two members of this name, so there is no canonical form. */
static bool insert(struct member *members, size_t count, const struct member *member)
{
    size_t at = count;
    for (; at > 0; at--) {
        int order = compare(members[at - 1].name, member->name);
        if (order == 0)
            return false;
        if (order < 0)
            break;
        members[at] = members[at - 1];
    }
    members[at] = *member;
    return true;
}

static bool read_object(struct reader *r, struct member *members, size_t *count)
{
    *count = 0;
    skip_space(r);
    if (!take(r, '{'))
        return false;
    skip_space(r);
    bool more = !take(r, '}');
    while (more) {
        struct member member;
        if (*count == MEMBERS_MAX || !take_string(r, &member.name))
            return false;
        skip_space(r);
        if (!take(r, ':'))
            return false;
        skip_space(r);
        if (!take_value(r, &member.value) || !insert(members, (*count)++, &member))
            return false;
        skip_space(r);
        more = take(r, ',');
        if (!more && !take(r, '}'))
            return false;
        skip_space(r);
    }
    skip_space(r);
    return r->at == r->end;
}

static uint8_t *put(uint8_t *at, once_span bytes)
{
    if (bytes.len > 0)
        memcpy(at, bytes.ptr, bytes.len);
    return at + bytes.len;
}

bool once_json_flat(once_span text, struct once_buf *out)
{
    struct reader r = { text.ptr, text.ptr + text.len };
    struct member members[MEMBERS_MAX];
    size_t count;
    if (text.len > TEXT_LEN_MAX || text.len > out->max || !read_object(&r, members, &count))
        return false;
    uint8_t *start = once_buf_reserve(out, text.len); /* the form is no longer than the text */
    if (start == NULL) {
        once_buf_clear(out);
        return false;
    }
    uint8_t *at = start;
    *at++ = '{';
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            *at++ = ',';
        *at++ = '"';
        at = put(at, members[i].name);
        at = put(at, ONCE_LIT("\":"));
        at = put(at, members[i].value);
    }
    *at++ = '}';
    out->len += (size_t)(at - start);
    return true;
}
