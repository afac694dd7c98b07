/* pointer.c - see json/pointer.h. */
#include "core/json/pointer.h"

#include "core/err.h"
#include "core/json/json.h"
#include "core/span.h"

static once_result check_pointer(once_span pointer, struct once_error *err)
{
    int shown = pointer.len < 100 ? (int)pointer.len : 100;
    const char *text = (const char *)pointer.ptr;
    if (pointer.len == 0)
        return once_fail(err, ONCE_INVALID, "JSON pointer '': the whole document cannot be excluded");
    if (pointer.ptr[0] != '/')
        return once_fail(err, ONCE_INVALID, "JSON pointer '%.*s': must begin with '/'", shown, text);
    for (size_t i = 0; i < pointer.len; i++) {
        if (pointer.ptr[i] != '~')
            continue;
        if (i + 1 == pointer.len || (pointer.ptr[i + 1] != '0' && pointer.ptr[i + 1] != '1'))
            return once_fail(err, ONCE_INVALID, "JSON pointer '%.*s': '~' at byte %zu must be '~0' or '~1'", shown,
                             text, i + 1);
    }
    return ONCE_OK;
}

/* Checks and sorts. Insertion sort: there are at most 64, and an operator chose them. */
once_result once_json_sort_pointers(const once_span *exclude, size_t count, once_span *sorted, struct once_error *err)
{
    if (count > ONCE_JSON_EXCLUDE_COUNT_MAX)
        return once_fail(err, ONCE_LIMIT, "%zu JSON pointers are excluded, the limit is %d", count,
                         ONCE_JSON_EXCLUDE_COUNT_MAX);
    for (size_t i = 0; i < count; i++) {
        once_result r = check_pointer(exclude[i], err);
        if (r != ONCE_OK)
            return r;
        size_t at = i;
        for (; at > 0 && once_span_order(exclude[i], sorted[at - 1]) < 0; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = exclude[i];
    }
    return ONCE_OK;
}

static int byte_order(once_span rest, size_t at, int byte)
{
    return at < rest.len ? rest.ptr[at] - byte : -1;
}

/* The order of `rest`, pointer text, and `name`, escaped on the fly, with `tail` (a byte,
 * or -1 for none) behind it. Stops at the first difference: a long name costs no more
 * than the pointer is long. */
static int pointer_order(once_span rest, once_span name, int tail)
{
    size_t at = 0;
    for (size_t i = 0; i < name.len; i++) {
        uint8_t c = name.ptr[i];
        bool escaped = c == '~' || c == '/';
        int order = byte_order(rest, at++, escaped ? '~' : c);
        if (order == 0 && escaped)
            order = byte_order(rest, at++, c == '~' ? '0' : '1');
        if (order != 0)
            return order;
    }
    int order = tail >= 0 ? byte_order(rest, at++, tail) : 0;
    return order != 0 ? order : at < rest.len;
}

/* The first pointer of the scope that is not below name + tail. */
static size_t lower_bound(const once_span *sorted, struct once_json_scope scope, once_span name, int tail)
{
    size_t begin = scope.begin, end = scope.end;
    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;
        once_span rest = once_span_skip(sorted[middle], scope.prefix_len);
        if (pointer_order(rest, name, tail) < 0)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

static size_t escaped_len(once_span name)
{
    size_t len = name.len;
    for (size_t i = 0; i < name.len; i++)
        len += name.ptr[i] == '~' || name.ptr[i] == '/';
    return len;
}

/* Does a pointer name this child of the scope's container? *inner is the child's scope. */
bool once_json_is_excluded(const once_span *sorted, struct once_json_scope scope, once_span name,
                           struct once_json_scope *inner)
{
    *inner = (struct once_json_scope){ 0, 0, 0 };
    if (scope.begin == scope.end)
        return false;
    size_t at = lower_bound(sorted, scope, name, -1);
    if (at < scope.end && pointer_order(once_span_skip(sorted[at], scope.prefix_len), name, -1) == 0)
        return true;
    inner->begin = lower_bound(sorted, scope, name, '/');
    inner->end = lower_bound(sorted, scope, name, '/' + 1);
    if (inner->begin < inner->end)
        inner->prefix_len = scope.prefix_len + escaped_len(name) + 1;
    return false;
}
