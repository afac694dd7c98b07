/* test_message_id.c - which id a message is known by, by itself. */
#include "messages/message_id.h"

#include "core/span.h"

#include "../test.h"

static bool find(const char *rule_text, const struct incoming *m, char id[ONCE_KEY_LEN_MAX + 1])
{
    struct message_id_rule rule;
    size_t len = 0;
    bool dead;
    CHECK(message_id_parse(rule_text, &rule) == NULL);
    bool found = message_id_find(&rule, 1, m, id, &len, &dead);
    EXPECT(!found || strlen(id) == len);
    return found;
}

static void rules__are_read(void)
{
    static const struct {
        const char *text;
        bool good;
    } rows[] = {
        { "header", true },       { "header:X-Id", true }, { "position", true },   { "json:/a", true },
        { "json:/a~1b/0", true }, { "", false },           { "Header", false },    { "header:", false },
        { "header:a b", false },  { "header:a:b", false }, { "json:", false },     { "json:a", false },
        { "json:/a~2", false },   { "json:/a~", false },   { "positions", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct message_id_rule rule;
        EXPECT_ROW(rows[i].text, (message_id_parse(rows[i].text, &rule) == NULL) == rows[i].good);
    }
}

static void json__is_not_nested_without_end(void)
{
    enum { DEEP = 500000 };
    static char text[2 * DEEP];
    char id[ONCE_KEY_LEN_MAX + 1];
    memset(text, '[', DEEP);
    memset(text + DEEP, ']', DEEP);
    EXPECT(!find("json:/0", &(struct incoming){ .message.payload = once_span_of(text, sizeof text) }, id));
    static const char brackets[] = "{\"a\": \"[[[[\\\"[[[[\", \"b\": 7}";
    EXPECT(find("json:/b", &(struct incoming){ .message.payload = ONCE_LIT(brackets) }, id) && strcmp(id, "7") == 0);
}

static void json__finds_strings_and_numbers(void)
{
    static const struct {
        const char *name, *payload, *pointer, *id;
    } rows[] = {
        { "string", "{\"a\": \"x\"}", "json:/a", "x" },
        { "number as written", "{\"a\": 1.50}", "json:/a", "1.50" },
        { "large number", "{\"a\": 12345678901234567890}", "json:/a", "12345678901234567890" },
        { "deeper", "{\"a\": {\"b\": [7, {\"c\": \"y\"}]}}", "json:/a/b/1/c", "y" },
        { "escaped", "{\"a/b\": {\"~\": \"z\"}}", "json:/a~1b/~0", "z" },
        { "a number that is a name", "{\"0\": \"n\"}", "json:/0", "n" },
        { "no such member", "{\"a\": 1}", "json:/b", NULL },
        { "beyond the end", "[1]", "json:/1", NULL },
        { "no index", "[1]", "json:/00", NULL },
        { "true", "{\"a\": true}", "json:/a", NULL },
        { "null", "{\"a\": null}", "json:/a", NULL },
        { "an object", "{\"a\": {}}", "json:/a", NULL },
        { "empty", "{\"a\": \"\"}", "json:/a", NULL },
        { "a prefix of a name", "{\"ab\": 1}", "json:/a", NULL },
        { "longer than a name", "{\"a\": 1}", "json:/ab", NULL },
        { "no JSON", "{\"a\": ", "json:/a", NULL },
        { "nothing", "", "json:/a", NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char id[ONCE_KEY_LEN_MAX + 1] = "";
        struct incoming m = { .message.payload = once_span_str(rows[i].payload) };
        bool found = find(rows[i].pointer, &m, id);
        EXPECT_ROW(rows[i].name, found == (rows[i].id != NULL) && (!found || strcmp(id, rows[i].id) == 0));
    }
}

static void headers__and_the_rest(void)
{
    char id[ONCE_KEY_LEN_MAX + 1], other[ONCE_KEY_LEN_MAX + 1], text[600];
    struct incoming m = { .message.headers = ONCE_LIT("A: 1\r\nx-id:  two\r\nEmpty: \r\n"),
                          .broker_id = ONCE_LIT("own"),
                          .position = "t/0/1" };
    CHECK(find("header:X-Id", &m, id) && strcmp(id, "two") == 0);
    CHECK(find("header", &m, id) && strcmp(id, "own") == 0);
    CHECK(find("position", &m, id) && strcmp(id, "t/0/1") == 0);
    CHECK(!find("header:Empty", &m, id) && !find("header:None", &m, id));
    memset(text, 'x', sizeof text);
    m.broker_id = once_span_of(text, 255);
    CHECK(find("header", &m, id) && strlen(id) == 255);
    m.broker_id = once_span_of(text, 256); /* too long: by its digest, and two that differ stay two */
    CHECK(find("header", &m, id) && strlen(id) == 7 + 64);
    m.broker_id = once_span_of(text, 257);
    CHECK(find("header", &m, other) && strcmp(id, other) != 0);
}

static void dead_letters__keep_their_ids(void)
{
    struct message_id_rule rule;
    char id[ONCE_KEY_LEN_MAX + 1];
    size_t len;
    bool dead;
    struct incoming m = { .message.headers = ONCE_LIT("dead-letter-id: a%20b%25%4\r\n"), .broker_id = ONCE_LIT("own") };
    CHECK(message_id_parse("header", &rule) == NULL);
    CHECK(message_id_find(&rule, 1, &m, id, &len, &dead) && dead && strcmp(id, "a b%%4") == 0);
    m.message.headers = ONCE_LIT("A: 1\r\n");
    CHECK(message_id_find(&rule, 1, &m, id, &len, &dead) && !dead && strcmp(id, "own") == 0);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(rules__are_read),       TEST(json__is_not_nested_without_end), TEST(json__finds_strings_and_numbers),
        TEST(headers__and_the_rest), TEST(dead_letters__keep_their_ids),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
