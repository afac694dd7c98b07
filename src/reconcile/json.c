/*
 * json.c - see reconcile/json.h.
 *
 * The parser's position is kept as the text of a JSON Pointer and compared with the names: a
 * pointer has exactly one spelling. A path longer than the longest name matches nothing.
 */
#include "reconcile/json.h"

#include "core/err.h"
#include "core/json/events.h"
#include "core/json/json.h"
#include "core/json/strict.h"
#include "core/span.h"

#include <assert.h>

enum { PATH_LEN_MAX = 1024 };

struct level {
    size_t path_len; /* of the container itself */
    uint32_t next;   /* of an array: index of the next element */
    bool array;
};

struct walk {
    struct reconcile_pick *picks;
    size_t count;
    struct once_buf *memory;
    char path[PATH_LEN_MAX];
    size_t path_len; /* more than PATH_LEN_MAX: too long to match */
    struct level levels[ONCE_JSON_DEPTH_MAX];
    size_t depth;
    size_t offsets[64]; /* of values in `memory`, which may move as it grows */
    bool seen[64];      /* also if it was null */
    once_result result;
    const char *wrong;
};

bool reconcile_json_is_name(once_span name)
{
    if (name.len == 0 || name.len >= PATH_LEN_MAX)
        return false;
    if (name.ptr[0] != '/')
        return true;
    for (size_t i = 0; i < name.len; i++)
        if (name.ptr[i] == '~' && (i + 1 == name.len || (name.ptr[i + 1] != '0' && name.ptr[i + 1] != '1')))
            return false;
    return true;
}

static void path_add(struct walk *walk, uint8_t byte)
{
    if (walk->path_len < PATH_LEN_MAX)
        walk->path[walk->path_len] = (char)byte;
    walk->path_len++;
}

static void path_add_name(struct walk *walk, once_span name)
{
    path_add(walk, '/');
    for (size_t i = 0; i < name.len; i++) {
        if (name.ptr[i] == '~' || name.ptr[i] == '/') {
            path_add(walk, '~');
            path_add(walk, name.ptr[i] == '~' ? '0' : '1');
        } else {
            path_add(walk, name.ptr[i]);
        }
    }
}

/* In an array: adds the index of the next element to the path. */
static void begin_value(struct walk *walk)
{
    if (walk->depth == 0)
        return;
    struct level *level = &walk->levels[walk->depth - 1];
    if (!level->array)
        return;
    char number[12];
    int len = snprintf(number, sizeof number, "%u", level->next++);
    walk->path_len = level->path_len;
    path_add_name(walk, once_span_of(number, (size_t)len));
}

static bool is_named(const struct walk *walk, once_span name)
{
    if (walk->path_len > PATH_LEN_MAX)
        return false;
    once_span path = once_span_of(walk->path, walk->path_len);
    if (name.ptr[0] == '/')
        return once_span_equal(path, name);
    /* A plain name may contain any byte: compare it with the unescaped path. */
    if (walk->depth != 1)
        return false;
    size_t at = 1;
    for (size_t i = 0; i < name.len; i++) {
        bool escaped = name.ptr[i] == '~' || name.ptr[i] == '/';
        if (at + (escaped ? 2 : 1) > path.len)
            return false;
        if (escaped ? path.ptr[at] != '~' || path.ptr[at + 1] != (name.ptr[i] == '~' ? '0' : '1')
                    : path.ptr[at] != name.ptr[i])
            return false;
        at += escaped ? 2 : 1;
    }
    return at == path.len;
}

static bool stop(struct walk *walk, once_result result, const char *wrong)
{
    walk->result = result;
    walk->wrong = wrong;
    return false;
}

static bool take_value(struct walk *walk, enum once_json_event event, once_span bytes)
{
    for (size_t i = 0; i < walk->count; i++) {
        struct reconcile_pick *pick = &walk->picks[i];
        if (!is_named(walk, pick->name))
            continue;
        if (walk->seen[i])
            return stop(walk, ONCE_INVALID, "a member occurs twice");
        walk->seen[i] = true;
        if (event == ONCE_JSON_NULL)
            continue;
        pick->found = true;
        pick->composite = event == ONCE_JSON_ARRAY || event == ONCE_JSON_OBJECT;
        walk->offsets[i] = walk->memory->len;
        once_buf_add(walk->memory, bytes);
        pick->value.len = bytes.len;
        if (walk->memory->result != ONCE_OK)
            return stop(walk, walk->memory->result, "its values are too long");
    }
    return true;
}

static bool begin_container(struct walk *walk, enum once_json_event event)
{
    if (walk->depth == 0 && event == ONCE_JSON_ARRAY)
        return stop(walk, ONCE_INVALID, "it is a list, not an object");
    if (walk->depth > 0 && !take_value(walk, event, once_span_of(NULL, 0)))
        return false;
    if (walk->depth == ONCE_JSON_DEPTH_MAX)
        return stop(walk, ONCE_LIMIT, "it is nested too deeply");
    walk->levels[walk->depth++] = (struct level){ .path_len = walk->path_len, .array = event == ONCE_JSON_ARRAY };
    return true;
}

static bool on_event(void *arg, enum once_json_event event, once_span bytes)
{
    struct walk *walk = arg;
    switch (event) {
    case ONCE_JSON_NAME:
        walk->path_len = walk->levels[walk->depth - 1].path_len;
        path_add_name(walk, bytes);
        return true;
    case ONCE_JSON_END:
        assert(walk->depth > 0);
        walk->path_len = walk->levels[--walk->depth].path_len;
        return true;
    case ONCE_JSON_ARRAY:
    case ONCE_JSON_OBJECT:
        begin_value(walk);
        return begin_container(walk, event);
    case ONCE_JSON_TRUE:
        bytes = ONCE_LIT("true");
        break;
    case ONCE_JSON_FALSE:
        bytes = ONCE_LIT("false");
        break;
    default:
        break;
    }
    begin_value(walk);
    return take_value(walk, event, bytes);
}

/* The first byte of the value. */
static uint8_t first_byte(once_span text)
{
    while (text.len > 0 && strchr(" \t\r\n", text.ptr[0]) != NULL && text.ptr[0] != 0)
        text = once_span_skip(text, 1);
    return text.len > 0 ? text.ptr[0] : 0;
}

once_result reconcile_json_pick(once_span text, struct reconcile_pick *picks, size_t count, struct once_buf *memory,
                                struct once_error *err)
{
    struct walk walk = { .picks = picks, .count = count, .memory = memory };
    assert(count <= sizeof walk.offsets / sizeof *walk.offsets);
    for (size_t i = 0; i < count; i++)
        picks[i] = (struct reconcile_pick){ .name = picks[i].name };
    if (text.len > ONCE_JSON_LEN_MAX)
        return once_fail(err, ONCE_LIMIT, "it is too long");
    if (first_byte(text) != '{' || !once_json_is_strict(text))
        return once_fail(err, ONCE_INVALID, "it is not a JSON object");
    once_result r = once_json_parse(text, on_event, &walk, NULL);
    if (r == ONCE_NO_MEMORY)
        return once_fail(err, r, "out of memory");
    if (walk.result != ONCE_OK)
        return once_fail(err, walk.result, "%s", walk.wrong);
    if (r != ONCE_OK)
        return once_fail(err, ONCE_INVALID, "it is not a JSON object");
    for (size_t i = 0; i < count; i++)
        if (picks[i].found)
            picks[i].value.ptr = picks[i].value.len > 0 ? memory->ptr + walk.offsets[i] : NULL;
    return ONCE_OK;
}
