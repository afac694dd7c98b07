/* test_url.c - what of a URL may be told: nothing that may be a password or a token. */
#include "core/http/url.h"

#include "../test.h"

#include <string.h>

static const struct {
    const char *url, *shown, *scheme;
} rows[] = {
    { "https://h/v1/traces", "https://h/v1/traces", "https://..." },
    { "https://u:SECRET@h/p", "https://...@h/p", "https://..." },
    { "https://SECRET@h", "https://...@h", "https://..." },
    { "https://u:SEC@RET@h/p", "https://...@h/p", "https://..." },
    { "https://u:SEC/RET@h/p", "https://...@h/p", "https://..." },
    { "https://u:SEC#RET@h/p", "https://...", "https://..." },
    { "https://h/p#token=SECRET", "https://h/p?...", "https://..." },
    { "https://u:SEC:RET@h/p", "https://...@h/p", "https://..." },
    { "https://u:SEC?RET@h/p", "https://...", "https://..." },
    { "https://h/p?token=SECRET", "https://h/p?...", "https://..." },
    { "https://h/p?token=SEC@RET", "https://...", "https://..." },
    { "https://u:SECRET@h/p?token=SECRET", "https://...@h/p?...", "https://..." },
    { "redis+unix:/run/redis.sock", "redis+unix:/run/redis.sock", "redis+unix:..." },
    { "u:SECRET@h", "...@h", "u:..." },
    { "SECRET@h", "...@h", "..." },
    { "//u:SECRET@h", "...@h", "..." },
    { "a b://u:SECRET@h", "...", "..." },
    { "host=h password=SECRET", "...", "..." },
    { "orders.db", "orders.db", "..." },
    { "", "", "..." },
};

static void expect_text(const char *row, const char *want, const char *got)
{
    if (strcmp(want, got) != 0) {
        printf("# wanted: %s\n# got:    %s\n", want, got);
        test_failed(__FILE__, __LINE__, row, "the text differs");
    }
}

static void url__is_shown_without_what_may_be_secret(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[ONCE_URL_SHOWN_LEN];
        once_url_shown(rows[i].url, out);
        expect_text(rows[i].url, rows[i].shown, out);
    }
}

static void url__scheme_alone(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[ONCE_URL_SHOWN_LEN];
        once_url_scheme(rows[i].url, out);
        expect_text(rows[i].url, rows[i].scheme, out);
    }
}

static void url__long_ones_are_cut(void)
{
    char url[3000] = "https://", out[ONCE_URL_SHOWN_LEN];
    memset(url + 8, 'x', sizeof url - 9);
    once_url_shown(url, out);
    EXPECT(strlen(out) == ONCE_URL_SHOWN_LEN - 1);
    memset(url, 'x', 8);
    url[2000] = ':';
    once_url_scheme(url, out);
    expect_text("a scheme of 2000 bytes", "...", out);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(url__is_shown_without_what_may_be_secret),
        TEST(url__scheme_alone),
        TEST(url__long_ones_are_cut),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
