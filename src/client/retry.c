/* retry.c - see retry.h. */
#include "client/retry.h"

#include "core/backoff.h"
#include "core/http/header.h"
#include "core/span.h"

#include <assert.h>
#include <curl/curl.h>

static enum client_tristate word_of(once_span value)
{
    return once_header_is(value, "true") ? CLIENT_YES : once_header_is(value, "false") ? CLIENT_NO : CLIENT_UNSAID;
}

void client_facts_header(struct client_facts *facts, once_span name, once_span value)
{
    if (once_header_is(name, "Idempotency-Outcome"))
        facts->outcome_unknown = facts->outcome_unknown || once_header_is(value, "unknown");
    else if (once_header_is(name, "Idempotency-Replayed") || once_header_is(name, "Idempotent-Replayed"))
        facts->replayed = facts->replayed || once_header_is(value, "true");
    else if (once_header_is(name, "Stripe-Should-Retry"))
        facts->should_retry = word_of(value);
    else if (once_header_is(name, "Transient-Error"))
        facts->transient = facts->transient || once_header_is(value, "true");
}

static bool is_passing(int status)
{
    return status == 408 || status == 425 || status == 429 || (status >= 500 && status <= 599);
}

enum client_verdict client_judge(const struct client_facts *f)
{
    assert(f->status >= 200);
    if (f->outcome_unknown || f->problem.unknown)
        return CLIENT_UNKNOWN;
    if (f->status < 400)
        return CLIENT_FINAL;
    if (f->problem.mismatch)
        return CLIENT_MISMATCH;
    if (f->replayed || f->problem.retryable == CLIENT_NO || f->should_retry == CLIENT_NO)
        return CLIENT_FINAL;
    if (f->status == 409 && (f->problem.in_progress || f->retry_after))
        return CLIENT_IN_PROGRESS;
    if (f->problem.retryable == CLIENT_YES || f->should_retry == CLIENT_YES || f->transient || is_passing(f->status))
        return CLIENT_AGAIN;
    return CLIENT_FINAL;
}

/* ------------------------------------------------------------------ when */

/* One of the three forms of RFC 9110, all of which have a comma after the day, or a year at the end. */
static bool read_date(once_span value, once_time *out)
{
    char text[64];
    if (value.len < 20 || value.len >= sizeof text || memchr(value.ptr, '\0', value.len) != NULL)
        return false;
    memcpy(text, value.ptr, value.len);
    text[value.len] = '\0';
    if (strspn(text, "0123456789:, -abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != value.len)
        return false;
    time_t seconds = curl_getdate(text, NULL);
    if (seconds < 0 || seconds > (time_t)253402300799) /* the year 9999 */
        return false;
    *out = (once_time)seconds * 1000;
    return true;
}

bool client_retry_after(once_span value, once_span date, once_time now_ms, int64_t *wait_ms)
{
    once_time at, sent;
    if (once_retry_after_seconds(value, ONCE_CLIENT_TIME_MS_MAX, wait_ms))
        return true;
    if (!read_date(value, &at))
        return false;
    int64_t wait = at - (read_date(date, &sent) ? sent : now_ms);
    *wait_ms = wait < 0 ? 0 : wait > ONCE_CLIENT_TIME_MS_MAX ? ONCE_CLIENT_TIME_MS_MAX : wait;
    return true;
}

int64_t client_wait_ms(unsigned n, int64_t backoff_ms, int64_t backoff_ms_max, int64_t retry_after_ms, uint32_t random)
{
    assert(n >= 1);
    assert(retry_after_ms >= 0);
    if (retry_after_ms == 0)
        return once_backoff_ms((struct once_backoff){ backoff_ms, backoff_ms_max, ONCE_JITTER_FULL }, n - 1, random);
    /* Other clients got the same Retry-After: spread them over a quarter of it, or the first pause. */
    int64_t apart = retry_after_ms / 4 > backoff_ms ? retry_after_ms / 4 : backoff_ms;
    int64_t most = once_backoff_ms((struct once_backoff){ backoff_ms, backoff_ms_max, ONCE_JITTER_NONE }, n - 1, 0);
    return retry_after_ms + once_backoff_ms((struct once_backoff){ apart, most, ONCE_JITTER_FULL }, 0, random);
}
