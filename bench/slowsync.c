/*
 * slowsync.c - makes every fsync slower, by LD_PRELOAD, as most disks are slower than the
 * one this is developed on. SLOWSYNC_MS says by how many milliseconds.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void delay(void)
{
    static int ms = -1;
    if (ms < 0) {
        const char *text = getenv("SLOWSYNC_MS");
        ms = text != NULL ? (int)strtol(text, NULL, 10) : 0;
    }
    usleep((useconds_t)ms * 1000);
}

#define SLOWED(name)                                                                                                   \
    __attribute__((visibility("default"))) int name(int fd)                                                            \
    {                                                                                                                  \
        static int (*real)(int);                                                                                       \
        if (real == NULL)                                                                                              \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                                                 \
        delay();                                                                                                       \
        return real(fd);                                                                                               \
    }

SLOWED(fsync)
SLOWED(fdatasync)
