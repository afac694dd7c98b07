/*
 * admission.h - applies quotas to the jobs of a batch, and counts their answers.
 *
 * A claim of a tenant whose quota is used up may be a retry for an existing record, and then it must not be refused
 * (quota.h, QUOTA-1). Only the store knows. So the writer puts a look-up into the batch in its place: if there is no
 * record, the claim is refused and nothing was changed; if there is one, the claim goes into the next batch. A refused
 * claim costs no commit, and every store supports this.
 */
#ifndef ONCE_ENGINE_ADMISSION_H
#define ONCE_ENGINE_ADMISSION_H

#include "engine/engine.h"
#include "engine/quota.h"

/* All of these are called with the engine's lock held. `now`: once_os_lease_ms(). */

/* Before the batch is applied. */
void admission_before(struct quota *quota, struct job **jobs, size_t count, once_time now);
/* After it was applied. Returns how many jobs stay in `jobs`; claims whose look-up found a record go to *ready. */
size_t admission_after(struct quota *quota, struct job **jobs, size_t count, once_time now, struct job **ready);
/* Before a claim waits. False: the quota of waiters is used up, and the claim has its answer. */
bool admission_wait(struct quota *quota, struct job *job);
/* Before a job is answered, whether it waited or not. */
void admission_answered(struct quota *quota, struct job *job);

#endif
