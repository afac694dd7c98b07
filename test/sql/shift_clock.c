/*
 * shift_clock.c - preloaded into a server, it sets the server's wall clock ahead by
 * SHIFT_CLOCK seconds. (libfaketime will not do: PostgreSQL 15 forks in signal handlers that
 * interrupt select(), where libfaketime does not fake, and its children inherit that.)
 */
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t shift(void)
{
    static time_t seconds = -1;
    if (seconds < 0) {
        const char *text = getenv("SHIFT_CLOCK");
        seconds = text != NULL ? strtol(text, NULL, 10) : 0;
    }
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    int r = (int)syscall(SYS_clock_gettime, clock, at);
    if (r == 0 && clock == CLOCK_REALTIME)
        at->tv_sec += shift();
    return r;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    int r = clock_gettime(CLOCK_REALTIME, &now);
    *at = (struct timeval){ .tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000 };
    return r;
}

time_t time(time_t *at)
{
    struct timespec now = { 0 };
    clock_gettime(CLOCK_REALTIME, &now);
    if (at != NULL)
        *at = now.tv_sec;
    return now.tv_sec;
}
