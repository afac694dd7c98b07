/* keymap.c - open addressing with linear probing; see keymap.h. */
#include "store/sqlite/keymap.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_COUNT = 256, CAP_FIRST = 16 };

struct slot {
    uint8_t record[16];
    uint64_t fence; /* 0: free */
};

struct table {
    struct slot *slots;
    size_t cap; /* a power of two, or 0 */
    size_t count;
};

struct keymap {
    struct table tables[TABLE_COUNT];
};

static size_t home(const struct table *t, const uint8_t record[16])
{
    uint64_t h;
    memcpy(&h, record + 1, sizeof h);
    return (size_t)h & (t->cap - 1);
}

/* The record's slot, or the free one where it would go. There is always a free one. */
static struct slot *seek(const struct table *t, const uint8_t record[16])
{
    size_t i = home(t, record);
    while (t->slots[i].fence != 0 && memcmp(t->slots[i].record, record, 16) != 0)
        i = (i + 1) & (t->cap - 1);
    return &t->slots[i];
}

static bool grow(struct table *t)
{
    struct table bigger = { .cap = t->cap == 0 ? CAP_FIRST : t->cap * 2, .count = t->count };
    bigger.slots = calloc(bigger.cap, sizeof *bigger.slots);
    if (bigger.slots == NULL)
        return false;
    for (size_t i = 0; i < t->cap; i++)
        if (t->slots[i].fence != 0)
            *seek(&bigger, t->slots[i].record) = t->slots[i];
    free(t->slots);
    *t = bigger;
    return true;
}

struct keymap *keymap_create(void)
{
    return calloc(1, sizeof(struct keymap));
}

void keymap_free(struct keymap *map)
{
    if (map == NULL)
        return;
    for (size_t i = 0; i < TABLE_COUNT; i++)
        free(map->tables[i].slots);
    free(map);
}

uint64_t keymap_find(const struct keymap *map, const uint8_t record[16])
{
    const struct table *t = &map->tables[record[0]];
    return t->cap == 0 ? 0 : seek(t, record)->fence;
}

bool keymap_put(struct keymap *map, const uint8_t record[16], uint64_t fence)
{
    assert(fence != 0);
    struct table *t = &map->tables[record[0]];
    if ((t->count + 1) * 4 > t->cap * 3 && !grow(t))
        return false;
    struct slot *slot = seek(t, record);
    if (slot->fence == 0) {
        memcpy(slot->record, record, 16);
        t->count++;
    }
    slot->fence = fence;
    return true;
}

/* Moves up what probed past the freed slot, so that no tombstones are needed. */
void keymap_remove(struct keymap *map, const uint8_t record[16])
{
    struct table *t = &map->tables[record[0]];
    if (t->cap == 0)
        return;
    struct slot *slot = seek(t, record);
    if (slot->fence == 0)
        return;
    size_t mask = t->cap - 1, hole = (size_t)(slot - t->slots), i = hole;
    for (;;) {
        i = (i + 1) & mask;
        if (t->slots[i].fence == 0)
            break;
        size_t from_home = (i - home(t, t->slots[i].record)) & mask;
        if (from_home >= ((i - hole) & mask)) {
            t->slots[hole] = t->slots[i];
            hole = i;
        }
    }
    t->slots[hole] = (struct slot){ .fence = 0 };
    t->count--;
}

size_t keymap_count(const struct keymap *map)
{
    size_t n = 0;
    for (size_t i = 0; i < TABLE_COUNT; i++)
        n += map->tables[i].count;
    return n;
}
