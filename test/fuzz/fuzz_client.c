/*
 * fuzz_client.c - what comes from a server, and what was saved. The first byte says which.
 *
 * Properties: a body says something about keys only if it is JSON throughout, in visible ASCII; a Retry-After is never
 *             negative nor longer than a day (RETRY-2); saved bytes with a right sum are refused, or written again as
 * the same bytes, and no line in them ends early (SAVED-2).
 */
#include "fuzz.h"

#include "client/problem.h"
#include "client/retry.h"
#include "client/saved.h"
#include "core/mac.h"
#include "core/span.h"

static void fuzz_problem(once_span body, bool is_problem)
{
    struct client_problem problem;
    client_problem_read(body, is_problem, &problem);
    HOLDS(is_problem || problem.retryable == CLIENT_UNSAID);
    for (const char *at = problem.text; *at != '\0'; at++)
        HOLDS(*at >= ' ' && *at <= '~');
    struct client_facts facts = { .status = 500, .problem = problem };
    HOLDS(client_judge(&facts) != CLIENT_IN_PROGRESS);
}

static void fuzz_retry_after(once_span text)
{
    once_span value, date;
    int64_t wait = 0;
    once_span_cut(text, '\n', &value, &date);
    if (client_retry_after(value, date, 784111777000, &wait))
        HOLDS(wait >= 0 && wait <= ONCE_CLIENT_TIME_MS_MAX);
}

static void fuzz_saved(once_span bytes)
{
    struct once_buf sealed, again;
    uint8_t sum[ONCE_MAC_LEN];
    struct once_client_saved saved;
    struct once_error err = { .result = ONCE_OK };
    once_buf_init(&sealed, bytes.len + sizeof sum);
    once_buf_init(&again, ONCE_CLIENT_SAVED_LEN_MAX);
    once_sha256(bytes, sum);
    once_buf_add(&sealed, bytes);
    once_buf_add(&sealed, once_span_of(sum, sizeof sum));
    once_result r = once_client_saved_read(once_buf_span(&sealed), &saved, &err);
    HOLDS(r == ONCE_OK || (r == ONCE_CORRUPT && err.text[0] != '\0'));
    if (r == ONCE_OK) {
        HOLDS(client_saved_write(&saved, &again, NULL) == ONCE_OK);
        HOLDS(once_span_equal(once_buf_span(&again), once_buf_span(&sealed)));
        HOLDS(memchr(saved.url.ptr, '\n', saved.url.len) == NULL && memchr(saved.key.ptr, '\n', saved.key.len) == NULL);
        HOLDS(memchr(saved.method.ptr, ' ', saved.method.len) == NULL);
    }
    once_buf_release(&sealed);
    once_buf_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    once_span rest = once_span_of(data + (size > 0), size > 0 ? size - 1 : 0);
    switch (size > 0 ? data[0] % 4 : 0) {
    case 0:
    case 1:
        fuzz_problem(rest, data != NULL && size > 0 && data[0] % 4 == 1);
        break;
    case 2:
        fuzz_retry_after(rest);
        break;
    default:
        fuzz_saved(rest);
    }
    return 0;
}
