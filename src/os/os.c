/* os.c - see os.h. */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static once_time read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (once_time)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static once_time wall(void *arg)
{
    (void)arg;
    return read_clock(CLOCK_REALTIME);
}

static once_time steady(void *arg)
{
    (void)arg;
    return read_clock(CLOCK_BOOTTIME);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

/* The kernel's boot id, a UUID. If it cannot be read, all zero: every boot looks the same,
 * and leases rely on the steady clock alone. */
static void boot(void *arg, uint8_t id[16])
{
    (void)arg;
    memset(id, 0, 16);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    char text[37] = { 0 };
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    /* A time namespace has its own steady clock, so it counts as another boot. */
    int offsets = open("/proc/self/timens_offsets", O_RDONLY | O_CLOEXEC);
    char lines[200];
    ssize_t len = offsets >= 0 ? read(offsets, lines, sizeof lines) : 0;
    if (offsets >= 0)
        close(offsets);
    int nibble = 0;
    for (ssize_t i = 0; i < n && nibble < 32; i++) {
        int v = hex_value(text[i]);
        if (v >= 0) {
            id[nibble / 2] = (uint8_t)(id[nibble / 2] << 4 | v);
            nibble++;
        }
    }
    const char *boottime = len > 0 ? memmem(lines, (size_t)len, "boottime", 8) : NULL;
    for (const char *at = boottime; at != NULL && at < lines + len && *at != '\n'; at++)
        if (*at >= '1' && *at <= '9') /* an offset of 0 is the normal case and changes nothing */
            id[(at - boottime) % 16] ^= (uint8_t)*at;
}

const struct once_clock once_os_clock = { .wall = wall, .steady = steady, .boot = boot };

void once_os_nonce(uint8_t nonce[16])
{
    static const uint8_t none[16];
    if (memcmp(nonce, none, sizeof none) == 0)
        once_os_random(nonce, sizeof none);
}

void once_os_random(void *bytes, size_t len)
{
    uint8_t *at = bytes;
    while (len > 0) {
        ssize_t n = getrandom(at, len, 0);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            abort(); /* without entropy there are no nonces, and nothing is safe */
        }
        at += n;
        len -= (size_t)n;
    }
}

once_time once_os_monotonic_ms(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

once_time once_os_lease_ms(void)
{
    return read_clock(CLOCK_BOOTTIME);
}

struct timespec once_os_lease_deadline(once_time at)
{
    once_time left = at - once_os_lease_ms();
    once_time until = once_os_monotonic_ms() + (left > 0 ? left : 0);
    return (struct timespec){ .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };
}

/* For sched_setattr(2), which the C library does not wrap. */
struct sched_attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

enum { SLICE_NS = 100 * 1000 }; /* the kernel's minimum */

void once_os_short_slices(void)
{
    struct sched_attributes a = { .size = sizeof a };
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) != 0 || a.policy != SCHED_OTHER)
        return; /* another scheduling policy was chosen */
    a.size = sizeof a;
    a.runtime = SLICE_NS;
    syscall(SYS_sched_setattr, 0, &a, 0); /* a hint: failure does not matter */
}

uint64_t once_os_monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t once_os_wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
