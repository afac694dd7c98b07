/*
 * keymap.h - record id to newest fence, in RAM.
 *
 * For a process that owns its store: a claim of a fresh key costs one look here and one
 * append there, however many records there are. 24 bytes a slot, at most three quarters
 * full. Split into 256 tables by the id's first byte, so that growing one of them is a
 * pause of a fraction of a millisecond, never one over millions of records.
 *
 * Record ids are MACs under the store's secret: uniform, and nobody can choose them to
 * collide.
 */
#ifndef ONCE_STORE_SQLITE_KEYMAP_H
#define ONCE_STORE_SQLITE_KEYMAP_H

#include "once.h"

struct keymap;

struct keymap *keymap_create(void); /* NULL: no memory */
void keymap_free(struct keymap *map);
uint64_t keymap_find(const struct keymap *map, const uint8_t record[16]);      /* 0: not there */
bool keymap_put(struct keymap *map, const uint8_t record[16], uint64_t fence); /* false: no memory */
void keymap_remove(struct keymap *map, const uint8_t record[16]);
size_t keymap_count(const struct keymap *map);

#endif
