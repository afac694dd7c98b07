/*
 * duration.c - lengths of time and sizes as people write them.
 *
 * Model:    duration = 1*( 1*DIGIT unit ), units d h m s ms from large to small, each at
 *           most once: "30m1h" is probably a mistake. A bare number is refused, since it
 *           could mean seconds or milliseconds.
 *           size = 1*DIGIT [ K / M / G ], in bytes, so there a bare number is clear.
 *           Both stop at overflow instead of wrapping.
 * Errors:   ONCE_INVALID, naming the text and what to write instead.
 * Callers:  configuration, the CLI's options, store URLs: an operator's input.
 * Not here: whether a value is sensible for its purpose; calendars, months, time zones.
 */
#include "core/duration.h"

#include "core/err.h"
#include "core/span.h"

#include <assert.h>
#include <stdio.h>

enum { SHOWN_LEN_MAX = 60 }; /* bytes of a wrong text that a message quotes */

static const struct unit {
    once_span name;
    int64_t ms;
} units[] = {
    { ONCE_LIT("d"), 24 * 3600 * 1000 },
    { ONCE_LIT("h"), 3600 * 1000 },
    { ONCE_LIT("m"), 60 * 1000 },
    { ONCE_LIT("s"), 1000 },
    { ONCE_LIT("ms"), 1 },
};

enum { UNIT_COUNT = sizeof units / sizeof *units };

/* The arguments of "%.*s" for a text from an operator, which may be long. */
#define SHOW(text) (int)((text).len < SHOWN_LEN_MAX ? (text).len : SHOWN_LEN_MAX), (const char *)(text).ptr

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

/* Cuts the digits off the front of *rest. False: the number does not fit into 64 bits. */
static bool cut_number(once_span *rest, uint64_t *number)
{
    *number = 0;
    while (rest->len > 0 && is_digit(rest->ptr[0])) {
        if (__builtin_mul_overflow(*number, 10u, number) ||
            __builtin_add_overflow(*number, (uint64_t)(rest->ptr[0] - '0'), number))
            return false;
        *rest = once_span_skip(*rest, 1);
    }
    return true;
}

/* Cuts the letters up to the next digit off the front of *rest. */
static once_span cut_word(once_span *rest)
{
    size_t len = 0;
    while (len < rest->len && !is_digit(rest->ptr[len]))
        len++;
    once_span word = { rest->ptr, len };
    *rest = once_span_skip(*rest, len);
    return word;
}

static size_t find_unit(once_span name)
{
    size_t i = 0;
    while (i < UNIT_COUNT && !once_span_equal(units[i].name, name))
        i++;
    return i;
}

/* The sum of the terms in `text`, which begins with a digit. */
static once_result add_terms(once_span text, int64_t *sum, struct once_error *err)
{
    once_span rest = text;
    size_t unit_min = 0; /* index of the largest unit that may still come */
    *sum = 0;
    while (rest.len > 0) {
        uint64_t number;
        bool fits = cut_number(&rest, &number);
        if (!fits)
            return once_fail(err, ONCE_INVALID, "'%.*s' is too long a time", SHOW(text));
        once_span name = cut_word(&rest);
        if (name.len == 0)
            return once_fail(err, ONCE_INVALID, "%.*s: add a unit, e.g. %.*ss", SHOW(text), SHOW(text));
        size_t unit = find_unit(name);
        if (unit == UNIT_COUNT)
            return once_fail(err, ONCE_INVALID, "'%.*s': '%.*s' is not a unit, use d, h, m, s or ms", SHOW(text),
                             SHOW(name));
        if (unit < unit_min)
            return once_fail(err, ONCE_INVALID, "'%.*s': write each unit once, from large to small, e.g. 1h30m",
                             SHOW(text));
        int64_t term;
        if (__builtin_mul_overflow(number, units[unit].ms, &term) || __builtin_add_overflow(*sum, term, sum))
            return once_fail(err, ONCE_INVALID, "'%.*s' is too long a time", SHOW(text));
        unit_min = unit + 1;
    }
    return ONCE_OK;
}

once_result once_duration_parse(once_span text, bool allow_never, int64_t *ms, struct once_error *err)
{
    if (text.len == 0)
        return once_fail(err, ONCE_INVALID, "duration is empty: write e.g. 60s");
    if (once_span_equal(text, ONCE_LIT("never"))) {
        if (!allow_never)
            return once_fail(err, ONCE_INVALID, "'never' is not possible here, write a duration, e.g. 60s");
        *ms = ONCE_NEVER;
        return ONCE_OK;
    }
    if (!is_digit(text.ptr[0]))
        return once_fail(err, ONCE_INVALID, "'%.*s' is not a duration, write e.g. 60s or 1h30m", SHOW(text));
    int64_t sum;
    once_result r = add_terms(text, &sum, err);
    if (r == ONCE_OK)
        *ms = sum;
    return r;
}

void once_duration_format(int64_t ms, char out[ONCE_DURATION_TEXT_LEN])
{
    assert(ms >= 0 || ms == ONCE_NEVER);
    if (ms == 0 || ms == ONCE_NEVER) {
        snprintf(out, ONCE_DURATION_TEXT_LEN, "%s", ms == 0 ? "0s" : "never");
        return;
    }
    size_t len = 0;
    for (size_t i = 0; i < UNIT_COUNT; i++) {
        int64_t number = ms / units[i].ms;
        ms %= units[i].ms;
        if (number > 0)
            len += (size_t)snprintf(out + len, ONCE_DURATION_TEXT_LEN - len, "%lld%s", (long long)number,
                                    (const char *)units[i].name.ptr);
        assert(len < ONCE_DURATION_TEXT_LEN);
    }
    assert(ms == 0);
}

/* The power of two that a suffix stands for, or -1. */
static int suffix_shift(once_span suffix)
{
    if (suffix.len == 0)
        return 0;
    if (suffix.len > 1)
        return -1;
    switch (suffix.ptr[0]) {
    case 'K':
    case 'k':
        return 10;
    case 'M':
    case 'm':
        return 20;
    case 'G':
    case 'g':
        return 30;
    default:
        return -1;
    }
}

once_result once_size_parse(once_span text, uint64_t *bytes, struct once_error *err)
{
    if (text.len == 0)
        return once_fail(err, ONCE_INVALID, "size is empty: write e.g. 4096 or 64K");
    if (!is_digit(text.ptr[0]))
        return once_fail(err, ONCE_INVALID, "'%.*s' is not a size, write e.g. 4096 or 64K", SHOW(text));
    once_span rest = text;
    uint64_t number;
    if (!cut_number(&rest, &number))
        return once_fail(err, ONCE_INVALID, "'%.*s' is too large a size", SHOW(text));
    int shift = suffix_shift(rest);
    if (shift < 0)
        return once_fail(err, ONCE_INVALID, "'%.*s': '%.*s' is not a unit of size, use K, M or G", SHOW(text),
                         SHOW(rest));
    if (number > UINT64_MAX >> shift)
        return once_fail(err, ONCE_INVALID, "'%.*s' is too large a size", SHOW(text));
    *bytes = number << shift;
    return ONCE_OK;
}
