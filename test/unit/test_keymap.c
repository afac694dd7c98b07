/*
 * test_keymap.c - the map from record ids to fences against a plain list of the same.
 */
#include "store/sqlite/keymap.h"

#include "../test.h"

#include <stdlib.h>

enum { IDS = 4000 };

static uint64_t seed = 1;

static uint32_t next_random(void)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(seed >> 33);
}

/* Few first bytes and few home slots, so that tables are crowded and probes collide. */
static void make_id(uint32_t n, uint8_t id[16])
{
    memset(id, 0, 16);
    id[0] = (uint8_t)(n % 3);
    id[1] = (uint8_t)(n % 5);
    memcpy(id + 12, &n, sizeof n);
}

static void keymap__finds_what_was_put_last_and_nothing_else(void)
{
    struct keymap *map = keymap_create();
    CHECK(map != NULL);
    uint64_t expected[IDS] = { 0 };
    for (int step = 0; step < 60000; step++) {
        uint32_t n = next_random() % IDS;
        uint8_t id[16];
        make_id(n, id);
        if (next_random() % 3 == 0) {
            keymap_remove(map, id);
            expected[n] = 0;
        } else {
            expected[n] = next_random() + 1;
            CHECK(keymap_put(map, id, expected[n]));
        }
    }
    size_t count = 0;
    for (uint32_t n = 0; n < IDS; n++) {
        uint8_t id[16];
        make_id(n, id);
        EXPECT(keymap_find(map, id) == expected[n]);
        count += expected[n] != 0;
    }
    EXPECT(keymap_count(map) == count);
    keymap_free(map);
}

static void keymap__of_nothing_finds_nothing(void)
{
    struct keymap *map = keymap_create();
    CHECK(map != NULL);
    uint8_t id[16] = { 7 };
    EXPECT(keymap_find(map, id) == 0);
    keymap_remove(map, id);
    EXPECT(keymap_count(map) == 0);
    keymap_free(map);
    keymap_free(NULL);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(keymap__finds_what_was_put_last_and_nothing_else),
        TEST(keymap__of_nothing_finds_nothing),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
