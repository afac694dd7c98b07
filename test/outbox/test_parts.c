/* test_parts.c - signatures, routes, URLs of brokers, messages under way, by themselves. */
#include "core/span.h"
#include "messages/brokers/amqp_url.h"
#include "messages/brokers/headers.h"
#include "messages/brokers/kafka_conf.h"
#include "messages/relay.h"
#include "messages/sinks/flight.h"
#include "messages/sinks/signature.h"

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

/* "HOST PORT VHOST EXCHANGE KEY", or what is wrong. */
static void amqp_url__taken_apart(void)
{
    static const struct {
        const char *url, *expected;
    } rows[] = {
        { "amqp://h", "h 5672 / () ()" },
        { "amqps://h", "h 5671 / () ()" },
        { "amqp://h/", "h 5672 / () ()" },
        { "amqp://h:1/v%2Fw?exchange=a%20b&routing-key=k", "h 1 v/w (a b) (k)" },
        { "amqp://[::1]:77/%2f", "::1 77 / () ()" },
        { "amqp://[::1]", "::1 5672 / () ()" },
        { "amqp://h?routing-key=k", "h 5672 / () (k)" },
        { "amqp://", NULL },
        { "amqp:/h", NULL },
        { "amqp://h:", NULL },
        { "amqp://h:0", NULL },
        { "amqp://h:65536", NULL },
        { "amqp://h:99999999999999999999", NULL },
        { "amqp://[::1", NULL },
        { "amqp://[::1]x", NULL },
        { "amqp://[::1]:", NULL },
        { "amqp://u:p@h", NULL },
        { "amqp://h/a/b", NULL },
        { "amqp://h/%", NULL },
        { "amqp://h/%4", NULL },
        { "amqp://h/%zz", NULL },
        { "amqp://h/%00", NULL },
        { "amqp://h?exchange=", NULL },
        { "amqp://h?exchange=a&exchange=b", NULL },
        { "amqp://h?queue=a", NULL },
        { "amqp://h h", NULL },
        { "amqp://h#f", NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct amqp_url u;
        char text[1200];
        const char *fault = amqp_url_parse(rows[i].url, &u);
        snprintf(text, sizeof text, "%s %d %s (%s) (%s)", u.host, u.port, u.vhost, u.exchange, u.routing_key);
        EXPECT_ROW(rows[i].url, (fault != NULL) == (rows[i].expected == NULL));
        if (fault == NULL && rows[i].expected != NULL)
            EXPECT_ROW(rows[i].url, strcmp(text, rows[i].expected) == 0);
    }
}

static void amqp_url__names_end_at_255(void)
{
    char url[400];
    struct amqp_url u;
    for (int len = 254; len <= 257; len++) {
        snprintf(url, sizeof url, "amqp://h/%0*d", len, 7);
        EXPECT((amqp_url_parse(url, &u) == NULL) == (len <= 255));
    }
}

static void kafka_url__taken_apart(void)
{
    static const struct {
        const char *url, *hosts, *topic;
    } rows[] = {
        { "kafka://h", "h", "" },          { "kafkas://a:1,b,[::1]:3/orders.x", "a:1,b,[::1]:3", "orders.x" },
        { "kafka://h/", NULL, NULL },      { "kafka://", NULL, NULL },
        { "kafka://a,", NULL, NULL },      { "kafka://,a", NULL, NULL },
        { "kafka://a:0", NULL, NULL },     { "kafka://a:x", NULL, NULL },
        { "kafka://a:65536", NULL, NULL }, { "kafka://[::1", NULL, NULL },
        { "kafka://u@h", NULL, NULL },     { "kafka://h/..", NULL, NULL },
        { "kafka://h/a/b", NULL, NULL },   { "kafka://h/a?b", NULL, NULL },
        { "kafka:h", NULL, NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct kafka_url u;
        const char *fault = kafka_url_parse(rows[i].url, &u);
        EXPECT_ROW(rows[i].url, (fault != NULL) == (rows[i].hosts == NULL));
        if (fault == NULL && rows[i].hosts != NULL)
            EXPECT_ROW(rows[i].url, strcmp(u.hosts, rows[i].hosts) == 0 && strcmp(u.topic, rows[i].topic) == 0);
    }
}

static void kafka_settings__none_that_a_promise_rests_on(void)
{
    static const char *const never[] = { "acks",
                                         "request.required.acks",
                                         "enable.idempotence",
                                         "enable.ssl.certificate.verification",
                                         "ssl.endpoint.identification.algorithm",
                                         "security.protocol",
                                         "bootstrap.servers",
                                         "message.timeout.ms",
                                         "delivery.timeout.ms",
                                         "transactional.id",
                                         "partitioner",
                                         "plugin.library.paths",
                                         "max.in.flight",
                                         "" };
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        EXPECT_ROW(never[i], !kafka_setting_is_allowed(once_span_str(never[i])));
    EXPECT(kafka_setting_is_allowed(ONCE_LIT("sasl.password")));
}

static void headers__one_after_the_other(void)
{
    once_span lines = ONCE_LIT("a: 1\r\nno header\r\n: x\r\nB:\r\nc:  2: 3"), name, value;
    static const char *const expected[][2] = { { "a", "1" }, { "B", "" }, { "c", "2: 3" } };
    for (size_t i = 0; i < 3; i++) {
        CHECK(headers_next(&lines, &name, &value));
        EXPECT(once_span_equal(name, once_span_str(expected[i][0])) &&
               once_span_equal(value, once_span_str(expected[i][1])));
    }
    EXPECT(!headers_next(&lines, &name, &value));
    EXPECT(headers_name_is(ONCE_LIT("Cc"), "cc") && !headers_name_is(ONCE_LIT("ccc"), "cc"));
    EXPECT(headers_name_starts(ONCE_LIT("Once-X"), "once-") && !headers_name_starts(ONCE_LIT("Once"), "once-"));
}

/* Only whole lines that are one header each, and no more than there is room for. */
static void headers__what_is_no_line_is_left_out(void)
{
    struct once_buf lines;
    once_buf_init(&lines, 16);
    headers_add(&lines, ONCE_LIT("a"), ONCE_LIT("1"));
    headers_add(&lines, ONCE_LIT(""), ONCE_LIT("1"));
    headers_add(&lines, ONCE_LIT("b:"), ONCE_LIT("1"));
    headers_add(&lines, ONCE_LIT("b c"), ONCE_LIT("1"));
    headers_add(&lines, ONCE_LIT("b\n"), ONCE_LIT("1"));
    headers_add(&lines, ONCE_LIT("b"), ONCE_LIT("1\r\nc: 2"));
    headers_add(&lines, ONCE_LIT("b"), ONCE_LIT("1\0"));
    headers_add(&lines, ONCE_LIT("b"), ONCE_LIT("123456")); /* 17 bytes */
    EXPECT(once_span_equal(once_buf_span(&lines), ONCE_LIT("a: 1\r\n")));
    headers_add(&lines, ONCE_LIT("b"), ONCE_LIT("1 : 2")); /* 16 */
    EXPECT(once_span_equal(once_buf_span(&lines), ONCE_LIT("a: 1\r\nb: 1 : 2\r\n")) && lines.result == ONCE_OK);
    once_buf_release(&lines);
}

/* ------------------------------------------------------------------ messages under way */

struct verdict {
    const struct message *message;
    enum sink_result result;
};
static struct verdict said[8];
static size_t said_count;

static void note(void *arg, const struct message *message, enum sink_result result, int64_t retry_after_ms,
                 const char *reason)
{
    (void)arg, (void)retry_after_ms, (void)reason;
    said[said_count++] = (struct verdict){ message, result };
}

/* Three are sent together and refused together: each goes again alone, and only one that is refused alone is. */
static void flights__an_innocent_is_not_refused(void)
{
    struct message m[3] = { { .id = "a" }, { .id = "b" }, { .id = "c" } };
    struct sink sink = { .options = { .done = note }, .busy = 3 };
    struct flights f;
    struct flight *slots[3];
    said_count = 0;
    CHECK(flights_init(&f, 3, SIZE_MAX));
    for (size_t i = 0; i < 3; i++) {
        CHECK(flights_have_room(&f, &m[i]));
        flights_add(&f, &m[i], 100);
        slots[i] = flights_next(&f);
        CHECK(slots[i] != NULL);
        flights_sent(&f, slots[i], i + 1);
    }
    EXPECT(!flights_have_room(&f, &m[0]));
    for (size_t i = 0; i < 3; i++)
        flights_refuse(&f, slots[i], "no");
    EXPECT(f.sent == 0 && f.waiting == 3 && f.ended == 0);
    for (size_t i = 0; i < 3; i++) {
        struct flight *one = flights_next(&f);
        CHECK(one == slots[i]);
        flights_sent(&f, one, 10 + i);
        EXPECT(flights_next(&f) == NULL && !flights_have_room(&f, &m[0])); /* nothing beside it */
        if (i == 1)
            flights_refuse(&f, one, "no");
        else
            flights_end(&f, one, SINK_CONFIRMED, "%s", "");
    }
    flights_report(&f, &sink);
    EXPECT(said_count == 3 && sink.busy == 0 && f.ended == 0);
    for (size_t i = 0; i < 3; i++)
        EXPECT(said[i].message == &m[i] && said[i].result == (i == 1 ? SINK_REFUSED : SINK_CONFIRMED));
    flights_release(&f);
}

static void flights__everything_ends_in_time(void)
{
    struct message m[3] = { { .id = "a" }, { .id = "b", .refusals = 3 }, { .id = "c" } };
    struct sink sink = { .options = { .done = note }, .busy = 2 };
    struct flights f;
    said_count = 0;
    CHECK(flights_init(&f, 3, SIZE_MAX));
    flights_sent(&f, flights_add(&f, &m[0], 100), 1);
    flights_add(&f, &m[1], 100);
    EXPECT(flights_next(&f) == NULL);      /* it was refused before, and has to be alone */
    EXPECT(!flights_have_room(&f, &m[2])); /* and is not kept waiting by others */
    flights_expire(&f, 99, 0);
    EXPECT(f.ended == 0);
    flights_expire(&f, 100, 0);
    flights_report(&f, &sink);
    CHECK(said_count == 2);
    EXPECT(said[0].result == SINK_REFUSED);   /* it was sent: nobody knows */
    EXPECT(said[1].result == SINK_UNREACHED); /* it was not */
    EXPECT(f.sent == 0 && f.waiting == 0 && f.bytes == 0 && sink.busy == 0);
    flights_release(&f);
}

/* Everything stood still for long after the deadlines: whoever knows what became of the first has its time to say so.
 */
static void flights__what_was_sent_is_not_guessed_at_after_a_standstill(void)
{
    struct message m[4] = { { .id = "a" }, { .id = "b" }, { .id = "c", .refusals = 3 }, { .id = "d" } };
    struct sink sink = { .options = { .done = note }, .busy = 4 };
    struct flights f;
    struct flight *slots[2];
    said_count = 0;
    CHECK(flights_init(&f, 4, SIZE_MAX));
    for (size_t i = 0; i < 2; i++) {
        slots[i] = flights_add(&f, &m[i], 100);
        flights_sent(&f, slots[i], i + 1);
    }
    flights_add(&f, &m[2], 100);
    struct flight *refused = flights_add(&f, &m[3], 100);
    flights_sent(&f, refused, 3);
    flights_expire(&f, 9000, 5);
    flights_report(&f, &sink);
    EXPECT(said_count == 1 && said[0].message == &m[2] &&
           said[0].result == SINK_UNREACHED); /* not sent: nothing to learn */
    flights_refuse(&f, refused, "no");
    flights_report(&f, &sink);
    EXPECT(said_count == 2 && said[1].message == &m[3] &&
           said[1].result == SINK_UNREACHED); /* it is too late to send it again */
    flights_expire(&f, 9004, 5);
    CHECK(f.sent == 2 && f.ended == 0);
    flights_end(&f, slots[0], SINK_UNREACHED, "not sent");
    flights_expire(&f, 9005, 5); /* once only */
    flights_report(&f, &sink);
    CHECK(said_count == 4);
    EXPECT(said[2].message == &m[0] && said[2].result == SINK_UNREACHED);
    EXPECT(said[3].message == &m[1] && said[3].result == SINK_REFUSED);
    EXPECT(f.sent == 0 && sink.busy == 0);
    flights_release(&f);
}

static void flights__bytes_have_a_bound_but_one_always_goes(void)
{
    static const uint8_t bytes[100];
    struct message large = { .id = "a", .payload = { bytes, 100 } }, small = { .id = "b", .payload = { bytes, 5 } };
    struct flights f;
    CHECK(flights_init(&f, 4, 10));
    EXPECT(flights_have_room(&f, &large));
    flights_sent(&f, flights_add(&f, &large, 1), 1);
    EXPECT(!flights_have_room(&f, &small));
    flights_end(&f, &f.slots[0], SINK_CONFIRMED, "%s", "");
    EXPECT(flights_have_room(&f, &small));
    flights_sent(&f, flights_add(&f, &small, 1), 2);
    EXPECT(flights_have_room(&f, &small) && !flights_have_room(&f, &large));
    flights_release(&f);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(signature__is_that_of_standard_webhooks),
        TEST(signature__one_per_key),
        TEST(signature__keys_that_are_none),
        TEST(route__the_first_that_matches),
        TEST(amqp_url__taken_apart),
        TEST(amqp_url__names_end_at_255),
        TEST(kafka_url__taken_apart),
        TEST(kafka_settings__none_that_a_promise_rests_on),
        TEST(headers__one_after_the_other),
        TEST(headers__what_is_no_line_is_left_out),
        TEST(flights__an_innocent_is_not_refused),
        TEST(flights__everything_ends_in_time),
        TEST(flights__what_was_sent_is_not_guessed_at_after_a_standstill),
        TEST(flights__bytes_have_a_bound_but_one_always_goes),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
