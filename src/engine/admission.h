/*
 * admission.h - quotas at work: which jobs of a batch are asked about, and what their answers mean for the count.
 *
 * A claim of a tenant that has too much may be a retry of something that is there, and then it must not be refused
 * (quota.h, QUOTA-1). Only the store knows. So it goes into its batch as a look-up: where there is no record it is
 * refused, and nothing was changed; where there is one it is asked as what it is, in the next batch. That costs a
 * refused claim no commit, and every store can do it.
 */
#ifndef ONCE_ENGINE_ADMISSION_H
#define ONCE_ENGINE_ADMISSION_H

#include "engine/engine.h"
#include "engine/quota.h"

/* All of these under the engine's lock. `now`: once_os_lease_ms(). */

/* The batch is about to be applied. */
void admission_before(struct quota *quota, struct job **jobs, size_t count, once_time now);
/* It was. How many are left: those that have to be asked as what they are go to *ready. */
size_t admission_after(struct quota *quota, struct job **jobs, size_t count, once_time now, struct job **ready);
/* This claim is about to wait. False: it may not, and has its answer. */
bool admission_wait(struct quota *quota, struct job *job);
/* It is about to be answered, whether it waited or not. */
void admission_answered(struct quota *quota, struct job *job);

#endif
