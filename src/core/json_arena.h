/*
 * json_arena.h - memory for yajl that cannot run out.
 *
 * yajl does not look at what malloc returns, so it gets all of it beforehand: one block,
 * cut from the front, never given back. What it needs: under 4 KiB of fixed structures and
 * a state byte per level; a buffer for the longest string with escapes; one for a number
 * that is the last thing in the text. Both buffers start at 2 KiB and double until they are
 * larger than their contents, so the last is at most twice that and all of them together
 * four times; the string and the number are different parts of the text. Hence 4 n and
 * change. Pages that are not touched cost nothing.
 */
#ifndef ONCE_CORE_JSON_ARENA_H
#define ONCE_CORE_JSON_ARENA_H

#include "once.h"

#include <yajl/yajl_common.h>

struct once_json_arena {
    uint8_t *base;
    size_t used, cap;
};

/* For parsing one text of this length, which json_strict.h has let pass; false: out of memory. */
bool once_json_arena_init(struct once_json_arena *arena, size_t text_len);
yajl_alloc_funcs once_json_arena_funcs(struct once_json_arena *arena);
void once_json_arena_release(struct once_json_arena *arena);

#endif
