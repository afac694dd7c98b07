/* new_key.c - makes a key: a UUIDv7 of the current time and random bytes. */
#include "core/key.h"
#include "once.h"
#include "os/os.h"

void once_key_new(char out[ONCE_UUID_LEN + 1])
{
    uint8_t random[10];
    once_os_random(random, sizeof random);
    once_uuid7_format(once_os_clock.wall(NULL), random, out);
}
