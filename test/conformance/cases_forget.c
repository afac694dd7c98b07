/* cases_forget.c - erasure: what a record says of anybody goes, and no retry executes again for it (K5). */
#include "suite.h"

static const once_span A = { (const uint8_t *)"a", 1 };
static const once_span ACME = { (const uint8_t *)"acme", 4 };

#define BY .actor = ONCE_LIT("ann"), .reason = ONCE_LIT("ticket 4711")
#define ANSWER                                                                                                         \
    .state = ONCE_STATE_SUCCEEDED, .status = 201, .headers = ONCE_LIT("Location: /p/1\r\n"), .body = ONCE_LIT("secret")

/* How often the history tells of this, by ann, with her reason. */
static size_t times_told(once_span key, const char *what)
{
    const struct once_history *history = do_history(key);
    size_t times = 0;
    for (size_t i = 0; i < history->count; i++)
        times += strcmp(history->events[i].what, what) == 0 && span_equal(history->events[i].actor, ONCE_LIT("ann")) &&
                 span_equal(history->events[i].reason, ONCE_LIT("ticket 4711"));
    return times;
}

static void K5__forgotten_is_told_and_not_executed_again(void)
{
    struct once_grant grant = granted(.tenant = ACME, .key = A, .fingerprint = print_of(1), .retention_ms = 5000,
                                      .request = ONCE_LIT("asked"));
    do_advance(grant, ONCE_LIT("sent"), ONCE_LIT("secret checkpoint"));
    CHECK(do_finish(grant, ANSWER)->arm == ONCE_ARM_DONE);
    struct once_record before = do_lookup_in(ACME, A)->record;
    clock_advance(100);
    CHECK(do_forget(.tenant = ACME, .key = A, BY)->arm == ONCE_ARM_DONE);
    for (int again = 0; again < 2; again++) {
        const struct once_reply *r = do_claim(.tenant = ACME, .key = A, .fingerprint = print_of(1));
        CHECK(r->arm == ONCE_ARM_REPLAY);
        EXPECT(r->record.forgotten && r->record.body_dropped);
        EXPECT(r->record.state == ONCE_STATE_SUCCEEDED && r->record.status == 201);
        EXPECT(r->record.body.len == 0 && r->record.headers.len == 0 && r->record.checkpoint.len == 0);
        EXPECT(r->record.tenant.len == 0 && r->record.key.len == 0 && r->record.request.len == 0);
        EXPECT(same_grant(r->record.grant, before.grant));
        EXPECT(r->record.finished_at == before.finished_at && r->record.expires_at == before.expires_at);
        EXPECT(do_claim(.tenant = ACME, .key = A, .fingerprint = print_of(2))->arm == ONCE_ARM_MISMATCH); /* K6 */
        reopen();
    }
    EXPECT(do_finish(grant, ANSWER)->arm == ONCE_ARM_FENCED); /* the same words again do not bring it back */
    EXPECT(do_lookup_in(ACME, A)->record.body.len == 0);
    clock_advance(4900); /* K8: its retention is what it was */
    EXPECT(do_claim(.tenant = ACME, .key = A, .fingerprint = print_of(2))->arm == ONCE_ARM_EXECUTE);
    const struct once_record next = do_lookup_in(ACME, A)->record;
    EXPECT(!next.forgotten && next.recovery_point.len == 0);
}

static void K5__an_answer_without_a_byte_is_replayed_as_ever(void)
{
    CHECK(do_finish(granted(.key = A), .state = ONCE_STATE_FAILED, .status = 3)->arm == ONCE_ARM_DONE);
    CHECK(do_forget(.key = A, BY)->arm == ONCE_ARM_DONE);
    const struct once_reply *r = do_claim(.key = A);
    EXPECT(r->arm == ONCE_ARM_REPLAY && r->record.state == ONCE_STATE_FAILED && r->record.status == 3);
    EXPECT(!r->record.body_dropped && r->record.forgotten);
}

static void K4__forgetting_is_told_in_the_history_once(void)
{
    succeed(granted(.key = A), ONCE_LIT("x"));
    uint64_t fence = do_lookup(A)->record.grant.fence;
    CHECK(do_forget(.key = A, BY)->arm == ONCE_ARM_DONE);
    const struct once_reply *again = do_forget(.key = A, BY);
    EXPECT(again->arm == ONCE_ARM_DONE && again->record.grant.fence == fence);
    reopen();
    EXPECT(times_told(A, "forgotten") == 1);
    const struct once_history *history = do_history(A);
    EXPECT(history->count == 3); /* claimed, finished, forgotten */
}

static const struct refused_row {
    const char *name;
    enum { GONE, LIVE, ABANDONED, UNDECIDED, GOES_ON, OTHER_FENCE } state;
    enum once_arm arm, drop;
} refused_rows[] = {
    { "absent", GONE, ONCE_ARM_ABSENT, ONCE_ARM_ABSENT },
    { "its holder is alive", LIVE, ONCE_ARM_IN_PROGRESS, ONCE_ARM_IN_PROGRESS },
    { "nobody saw its end", ABANDONED, ONCE_ARM_UNKNOWN, ONCE_ARM_DONE },
    { "unknown", UNDECIDED, ONCE_ARM_UNKNOWN, ONCE_ARM_DONE },
    { "goes on from a point", GOES_ON, ONCE_ARM_UNKNOWN, ONCE_ARM_DONE },
    { "changed since it was looked at", OTHER_FENCE, ONCE_ARM_FENCED, ONCE_ARM_FENCED },
};

/* A record as the row has it; returns what to see. */
static struct once_grant make(const struct refused_row *row, once_span key)
{
    struct once_grant grant = { .fence = 0 };
    if (row->state == GONE)
        return grant;
    grant = granted(.key = key, .fingerprint = print_of(1), .lease_ms = 1000);
    if (row->state == GOES_ON)
        do_advance(grant, ONCE_LIT("charged"), ONCE_LIT("receipt"));
    if (row->state == UNDECIDED)
        do_finish(grant, .state = ONCE_STATE_UNKNOWN, .status = 504, .body = ONCE_LIT("so far"));
    if (row->state == GOES_ON)
        do_finish(grant, .state = ONCE_STATE_FAILED, .retryable = true, .body = ONCE_LIT("so far"));
    if (row->state == OTHER_FENCE)
        succeed(grant, ONCE_LIT("kept"));
    if (row->state != LIVE)
        clock_advance(1000);
    grant.fence += row->state == OTHER_FENCE ? 100 : 0;
    return grant;
}

static void K7__what_is_not_finished_is_not_forgotten(void)
{
    for (size_t i = 0; i < LENGTH(refused_rows); i++) {
        const struct refused_row *row = &refused_rows[i];
        once_span key = numbered("k", (int)i);
        struct once_grant seen = make(row, key);
        const struct once_reply *before = do_lookup(key);
        const struct once_reply *reply = do_forget(.key = key, .seen = seen, BY);
        EXPECT_ROW(row->name, reply->arm == row->arm);
        EXPECT_ROW(row->name, (reply->retry_after_ms > 0) == (row->arm == ONCE_ARM_IN_PROGRESS));
        const struct once_reply *after = do_lookup(key);
        EXPECT_ROW(row->name, after->arm == before->arm && same_record(&after->record, &before->record));
        EXPECT_ROW(row->name, times_told(key, "forgotten") == 0);
    }
}

static void K3__a_dropped_record_is_like_new_and_its_holder_is_shut_out(void)
{
    for (size_t i = 0; i < LENGTH(refused_rows); i++) {
        const struct refused_row *row = &refused_rows[i];
        once_span key = numbered("k", (int)i);
        struct once_grant seen = make(row, key);
        EXPECT_ROW(row->name, do_forget(.key = key, .seen = seen, .drop = true, BY)->arm == row->drop);
        if (row->drop != ONCE_ARM_DONE)
            continue;
        EXPECT_ROW(row->name, do_lookup(key)->arm == ONCE_ARM_ABSENT);
        EXPECT_ROW(row->name, do_finish(seen, ANSWER)->arm == ONCE_ARM_FENCED);
        EXPECT_ROW(row->name, do_extend(seen, 0)->arm == ONCE_ARM_FENCED);
        const struct once_reply *next = do_claim(.key = key, .fingerprint = print_of(2));
        EXPECT_ROW(row->name, next->arm == ONCE_ARM_EXECUTE && next->record.attempt == 1);
        EXPECT_ROW(row->name, next->record.grant.fence > seen.fence && next->record.checkpoint.len == 0); /* K2, K11 */
        EXPECT_ROW(row->name, times_told(key, "dropped") == 1);
    }
}

static void K5__dropping_what_is_final_lets_it_execute_again(void)
{
    succeed(granted(.key = A), ONCE_LIT("x"));
    CHECK(do_forget(.key = A, BY)->arm == ONCE_ARM_DONE); /* also after it was forgotten */
    CHECK(do_forget(.key = A, .drop = true, BY)->arm == ONCE_ARM_DONE);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_ABSENT);
    EXPECT(do_claim(.key = A, .fingerprint = print_of(7))->arm == ONCE_ARM_EXECUTE);
    do_expire_all(0);
    reopen();
    EXPECT(times_told(A, "dropped") == 1 && times_told(A, "forgotten") == 1);
}

static void K11__a_failure_without_a_point_is_forgotten_and_may_be_retried(void)
{
    struct once_grant grant = granted(.key = A, .fingerprint = print_of(1), .request = ONCE_LIT("asked by ann"));
    do_finish(grant, .state = ONCE_STATE_FAILED, .retryable = true, .status = 9, .body = ONCE_LIT("ann's"));
    CHECK(do_forget(.key = A, BY)->arm == ONCE_ARM_DONE);
    struct once_reply with = { 0 };
    CHECK(once_lookup_request(suite.once, ONCE_LIT(""), A, &with, NULL) == ONCE_OK);
    EXPECT(with.record.request.len == 0 && with.record.body.len == 0 && with.record.retryable);
    once_reply_release(&with);
    const struct once_reply *next = do_claim(.key = A, .fingerprint = print_of(1));
    EXPECT(next->arm == ONCE_ARM_EXECUTE && next->record.attempt == 2 && next->record.grant.fence > grant.fence);
    succeed(next->record.grant, ONCE_LIT("anew"));
    const struct once_reply *replay = do_claim(.key = A, .fingerprint = print_of(1));
    EXPECT(!replay->record.forgotten && span_equal(replay->record.body, ONCE_LIT("anew")));
}

static void K9__the_same_key_of_another_tenant_stays(void)
{
    succeed(granted(.tenant = ACME, .key = A), ONCE_LIT("acme's"));
    succeed(granted(.tenant = ONCE_LIT("other"), .key = A), ONCE_LIT("other's"));
    CHECK(do_forget(.tenant = ACME, .key = A, BY)->arm == ONCE_ARM_DONE);
    EXPECT(span_equal(do_lookup_in(ONCE_LIT("other"), A)->record.body, ONCE_LIT("other's")));
    const struct once_page *page = do_list((struct once_filter){ .tenant = &ACME });
    EXPECT(page->count == 0);
}

static void look__what_a_listing_showed_can_be_forgotten_without_its_key(void)
{
    enum { COUNT = 7 };
    for (int i = 0; i < COUNT; i++)
        succeed(granted(.tenant = ACME, .key = numbered("k", i)), ONCE_LIT("x"));
    const struct once_page *page = do_list((struct once_filter){ .tenant = &ACME });
    CHECK(page->count == COUNT);
    for (size_t i = 0; i < page->count; i++)
        EXPECT(do_forget(.seen = page->records[i].grant, BY)->arm == ONCE_ARM_DONE);
    EXPECT(do_list((struct once_filter){ .tenant = &ACME })->count == 0);
    const struct once_page *all = do_list((struct once_filter){ 0 });
    EXPECT(all->count == COUNT);
    for (size_t i = 0; i < all->count; i++)
        EXPECT(all->records[i].forgotten && all->records[i].key.len == 0);
    EXPECT(do_claim(.tenant = ACME, .key = numbered("k", 3))->record.forgotten);
}

static void limits__a_word_of_forgetting(void)
{
    succeed(granted(.key = A), ONCE_LIT("x"));
    struct once_reply reply;
    const struct {
        struct once_forget forget;
        once_result result;
    } rows[] = {
        { { .key = A }, ONCE_INVALID },
        { { .key = A, .reason = bytes_of(ONCE_REASON_LEN_MAX + 1, false) }, ONCE_LIMIT },
        { { .key = A, .reason = ONCE_LIT("r"), .actor = bytes_of(256, false) }, ONCE_LIMIT },
        { { .reason = ONCE_LIT("r") }, ONCE_INVALID },
        { { .key = bytes_of(ONCE_KEY_LEN_MAX + 1, false), .reason = ONCE_LIT("r") }, ONCE_INVALID },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        EXPECT(once_forget(suite.once, &rows[i].forget, &reply, NULL) == rows[i].result);
        once_reply_release(&reply);
    }
    EXPECT(!do_lookup(A)->record.forgotten);
    EXPECT(do_forget(.key = A, .reason = bytes_of(ONCE_REASON_LEN_MAX, false))->arm == ONCE_ARM_DONE);
}

const struct suite_case forget_cases[] = {
    CASE(K5__forgotten_is_told_and_not_executed_again),
    CASE(K5__an_answer_without_a_byte_is_replayed_as_ever),
    CASE(K4__forgetting_is_told_in_the_history_once),
    CASE(K7__what_is_not_finished_is_not_forgotten),
    CASE(K3__a_dropped_record_is_like_new_and_its_holder_is_shut_out),
    CASE(K5__dropping_what_is_final_lets_it_execute_again),
    CASE(K11__a_failure_without_a_point_is_forgotten_and_may_be_retried),
    CASE(K9__the_same_key_of_another_tenant_stays),
    CASE(look__what_a_listing_showed_can_be_forgotten_without_its_key),
    CASE(limits__a_word_of_forgetting),
    { NULL, NULL },
};
