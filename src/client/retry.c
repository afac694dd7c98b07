/* retry.c - see retry.h. */
#include "client/retry.h"

#include "core/backoff.h"
#include "core/span.h"

#include <assert.h>
#include <curl/curl.h>
#include <strings.h>

static bool is_word(once_span value, const char *word)
{
    return value.len == strlen(word) && strncasecmp((const char *)value.ptr, word, value.len) == 0;
}

static enum client_tristate word_of(once_span value)
{
    return is_word(value, "true") ? CLIENT_YES : is_word(value, "false") ? CLIENT_NO : CLIENT_UNSAID;
}

void client_facts_header(struct client_facts *facts, once_span name, once_span value)
{
    if (is_word(name, "Idempotency-Outcome"))
        facts->outcome_unknown = facts->outcome_unknown || is_word(value, "unknown");
    else if (is_word(name, "Idempotency-Replayed") || is_word(name, "Idempotent-Replayed"))
        facts->replayed = facts->replayed || is_word(value, "true");
    else if (is_word(name, "Stripe-Should-Retry"))
        facts->should_retry = word_of(value);
    else if (is_word(name, "Transient-Error"))
        facts->transient = facts->transient || is_word(value, "true");
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

static bool read_seconds(once_span value, int64_t *wait_ms)
{
    int64_t seconds = 0;
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] < '0' || value.ptr[i] > '9')
            return false;
        if (seconds <= ONCE_CLIENT_TIME_MS_MAX) /* more is as much */
            seconds = seconds * 10 + (value.ptr[i] - '0');
    }
    *wait_ms = seconds >= ONCE_CLIENT_TIME_MS_MAX / 1000 ? ONCE_CLIENT_TIME_MS_MAX : seconds * 1000;
    return value.len > 0;
}

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
    if (read_seconds(value, wait_ms))
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
    /* Everybody else was told the same time: a quarter of it, or the first pause, keeps them apart. */
    int64_t apart = retry_after_ms / 4 > backoff_ms ? retry_after_ms / 4 : backoff_ms;
    int64_t most = once_backoff_ms((struct once_backoff){ backoff_ms, backoff_ms_max, ONCE_JITTER_NONE }, n - 1, 0);
    return retry_after_ms + once_backoff_ms((struct once_backoff){ apart, most, ONCE_JITTER_FULL }, 0, random);
}
