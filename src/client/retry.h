/*
 * retry.h - whether the answer to a request with a key is final, and when to try again. Pure.
 *
 * The rules, in their order:
 *   1. Idempotency-Outcome: unknown            UNKNOWN: an operator must decide; it is not sent again
 *   2. the key was used for another request    MISMATCH
 *   3. the answer is a replay                  FINAL: every further try would get the same one
 *   4. the server says whether to retry        AGAIN or FINAL: `retryable` of a problem document, Stripe-Should-Retry
 *   5. 409 for a request in progress           IN_PROGRESS; any other 409 is FINAL
 *   6. 408, 425, 429, 5xx                      AGAIN; also Adyen's Transient-Error: true
 *   7. everything else                         FINAL
 *
 * Invariants: RETRY-1 an answer is final unless a rule asks for a retry.
 *             RETRY-2 times are bounded: no answer makes a pause longer than ONCE_CLIENT_TIME_MS_MAX.
 */
#ifndef ONCE_CLIENT_RETRY_H
#define ONCE_CLIENT_RETRY_H

#include "client/problem.h"
#include "once_client.h"

enum client_verdict { CLIENT_FINAL = 1, CLIENT_AGAIN, CLIENT_IN_PROGRESS, CLIENT_MISMATCH, CLIENT_UNKNOWN };

/* The parts of an answer that the rules use. */
struct client_facts {
    int status;
    bool outcome_unknown;              /* Idempotency-Outcome: unknown */
    bool replayed;                     /* Idempotency-Replayed: true, or Stripe's Idempotent-Replayed */
    bool retry_after;                  /* it has a valid Retry-After */
    bool transient;                    /* Transient-Error: true */
    enum client_tristate should_retry; /* Stripe-Should-Retry */
    struct client_problem problem;
};

enum client_verdict client_judge(const struct client_facts *facts);

/* Reads one header of an answer. `value` is trimmed. */
void client_facts_header(struct client_facts *facts, once_span name, once_span value);

/* Reads Retry-After: seconds, or a date, relative to the answer's Date if it has one, else to now_ms; a past date is 0.
 * False: it is not valid. */
bool client_retry_after(once_span value, once_span date, once_time now_ms, int64_t *wait_ms);

/* How long to wait after the n-th try (from 1): with full jitter, and not before retry_after_ms. `random` is 32
 * random bits. */
int64_t client_wait_ms(unsigned n, int64_t backoff_ms, int64_t backoff_ms_max, int64_t retry_after_ms, uint32_t random);

#endif
