/* cases_look.c - looking: look-ups, listings, histories, counters, options. None changes anything. */
#include "suite.h"

static const once_span A = { (const uint8_t *)"a", 1 };

/* One record in each state, named after it; ages 4000 down to 0 ms. */
static void make_one_of_each(void)
{
    succeed(granted(.key = ONCE_LIT("succeeded"), .tenant = ONCE_LIT("t1")), ONCE_LIT("x"));
    clock_advance(1000);
    do_finish(granted(.key = ONCE_LIT("failed"), .tenant = ONCE_LIT("t2")), .state = ONCE_STATE_FAILED, .status = 5);
    clock_advance(1000);
    do_finish(granted(.key = ONCE_LIT("retryable"), .tenant = ONCE_LIT("t1")), .state = ONCE_STATE_FAILED,
              .retryable = true, .status = 6);
    clock_advance(1000);
    do_finish(granted(.key = ONCE_LIT("unknown")), .state = ONCE_STATE_UNKNOWN);
    clock_advance(1000);
    granted(.key = ONCE_LIT("running"), .lease_ms = 100000);
}

static void lookup__never_changes_anything(void)
{
    make_one_of_each();
    granted(.key = ONCE_LIT("over"), .lease_ms = 1);
    succeed(granted(.key = ONCE_LIT("expired"), .retention_ms = 1), ONCE_LIT("x"));
    clock_advance(1);
    struct once_stats before = do_stats();
    const struct once_page *page = do_list((struct once_filter){ 0 });
    for (int i = 0; i < 3; i++) {
        const struct once_reply *over = do_lookup(ONCE_LIT("over"));
        EXPECT(over->arm == ONCE_ARM_FOUND && over->record.state == ONCE_STATE_RUNNING && !over->record.lease_live);
        EXPECT(do_lookup(ONCE_LIT("expired"))->arm == ONCE_ARM_ABSENT);
        EXPECT(do_lookup(ONCE_LIT("never there"))->arm == ONCE_ARM_ABSENT);
        EXPECT(do_lookup(ONCE_LIT("unknown"))->record.state == ONCE_STATE_UNKNOWN);
    }
    struct once_stats after = do_stats();
    EXPECT(before.attempts == after.attempts);
    EXPECT(sut.loses_answers || before.commits == after.commits);
    const struct once_page *again = do_list((struct once_filter){ 0 });
    CHECK(page->count == again->count);
    for (size_t i = 0; i < page->count; i++)
        EXPECT(same_record(&page->records[i], &again->records[i]));
    granted(.key = ONCE_LIT("over"), .takeover = ONCE_TAKEOVER_RERUN); /* and was not escalated */
}

/* What a log line names is found, whosever it is, and changes nothing either. */
static void lookup__by_the_records_id(void)
{
    static const once_span tenant = { (const uint8_t *)"t1", 2 }, key = { (const uint8_t *)"k\0\xff", 3 };
    struct once_grant grant = granted(.key = key, .tenant = tenant);
    const struct once_reply *running = do_lookup_record(grant.record);
    EXPECT(running->arm == ONCE_ARM_FOUND && running->record.state == ONCE_STATE_RUNNING);
    succeed(grant, ONCE_LIT("answer"));
    granted(.key = key, .tenant = ONCE_LIT("t2")); /* another record */
    const struct once_reply *by_key = do_lookup_in(tenant, key), *by_id = do_lookup_record(grant.record);
    CHECK(by_key->arm == ONCE_ARM_FOUND && by_id->arm == ONCE_ARM_FOUND);
    EXPECT(same_record(&by_key->record, &by_id->record));
    EXPECT(span_equal(by_id->record.tenant, tenant));
    EXPECT(span_equal(by_id->record.key, key));
    EXPECT(span_equal(by_id->record.body, ONCE_LIT("answer")));
    const uint8_t other[16] = { 1, 2, 3 }, none[16] = { 0 };
    EXPECT(do_lookup_record(other)->arm == ONCE_ARM_ABSENT);
    struct once_reply reply = { 0 };
    EXPECT(once_lookup_record(suite.once, none, &reply, NULL) == ONCE_INVALID); /* no id, and no key either */
    struct once_grant brief = granted(.key = ONCE_LIT("brief"), .retention_ms = 1);
    succeed(brief, ONCE_LIT("x"));
    clock_advance(1);
    EXPECT(do_lookup_record(brief.record)->arm == ONCE_ARM_ABSENT); /* K8 */
}

/* ------------------------------------------------------------------ listings */

static const once_span T1 = { (const uint8_t *)"t1", 2 }, T2 = { (const uint8_t *)"t2", 2 };
static const once_span NO_TENANT = { (const uint8_t *)"", 0 };

static const struct filter_row {
    const char *name;
    struct once_filter filter;
    const char *expected; /* newest first */
} filter_rows[] = {
    { "all", { 0 }, "running unknown retryable failed succeeded " },
    { "running", { .states = 1u << ONCE_STATE_RUNNING }, "running " },
    { "succeeded", { .states = 1u << ONCE_STATE_SUCCEEDED }, "succeeded " },
    { "failed", { .states = 1u << ONCE_STATE_FAILED }, "retryable failed " },
    { "unknown", { .states = 1u << ONCE_STATE_UNKNOWN }, "unknown " },
    { "two states", { .states = 1u << ONCE_STATE_UNKNOWN | 1u << ONCE_STATE_RUNNING }, "running unknown " },
    { "tenant t1", { .tenant = &T1 }, "retryable succeeded " },
    { "tenant t2", { .tenant = &T2 }, "failed " },
    { "the empty tenant", { .tenant = &NO_TENANT }, "running unknown " },
    { "prefix", { .key_prefix = { (const uint8_t *)"r", 1 } }, "running retryable " },
    { "prefix, the whole key", { .key_prefix = { (const uint8_t *)"running", 7 } }, "running " },
    { "prefix, longer than the key", { .key_prefix = { (const uint8_t *)"runningx", 8 } }, "" },
    { "age of 1000", { .age_ms_min = 1000 }, "unknown retryable failed succeeded " },
    { "age of 1001", { .age_ms_min = 1001 }, "retryable failed succeeded " },
    { "age of everything", { .age_ms_min = 1000000 }, "" },
    { "limit 2", { .limit = 2 }, "running unknown " },
    { "tenant, state and prefix",
      { .tenant = &T1, .states = 1u << ONCE_STATE_FAILED, .key_prefix = { (const uint8_t *)"re", 2 } },
      "retryable " },
};

static void list__filters_by_state_tenant_prefix_and_age(void)
{
    make_one_of_each();
    for (size_t i = 0; i < LENGTH(filter_rows); i++) {
        if (sut.unordered && filter_rows[i].filter.limit != 0) { /* any of them, and the rest on the next page */
            EXPECT_ROW(filter_rows[i].name, do_list(filter_rows[i].filter)->count == filter_rows[i].filter.limit);
            continue;
        }
        const struct once_page *page = do_list(filter_rows[i].filter);
        char got[300] = "";
        size_t len = 0;
        for (size_t r = 0; r < page->count; r++)
            len += (size_t)snprintf(got + len, sizeof got - len, "%.*s ", (int)page->records[r].key.len,
                                    (const char *)page->records[r].key.ptr);
        EXPECT_ROW(filter_rows[i].name, strcmp(got, filter_rows[i].expected) == 0);
    }
}

/* ------------------------------------------------------------------ routes */

static bool is_routed(once_span key, once_span route)
{
    return span_equal(do_lookup(key)->record.route, route);
}

static bool has_route(once_span key, const char *route)
{
    return is_routed(key, span_str(route));
}

static size_t listed(once_span route)
{
    return do_list((struct once_filter){ .route = route })->count;
}

static void route__stays_with_its_record(void)
{
    const struct once_reply *first = do_claim(.key = A, .route = ONCE_LIT("orders"), .lease_ms = 1000);
    EXPECT(first->arm == ONCE_ARM_EXECUTE && span_equal(first->record.route, ONCE_LIT("orders")));
    EXPECT(has_route(A, "orders"));
    reopen();
    EXPECT(has_route(A, "orders"));
    succeed(first->record.grant, ONCE_LIT("x"));
    EXPECT(has_route(A, "orders"));
    EXPECT(do_claim(.key = A, .route = ONCE_LIT("elsewhere"))->arm == ONCE_ARM_REPLAY);
    EXPECT(has_route(A, "orders")); /* a replay changes nothing */
    granted(.key = ONCE_LIT("none"));
    EXPECT(has_route(ONCE_LIT("none"), ""));
    granted(.key = ONCE_LIT("third"), .route = ONCE_LIT("\"a\\b\""));
    EXPECT(listed(ONCE_LIT("orders")) == 1 && listed(ONCE_LIT("\"a\\b\"")) == 1 && listed(ONCE_LIT("nobody's")) == 0);
    EXPECT(listed(ONCE_LIT("")) == 3);
}

static void route__of_the_newest_claim_counts_and_others_keep_it(void)
{
    struct once_grant grant = granted(.key = A, .route = ONCE_LIT("one"), .lease_ms = 1000);
    clock_advance(1000);
    EXPECT(do_take_over(grant, .lease_ms = 1000)->arm == ONCE_ARM_UNKNOWN); /* it said escalate */
    EXPECT(has_route(A, "one"));
    do_resolve(.key = A, .verdict = ONCE_VERDICT_NOT_DONE, .reason = ONCE_LIT("r"));
    EXPECT(has_route(A, "one")); /* an operator says nothing about it */
    granted(.key = A, .route = ONCE_LIT("two"), .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(has_route(A, "two"));
    clock_advance(1000);
    const struct once_reply *taken = do_take_over(do_lookup(A)->record.grant, .lease_ms = 1000);
    EXPECT(taken->arm == ONCE_ARM_EXECUTE && span_equal(taken->record.route, ONCE_LIT("two")));
    EXPECT(has_route(A, "two"));
    clock_advance(1000);
    granted(.key = A, .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(has_route(A, ""));
}

static void route__there_are_so_many_and_then_other(void)
{
    for (int i = 0; i < ONCE_ROUTE_COUNT_MAX + 5; i++)
        granted(.key = numbered("key", i), .route = numbered("route", i));
    EXPECT(is_routed(numbered("key", 0), numbered("route", 0)));
    EXPECT(is_routed(numbered("key", ONCE_ROUTE_COUNT_MAX - 1), numbered("route", ONCE_ROUTE_COUNT_MAX - 1)));
    EXPECT(has_route(numbered("key", ONCE_ROUTE_COUNT_MAX), "other"));
    EXPECT(listed(ONCE_LIT("other")) == 5);
    reopen();
    granted(.key = A, .route = numbered("route", 7));
    EXPECT(is_routed(A, numbered("route", 7)) && listed(numbered("route", 7)) == 2);
    granted(.key = ONCE_LIT("b"), .route = ONCE_LIT("one-more"));
    EXPECT(has_route(ONCE_LIT("b"), "other"));
}

static void route__that_is_none_is_refused(void)
{
    static const char longest[] = "0123456789012345678901234567890123456789012345678901234567890123";
    struct once_reply reply;
    granted(.key = A, .route = span_str(longest));
    EXPECT(has_route(A, longest));
    const once_span wrong[] = { ONCE_LIT("a b"), ONCE_LIT("a\n"), ONCE_LIT("\x80"), ONCE_LIT("a\0"),
                                ONCE_LIT("01234567890123456789012345678901234567890123456789012345678901234") };
    for (size_t i = 0; i < LENGTH(wrong); i++) {
        EXPECT(once_claim(suite.once, &(struct once_claim){ .key = ONCE_LIT("b"), .route = wrong[i] }, &reply,
                          &suite.err) == ONCE_INVALID);
        once_reply_release(&reply);
    }
    EXPECT(do_lookup(ONCE_LIT("b"))->arm == ONCE_ARM_ABSENT);
}

static void list__shows_records_not_attempts(void)
{
    struct once_grant grant = granted(.key = A, .lease_ms = 1000);
    do_advance(grant, ONCE_LIT("p"), ONCE_LIT("cp"));
    for (int i = 0; i < 5; i++) {
        clock_advance(1000);
        grant = granted(.key = A, .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN);
    }
    do_finish(grant, .state = ONCE_STATE_FAILED, .retryable = true, .status = 1);
    grant = granted(.key = A);
    do_finish(grant, .state = ONCE_STATE_UNKNOWN);
    do_resolve(.key = A, .verdict = ONCE_VERDICT_NOT_DONE, .reason = ONCE_LIT("r"));
    do_release(granted(.key = ONCE_LIT("released")));
    const struct once_page *page = do_list((struct once_filter){ 0 });
    CHECK(page->count == 1);
    const struct once_record *found = &do_lookup(A)->record;
    EXPECT(same_grant(page->records[0].grant, found->grant));
    EXPECT(page->records[0].attempt == found->attempt && page->records[0].state == found->state);
    EXPECT(span_equal(page->records[0].recovery_point, ONCE_LIT("p")));
    EXPECT(page->records[0].checkpoint.len == 0 && page->records[0].body.len == 0);
    EXPECT(page->next == 0);
    EXPECT(do_list((struct once_filter){ .states = 1u << ONCE_STATE_RUNNING })->count == 0);
}

static void list__pages_cover_everything_once_while_records_are_added(void)
{
    enum { COUNT = 57 };
    for (int i = 0; i < COUNT; i++) {
        granted(.key = numbered("old", i), .lease_ms = 1);
        if (i % 5 == 0) { /* an attempt of its own, somewhere else in the order */
            clock_advance(1);
            granted(.key = numbered("old", i), .lease_ms = 100000, .takeover = ONCE_TAKEOVER_RERUN);
        }
    }
    size_t seen[COUNT] = { 0 }, strangers = 0;
    struct once_filter filter = { .limit = 10 };
    int pages = 0;
    do {
        const struct once_page *page = do_list(filter);
        CHECK(page->count <= 10 && ++pages < 50);
        for (size_t r = 0; r < page->count; r++) {
            int number = -1;
            char text[9] = "";
            if (page->records[r].key.len == 8 && memcmp(page->records[r].key.ptr, "old", 3) == 0) {
                memcpy(text, page->records[r].key.ptr, 8);
                number = (int)strtol(text + 3, NULL, 10);
            }
            if (number >= 0 && number < COUNT)
                seen[number]++;
            else
                strangers++;
        }
        filter.before = page->next;
        granted(.key = numbered("new", pages));
    } while (filter.before != 0);
    for (int i = 0; i < COUNT; i++)
        EXPECT(seen[i] == 1 || (sut.unordered && seen[i] > 1));
    EXPECT(strangers == 0 || sut.unordered);
    EXPECT(pages >= 6);
}

static void list__limits(void)
{
    struct once_page page;
    EXPECT(once_list(suite.once, &(struct once_filter){ .limit = ONCE_LIST_LIMIT_MAX + 1 }, &page, NULL) ==
           ONCE_INVALID);
    once_page_release(&page);
    for (int i = 0; i < 120; i++)
        granted(.key = numbered("k", i));
    EXPECT(do_list((struct once_filter){ 0 })->count == 100);
    EXPECT(do_list((struct once_filter){ .limit = ONCE_LIST_LIMIT_MAX })->count == 120);
    EXPECT(do_list((struct once_filter){ .limit = ONCE_LIST_LIMIT_MAX })->next == 0);
    CHECK(once_list(suite.once, NULL, &page, NULL) == ONCE_OK);
    EXPECT(page.count == 100 && page.next != 0);
    once_page_release(&page);
}

static void list__states_that_do_not_exist_are_refused(void)
{
    static const unsigned states[] = { 1u << ONCE_STATE_NONE, 1u << (ONCE_STATE_UNKNOWN + 1), 1u << 31 };
    for (size_t i = 0; i < LENGTH(states); i++) {
        struct once_page page;
        EXPECT(once_list(suite.once, &(struct once_filter){ .states = states[i] }, &page, NULL) == ONCE_INVALID);
        once_page_release(&page);
    }
}

static void list__of_an_empty_store_is_empty(void)
{
    const struct once_page *page = do_list((struct once_filter){ 0 });
    EXPECT(page->count == 0 && page->next == 0);
    EXPECT(do_expire(0, 0));
    EXPECT(do_history(A)->count == 0);
    EXPECT(do_stats().attempts == 0);
}

/* ------------------------------------------------------------------ histories */

static void history__tells_attempts_and_words_oldest_first(void)
{
    struct once_grant first = granted(.key = A, .lease_ms = 1000);
    clock_advance(1000);
    struct once_grant second = granted(.key = A, .takeover = ONCE_TAKEOVER_PROBE);
    clock_advance(10);
    do_finish(second, .state = ONCE_STATE_FAILED, .retryable = true, .status = 503);
    clock_advance(10);
    struct once_grant third = granted(.key = A);
    clock_advance(10);
    do_finish(third, .state = ONCE_STATE_UNKNOWN, .status = 504);
    clock_advance(10);
    uint64_t fourth =
        do_resolve(.key = A, .verdict = ONCE_VERDICT_DONE, .actor = ONCE_LIT("bob"), .reason = ONCE_LIT("found it"),
                   .outcome = { .state = ONCE_STATE_SUCCEEDED, .status = 200 })
            ->record.grant.fence;
    const struct {
        const char *what;
        uint64_t fence;
        uint32_t attempt;
        int32_t status;
    } expected[] = {
        { "claimed", first.fence, 1, 0 },           { "superseded", first.fence, 1, 0 },
        { "claimed to probe", second.fence, 2, 0 }, { "finished", second.fence, 2, 503 },
        { "claimed", third.fence, 3, 0 },           { "finished", third.fence, 3, 504 },
        { "resolved done", fourth, 0, 0 },
    };
    const struct once_history *history = do_history(A);
    CHECK(history->count == LENGTH(expected));
    for (size_t i = 0; i < history->count; i++) {
        const struct once_event *event = &history->events[i];
        EXPECT_ROW(expected[i].what, strcmp(event->what, expected[i].what) == 0);
        EXPECT_ROW(expected[i].what, event->fence == expected[i].fence);
        EXPECT_ROW(expected[i].what, event->attempt == expected[i].attempt);
        EXPECT_ROW(expected[i].what, event->status == expected[i].status);
        EXPECT_ROW(expected[i].what, i == 0 || event->at >= history->events[i - 1].at);
    }
    EXPECT(span_equal(history->events[6].actor, ONCE_LIT("bob")));
    EXPECT(span_equal(history->events[6].reason, ONCE_LIT("found it")));
}

static void history__words_outlive_the_record(void)
{
    struct once_grant grant = granted(.key = A, .retention_ms = 1000);
    do_finish(grant, .state = ONCE_STATE_UNKNOWN);
    do_resolve(.key = A, .verdict = ONCE_VERDICT_DONE, .reason = ONCE_LIT("first life"),
               .outcome = { .state = ONCE_STATE_SUCCEEDED });
    clock_advance(1000);
    EXPECT(do_expire(0, 1));
    granted(.key = A);
    const struct once_history *history = do_history(A);
    CHECK(history->count == 2);
    EXPECT(span_equal(history->events[0].reason, ONCE_LIT("first life")));
    EXPECT(strcmp(history->events[1].what, "claimed") == 0);
}

/* ------------------------------------------------------------------ counters, options */

static void stats__count_what_happened(void)
{
    struct once_stats before = do_stats();
    struct once_grant grant = granted(.key = A, .lease_ms = 1000);
    clock_advance(1000);
    succeed(granted(.key = A, .takeover = ONCE_TAKEOVER_RERUN), ONCE_LIT("x"));
    do_claim(.key = A);
    do_claim(.key = A);
    do_extend(grant, 0);
    struct once_stats after = do_stats();
    EXPECT(after.operations - before.operations == 6);
    EXPECT(after.executions - before.executions == 2);
    EXPECT(after.replays - before.replays == 2);
    EXPECT(after.fenced - before.fenced == 1);
    EXPECT(after.bytes > 0);
    EXPECT(after.now == before.now + 1000);
    EXPECT(sut.served || (after.recovered > 0) == sut.loses_answers); /* K10: answers were lost, and nobody noticed */
}

static const struct option_row {
    const char *name;
    struct once_options options;
    once_result result;
} option_rows[] = {
    { "queue_len above", { .queue_len = 65537 }, ONCE_INVALID },
    { "batch_len above", { .batch_len = 4097 }, ONCE_INVALID },
    { "waiter_len above", { .waiter_len = 65537 }, ONCE_INVALID },
    { "lock_wait_ms above", { .lock_wait_ms = 600001 }, ONCE_INVALID },
    { "all at their limits",
      { .queue_len = 65536, .batch_len = 4096, .waiter_len = 65536, .lock_wait_ms = 600000 },
      ONCE_OK },
    { "all at 1", { .queue_len = 1, .batch_len = 1, .waiter_len = 1, .lock_wait_ms = 1 }, ONCE_OK },
};

static void options__values_out_of_range_are_refused(void)
{
    for (size_t i = 0; i < LENGTH(option_rows); i++) {
        char url[sizeof suite.url];
        sut_fresh(url, sizeof url);
        struct once *other = NULL, *untouched = NULL;
        struct once_error err = { .result = ONCE_OK };
        EXPECT_ROW(option_rows[i].name, once_open(url, &option_rows[i].options, &other, &err) == option_rows[i].result);
        EXPECT_ROW(option_rows[i].name, (other != untouched) == (option_rows[i].result == ONCE_OK));
        EXPECT_ROW(option_rows[i].name, err.result == option_rows[i].result);
        once_close(other);
    }
    once_close(NULL);
}

static void options__without_any_the_defaults_hold(void)
{
    char url[sizeof suite.url];
    sut_fresh(url, sizeof url);
    struct once *other = NULL;
    CHECK(once_open(url, NULL, &other, NULL) == ONCE_OK);
    EXPECT(once_eventfd(other) == -1 && once_dispatch(other, 10) == 0);
    struct once_stats stats;
    CHECK(once_stats(other, &stats, NULL) == ONCE_OK);
    EXPECT(sut.served || stats.now > 1700000000000); /* the machine's clock */
    once_close(other);
}

static void options__empty_store_is_refused_where_it_may_not_be_made(void)
{
    char url[sizeof suite.url];
    sut_empty(url, sizeof url);
    struct once *other = NULL;
    struct once_error err;
    struct once_options options = { .no_migrate = true, .shared = sut.shared };
    EXPECT(once_open(url, &options, &other, &err) != ONCE_OK && err.text[0] != '\0');
    EXPECT(other == NULL);
    reopen_with((struct once_options){ .no_migrate = true }); /* one that is up to date is fine */
    granted(.key = A);
}

static const struct url_row {
    const char *name, *url;
} url_rows[] = {
    { "NULL", NULL },
    { "empty", "" },
    { "no scheme", "/var/lib/once.db" },
    { "unknown scheme", "oracle:x" },
    { "unknown wrapper", "slow+sqlite:x" },
    { "only a wrapper", "trace+" },
    { "wrapper without a store", "fault+nothing:x" },
    { "scheme in capitals", "SQLITE:x" },
};

static void url__what_names_no_store_is_refused(void)
{
    for (size_t i = 0; i < LENGTH(url_rows); i++) {
        struct once *other = NULL;
        struct once_error err = { .result = ONCE_OK };
        EXPECT_ROW(url_rows[i].name, once_open(url_rows[i].url, NULL, &other, &err) == ONCE_INVALID);
        EXPECT_ROW(url_rows[i].name, other == NULL && err.text[0] != '\0');
    }
}

static void url__unknown_parameter_is_refused(void)
{
    char url[sizeof suite.url + 32];
    sut_fresh(url, sizeof suite.url);
    snprintf(url + strlen(url), 32, "%cnosuch=1", strchr(url, '?') != NULL ? '&' : '?');
    struct once *other = NULL;
    struct once_error err = { .result = ONCE_OK };
    EXPECT(once_open(url, NULL, &other, &err) == ONCE_INVALID);
    EXPECT(other == NULL && strstr(err.text, "nosuch") != NULL);
}

const struct suite_case look_cases[] = {
    CASE(lookup__never_changes_anything),
    CASE(lookup__by_the_records_id),
    CASE(list__filters_by_state_tenant_prefix_and_age),
    CASE(route__stays_with_its_record),
    CASE(route__of_the_newest_claim_counts_and_others_keep_it),
    CASE(route__there_are_so_many_and_then_other),
    CASE(route__that_is_none_is_refused),
    CASE(list__shows_records_not_attempts),
    CASE(list__pages_cover_everything_once_while_records_are_added),
    CASE(list__limits),
    CASE(list__states_that_do_not_exist_are_refused),
    CASE(list__of_an_empty_store_is_empty),
    CASE(history__tells_attempts_and_words_oldest_first),
    CASE(history__words_outlive_the_record),
    CASE(stats__count_what_happened),
    CASE(options__values_out_of_range_are_refused),
    CASE(options__without_any_the_defaults_hold),
    CASE(options__empty_store_is_refused_where_it_may_not_be_made),
    CASE(url__what_names_no_store_is_refused),
    CASE(url__unknown_parameter_is_refused),
    { NULL, NULL },
};
