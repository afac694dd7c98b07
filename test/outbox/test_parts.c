/* test_parts.c - signatures, backoff and routes, by themselves. */
#include "broker/signature.h"
#include "core/span.h"
#include "jobs/relay.h"

#include "../test.h"

/* The example of the Standard Webhooks libraries. */
static void signature__is_that_of_standard_webhooks(void)
{
    struct signature_keys keys;
    char out[SIGNATURE_LEN];
    CHECK(signature_keys_parse(ONCE_LIT("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), &keys, NULL) == ONCE_OK);
    signature_make(&keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, ONCE_LIT("{\"test\": 2432232314}"), out);
    CHECK(strcmp(out, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=") == 0);
}

#define KEY "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

static void signature__one_per_key(void)
{
    struct signature_keys keys;
    char out[SIGNATURE_LEN];
    CHECK(signature_keys_parse(ONCE_LIT(KEY "\r\n\n" KEY "\n" KEY "\n" KEY), &keys, NULL) == ONCE_OK);
    CHECK(keys.count == 4);
    signature_make(&keys, "00000000-0000-0000-0000-000000000000", INT64_MAX, ONCE_LIT(""), out);
    CHECK(strlen(out) == 4 * 47 + 3);
}

static void signature__keys_that_are_none(void)
{
    static const struct {
        const char *name, *text;
    } rows[] = {
        { "empty", "" },
        { "only lines", "\n\n" },
        { "no prefix", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" },
        { "no base64", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa!w" },
        { "cut short", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS" },
        { "too short", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLQ==" },
        { "too long",
          "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" },
        { "five", KEY "\n" KEY "\n" KEY "\n" KEY "\n" KEY "\n" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct signature_keys keys;
        struct once_error err;
        EXPECT_ROW(rows[i].name, signature_keys_parse(once_span_str(rows[i].text), &keys, &err) != ONCE_OK);
    }
}

static void backoff__doubles_up_to_its_ceiling_with_full_jitter(void)
{
    static const struct {
        const char *name;
        int32_t failures;
        int64_t most;
    } rows[] = {
        { "first", 0, 500 },    { "second", 1, 1000 },  { "eleventh", 10, 512000 },
        { "last", 11, 600000 }, { "many", 60, 600000 }, { "ever", INT32_MAX, 600000 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        EXPECT_ROW(rows[i].name, relay_backoff(500, 600000, rows[i].failures, 0) == 0);
        EXPECT_ROW(rows[i].name, relay_backoff(500, 600000, rows[i].failures, UINT32_MAX) == rows[i].most - 1);
        EXPECT_ROW(rows[i].name, relay_backoff(500, 600000, rows[i].failures, 1u << 31) == rows[i].most / 2);
    }
}

static void route__the_first_that_matches(void)
{
    struct sink a = { 0 }, b = { 0 };
    struct relay relay = { .routes = { { "orders.*", &a }, { "orders.x", &b }, { "pay", &b } }, .route_count = 3 };
    static const struct {
        const char *topic;
        int sink;
    } rows[] = { { "orders.x", 1 }, { "orders.", 1 }, { "orders", 0 }, { "pay", 2 }, { "payment", 0 }, { "Pay", 0 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t expected = rows[i].sink == 1 ? 0 : rows[i].sink == 2 ? 2 : RELAY_ROUTES_MAX;
        EXPECT_ROW(rows[i].topic, relay_route_of(&relay, once_span_str(rows[i].topic)) == expected);
    }
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(signature__is_that_of_standard_webhooks), TEST(signature__one_per_key),
        TEST(signature__keys_that_are_none),           TEST(backoff__doubles_up_to_its_ceiling_with_full_jitter),
        TEST(route__the_first_that_matches),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
