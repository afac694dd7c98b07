/*
 * test_parts.c - the pure parts of the client: what an answer means, when to ask again, how a key is written, what is
 * saved. Time and randomness come in as arguments.
 */
#include "../test.h"

#include "client/problem.h"
#include "client/retry.h"
#include "client/saved.h"
#include "core/span.h"

#include <stdlib.h>

/* ------------------------------------------------------------------ Retry-After */

/* Sun, 06 Nov 1994 08:49:37 GMT */
#define THEN (784111777LL * 1000)

static void retry_after__seconds_and_dates(void)
{
    static const struct {
        const char *value, *date;
        bool readable;
        int64_t wait_ms;
    } rows[] = {
        { "0", "", true, 0 },
        { "1", "", true, 1000 },
        { "120", "", true, 120000 },
        { "86400", "", true, ONCE_CLIENT_TIME_MS_MAX },
        { "86401", "", true, ONCE_CLIENT_TIME_MS_MAX },
        { "99999999999999999999999999999999999999", "", true, ONCE_CLIENT_TIME_MS_MAX },
        { "", "", false, 0 },
        { "-1", "", false, 0 },
        { "1.5", "", false, 0 },
        { "1s", "", false, 0 },
        { "soon", "", false, 0 },
        { "tomorrow morning at nine", "", false, 0 },
        { "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "", false, 0 },
        /* the three forms of RFC 9110, ten seconds later than now */
        { "Sun, 06 Nov 1994 08:49:47 GMT", "", true, 10000 },
        { "Sunday, 06-Nov-94 08:49:47 GMT", "", true, 10000 },
        { "Sun Nov  6 08:49:47 1994", "", true, 10000 },
        { "Sun, 06 Nov 1994 08:49:27 GMT", "", true, 0 }, /* the past */
        { "Fri, 31 Dec 2999 23:59:59 GMT", "", true, ONCE_CLIENT_TIME_MS_MAX },
        /* by the server's own clock, which is a year behind ours */
        { "Sat, 06 Nov 1993 08:50:07 GMT", "Sat, 06 Nov 1993 08:49:37 GMT", true, 30000 },
        { "Sun, 06 Nov 1994 08:49:47 GMT", "nonsense", true, 10000 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t wait = 0;
        bool readable = client_retry_after(once_span_str(rows[i].value), once_span_str(rows[i].date), THEN, &wait);
        EXPECT_ROW(rows[i].value, readable == rows[i].readable);
        if (readable)
            EXPECT_ROW(rows[i].value, wait == rows[i].wait_ms);
    }
}

static void wait__full_jitter_doubles_up_to_its_ceiling(void)
{
    static const struct {
        unsigned n;
        int64_t most;
    } rows[] = { { 1, 250 },   { 2, 500 },   { 3, 1000 },  { 4, 2000 },    { 5, 4000 },     { 6, 8000 },
                 { 7, 16000 }, { 8, 30000 }, { 9, 30000 }, { 100, 30000 }, { 10000, 30000 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        EXPECT(client_wait_ms(rows[i].n, 250, 30000, 0, 0) == 0);
        EXPECT(client_wait_ms(rows[i].n, 250, 30000, 0, UINT32_MAX) == rows[i].most - 1);
    }
    EXPECT(client_wait_ms(64, ONCE_CLIENT_TIME_MS_MAX, ONCE_CLIENT_TIME_MS_MAX, 0, UINT32_MAX) <
           ONCE_CLIENT_TIME_MS_MAX);
}

static void wait__never_before_retry_after(void)
{
    for (uint32_t i = 0; i < 16; i++) {
        int64_t wait = client_wait_ms(3, 250, 30000, 4000, i << 28);
        EXPECT(wait >= 4000 && wait < 5000);
    }
    EXPECT(client_wait_ms(1, 250, 30000, 1000, 0) == 1000);
    EXPECT(client_wait_ms(1, 250, 30000, 1000, UINT32_MAX) == 1249);
}

/* ------------------------------------------------------------------ judging */

static void judge__every_rule_in_its_order(void)
{
    static const struct {
        const char *name;
        struct client_facts facts;
        enum client_verdict wanted;
    } rows[] = {
        { "200", { .status = 200 }, CLIENT_FINAL },
        { "204", { .status = 204 }, CLIENT_FINAL },
        { "301", { .status = 301 }, CLIENT_FINAL },
        { "400", { .status = 400 }, CLIENT_FINAL },
        { "401", { .status = 401 }, CLIENT_FINAL },
        { "404", { .status = 404 }, CLIENT_FINAL },
        { "408", { .status = 408 }, CLIENT_AGAIN },
        { "409", { .status = 409 }, CLIENT_FINAL },
        { "422", { .status = 422 }, CLIENT_FINAL },
        { "425", { .status = 425 }, CLIENT_AGAIN },
        { "429", { .status = 429 }, CLIENT_AGAIN },
        { "500", { .status = 500 }, CLIENT_AGAIN },
        { "503", { .status = 503 }, CLIENT_AGAIN },
        { "599", { .status = 599 }, CLIENT_AGAIN },
        { "409 in progress", { .status = 409, .problem.in_progress = true }, CLIENT_IN_PROGRESS },
        { "409 with Retry-After", { .status = 409, .retry_after = true }, CLIENT_IN_PROGRESS },
        { "409 retryable", { .status = 409, .problem.retryable = CLIENT_YES }, CLIENT_AGAIN },
        { "409 not retryable", { .status = 409, .retry_after = true, .problem.retryable = CLIENT_NO }, CLIENT_FINAL },
        { "503 not retryable", { .status = 503, .problem.retryable = CLIENT_NO }, CLIENT_FINAL },
        { "503 replayed", { .status = 503, .replayed = true }, CLIENT_FINAL },
        { "500 Stripe says no", { .status = 500, .should_retry = CLIENT_NO }, CLIENT_FINAL },
        { "402 Stripe says yes", { .status = 402, .should_retry = CLIENT_YES }, CLIENT_AGAIN },
        { "422 transient", { .status = 422, .transient = true }, CLIENT_AGAIN },
        { "422 mismatch", { .status = 422, .problem = { .mismatch = true } }, CLIENT_MISMATCH },
        { "400 mismatch, replayed", { .status = 400, .replayed = true, .problem.mismatch = true }, CLIENT_MISMATCH },
        { "502 unknown", { .status = 502, .outcome_unknown = true }, CLIENT_UNKNOWN },
        { "502 unknown by its code", { .status = 502, .problem.unknown = true }, CLIENT_UNKNOWN },
        { "unknown comes first",
          { .status = 503, .outcome_unknown = true, .replayed = true, .problem.retryable = CLIENT_YES },
          CLIENT_UNKNOWN },
        { "200 with Retry-After", { .status = 200, .retry_after = true, .transient = true }, CLIENT_FINAL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        EXPECT_ROW(rows[i].name, client_judge(&rows[i].facts) == rows[i].wanted);
}

static void facts__headers_in_any_case(void)
{
    struct client_facts f = { .status = 200 };
    client_facts_header(&f, ONCE_LIT("idempotency-replayed"), ONCE_LIT("true"));
    client_facts_header(&f, ONCE_LIT("TRANSIENT-ERROR"), ONCE_LIT("True"));
    client_facts_header(&f, ONCE_LIT("stripe-should-retry"), ONCE_LIT("false"));
    EXPECT(f.replayed && f.transient && f.should_retry == CLIENT_NO && !f.outcome_unknown);
    f = (struct client_facts){ .status = 200 };
    client_facts_header(&f, ONCE_LIT("Idempotent-Replayed"), ONCE_LIT("true"));
    client_facts_header(&f, ONCE_LIT("Idempotency-Outcome"), ONCE_LIT("unknown"));
    client_facts_header(&f, ONCE_LIT("Stripe-Should-Retry"), ONCE_LIT("perhaps"));
    EXPECT(f.replayed && f.outcome_unknown && f.should_retry == CLIENT_UNSAID);
    f = (struct client_facts){ .status = 200 };
    client_facts_header(&f, ONCE_LIT("Idempotency-Replayed"), ONCE_LIT("false"));
    client_facts_header(&f, ONCE_LIT("Idempotency-Outcome"), ONCE_LIT("known"));
    EXPECT(!f.replayed && !f.outcome_unknown);
}

static void problem__of_once_the_draft_and_others(void)
{
    static const struct {
        const char *body;
        bool problem;
        struct client_problem wanted;
    } rows[] = {
        { "{\"code\":\"in-progress\",\"retryable\":true}", true, { .retryable = CLIENT_YES, .in_progress = true } },
        { "{\"code\":\"key-reused\",\"retryable\":false}", true, { .retryable = CLIENT_NO, .mismatch = true } },
        { "{\"code\":\"outcome-unknown\",\"retryable\":false}", true, { .retryable = CLIENT_NO, .unknown = true } },
        { "{\"title\":\"A request is outstanding for this Idempotency-Key\"}",
          true,
          { .in_progress = true, .text = "A request is outstanding for this Idempotency-Key" } },
        { "{\"title\":\"Idempotency-Key is already used\"}",
          true,
          { .mismatch = true, .text = "Idempotency-Key is already used" } },
        /* the same words in other documents are somebody else's */
        { "{\"code\":\"in-progress\",\"retryable\":false}", false, { 0 } },
        { "{\"data\":{\"code\":\"in-progress\",\"retryable\":false}}", true, { 0 } },
        { "[{\"code\":\"in-progress\",\"retryable\":false}]", true, { 0 } },
        { "{\"retryable\":\"false\"}", true, { 0 } },
        /* Stripe */
        { "{\"error\":{\"type\":\"idempotency_error\",\"message\":\"Keys for ...\"}}",
          false,
          { .mismatch = true, .text = "Keys for ..." } },
        { "{\"error\":{\"code\":\"idempotency_key_in_use\"}}", false, { .in_progress = true } },
        { "{\"error\":\"idempotency_error\"}", false, { 0 } },
        /* PayPal */
        { "{\"name\":\"DUPLICATE_REQUEST_ID\"}", false, { .mismatch = true } },
        { "{\"name\":\"UNPROCESSABLE_ENTITY\",\"details\":[{\"issue\":\"X\"},{\"issue\":"
          "\"PAYPAL_REQUEST_ID_PREVIOUSLY_USED\"}],\"message\":\"no\\u0007\"}",
          false,
          { .mismatch = true, .text = "no " } },
        /* what breaks off says nothing, whatever its beginning says */
        { "{\"code\":\"in-progress\",\"retryable\":false", true, { 0 } },
        { "{\"retryable\":false} x", true, { 0 } },
        { "", true, { 0 } },
        { "nonsense", true, { 0 } },
        { "\"in-progress\"", true, { 0 } },
        { "[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]", true, { 0 } },
        { "{\"retryable\":false,\"x\":[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]}", true, { 0 } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct client_problem got;
        client_problem_read(once_span_str(rows[i].body), rows[i].problem, &got);
        EXPECT_ROW(rows[i].body, got.retryable == rows[i].wanted.retryable);
        EXPECT_ROW(rows[i].body, got.in_progress == rows[i].wanted.in_progress);
        EXPECT_ROW(rows[i].body, got.mismatch == rows[i].wanted.mismatch);
        EXPECT_ROW(rows[i].body, got.unknown == rows[i].wanted.unknown);
        EXPECT_ROW(rows[i].body, strcmp(got.text, rows[i].wanted.text) == 0);
    }
}

/* ------------------------------------------------------------------ keys, headers, URLs */

static void key__both_formats(void)
{
    static const struct {
        const char *key;
        enum once_client_format format;
        const char *value; /* NULL: refused */
    } rows[] = {
        { "abc", ONCE_CLIENT_FORMAT_SF, "\"abc\"" },
        { "abc", ONCE_CLIENT_FORMAT_BARE, "abc" },
        { "a\"b\\c", ONCE_CLIENT_FORMAT_SF, "\"a\\\"b\\\\c\"" },
        { "a,b;c", ONCE_CLIENT_FORMAT_SF, "\"a,b;c\"" },
        { "a\"b", ONCE_CLIENT_FORMAT_BARE, NULL },
        { "a,b", ONCE_CLIENT_FORMAT_BARE, NULL },
        { "a;b", ONCE_CLIENT_FORMAT_BARE, NULL },
        { "a\\b", ONCE_CLIENT_FORMAT_BARE, "a\\b" },
        { "", ONCE_CLIENT_FORMAT_SF, NULL },
        { "a b", ONCE_CLIENT_FORMAT_SF, NULL },
        { "a\nb", ONCE_CLIENT_FORMAT_SF, NULL },
        { "\xc3\xa4", ONCE_CLIENT_FORMAT_SF, NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        once_result r = client_key_check(once_span_str(rows[i].key), rows[i].format, NULL);
        EXPECT_ROW(rows[i].key, (r == ONCE_OK) == (rows[i].value != NULL));
        if (r != ONCE_OK || rows[i].value == NULL)
            continue;
        struct once_buf out;
        char key[ONCE_KEY_LEN_MAX + 1];
        size_t len;
        once_buf_init(&out, 1024);
        client_key_write(&out, once_span_str(rows[i].key), rows[i].format);
        EXPECT_ROW(rows[i].key, once_span_equal(once_buf_span(&out), once_span_str(rows[i].value)));
        /* and the gateway reads the same key */
        EXPECT_ROW(rows[i].key, once_key_parse(once_buf_span(&out), ONCE_KEY_LENIENT, key, &len, NULL) == ONCE_OK &&
                                    strcmp(key, rows[i].key) == 0);
        once_buf_release(&out);
    }
    char longest[ONCE_KEY_LEN_MAX + 2];
    memset(longest, 'k', sizeof longest);
    EXPECT(client_key_check(once_span_of(longest, ONCE_KEY_LEN_MAX), ONCE_CLIENT_FORMAT_SF, NULL) == ONCE_OK);
    EXPECT(client_key_check(once_span_of(longest, ONCE_KEY_LEN_MAX + 1), ONCE_CLIENT_FORMAT_SF, NULL) == ONCE_INVALID);
}

static void header__lines_that_are_refused(void)
{
    static const char *const bad[] = {
        "",
        "Name",
        ": value",
        "Na me: x",
        "Name : x",
        "A: b\r\nC:",
        "A: b\nC: d",
        "A: \x01",
        "idempotency-key: x",
        "Content-Length: 3",
        "Expect: x",
        "Connection: x",
        "Transfer-Encoding: chunked",
    };
    static const char *const good[] = { "A: b", "A:b", "A:", "A:   ", "Host: x", "X-\x21: caf\xc3\xa9", "A: b:c" };
    once_span name, value;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        EXPECT_ROW(bad[i], client_header_check(once_span_str(bad[i]), ONCE_LIT("Idempotency-Key"), &name, &value,
                                               NULL) == ONCE_INVALID);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        EXPECT_ROW(good[i], client_header_check(once_span_str(good[i]), ONCE_LIT("Idempotency-Key"), &name, &value,
                                                NULL) == ONCE_OK);
}

static void header__credentials_by_their_names(void)
{
    static const char *const secret[] = { "Authorization", "authorization", "Cookie",
                                          "X-Api-Key",     "apikey",        "X-Auth",
                                          "X-Shop-Token",  "X-Secret-1",    "Proxy-Authorization",
                                          "DPoP",          "X-Vault-Token", "X-Password",
                                          "X-Session-Id",  "X-Credential",  "Hub-Signature-256" };
    static const char *const open[] = { "Content-Type",    "Accept",   "X-Request-Id", "Prefer",
                                        "Idempotency-Key", "X-Tenant", "Host",         "traceparent" };
    for (size_t i = 0; i < sizeof secret / sizeof *secret; i++)
        EXPECT_ROW(secret[i], client_is_secret(once_span_str(secret[i])));
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        EXPECT_ROW(open[i], !client_is_secret(once_span_str(open[i])));
}

static void url__and_its_origin(void)
{
    static const struct {
        const char *url, *origin; /* NULL: refused */
    } rows[] = {
        { "http://a/", "http://a:80" },
        { "https://a", "https://a:443" },
        { "HTTPS://a/x?y=z", "https://a:443" },
        { "http://a:8080/x", "http://a:8080" },
        { "http://[::1]:1/", "http://[::1]:1" },
        { "http://user@a/", NULL },
        { "http://user:password@a/", NULL },
        { "http://", NULL },
        { "http:///x", NULL },
        { "ftp://a/", NULL },
        { "file:///etc/passwd", NULL },
        { "a/b", NULL },
        { "", NULL },
        { "http://a/ b", NULL },
        { "http://a/#b", NULL },
        { "http://a/\r\nX: y", NULL },
        { "http://a:99999/", NULL },
        { "http://a/caf\xc3\xa9", NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct once_buf origin;
        once_buf_init(&origin, 10000);
        once_result r = client_url_check(rows[i].url, &origin, NULL);
        EXPECT_ROW(rows[i].url, (r == ONCE_OK) == (rows[i].origin != NULL));
        if (r == ONCE_OK && rows[i].origin != NULL)
            EXPECT_ROW(rows[i].url, once_span_equal(once_buf_span(&origin), once_span_str(rows[i].origin)));
        once_buf_release(&origin);
    }
}

/* ------------------------------------------------------------------ what is saved */

static struct once_client_saved sample(void)
{
    return (struct once_client_saved){
        .created_at = THEN,
        .key = ONCE_LIT("order-17"),
        .key_header = ONCE_LIT("Idempotency-Key"),
        .format = ONCE_CLIENT_FORMAT_SF,
        .method = ONCE_LIT("POST"),
        .url = ONCE_LIT("https://pay.example/charges?x=1"),
        .headers = ONCE_LIT("Content-Type: application/json\r\nX-Empty: \r\n"),
        .withheld = ONCE_LIT("Authorization\n"),
        .body = ONCE_LIT("{\"eur\":25}\0with a NUL"),
    };
}

static void saved__is_read_as_it_was_written(void)
{
    struct once_client_saved in = sample(), out;
    struct once_buf bytes;
    once_buf_init(&bytes, ONCE_CLIENT_SAVED_LEN_MAX);
    CHECK(client_saved_write(&in, &bytes, NULL) == ONCE_OK);
    CHECK(once_client_saved_read(once_buf_span(&bytes), &out, NULL) == ONCE_OK);
    EXPECT(out.created_at == in.created_at && out.format == in.format);
    EXPECT(once_span_equal(out.key, in.key) && once_span_equal(out.key_header, in.key_header));
    EXPECT(once_span_equal(out.method, in.method) && once_span_equal(out.url, in.url));
    EXPECT(once_span_equal(out.headers, in.headers) && once_span_equal(out.withheld, in.withheld));
    EXPECT(once_span_equal(out.body, in.body));
    once_buf_release(&bytes);
}

/* SAVED-1: cut off anywhere, and with any bit turned, it is none. */
static void saved__damage_is_seen(void)
{
    struct once_client_saved in = sample(), out;
    struct once_buf bytes;
    once_buf_init(&bytes, ONCE_CLIENT_SAVED_LEN_MAX);
    CHECK(client_saved_write(&in, &bytes, NULL) == ONCE_OK);
    for (size_t len = 0; len < bytes.len; len++) {
        uint8_t *cut = malloc(len > 0 ? len : 1); /* so that a sanitizer sees the end */
        CHECK(cut != NULL);
        memcpy(cut, bytes.ptr, len);
        EXPECT(once_client_saved_read(once_span_of(cut, len), &out, NULL) == ONCE_CORRUPT);
        free(cut);
    }
    for (size_t bit = 0; bit < 8 * bytes.len; bit++) {
        bytes.ptr[bit / 8] ^= (uint8_t)(1 << bit % 8);
        EXPECT(once_client_saved_read(once_buf_span(&bytes), &out, NULL) == ONCE_CORRUPT);
        bytes.ptr[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    once_buf_release(&bytes);
}

/* SAVED-2 */
static void saved__what_is_no_request_is_refused(void)
{
    struct once_buf bytes;
    once_buf_init(&bytes, ONCE_CLIENT_SAVED_LEN_MAX);
#define REFUSED(field, ...)                                                                                            \
    do {                                                                                                               \
        struct once_client_saved s = sample();                                                                         \
        s.field = __VA_ARGS__;                                                                                         \
        EXPECT_ROW(#field, client_saved_write(&s, &bytes, NULL) != ONCE_OK);                                           \
    } while (0)
    REFUSED(method, ONCE_LIT(""));
    REFUSED(method, ONCE_LIT("PO ST"));
    REFUSED(method, ONCE_LIT("CONNECT"));
    REFUSED(method, ONCE_LIT("POST\r\nX: y"));
    REFUSED(url, ONCE_LIT(""));
    REFUSED(url, ONCE_LIT("http://a/\0b"));
    REFUSED(key, ONCE_LIT(""));
    REFUSED(key, ONCE_LIT("a\r\nX: y"));
    REFUSED(key_header, ONCE_LIT(""));
    REFUSED(key_header, ONCE_LIT("X: y\r\nZ"));
    REFUSED(headers, ONCE_LIT("A: b"));
    REFUSED(headers, ONCE_LIT("A: b\n"));
    REFUSED(headers, ONCE_LIT("A: b\r\n\r\n"));
    REFUSED(headers, ONCE_LIT("Idempotency-Key: b\r\n"));
    REFUSED(withheld, ONCE_LIT("A"));
    REFUSED(withheld, ONCE_LIT("A b\n"));
    REFUSED(format, ONCE_CLIENT_FORMAT_DEFAULT);
    REFUSED(format, (enum once_client_format)3);
#undef REFUSED
    struct once_client_saved s = sample();
    s.body.len = ONCE_CLIENT_BODY_LEN_MAX + 1;
    EXPECT(client_saved_write(&s, &bytes, NULL) == ONCE_LIMIT);
    once_buf_release(&bytes);
}

/* ------------------------------------------------------------------ the public calls, as far as nothing is sent */

static once_result refuse_to_save(void *arg, once_span key, once_span saved, struct once_error *err)
{
    struct once_client_saved read;
    char *seen = arg;
    if (once_client_saved_read(saved, &read, err) == ONCE_OK && once_span_equal(key, read.key))
        snprintf(seen, ONCE_KEY_LEN_MAX + 1, "%.*s|%.*s|%.*s", ONCE_SPAN_ARGS(read.key), ONCE_SPAN_ARGS(read.headers),
                 ONCE_SPAN_ARGS(read.withheld));
    err->result = ONCE_BUSY;
    return ONCE_BUSY;
}

/* CLIENT-1: the URL would be refused by every resolver, and is not even asked for. */
static void send__nothing_before_it_is_saved(void)
{
    char seen[ONCE_KEY_LEN_MAX + 1] = "";
    struct once_client_options options = { .save = refuse_to_save, .save_arg = seen };
    struct once_client *client = NULL;
    struct once_client_answer answer;
    struct once_error err;
    once_span headers[] = { ONCE_LIT("A:  b "), ONCE_LIT("Authorization: secret") };
    struct once_client_request request = { .method = ONCE_LIT("POST"),
                                           .url = "http://nowhere.invalid/",
                                           .headers = headers,
                                           .header_count = 2,
                                           .key = ONCE_LIT("k") };
    CHECK(once_client_open(&options, &client, &err) == ONCE_OK);
    EXPECT(once_client_send(client, &request, &answer, &err) == ONCE_BUSY);
    EXPECT(answer.end == ONCE_CLIENT_END_NONE && answer.tries == 0);
    EXPECT(strcmp(seen, "k|A: b\r\n|Authorization\n") == 0);
    once_client_answer_release(&answer);
    once_client_close(client);
}

static void open__refuses_what_is_no_option(void)
{
    struct once_client *client = NULL;
    static const struct once_client_options bad[] = {
        { .key_header = "" },
        { .key_header = "A b" },
        { .key_header = "A:" },
        { .format = (enum once_client_format)7 },
        { .tries = ONCE_CLIENT_TRIES_MAX + 1 },
        { .max_time_ms = -1 },
        { .try_ms = ONCE_CLIENT_TIME_MS_MAX + 1 },
        { .backoff_ms = -1 },
        { .answer_len_max = (size_t)ONCE_CLIENT_ANSWER_LEN_MAX + 1 },
        { .stop_fd = -1 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        EXPECT(once_client_open(&bad[i], &client, NULL) == ONCE_INVALID);
        EXPECT(client == NULL);
    }
    once_client_close(NULL);
}

static void resume__asks_for_what_was_withheld_and_no_more(void)
{
    struct once_client_saved in = sample();
    struct once_buf bytes;
    struct once_client *client = NULL;
    struct once_client_answer answer;
    struct once_error err;
    struct once_client_options options = { .tries = 1, .max_time_ms = 1000 };
    in.url = ONCE_LIT("http://127.0.0.1:1/"); /* nobody listens there */
    once_buf_init(&bytes, ONCE_CLIENT_SAVED_LEN_MAX);
    CHECK(client_saved_write(&in, &bytes, NULL) == ONCE_OK);
    CHECK(once_client_open(&options, &client, NULL) == ONCE_OK);
    once_span none[1] = { ONCE_LIT("Authorization: x") }, more[2] = { none[0], ONCE_LIT("X-New: y") };
    EXPECT(once_client_resume(client, once_buf_span(&bytes), NULL, 0, &answer, &err) == ONCE_INVALID &&
           strstr(err.text, "'Authorization' was not saved") != NULL);
    EXPECT(once_client_resume(client, once_buf_span(&bytes), more, 2, &answer, &err) == ONCE_INVALID &&
           strstr(err.text, "'X-New' cannot be added") != NULL);
    EXPECT(once_client_resume(client, once_buf_span(&bytes), none, 1, &answer, &err) == ONCE_OK &&
           answer.end == ONCE_CLIENT_NOT_REACHED && strcmp(answer.key, "order-17") == 0);
    once_client_answer_release(&answer);
    once_client_close(client);
    once_buf_release(&bytes);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(retry_after__seconds_and_dates),
        TEST(wait__full_jitter_doubles_up_to_its_ceiling),
        TEST(wait__never_before_retry_after),
        TEST(judge__every_rule_in_its_order),
        TEST(facts__headers_in_any_case),
        TEST(problem__of_once_the_draft_and_others),
        TEST(key__both_formats),
        TEST(header__lines_that_are_refused),
        TEST(header__credentials_by_their_names),
        TEST(url__and_its_origin),
        TEST(saved__is_read_as_it_was_written),
        TEST(saved__damage_is_seen),
        TEST(saved__what_is_no_request_is_refused),
        TEST(send__nothing_before_it_is_saved),
        TEST(open__refuses_what_is_no_option),
        TEST(resume__asks_for_what_was_withheld_and_no_more),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
