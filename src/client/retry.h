/*
 * retry.h - what an answer means for a request with a key, and when to ask again. Pure.
 *
 * The order of the rules (judge):
 *   1. Idempotency-Outcome: unknown           UNKNOWN: a person has to look; nothing is repeated blindly
 *   2. the key was used for something else    MISMATCH
 *   3. the answer is a replay                 FINAL: every further try would get the same one
 *   4. the server says whether to ask again   AGAIN or FINAL: `retryable` of a problem document, Stripe-Should-Retry
 *   5. 409 and somebody is at it              IN_PROGRESS; any other 409 is FINAL
 *   6. 408, 425, 429, 5xx                     AGAIN; also what Adyen marks with Transient-Error: true
 *   7. everything else                        FINAL
 *
 * Invariants: RETRY-1 what is not known to be worth repeating is final: a rule asks for a repetition, never for an end.
 *             RETRY-2 times are bounded: no text of a server makes a wait longer than ONCE_CLIENT_TIME_MS_MAX.
 */
#ifndef ONCE_CLIENT_RETRY_H
#define ONCE_CLIENT_RETRY_H

#include "client/problem.h"
#include "once_client.h"

enum client_verdict { CLIENT_FINAL = 1, CLIENT_AGAIN, CLIENT_IN_PROGRESS, CLIENT_MISMATCH, CLIENT_UNKNOWN };

/* What matters of an answer, as it was read. */
struct client_facts {
    int status;
    bool outcome_unknown;              /* Idempotency-Outcome: unknown */
    bool replayed;                     /* Idempotency-Replayed: true, or Stripe's Idempotent-Replayed */
    bool retry_after;                  /* there is one that could be read */
    bool transient;                    /* Transient-Error: true */
    enum client_tristate should_retry; /* Stripe-Should-Retry */
    struct client_problem problem;
};

enum client_verdict client_judge(const struct client_facts *facts);

/* Takes one header of an answer into account. `value` is trimmed. */
void client_facts_header(struct client_facts *facts, once_span name, once_span value);

/* Retry-After: seconds, or a date, which counts from the answer's own Date where it has one, else from now_ms. False:
 * it says nothing that can be read. The past is 0. */
bool client_retry_after(once_span value, once_span date, once_time now_ms, int64_t *wait_ms);

/* How long to wait after the n-th try (from 1): with full jitter, and not before retry_after_ms. `random` is 32
 * random bits. */
int64_t client_wait_ms(unsigned n, int64_t backoff_ms, int64_t backoff_ms_max, int64_t retry_after_ms, uint32_t random);

#endif
