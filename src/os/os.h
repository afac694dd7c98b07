/*
 * os.h - the only door to clocks, entropy and the scheduler.
 *
 * Core, stores and engine receive time and random bytes; they do not ask the system.
 */
#ifndef ONCE_OS_OS_H
#define ONCE_OS_OS_H

#include "once.h"

#include <time.h>

/* CLOCK_REALTIME, CLOCK_BOOTTIME and the kernel's boot id. */
extern const struct once_clock once_os_clock;

/* getrandom(2): blocks until the kernel's pool is ready, then never fails. */
void once_os_random(void *bytes, size_t len);
/* A nonce where there is none yet (all zero). */
void once_os_nonce(uint8_t nonce[16]);

/* CLOCK_MONOTONIC, for time-outs of this process only; it is no store's business. */
once_time once_os_monotonic_ms(void);
uint64_t once_os_monotonic_ns(void);
/* CLOCK_REALTIME, for spans and log lines: when something happened, for people to look at. */
uint64_t once_os_wall_ns(void);

/* CLOCK_BOOTTIME, for leases that this process holds: they go on while the machine sleeps, where CLOCK_MONOTONIC
 * stands still and a holder would believe in a lease that is long over (FAULT-38). */
once_time once_os_lease_ms(void);
/* Such a time as a condition variable takes it, by CLOCK_MONOTONIC; after a sleep it is late, so look again. */
struct timespec once_os_lease_deadline(once_time at);

/* For a thread that others wait for, with little to do at a time: asks the scheduler for short slices. That
 * takes no more of a processor than before, and needs no right, but where there is none free it gets its turn soon
 * after it woke up. Linux has this from 6.12 on; elsewhere it is without effect. */
void once_os_short_slices(void);

#endif
