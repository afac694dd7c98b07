/*
 * guard.h - inputs that end at a page nobody may touch.
 *
 *     struct guard guard;
 *     once_span text = guard_copy(&guard, row->text, row->len);
 *     ... parse(text) ...
 *     guard_release(&guard);
 *
 * A parser that reads one byte beyond its span crashes, with any compiler. An empty
 * span points at the forbidden page itself.
 */
#ifndef ONCE_TEST_GUARD_H
#define ONCE_TEST_GUARD_H

#include "once.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct guard {
    void *map;
    size_t map_len;
};

__attribute__((unused)) static once_span guard_copy(struct guard *guard, const void *bytes, size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t data_len = (len + page - 1) / page * page;
    guard->map_len = data_len + page;
    guard->map = mmap(NULL, guard->map_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (guard->map == MAP_FAILED)
        abort();
    uint8_t *end = (uint8_t *)guard->map + data_len;
    if (mprotect(end, page, PROT_NONE) != 0)
        abort();
    if (len > 0)
        memcpy(end - len, bytes, len);
    return (once_span){ end - len, len };
}

__attribute__((unused)) static void guard_release(struct guard *guard)
{
    munmap(guard->map, guard->map_len);
}

#endif
