/* test_quota.c - the table: what is counted, who is refused, what is given back, what it costs to invent tenants. */
#include "engine/quota.h"

#include "../test.h"
#include "core/span.h"

static struct quota *make(const char *standard, const char *tenant)
{
    struct quota_rules rules;
    quota_rules_init(&rules);
    bool good = quota_rules_set(&rules, once_span_str(standard), NULL) == ONCE_OK &&
                (tenant == NULL || quota_rules_add(&rules, once_span_str(tenant), NULL) == ONCE_OK);
    struct quota *q = good ? quota_create(&rules) : NULL;
    quota_rules_release(&rules);
    return q;
}

static const once_span ann = { (const uint8_t *)"ann", 3 }, bob = { (const uint8_t *)"bob", 3 };
enum { LEASE_MS = 1000 };

static size_t tenants_of(const struct quota *q)
{
    struct quota_counters n;
    quota_counters(q, &n);
    return n.tenants;
}

/* A claim that makes a record. False: refused. */
static bool claim(struct quota *q, once_span tenant, uint64_t fence, once_time now)
{
    struct quota_entry *reservation;
    if (quota_admit(q, tenant, now, &reservation) != QUOTA_KIND_COUNT)
        return false;
    quota_granted(q, tenant, &(struct quota_grant){ fence, true, 0, LEASE_MS }, now);
    quota_unreserve(q, reservation);
    return true;
}

static void quota__a_full_tenant_is_refused_and_others_are_not(void)
{
    struct quota *q = make("records=2", "bob:records=3");
    EXPECT(claim(q, ann, 1, 0) && claim(q, ann, 2, 0) && !claim(q, ann, 3, 0));
    EXPECT(claim(q, bob, 4, 0) && claim(q, bob, 5, 0) && claim(q, bob, 6, 0) && !claim(q, bob, 7, 0));
    EXPECT(quota_usage(q, ann, QUOTA_RECORDS) == 2 && quota_usage(q, bob, QUOTA_RECORDS) == 3);
    quota_free(q);
}

static void quota__a_burst_does_not_pass_together(void)
{
    struct quota *q = make("records=2,in-flight=2", NULL);
    struct quota_entry *places[3];
    EXPECT(quota_admit(q, ann, 0, &places[0]) == QUOTA_KIND_COUNT);
    EXPECT(quota_admit(q, ann, 0, &places[1]) == QUOTA_KIND_COUNT);
    EXPECT(quota_admit(q, ann, 0, &places[2]) == QUOTA_IN_FLIGHT && places[2] == NULL);
    quota_unreserve(q, places[0]); /* it was a replay after all */
    EXPECT(quota_admit(q, ann, 0, &places[0]) == QUOTA_KIND_COUNT);
    quota_unreserve(q, places[0]);
    quota_unreserve(q, places[1]);
    EXPECT(tenants_of(q) == 0);
    quota_free(q);
}

static void quota__in_flight_ends_with_the_finish_the_release_or_the_lease(void)
{
    struct quota *q = make("in-flight=1", NULL);
    CHECK(claim(q, ann, 1, 0));
    EXPECT(!claim(q, ann, 2, 0));
    quota_finished(q, 1, 10);
    CHECK(claim(q, ann, 2, 0));
    quota_released(q, 2);
    CHECK(claim(q, ann, 3, 10000));
    EXPECT(!claim(q, ann, 4, 10000 + LEASE_MS - 1));
    quota_extended(q, 3, 0, 10000 + LEASE_MS - 1);
    EXPECT(!claim(q, ann, 4, 10000 + 2 * LEASE_MS - 2));
    CHECK(claim(q, ann, 4, 20000)); /* the lease is over */
    quota_lost(q, 4);
    EXPECT(tenants_of(q) == 0); /* records are not counted where there is no limit of them */
    quota_free(q);
}

static void quota__the_same_grant_counts_once(void)
{
    struct quota *q = make("records=5,in-flight=5", NULL);
    for (int i = 0; i < 3; i++)
        CHECK(claim(q, ann, 7, 0));
    EXPECT(quota_usage(q, ann, QUOTA_RECORDS) == 1 && quota_usage(q, ann, QUOTA_IN_FLIGHT) == 1);
    quota_free(q);
}

static void quota__bytes_are_those_of_what_is_stored(void)
{
    struct quota *q = make("bytes=100", NULL);
    struct quota_entry *reservation;
    quota_granted(q, ann, &(struct quota_grant){ 1, true, 40, LEASE_MS }, 0);
    EXPECT(quota_usage(q, ann, QUOTA_BYTES) == 40);
    quota_advanced(q, 1, 30, true, 0);
    quota_advanced(q, 1, 20, true, 0); /* instead of what was there */
    EXPECT(quota_usage(q, ann, QUOTA_BYTES) == 60);
    quota_finished(q, 1, 75); /* the request goes */
    EXPECT(quota_usage(q, ann, QUOTA_BYTES) == 95);
    EXPECT(quota_admit(q, ann, 0, &reservation) == QUOTA_KIND_COUNT);
    quota_granted(q, ann, &(struct quota_grant){ 2, true, 5, LEASE_MS }, 0);
    quota_unreserve(q, reservation);
    EXPECT(quota_admit(q, ann, 0, &reservation) == QUOTA_BYTES);
    quota_released(q, 2);
    EXPECT(quota_usage(q, ann, QUOTA_BYTES) == 95 && quota_usage(q, ann, QUOTA_RECORDS) == 1);
    quota_free(q);
}

/* With progress the record stays when its first attempt is given back. */
static void quota__a_release_frees_the_key_only_without_progress(void)
{
    struct quota *q = make("records=5", NULL);
    CHECK(claim(q, ann, 1, 0) && claim(q, ann, 2, 0) && claim(q, ann, 3, 0));
    quota_released(q, 1);
    EXPECT(quota_usage(q, ann, QUOTA_RECORDS) == 2);
    quota_advanced(q, 2, 0, true, 0);
    quota_released(q, 2);
    EXPECT(quota_usage(q, ann, QUOTA_RECORDS) == 2);
    quota_advanced(q, 3, 0, false, 0); /* only about to send */
    quota_released(q, 3);
    EXPECT(quota_usage(q, ann, QUOTA_RECORDS) == 1);
    quota_free(q);
}

static void quota__waiters_have_their_own_limit(void)
{
    struct quota *q = make("waiters=2", NULL);
    struct quota_entry *places[3];
    EXPECT(quota_wait(q, ann, &places[0]) && quota_wait(q, ann, &places[1]) && !quota_wait(q, ann, &places[2]));
    EXPECT(quota_wait(q, bob, &places[2]));
    quota_wait_ended(q, places[0]);
    EXPECT(quota_wait(q, ann, &places[0]));
    for (int i = 0; i < 3; i++)
        quota_wait_ended(q, places[i]);
    EXPECT(tenants_of(q) == 0);
    quota_free(q);
}

static void quota__a_walk_counts_what_was_there_before(void)
{
    struct quota *q = make("records=10", NULL);
    quota_scan_begin(q);
    quota_scan_add(q, ann, 4, 100);
    EXPECT(quota_usage(q, ann, QUOTA_RECORDS) == 4); /* so far */
    quota_scan_add(q, ann, 3, 100);
    quota_scan_at(q, 50, 50);
    quota_scan_end(q, 0);
    EXPECT(quota_usage(q, ann, QUOTA_RECORDS) == 7 && quota_usage(q, ann, QUOTA_BYTES) == 200);
    CHECK(claim(q, ann, 51, 0) && claim(q, ann, 52, 0) && claim(q, ann, 53, 0));
    EXPECT(!claim(q, ann, 54, 0));
    quota_scan_begin(q); /* the older ones are past their retention */
    quota_scan_add(q, ann, 3, 0);
    quota_scan_at(q, 53, 53);
    quota_scan_end(q, 0);
    EXPECT(quota_usage(q, ann, QUOTA_RECORDS) == 3);
    quota_scan_begin(q);
    quota_scan_end(q, 10 * LEASE_MS);
    EXPECT(quota_usage(q, ann, QUOTA_RECORDS) == 0 && tenants_of(q) == 0);
    quota_free(q);
}

/* Each change is counted once, wherever the walk is. */
static void quota__what_happens_during_a_walk_counts_once(void)
{
    struct quota *q = make("records=100", NULL);
    for (uint64_t fence = 1; fence <= 4; fence++)
        CHECK(claim(q, ann, fence, 0));
    quota_scan_begin(q);
    quota_scan_add(q, ann, 2, 0); /* 1 and 2 */
    quota_scan_at(q, 2, 4);
    quota_finished(q, 1, 10);   /* behind it: it does not see the bytes */
    quota_finished(q, 3, 20);   /* before it: it does */
    quota_released(q, 2);       /* behind it: it counted the record */
    quota_released(q, 4);       /* before it: it will not */
    CHECK(claim(q, ann, 5, 0)); /* beyond its end */
    quota_scan_add(q, ann, 1, 20);
    quota_scan_at(q, 4, 4);
    quota_scan_end(q, 0);
    EXPECT(quota_usage(q, ann, QUOTA_RECORDS) == 3 && quota_usage(q, ann, QUOTA_BYTES) == 30); /* 1, 3, 5 */
    quota_free(q);
}

static void quota__a_walk_that_broke_off_is_begun_anew(void)
{
    struct quota *q = make("records=10", NULL);
    quota_scan_begin(q);
    quota_scan_add(q, ann, 9, 0);
    quota_scan_add(q, bob, 9, 0);
    quota_scan_begin(q);
    EXPECT(tenants_of(q) == 0);
    quota_scan_add(q, ann, 2, 0);
    quota_scan_end(q, 0);
    EXPECT(quota_usage(q, ann, QUOTA_RECORDS) == 2 && tenants_of(q) == 1);
    quota_free(q);
}

/* Whoever can invent tenants fills the table, and nobody is refused for it. */
static void quota__the_table_is_bounded(void)
{
    struct quota *q = make("records=1", NULL);
    CHECK(claim(q, ann, 1, 0));
    char name[20];
    uint64_t fence = 2;
    for (int i = 0; i < QUOTA_TENANTS_MAX + 100; i++, fence++) {
        snprintf(name, sizeof name, "invented-%d", i);
        CHECK(claim(q, once_span_str(name), fence, 0));
    }
    struct quota_counters n;
    quota_counters(q, &n);
    EXPECT(n.tenants == QUOTA_TENANTS_MAX && n.uncounted >= 100);
    EXPECT(claim(q, bob, fence++, 0) && claim(q, bob, fence++, 0)); /* finds no room */
    EXPECT(!claim(q, ann, fence, 0));                               /* has its own */
    quota_scan_begin(q);                                            /* all of it was deleted */
    quota_scan_end(q, 10 * LEASE_MS);
    EXPECT(tenants_of(q) == 0);
    EXPECT(claim(q, bob, 1, 0) && !claim(q, bob, 2, 0));
    quota_free(q);
}

static void quota__grants_are_bounded(void)
{
    struct quota *q = make("in-flight=1000000", NULL);
    for (uint64_t fence = 1; fence <= QUOTA_GRANTS_MAX + 10; fence++)
        CHECK(claim(q, ann, fence, 0));
    struct quota_counters n;
    quota_counters(q, &n);
    EXPECT(n.grants == QUOTA_GRANTS_MAX && n.uncounted == 10);
    CHECK(claim(q, ann, QUOTA_GRANTS_MAX + 11, 10 * LEASE_MS)); /* all others' leases are over by now */
    quota_counters(q, &n);
    EXPECT(n.grants == 1);
    quota_free(q);
}

static void quota__names_are_whole(void)
{
    struct quota *q = make("records=1", NULL);
    once_span a = once_span_of((const uint8_t *)"a\0b", 3), b = once_span_of((const uint8_t *)"a\0c", 3);
    EXPECT(claim(q, a, 1, 0) && claim(q, b, 2, 0) && claim(q, once_span_of(NULL, 0), 3, 0));
    EXPECT(!claim(q, a, 4, 0) && !claim(q, b, 5, 0) && !claim(q, ONCE_LIT(""), 6, 0));
    quota_free(q);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(quota__a_full_tenant_is_refused_and_others_are_not),
        TEST(quota__a_burst_does_not_pass_together),
        TEST(quota__in_flight_ends_with_the_finish_the_release_or_the_lease),
        TEST(quota__the_same_grant_counts_once),
        TEST(quota__bytes_are_those_of_what_is_stored),
        TEST(quota__a_release_frees_the_key_only_without_progress),
        TEST(quota__waiters_have_their_own_limit),
        TEST(quota__a_walk_counts_what_was_there_before),
        TEST(quota__what_happens_during_a_walk_counts_once),
        TEST(quota__a_walk_that_broke_off_is_begun_anew),
        TEST(quota__the_table_is_bounded),
        TEST(quota__grants_are_bounded),
        TEST(quota__names_are_whole),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
