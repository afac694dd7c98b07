/*
 * shift_clock.c - preloaded into a server, it sets the server's wall clock ahead by as many
 * seconds as the file SHIFT_CLOCK says at the moment (a long, in binary). (libfaketime will not do: PostgreSQL 15 forks
 * in signal handlers that interrupt select(), where libfaketime does not fake, and its children inherit that.)
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long *seconds; /* the file's; NULL: there is none */

/* Before main(): no thread is there yet, and no signal handler asks for the time. */
__attribute__((constructor)) static void map_file(void)
{
    const char *path = getenv("SHIFT_CLOCK");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *mapped = mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED)
        seconds = mapped;
    close(fd);
}

static time_t shift(void)
{
    return seconds != NULL ? *seconds : 0;
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
