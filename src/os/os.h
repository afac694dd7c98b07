/*
 * os.h - clocks, entropy and the scheduler. No other folder asks the system for these.
 *
 * Core, stores and engine get time and random bytes as arguments.
 */
#ifndef ONCE_OS_OS_H
#define ONCE_OS_OS_H

#include "once.h"

#include <time.h>

/* CLOCK_REALTIME, CLOCK_BOOTTIME and the kernel's boot id. */
extern const struct once_clock once_os_clock;

/* getrandom(2): blocks until the kernel's pool is ready, then never fails. */
void once_os_random(void *bytes, size_t len);
/* Fills in random bytes if the nonce is all zero. */
void once_os_nonce(uint8_t nonce[16]);

/* CLOCK_MONOTONIC, for timeouts inside this process; never stored. */
once_time once_os_monotonic_ms(void);
uint64_t once_os_monotonic_ns(void);
/* CLOCK_REALTIME, for the times in spans and log lines. */
uint64_t once_os_wall_ns(void);

/* CLOCK_BOOTTIME, for leases that this process holds: leases run on while the machine is suspended. CLOCK_MONOTONIC
 * does not, so a holder would trust a lease that is over (FAULT-38). */
once_time once_os_lease_ms(void);
/* That time for a condition variable, on CLOCK_MONOTONIC; late after a suspend, so check the clock again. */
struct timespec once_os_lease_deadline(once_time at);

/* Asks the scheduler for short time slices, for a thread that does little at a time and that others wait for. The
 * thread gets no more processor time, but on a busy machine it runs sooner after it woke up. It needs no privilege.
 * Linux has this since 6.12; elsewhere it has no effect. */
void once_os_short_slices(void);

#endif
