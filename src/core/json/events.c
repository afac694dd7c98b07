/*
 * events.c - see json/events.h.
 *
 * The memory that yajl needs: under 4 KiB of fixed structures and a state byte per level; a buffer for the longest
 * string with escapes; one for a string or number that is the last thing in the text. Both buffers start at 2 KiB and
 * double until they are larger than their contents, so the last is at most twice that and all of them together four
 * times; the two are different parts of the text. Hence 4 n and a constant. Pages that are not touched cost nothing.
 */
#include "core/json/events.h"

#include "core/span.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_parse.h>

/* ---------------------------------------------------------------- memory */

enum { ARENA_FIXED = 32 << 10, ARENA_ALIGN = 16 };

struct arena {
    uint8_t *base;
    size_t used, cap;
};

/* In front of each block, so that realloc knows what to copy. */
struct block {
    _Alignas(ARENA_ALIGN) size_t size;
};

static void *arena_malloc(void *ctx, size_t size)
{
    struct arena *arena = ctx;
    assert(size <= arena->cap);
    size_t need = sizeof(struct block) + (size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    assert(need <= arena->cap - arena->used); /* the sum above is wrong, or yajl has changed */
    struct block *block = (struct block *)(void *)(arena->base + arena->used);
    arena->used += need;
    block->size = size;
    return block + 1;
}

static void *arena_realloc(void *ctx, void *old, size_t size)
{
    void *fresh = arena_malloc(ctx, size);
    if (old != NULL) {
        size_t old_size = ((struct block *)old - 1)->size;
        memcpy(fresh, old, old_size < size ? old_size : size);
    }
    return fresh;
}

static void arena_free(void *ctx, void *ptr)
{
    (void)ctx;
    (void)ptr;
}

/* ---------------------------------------------------------------- yajl's callbacks */

struct listener {
    once_json_event_fn *fn;
    void *arg;
};

static int report(void *ctx, enum once_json_event event, const void *ptr, size_t len)
{
    const struct listener *listener = ctx;
    return listener->fn(listener->arg, event, once_span_of(ptr, len));
}

static int on_null(void *ctx)
{
    return report(ctx, ONCE_JSON_NULL, NULL, 0);
}

static int on_boolean(void *ctx, int value)
{
    return report(ctx, value ? ONCE_JSON_TRUE : ONCE_JSON_FALSE, NULL, 0);
}

static int on_number(void *ctx, const char *ptr, size_t len)
{
    return report(ctx, ONCE_JSON_NUMBER, ptr, len);
}

static int on_string(void *ctx, const unsigned char *ptr, size_t len)
{
    return report(ctx, ONCE_JSON_STRING, ptr, len);
}

static int on_start_map(void *ctx)
{
    return report(ctx, ONCE_JSON_OBJECT, NULL, 0);
}

static int on_map_key(void *ctx, const unsigned char *ptr, size_t len)
{
    return report(ctx, ONCE_JSON_NAME, ptr, len);
}

static int on_start_array(void *ctx)
{
    return report(ctx, ONCE_JSON_ARRAY, NULL, 0);
}

static int on_end(void *ctx)
{
    return report(ctx, ONCE_JSON_END, NULL, 0);
}

once_result once_json_parse(once_span text, once_json_event_fn *fn, void *arg, size_t *at)
{
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
    struct arena arena = { .cap = 4 * text.len + ARENA_FIXED };
    struct listener listener = { fn, arg };
    arena.base = malloc(arena.cap);
    if (arena.base == NULL)
        return ONCE_NO_MEMORY;
    yajl_alloc_funcs memory = { arena_malloc, arena_realloc, arena_free, &arena };
    yajl_handle yajl = yajl_alloc(&callbacks, &memory, &listener);
    yajl_status status = yajl_parse(yajl, text.ptr, text.len);
    if (at != NULL)
        *at = status == yajl_status_ok ? text.len : yajl_get_bytes_consumed(yajl);
    if (status == yajl_status_ok)
        status = yajl_complete_parse(yajl);
    free(arena.base); /* all that yajl has */
    return status == yajl_status_ok ? ONCE_OK : ONCE_INVALID;
}
