/*
 * test_http_verdict.c - what an HTTP answer says about the operation.
 */
#include "core/http/verdict.h"

#include "../test.h"

static const struct row {
    const char *name;
    int status;
    bool is_final;
    enum once_takeover takeover;
    enum once_http_verdict verdict;
} rows[] = {
    { "final below 400 succeeds", 201, true, ONCE_TAKEOVER_ESCALATE, ONCE_HTTP_SUCCEEDED },
    { "the last status that succeeds", 399, true, ONCE_TAKEOVER_RERUN, ONCE_HTTP_SUCCEEDED },
    { "final from 400 on fails", 400, true, ONCE_TAKEOVER_ESCALATE, ONCE_HTTP_FAILED },
    { "a final 5xx fails, whatever the takeover", 500, true, ONCE_TAKEOVER_COMPLETER, ONCE_HTTP_FAILED },
    { "a 4xx that is not final is retryable", 409, false, ONCE_TAKEOVER_ESCALATE, ONCE_HTTP_RETRYABLE },
    { "also where the service can be probed", 499, false, ONCE_TAKEOVER_COMPLETER, ONCE_HTTP_RETRYABLE },
    { "a 2xx that is not final is retryable", 202, false, ONCE_TAKEOVER_PROBE, ONCE_HTTP_RETRYABLE },
    { "5xx escalates", 500, false, ONCE_TAKEOVER_ESCALATE, ONCE_HTTP_UNKNOWN },
    { "escalate is the default", 503, false, ONCE_TAKEOVER_DEFAULT, ONCE_HTTP_UNKNOWN },
    { "5xx may run again", 500, false, ONCE_TAKEOVER_RERUN, ONCE_HTTP_RETRYABLE },
    { "5xx is probed", 599, false, ONCE_TAKEOVER_COMPLETER, ONCE_HTTP_DEFERRED },
    { "no answer escalates", 0, false, ONCE_TAKEOVER_ESCALATE, ONCE_HTTP_UNKNOWN },
    { "no answer has no final status", 0, true, ONCE_TAKEOVER_ESCALATE, ONCE_HTTP_UNKNOWN },
    { "no answer may run again", 0, false, ONCE_TAKEOVER_RERUN, ONCE_HTTP_RETRYABLE },
    { "no answer is probed", 0, false, ONCE_TAKEOVER_COMPLETER, ONCE_HTTP_DEFERRED },
};

static void verdict__follows_the_table(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        EXPECT_ROW(rows[i].name,
                   once_http_verdict(rows[i].status, rows[i].is_final, rows[i].takeover) == rows[i].verdict);
}

static void outcome__has_state_and_retryable(void)
{
    struct once_outcome outcome = { .status = 201, .retryable = true };
    once_http_outcome(ONCE_HTTP_SUCCEEDED, &outcome);
    EXPECT(outcome.state == ONCE_STATE_SUCCEEDED && !outcome.retryable && outcome.status == 201);
    once_http_outcome(ONCE_HTTP_FAILED, &outcome);
    EXPECT(outcome.state == ONCE_STATE_FAILED && !outcome.retryable);
    once_http_outcome(ONCE_HTTP_RETRYABLE, &outcome);
    EXPECT(outcome.state == ONCE_STATE_FAILED && outcome.retryable);
    once_http_outcome(ONCE_HTTP_UNKNOWN, &outcome);
    EXPECT(outcome.state == ONCE_STATE_UNKNOWN && !outcome.retryable);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(verdict__follows_the_table),
        TEST(outcome__has_state_and_retryable),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
