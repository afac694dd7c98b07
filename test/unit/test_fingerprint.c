/* test_fingerprint.c - version 1, with the vectors of docs/internals/fingerprint.md. */
#include "core/fingerprint.h"

#include "core/json/json.h"
#include "core/span.h"

#include "../guard.h"
#include "../test.h"

#include <stdlib.h>
#include <string.h>

static void expect_hex(const char *row, const char *want, const struct once_fingerprint *got)
{
    char hex[65];
    for (size_t i = 0; i < sizeof got->bytes; i++)
        snprintf(hex + 2 * i, 3, "%02x", got->bytes[i]);
    if (strcmp(want, hex) != 0) {
        printf("# wanted: %s\n# got:    %s\n", want, hex);
        test_failed(__FILE__, __LINE__, row, "the fingerprint differs");
    }
}

/* The secret of the vectors: 00 01 02 ... 1f. */
static struct once_mac salt_of(const char *tenant)
{
    uint8_t secret[32];
    for (size_t i = 0; i < sizeof secret; i++)
        secret[i] = (uint8_t)i;
    struct once_mac mac, salt;
    once_mac_init(&mac, once_span_of(secret, sizeof secret));
    once_fingerprint_salt(&mac, once_span_str(tenant), &salt);
    return salt;
}

static struct once_fingerprint print_of(const struct once_http *http)
{
    struct once_mac salt = salt_of("acme");
    struct once_fingerprint out = { { 0 } };
    CHECK(once_fingerprint_http_with(&salt, http, &out, NULL) == ONCE_OK);
    return out;
}

static bool same(const struct once_http *a, const struct once_http *b)
{
    struct once_fingerprint x = print_of(a), y = print_of(b);
    return memcmp(&x, &y, sizeof x) == 0;
}

/* ---------------------------------------------------------------- vectors */

static void fingerprint__vector_1_http_json(void)
{
    const struct once_header headers[] = {
        { ONCE_LIT("X-Account"), ONCE_LIT("17") },
        { ONCE_LIT("Content-Type"), ONCE_LIT(" application/json ") },
    };
    const once_span exclude[] = { ONCE_LIT("/sent_at") };
    const struct once_http http = {
        .method = ONCE_LIT("POST"),
        .path = ONCE_LIT("/v1/charges"),
        .query = ONCE_LIT("a=1"),
        .headers = headers,
        .header_count = 2,
        .body = ONCE_LIT("{ \"items\": [\"a\", \"\\u0062\"], \"sent_at\": 5, \"amount\": 10.50 }"),
        .json = true,
        .exclude = exclude,
        .exclude_count = 1,
    };
    struct once_fingerprint got = print_of(&http);
    expect_hex("vector 1", "74f9574e22993a9d4ccbcfbd4f76a4922e281d580ef7ceb727bd5a391310b136", &got);
}

static void fingerprint__vector_2_list(void)
{
    const once_span parts[] = { ONCE_LIT("charge"), ONCE_LIT(""), ONCE_LIT("17") };
    struct once_mac salt = salt_of("");
    struct once_fingerprint got;
    once_fingerprint_list_with(&salt, parts, 3, &got);
    expect_hex("vector 2", "da5d0e5349fbc1bb996482b4e6e1a9a0d8ba9e02fb54bbd0a26865d3cd89dbdc", &got);
}

static void fingerprint__vector_3_http_exact(void)
{
    struct once_mac salt = salt_of("");
    const struct once_http http = { .method = ONCE_LIT("PUT"), .path = ONCE_LIT("/x"), .body = ONCE_LIT("hello") };
    struct once_fingerprint got;
    CHECK(once_fingerprint_http_with(&salt, &http, &got, NULL) == ONCE_OK);
    expect_hex("vector 3", "ebb865dbf1b4e2896db22171856f208881d4e0a2c1da62a12e728874ea9586e1", &got);
}

/* ---------------------------------------------------------------- same and different */

static const struct once_header one_header[] = { { ONCE_LIT("A"), ONCE_LIT("bc") } };
static const struct once_header other_split[] = { { ONCE_LIT("Ab"), ONCE_LIT("c") } };
static const struct once_header other_value[] = { { ONCE_LIT("A"), ONCE_LIT("BC") } };
static const struct once_header two_headers[] = { { ONCE_LIT("A"), ONCE_LIT("b") }, { ONCE_LIT("A"), ONCE_LIT("c") } };
static const struct once_header empty_header[] = { { ONCE_LIT("A"), ONCE_LIT("") } };
static const struct once_header blank_inside[] = { { ONCE_LIT("A"), ONCE_LIT("b c") } };

#define BASE .method = ONCE_LIT("POST"), .path = ONCE_LIT("/a"), .query = ONCE_LIT("q")

/* Requests that a server could treat differently: no two have the same fingerprint. */
static const struct once_http different[] = {
    { BASE },
    { .method = ONCE_LIT("PUT"), .path = ONCE_LIT("/a"), .query = ONCE_LIT("q") },
    { .method = ONCE_LIT("post"), .path = ONCE_LIT("/a"), .query = ONCE_LIT("q") },
    { .method = ONCE_LIT("POST"), .path = ONCE_LIT("/aq"), .query = ONCE_LIT("") },
    { .method = ONCE_LIT("POST"), .path = ONCE_LIT("/"), .query = ONCE_LIT("aq") },
    { .method = ONCE_LIT("POST/"), .path = ONCE_LIT("a"), .query = ONCE_LIT("q") },
    { .method = ONCE_LIT("POST"), .path = ONCE_LIT("/A"), .query = ONCE_LIT("q") },
    { BASE, .headers = one_header, .header_count = 1 },
    { BASE, .headers = other_split, .header_count = 1 },
    { BASE, .headers = other_value, .header_count = 1 },
    { BASE, .headers = two_headers, .header_count = 2 },
    { BASE, .headers = empty_header, .header_count = 1 },
    { BASE, .headers = blank_inside, .header_count = 1 },
    { BASE, .body = ONCE_LIT("{}") },
    { BASE, .body = ONCE_LIT("{}"), .json = true },
    { BASE, .body = ONCE_LIT("{} ") },
    { BASE, .body = ONCE_LIT("[]"), .json = true },
    { BASE, .body = ONCE_LIT("1"), .json = true },
    { BASE, .body = ONCE_LIT("1.0"), .json = true },
    { BASE, .body = ONCE_LIT("\"1\""), .json = true },
    { BASE, .body = ONCE_LIT("{\"a\":1,\"a\":2}"), .json = true },
    { BASE, .body = ONCE_LIT("{\"a\":2,\"a\":1}"), .json = true },
    { BASE, .body = ONCE_LIT("{\"a\":2}"), .json = true },
    { BASE, .body = ONCE_LIT("\"\\ud800\""), .json = true },
    { BASE, .body = ONCE_LIT("\"\\ud801\""), .json = true },
    { BASE, .body = ONCE_LIT("\"?\""), .json = true },
};

static void fingerprint__different_requests_never_agree(void)
{
    size_t count = sizeof different / sizeof *different;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i; j++) {
            char row[40];
            snprintf(row, sizeof row, "rows %zu and %zu", j, i);
            EXPECT_ROW(row, !same(&different[i], &different[j]));
        }
    }
}

static void fingerprint__spellings_of_one_request_agree(void)
{
    const struct once_header order_1[] = {
        { ONCE_LIT("Accept"), ONCE_LIT("x") },
        { ONCE_LIT("B"), ONCE_LIT("2") },
        { ONCE_LIT("b"), ONCE_LIT("1") },
    };
    const struct once_header order_2[] = {
        { ONCE_LIT("B"), ONCE_LIT("\t2") },
        { ONCE_LIT("b"), ONCE_LIT(" 1\t") },
        { ONCE_LIT("ACCEPT"), ONCE_LIT("x") },
    };
    const struct once_http a = { BASE, .headers = order_1, .header_count = 3,
                                 .body = ONCE_LIT("{\"a\":[1,2],\"b\":\"\\u0078\"}"), .json = true };
    const struct once_http b = { BASE, .headers = order_2, .header_count = 3,
                                 .body = ONCE_LIT("{\"b\" : \"x\",\r\n\"a\" : [1, 2]}"), .json = true };
    EXPECT(same(&a, &b));
}

static void fingerprint__the_order_of_one_headers_lines_counts(void)
{
    const struct once_header lines[] = { { ONCE_LIT("a"), ONCE_LIT("1") }, { ONCE_LIT("a"), ONCE_LIT("2") } };
    const struct once_header swapped[] = { { ONCE_LIT("a"), ONCE_LIT("2") }, { ONCE_LIT("a"), ONCE_LIT("1") } };
    const struct once_http a = { BASE, .headers = lines, .header_count = 2 };
    const struct once_http b = { BASE, .headers = swapped, .header_count = 2 };
    EXPECT(!same(&a, &b));
}

static void fingerprint__excluded_members_do_not_count(void)
{
    const once_span exclude[] = { ONCE_LIT("/t") };
    const struct once_http a = { BASE, .body = ONCE_LIT("{\"t\":1,\"v\":2}"), .json = true, .exclude = exclude,
                                 .exclude_count = 1 };
    const struct once_http b = { BASE, .body = ONCE_LIT("{\"t\":7,\"v\":2}"), .json = true, .exclude = exclude,
                                 .exclude_count = 1 };
    const struct once_http c = { BASE, .body = ONCE_LIT("{\"t\":7,\"v\":3}"), .json = true, .exclude = exclude,
                                 .exclude_count = 1 };
    EXPECT(same(&a, &b));
    EXPECT(!same(&b, &c));
}

static void fingerprint__tenants_and_secrets_are_unrelated(void)
{
    const once_span part = ONCE_LIT("x");
    struct once_mac salt = salt_of("acme"), other_tenant = salt_of("acm"), other_secret, secret;
    once_mac_init(&secret, ONCE_LIT("another secret"));
    once_fingerprint_salt(&secret, ONCE_LIT("acme"), &other_secret);
    struct once_fingerprint a, b, c;
    once_fingerprint_list_with(&salt, &part, 1, &a);
    once_fingerprint_list_with(&other_tenant, &part, 1, &b);
    once_fingerprint_list_with(&other_secret, &part, 1, &c);
    EXPECT(memcmp(&a, &b, sizeof a) != 0);
    EXPECT(memcmp(&a, &c, sizeof a) != 0);
    EXPECT(memcmp(&b, &c, sizeof a) != 0);
}

static void fingerprint__lists_keep_their_boundaries(void)
{
    const once_span lists[][2] = {
        { ONCE_LIT("ab"), ONCE_LIT("c") },
        { ONCE_LIT("a"), ONCE_LIT("bc") },
        { ONCE_LIT("abc"), ONCE_LIT("") },
    };
    struct once_mac salt = salt_of("");
    struct once_fingerprint prints[5];
    for (size_t i = 0; i < 3; i++)
        once_fingerprint_list_with(&salt, lists[i], 2, &prints[i]);
    once_fingerprint_list_with(&salt, lists[2], 1, &prints[3]);
    once_fingerprint_list_with(&salt, NULL, 0, &prints[4]);
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < i; j++)
            EXPECT(memcmp(&prints[i], &prints[j], sizeof prints[0]) != 0);
}

/* ---------------------------------------------------------------- limits, errors */

static void fingerprint__bounds_are_exact(void)
{
    struct once_mac salt = salt_of("");
    struct once_fingerprint out = { { 7 } };
    struct once_header headers[65];
    once_span exclude[65];
    for (size_t i = 0; i < 65; i++) {
        headers[i] = (struct once_header){ ONCE_LIT("A"), ONCE_LIT("b") };
        exclude[i] = ONCE_LIT("/a");
    }
    struct once_error err = { 0 };
    struct once_http http = { BASE, .headers = headers, .header_count = 65 };
    EXPECT(once_fingerprint_http_with(&salt, &http, &out, &err) == ONCE_LIMIT);
    EXPECT(strcmp(err.text, "65 headers are to be fingerprinted, the limit is 64") == 0);
    http.header_count = 0;
    http.exclude = exclude;
    http.exclude_count = 65;
    EXPECT(once_fingerprint_http_with(&salt, &http, &out, &err) == ONCE_LIMIT);
    EXPECT(strcmp(err.text, "65 JSON pointers are excluded, the limit is 64") == 0);
    EXPECT(out.bytes[0] == 7);
    http.header_count = 64;
    http.exclude_count = 64;
    http.json = true;
    EXPECT(once_fingerprint_http_with(&salt, &http, &out, &err) == ONCE_OK);
}

static void fingerprint__headers_together_are_bounded(void)
{
    struct once_mac salt = salt_of("");
    struct once_fingerprint out;
    size_t len = ONCE_FINGERPRINT_HEADERS_LEN_MAX - 16 - 1;
    uint8_t *value = malloc(len + 1);
    CHECK(value != NULL);
    memset(value, 'x', len + 1);
    struct once_header header = { ONCE_LIT("A"), once_span_of(value, len) };
    struct once_http http = { BASE, .headers = &header, .header_count = 1 };
    EXPECT(once_fingerprint_http_with(&salt, &http, &out, NULL) == ONCE_OK);
    header.value.len++;
    EXPECT(once_fingerprint_http_with(&salt, &http, &out, NULL) == ONCE_LIMIT);
    free(value);
}

static void fingerprint__malformed_pointer_is_refused_whatever_the_body(void)
{
    struct once_mac salt = salt_of("");
    struct once_fingerprint out;
    struct once_error err = { 0 };
    const once_span exclude[] = { ONCE_LIT("t") };
    struct once_http http = { BASE, .body = ONCE_LIT("no JSON"), .json = true, .exclude = exclude, .exclude_count = 1 };
    EXPECT(once_fingerprint_http_with(&salt, &http, &out, &err) == ONCE_INVALID);
    EXPECT(strcmp(err.text, "JSON pointer 't': must begin with '/'") == 0);
}

static void fingerprint__reads_no_further_than_its_spans(void)
{
    struct guard guards[6];
    struct once_header header = { guard_copy(&guards[0], "Name", 4), guard_copy(&guards[1], " value\t", 7) };
    once_span exclude = guard_copy(&guards[2], "/a", 2);
    struct once_http http = { .method = guard_copy(&guards[3], "POST", 4),
                              .path = guard_copy(&guards[4], "/", 1),
                              .body = guard_copy(&guards[5], "{\"a\":1}", 7),
                              .headers = &header,
                              .header_count = 1,
                              .json = true,
                              .exclude = &exclude,
                              .exclude_count = 1 };
    print_of(&http);
    header.value = once_span_skip(header.value, 6); /* blanks only */
    print_of(&http);
    for (size_t i = 0; i < 6; i++)
        guard_release(&guards[i]);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(fingerprint__vector_1_http_json),
        TEST(fingerprint__vector_2_list),
        TEST(fingerprint__vector_3_http_exact),
        TEST(fingerprint__different_requests_never_agree),
        TEST(fingerprint__spellings_of_one_request_agree),
        TEST(fingerprint__the_order_of_one_headers_lines_counts),
        TEST(fingerprint__excluded_members_do_not_count),
        TEST(fingerprint__tenants_and_secrets_are_unrelated),
        TEST(fingerprint__lists_keep_their_boundaries),
        TEST(fingerprint__bounds_are_exact),
        TEST(fingerprint__headers_together_are_bounded),
        TEST(fingerprint__malformed_pointer_is_refused_whatever_the_body),
        TEST(fingerprint__reads_no_further_than_its_spans),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
