/* test_quota_rules.c - limits as people write them. */
#include "core/quota_rules.h"

#include "../test.h"
#include "core/span.h"

static const uint64_t none = QUOTA_UNLIMITED;

static void rules__limits_are_read(void)
{
    static const struct {
        const char *text;
        uint64_t max[QUOTA_KIND_COUNT];
    } rows[] = {
        { "records=10", { 10, UINT64_MAX, UINT64_MAX, UINT64_MAX } },
        { "bytes=1G", { UINT64_MAX, 1 << 30, UINT64_MAX, UINT64_MAX } },
        { "in-flight=0,waiters=2K", { UINT64_MAX, UINT64_MAX, 0, 2048 } },
        { "waiters=1,records=none", { UINT64_MAX, UINT64_MAX, UINT64_MAX, 1 } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct quota_rules rules;
        quota_rules_init(&rules);
        EXPECT_ROW(rows[i].text, quota_rules_set(&rules, once_span_str(rows[i].text), NULL) == ONCE_OK);
        EXPECT_ROW(rows[i].text, rules.any);
        EXPECT_ROW(rows[i].text, memcmp(rules.standard.max, rows[i].max, sizeof rows[i].max) == 0);
        quota_rules_release(&rules);
    }
}

static void rules__what_is_no_limit_is_refused(void)
{
    static const struct {
        const char *text, *said;
        bool tenant;
    } rows[] = {
        { "", "is not a limit", false },
        { "records", "is not a limit", false },
        { "records=", "size is empty", false },
        { "records=x", "is not a size", false },
        { "records=1,", "is not a limit", false },
        { "record=1", "is not records", false },
        { "records=1,records=2", "given twice", false },
        { "bytes=99999999999999999999", "too large", false },
        { "records=-1", "is not a size", false },
        { "shop", "is not TENANT", true },
        { "shop:", "is not a limit", true },
        { "shop:records", "is not a limit", true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct quota_rules rules;
        struct once_error err = { .result = ONCE_OK };
        quota_rules_init(&rules);
        once_result r = rows[i].tenant ? quota_rules_add(&rules, once_span_str(rows[i].text), &err)
                                       : quota_rules_set(&rules, once_span_str(rows[i].text), &err);
        EXPECT_ROW(rows[i].text, r == ONCE_INVALID);
        EXPECT_ROW(rows[i].text, strstr(err.text, rows[i].said) != NULL);
        EXPECT_ROW(rows[i].text, !rules.any && rules.count == 0 && rules.standard.max[QUOTA_RECORDS] == none);
        quota_rules_release(&rules);
    }
}

static void rules__one_tenants_are_its_own(void)
{
    struct quota_rules rules;
    quota_rules_init(&rules);
    CHECK(quota_rules_set(&rules, ONCE_LIT("records=10,in-flight=5"), NULL) == ONCE_OK);
    CHECK(quota_rules_add(&rules, ONCE_LIT("urn:shop:records=99"), NULL) == ONCE_OK);
    CHECK(quota_rules_add(&rules, ONCE_LIT(":records=none,bytes=7"), NULL) == ONCE_OK); /* the tenant without a name */
    CHECK(quota_rules_add(&rules, ONCE_LIT("urn:shop:records=1"), NULL) == ONCE_INVALID);
    struct quota_limits shop = quota_rules_find(&rules, ONCE_LIT("urn:shop"));
    struct quota_limits empty = quota_rules_find(&rules, ONCE_LIT(""));
    struct quota_limits other = quota_rules_find(&rules, ONCE_LIT("urn:shop:"));
    EXPECT(shop.max[QUOTA_RECORDS] == 99 && shop.max[QUOTA_IN_FLIGHT] == 5);
    EXPECT(empty.max[QUOTA_RECORDS] == none && empty.max[QUOTA_BYTES] == 7 && empty.max[QUOTA_IN_FLIGHT] == 5);
    EXPECT(other.max[QUOTA_RECORDS] == 10 && other.max[QUOTA_BYTES] == none);
    EXPECT(quota_rules_have(&rules, QUOTA_BYTES) && !quota_rules_have(&rules, QUOTA_WAITERS));
    quota_rules_release(&rules);
}

static void rules__are_bounded(void)
{
    struct quota_rules rules;
    quota_rules_init(&rules);
    char text[40];
    for (int i = 0; i < QUOTA_RULES_MAX; i++) {
        snprintf(text, sizeof text, "t%d:records=1", i);
        CHECK(quota_rules_add(&rules, once_span_str(text), NULL) == ONCE_OK);
    }
    EXPECT(quota_rules_add(&rules, ONCE_LIT("more:records=1"), NULL) == ONCE_LIMIT);
    quota_rules_release(&rules);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(rules__limits_are_read),
        TEST(rules__what_is_no_limit_is_refused),
        TEST(rules__one_tenants_are_its_own),
        TEST(rules__are_bounded),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
