/*
 * json.c - see reconcile/json.h.
 *
 * The parser's position is kept as the text of a JSON Pointer and compared with the names: a
 * pointer has exactly one spelling. A path longer than the longest name matches nothing.
 */
#include "reconcile/json.h"

#include "core/err.h"
#include "core/json.h"
#include "core/json_arena.h"
#include "core/json_strict.h"
#include "core/span.h"

#include <assert.h>
#include <yajl/yajl_parse.h>

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

enum { STOP = 0, GO_ON = 1 };

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

static void path_add_name(struct walk *walk, const uint8_t *name, size_t len)
{
    path_add(walk, '/');
    for (size_t i = 0; i < len; i++) {
        if (name[i] == '~' || name[i] == '/') {
            path_add(walk, '~');
            path_add(walk, name[i] == '~' ? '0' : '1');
        } else {
            path_add(walk, name[i]);
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
    path_add_name(walk, (const uint8_t *)number, (size_t)len);
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

static int take_value(struct walk *walk, const void *ptr, size_t len, bool composite, bool null)
{
    for (size_t i = 0; i < walk->count; i++) {
        struct reconcile_pick *pick = &walk->picks[i];
        if (!is_named(walk, pick->name))
            continue;
        if (walk->seen[i]) {
            walk->result = ONCE_INVALID;
            walk->wrong = "a member occurs twice";
            return STOP;
        }
        walk->seen[i] = true;
        if (null)
            continue;
        pick->found = true;
        pick->composite = composite;
        walk->offsets[i] = walk->memory->len;
        once_buf_add(walk->memory, once_span_of(ptr, len));
        pick->value.len = len;
        if (walk->memory->result != ONCE_OK) {
            walk->result = walk->memory->result;
            walk->wrong = "its values are too long";
            return STOP;
        }
    }
    return GO_ON;
}

static int on_null(void *ctx)
{
    begin_value(ctx);
    return take_value(ctx, NULL, 0, false, true);
}

static int on_boolean(void *ctx, int value)
{
    begin_value(ctx);
    return take_value(ctx, value ? "true" : "false", value ? 4 : 5, false, false);
}

static int on_number(void *ctx, const char *ptr, size_t len)
{
    begin_value(ctx);
    return take_value(ctx, ptr, len, false, false);
}

static int on_string(void *ctx, const unsigned char *ptr, size_t len)
{
    begin_value(ctx);
    return take_value(ctx, ptr, len, false, false);
}

static int on_start(struct walk *walk, bool array)
{
    begin_value(walk);
    if (walk->depth == 0 && array) {
        walk->result = ONCE_INVALID;
        walk->wrong = "it is a list, not an object";
        return STOP;
    }
    if (walk->depth > 0 && take_value(walk, NULL, 0, true, false) == STOP)
        return STOP;
    if (walk->depth == ONCE_JSON_DEPTH_MAX) {
        walk->result = ONCE_LIMIT;
        walk->wrong = "it is nested too deeply";
        return STOP;
    }
    walk->levels[walk->depth++] = (struct level){ .path_len = walk->path_len, .array = array };
    return GO_ON;
}

static int on_start_map(void *ctx)
{
    return on_start(ctx, false);
}

static int on_start_array(void *ctx)
{
    return on_start(ctx, true);
}

static int on_map_key(void *ctx, const unsigned char *ptr, size_t len)
{
    struct walk *walk = ctx;
    walk->path_len = walk->levels[walk->depth - 1].path_len;
    path_add_name(walk, ptr, len);
    return GO_ON;
}

static int on_end(void *ctx)
{
    struct walk *walk = ctx;
    assert(walk->depth > 0);
    walk->path_len = walk->levels[--walk->depth].path_len;
    return GO_ON;
}

static const yajl_callbacks callbacks = {
    .yajl_null = on_null,
    .yajl_boolean = on_boolean,
    .yajl_number = on_number,
    .yajl_string = on_string,
    .yajl_start_map = on_start_map,
    .yajl_map_key = on_map_key,
    .yajl_end_map = on_end,
    .yajl_start_array = on_start_array,
    .yajl_end_array = on_end,
};

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
    struct once_json_arena arena;
    if (!once_json_arena_init(&arena, text.len))
        return once_fail(err, ONCE_NO_MEMORY, "out of memory");
    yajl_alloc_funcs funcs = once_json_arena_funcs(&arena);
    yajl_handle yajl = yajl_alloc(&callbacks, &funcs, &walk);
    yajl_status status = yajl_parse(yajl, text.ptr, text.len);
    if (status == yajl_status_ok)
        status = yajl_complete_parse(yajl);
    yajl_free(yajl);
    once_json_arena_release(&arena);
    if (walk.result != ONCE_OK)
        return once_fail(err, walk.result, "%s", walk.wrong);
    if (status != yajl_status_ok)
        return once_fail(err, ONCE_INVALID, "it is not a JSON object");
    for (size_t i = 0; i < count; i++)
        if (picks[i].found)
            picks[i].value.ptr = picks[i].value.len > 0 ? memory->ptr + walk.offsets[i] : NULL;
    return ONCE_OK;
}
