/*
 * slowsync.c - makes every fsync slower, by LD_PRELOAD, as most disks are slower than the
 * one this is developed on. SLOWSYNC_MS says by how many milliseconds; "never": nothing is synced at all, which
 * shows what a disk without any delay would give, and promises nothing.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Is there to be a sync after it? */
static bool delay(void)
{
    static int ms = -1;
    static bool never;
    if (ms < 0) {
        const char *text = getenv("SLOWSYNC_MS");
        never = text != NULL && strcmp(text, "never") == 0;
        ms = text != NULL ? (int)strtol(text, NULL, 10) : 0;
    }
    if (ms > 0)
        usleep((useconds_t)ms * 1000);
    return !never;
}

#define SLOWED(name)                                                                                                   \
    __attribute__((visibility("default"))) int name(int fd)                                                            \
    {                                                                                                                  \
        static int (*real)(int);                                                                                       \
        if (real == NULL)                                                                                              \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                                                 \
        return delay() ? real(fd) : 0;                                                                                 \
    }

SLOWED(fsync)
SLOWED(fdatasync)
