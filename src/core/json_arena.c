/* json_arena.c - see json_arena.h. */
#include "core/json_arena.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_FIXED = 32 << 10, ARENA_ALIGN = 16 };

/* In front of each block, so that realloc knows what to copy. */
struct block {
    _Alignas(ARENA_ALIGN) size_t size;
};

static void *arena_malloc(void *ctx, size_t size)
{
    struct once_json_arena *arena = ctx;
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

bool once_json_arena_init(struct once_json_arena *arena, size_t text_len)
{
    *arena = (struct once_json_arena){ .cap = 4 * text_len + ARENA_FIXED };
    arena->base = malloc(arena->cap);
    return arena->base != NULL;
}

yajl_alloc_funcs once_json_arena_funcs(struct once_json_arena *arena)
{
    return (yajl_alloc_funcs){ arena_malloc, arena_realloc, arena_free, arena };
}

void once_json_arena_release(struct once_json_arena *arena)
{
    free(arena->base);
    *arena = (struct once_json_arena){ 0 };
}
