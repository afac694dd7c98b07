/* cases_names.c - keys and tenants: every byte counts, and tenants are alone (K9). */
#include "suite.h"

static const once_span NONE = { NULL, 0 };

static void K9__same_key_in_two_tenants_is_two_records(void)
{
    once_span key = ONCE_LIT("order-17");
    static const char *const tenants[] = { "", "shop", "shop2", "SHOP" };
    for (size_t i = 0; i < LENGTH(tenants); i++) {
        const struct once_reply *claimed =
            do_claim(.tenant = span_str(tenants[i]), .key = key, .fingerprint = print_of((uint8_t)i));
        CHECK(claimed->arm == ONCE_ARM_EXECUTE);
        succeed(claimed->record.grant, span_str(tenants[i]));
    }
    for (size_t i = 0; i < LENGTH(tenants); i++) {
        const struct once_reply *replay =
            do_claim(.tenant = span_str(tenants[i]), .key = key, .fingerprint = print_of((uint8_t)i));
        EXPECT_ROW(tenants[i], replay->arm == ONCE_ARM_REPLAY);
        EXPECT_ROW(tenants[i], span_equal(replay->record.body, span_str(tenants[i])));
        EXPECT_ROW(tenants[i], span_equal(replay->record.tenant, span_str(tenants[i])));
    }
}

static const struct boundary_row {
    const char *name;
    once_span tenant, key;
} boundary_rows[] = {
    { "ab, c", { (const uint8_t *)"ab", 2 }, { (const uint8_t *)"c", 1 } },
    { "a, bc", { (const uint8_t *)"a", 1 }, { (const uint8_t *)"bc", 2 } },
    { ", abc", { (const uint8_t *)"", 0 }, { (const uint8_t *)"abc", 3 } },
    { "a NUL, b", { (const uint8_t *)"a\0", 2 }, { (const uint8_t *)"b", 1 } },
    { "a, NUL b", { (const uint8_t *)"a", 1 }, { (const uint8_t *)"\0b", 2 } },
    { "a, NUL b NUL", { (const uint8_t *)"a", 1 }, { (const uint8_t *)"\0b\0", 3 } },
    { "a/b, c", { (const uint8_t *)"a/b", 3 }, { (const uint8_t *)"c", 1 } },
    { "a, b/c", { (const uint8_t *)"a", 1 }, { (const uint8_t *)"b/c", 3 } },
};

static void K9__boundary_between_tenant_and_key_counts(void)
{
    for (size_t i = 0; i < LENGTH(boundary_rows); i++) {
        const struct boundary_row *row = &boundary_rows[i];
        const struct once_reply *claimed = do_claim(.tenant = row->tenant, .key = row->key);
        EXPECT_ROW(row->name, claimed->arm == ONCE_ARM_EXECUTE);
        succeed(claimed->record.grant, span_str(row->name));
    }
    for (size_t i = 0; i < LENGTH(boundary_rows); i++) {
        const struct boundary_row *row = &boundary_rows[i];
        EXPECT_ROW(row->name, span_equal(do_lookup_in(row->tenant, row->key)->record.body, span_str(row->name)));
    }
}

static void K9__key_of_another_tenant_is_like_a_key_never_used(void)
{
    once_span used = ONCE_LIT("used"), fresh = ONCE_LIT("fresh");
    struct once_grant theirs = granted(.tenant = ONCE_LIT("them"), .key = used, .fingerprint = print_of(1));
    do_advance(theirs, ONCE_LIT("p"), ONCE_LIT("secret"));
    succeed(theirs, ONCE_LIT("secret"));
    const struct once_reply *a = do_lookup_in(ONCE_LIT("us"), used), *b = do_lookup_in(ONCE_LIT("us"), fresh);
    EXPECT(a->arm == b->arm && same_record(&a->record, &b->record));
    const struct once_reply *c = do_claim(.tenant = ONCE_LIT("us"), .key = used, .fingerprint = print_of(2));
    const struct once_reply *d = do_claim(.tenant = ONCE_LIT("us"), .key = fresh, .fingerprint = print_of(2));
    EXPECT(c->arm == ONCE_ARM_EXECUTE && d->arm == ONCE_ARM_EXECUTE);
    EXPECT(c->record.attempt == 1 && c->record.recovery_point.len == 0 && c->record.checkpoint.len == 0);
    EXPECT(c->record.created_at == d->record.created_at);
    struct once_history history;
    CHECK(once_history(suite.once, ONCE_LIT("us"), used, &history, NULL) == ONCE_OK);
    EXPECT(history.count == 1);
    once_history_release(&history);
    once_span us = ONCE_LIT("us");
    EXPECT(do_list((struct once_filter){ .tenant = &us })->count == 2);
}

static void K9__grant_names_its_record_so_another_tenants_is_not_touched(void)
{
    struct once_grant ours = granted(.tenant = ONCE_LIT("us"), .key = ONCE_LIT("k"));
    struct once_grant theirs = granted(.tenant = ONCE_LIT("them"), .key = ONCE_LIT("k"));
    EXPECT(memcmp(ours.record, theirs.record, 16) != 0);
    struct once_grant mixed = ours;
    mixed.fence = theirs.fence;
    EXPECT(do_finish(mixed, .state = ONCE_STATE_SUCCEEDED)->arm == ONCE_ARM_FENCED);
    EXPECT(do_lookup_in(ONCE_LIT("us"), ONCE_LIT("k"))->record.state == ONCE_STATE_RUNNING);
    EXPECT(do_lookup_in(ONCE_LIT("them"), ONCE_LIT("k"))->record.state == ONCE_STATE_RUNNING);
}

static void keys__every_byte_value_is_an_ordinary_byte(void)
{
    for (int i = 0; i < 256; i++) {
        uint8_t key[2] = { 'k', (uint8_t)i };
        const struct once_reply *claimed = do_claim(.key = { key, 2 });
        EXPECT(claimed->arm == ONCE_ARM_EXECUTE);
    }
    for (int i = 0; i < 256; i += 17) {
        uint8_t key[2] = { 'k', (uint8_t)i };
        const struct once_reply *found = do_lookup((once_span){ key, 2 });
        EXPECT(found->arm == ONCE_ARM_FOUND);
        EXPECT(span_equal(found->record.key, (once_span){ key, 2 }));
    }
    EXPECT(do_list((struct once_filter){ .limit = 1000 })->count == 256);
}

static void keys__all_byte_values_in_one_key(void)
{
    uint8_t key[ONCE_KEY_LEN_MAX], tenant[ONCE_TENANT_LEN_MAX];
    for (size_t i = 0; i < sizeof key; i++) {
        key[i] = (uint8_t)i;
        tenant[i] = (uint8_t)(255 - i);
    }
    once_span k = { key, sizeof key }, t = { tenant, sizeof tenant };
    succeed(granted(.tenant = t, .key = k), ONCE_LIT("x"));
    reopen();
    const struct once_reply *replay = do_claim(.tenant = t, .key = k);
    EXPECT(replay->arm == ONCE_ARM_REPLAY);
    EXPECT(span_equal(replay->record.key, k) && span_equal(replay->record.tenant, t));
    key[254] ^= 1;
    EXPECT(do_lookup_in(t, k)->arm == ONCE_ARM_ABSENT);
    k.len = 254;
    EXPECT(do_lookup_in(t, k)->arm == ONCE_ARM_ABSENT);
}

static void keys__prefix_case_and_trailing_nul_are_other_keys(void)
{
    static const once_span keys[] = {
        { (const uint8_t *)"abc", 3 },   { (const uint8_t *)"ab", 2 },      { (const uint8_t *)"ABC", 3 },
        { (const uint8_t *)"abc\0", 4 }, { (const uint8_t *)"abc\0\0", 5 }, { (const uint8_t *)" abc", 4 },
        { (const uint8_t *)"abc ", 4 },  { (const uint8_t *)"\0", 1 },
    };
    for (size_t i = 0; i < LENGTH(keys); i++)
        EXPECT(do_claim(.key = keys[i])->arm == ONCE_ARM_EXECUTE);
}

static const struct length_row {
    const char *name;
    size_t tenant_len, key_len;
    once_result result;
} length_rows[] = {
    { "key of 0", 0, 0, ONCE_INVALID },
    { "key of 1", 0, 1, ONCE_OK },
    { "key of 255", 0, ONCE_KEY_LEN_MAX, ONCE_OK },
    { "key of 256", 0, ONCE_KEY_LEN_MAX + 1, ONCE_INVALID },
    { "tenant of 1", 1, 1, ONCE_OK },
    { "tenant of 255", ONCE_TENANT_LEN_MAX, 1, ONCE_OK },
    { "tenant and key of 255", ONCE_TENANT_LEN_MAX, ONCE_KEY_LEN_MAX, ONCE_OK },
    { "tenant of 256", ONCE_TENANT_LEN_MAX + 1, 1, ONCE_INVALID },
};

static void limits__lengths_of_keys_and_tenants(void)
{
    once_span bytes = bytes_of(300, false);
    for (size_t i = 0; i < LENGTH(length_rows); i++) {
        const struct length_row *row = &length_rows[i];
        once_span tenant = { bytes.ptr, row->tenant_len }, key = { bytes.ptr, row->key_len };
        struct once_claim claim = { .tenant = tenant, .key = key };
        struct once_resolve resolve = {
            .tenant = tenant, .key = key, .verdict = ONCE_VERDICT_RELEASE, .reason = ONCE_LIT("r")
        };
        struct once_reply reply;
        EXPECT_ROW(row->name, once_claim(suite.once, &claim, &reply, NULL) == row->result);
        once_reply_release(&reply);
        EXPECT_ROW(row->name, once_lookup(suite.once, tenant, key, &reply, NULL) == row->result);
        EXPECT_ROW(row->name, reply.arm == (row->result == ONCE_OK ? ONCE_ARM_FOUND : ONCE_ARM_NONE));
        once_reply_release(&reply);
        EXPECT_ROW(row->name, once_resolve(suite.once, &resolve, &reply, NULL) == row->result);
        once_reply_release(&reply);
        struct once_history history;
        EXPECT_ROW(row->name, once_history(suite.once, tenant, key, &history, NULL) == row->result);
        once_history_release(&history);
    }
}

/* ------------------------------------------------------------------ child keys */

static void child__key_is_the_same_on_every_attempt(void)
{
    struct once_grant first = granted(.key = ONCE_LIT("a"), .lease_ms = 1000);
    char one[ONCE_CHILD_KEY_LEN + 1], two[ONCE_CHILD_KEY_LEN + 1];
    once_child_key(suite.once, &first, ONCE_LIT("charge"), one);
    clock_advance(1000);
    reopen();
    struct once_grant second = granted(.key = ONCE_LIT("a"), .takeover = ONCE_TAKEOVER_RERUN);
    once_child_key(suite.once, &second, ONCE_LIT("charge"), two);
    EXPECT(strcmp(one, two) == 0);
    EXPECT(strlen(one) == ONCE_CHILD_KEY_LEN && strlen(one) <= 64);
    for (size_t i = 0; one[i] != '\0'; i++)
        EXPECT(one[i] > 0x20 && one[i] < 0x7f);
}

static void child__key_differs_by_record_and_call(void)
{
    static const char *const calls[] = { "", "charge", "charge2", "ship" };
    char keys[3 * LENGTH(calls)][ONCE_CHILD_KEY_LEN + 1];
    size_t count = 0;
    struct once_grant grants[] = { granted(.key = ONCE_LIT("a")), granted(.key = ONCE_LIT("b")),
                                   granted(.tenant = ONCE_LIT("t"), .key = ONCE_LIT("a")) };
    for (size_t g = 0; g < LENGTH(grants); g++)
        for (size_t c = 0; c < LENGTH(calls); c++)
            once_child_key(suite.once, &grants[g], span_str(calls[c]), keys[count++]);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            EXPECT(strcmp(keys[i], keys[j]) != 0);
}

static void child__key_and_fingerprint_differ_by_store(void)
{
    struct once_grant grant = granted(.key = ONCE_LIT("a"));
    char here[ONCE_CHILD_KEY_LEN + 1], there[ONCE_CHILD_KEY_LEN + 1];
    once_span parts[] = { ONCE_LIT("x") };
    struct once_fingerprint print_here, print_there, other_tenant;
    once_child_key(suite.once, &grant, ONCE_LIT("charge"), here);
    once_fingerprint_list(suite.once, NONE, parts, 1, &print_here);
    once_fingerprint_list(suite.once, ONCE_LIT("t"), parts, 1, &other_tenant);
    char url[sizeof suite.url];
    sut_fresh(url, sizeof url);
    struct once *other = NULL;
    CHECK(once_open(url, &suite.options, &other, NULL) == ONCE_OK);
    once_child_key(other, &grant, ONCE_LIT("charge"), there);
    once_fingerprint_list(other, NONE, parts, 1, &print_there);
    once_close(other);
    EXPECT(strcmp(here, there) != 0);
    EXPECT(memcmp(&print_here, &print_there, sizeof print_here) != 0);
    EXPECT(memcmp(&print_here, &other_tenant, sizeof print_here) != 0);
}

const struct suite_case name_cases[] = {
    CASE(K9__same_key_in_two_tenants_is_two_records),
    CASE(K9__boundary_between_tenant_and_key_counts),
    CASE(K9__key_of_another_tenant_is_like_a_key_never_used),
    CASE(K9__grant_names_its_record_so_another_tenants_is_not_touched),
    CASE(keys__every_byte_value_is_an_ordinary_byte),
    CASE(keys__all_byte_values_in_one_key),
    CASE(keys__prefix_case_and_trailing_nul_are_other_keys),
    CASE(limits__lengths_of_keys_and_tenants),
    CASE(child__key_is_the_same_on_every_attempt),
    CASE(child__key_differs_by_record_and_call),
    CASE(child__key_and_fingerprint_differ_by_store),
    { NULL, NULL },
};
