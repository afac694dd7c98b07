/*
 * test_resend.c - stored requests: what is written is read, and nothing else is (RESEND-1, RESEND-2).
 */
#include "core/http/resend.h"
#include "core/span.h"

#include "../guard.h"
#include "../test.h"

static struct once_resend sample(void)
{
    struct once_resend r = { .upstream = ONCE_LIT("app"),
                             .method = ONCE_LIT("POST"),
                             .target = ONCE_LIT("/orders?x=1"),
                             .headers = ONCE_LIT("Content-Type: application/json\r\nX-Empty:\r\n"),
                             .kept = ONCE_LIT("Content-Type\nETag\n"),
                             .body = ONCE_LIT("{\"a\":\0"
                                              "1}"),
                             .max_response = 1 << 20,
                             .needs_identity = true };
    r.final[201 / 8] |= 1 << 201 % 8;
    return r;
}

static once_result read_back(const struct once_resend *in, struct once_resend *out, struct once_buf *buf)
{
    struct once_error err = { .result = ONCE_OK };
    once_buf_clear(buf);
    once_resend_put(buf, in);
    once_result r = once_resend_get(once_buf_span(buf), out, &err);
    EXPECT(r == ONCE_OK || (r == ONCE_INVALID && err.text[0] != '\0'));
    return r;
}

static void resend__arrives_with_all_its_fields(void)
{
    struct once_buf buf;
    once_buf_init(&buf, ONCE_REQUEST_LEN_MAX);
    struct once_resend in = sample(), out;
    CHECK(read_back(&in, &out, &buf) == ONCE_OK);
    EXPECT(once_span_equal(in.upstream, out.upstream) && once_span_equal(in.method, out.method) &&
           once_span_equal(in.target, out.target) && once_span_equal(in.headers, out.headers) &&
           once_span_equal(in.kept, out.kept) && once_span_equal(in.body, out.body));
    EXPECT(out.max_response == 1 << 20);
    for (int flags = 0; flags < 16; flags++) {
        in.needs_identity = (flags & 1) != 0;
        in.identity = (flags & 2) != 0;
        in.probe = (flags & 4) != 0 ? ONCE_LIT("/orders/by-key/17?full=1") : ONCE_LIT("");
        in.partial = (flags & 8) != 0;
        in.body = in.partial ? ONCE_LIT("") : ONCE_LIT("{}");
        bool good = !in.partial || in.probe.len > 0;
        CHECK(read_back(&in, &out, &buf) == (good ? ONCE_OK : ONCE_INVALID));
        EXPECT(out.needs_identity == in.needs_identity && out.identity == in.identity);
        EXPECT(!good || (out.partial == in.partial && once_span_equal(out.probe, in.probe)));
    }
    in.partial = true;
    in.body = ONCE_LIT("x");
    EXPECT(read_back(&in, &out, &buf) == ONCE_INVALID);
    in = sample();
    CHECK(read_back(&in, &out, &buf) == ONCE_OK);
    buf.ptr[3] = 16;
    EXPECT(once_resend_get(once_buf_span(&buf), &out, NULL) == ONCE_INVALID);
    buf.ptr[3] = 4; /* says that there is one more */
    EXPECT(once_resend_get(once_buf_span(&buf), &out, NULL) == ONCE_INVALID);
    CHECK(read_back(&in, &out, &buf) == ONCE_OK);
    EXPECT(once_resend_is_final(&out, 201) && !once_resend_is_final(&out, 200) && !once_resend_is_final(&out, 600) &&
           !once_resend_is_final(&out, -1));
    once_span lines = out.headers, name, value;
    CHECK(once_header_line(&lines, &name, &value));
    EXPECT(once_span_equal(name, ONCE_LIT("Content-Type")) && once_span_equal(value, ONCE_LIT("application/json")));
    CHECK(once_header_line(&lines, &name, &value));
    EXPECT(once_span_equal(name, ONCE_LIT("X-Empty")) && value.len == 0);
    EXPECT(!once_header_line(&lines, &name, &value));
    once_buf_release(&buf);
}

static void resend__cut_anywhere_or_longer_is_refused(void)
{
    struct once_buf buf;
    once_buf_init(&buf, ONCE_REQUEST_LEN_MAX);
    struct once_resend in = sample(), out;
    in.probe = ONCE_LIT("/a/.../..b/c..%2Fd.?x=/../"); /* dots that lead nowhere */
    CHECK(read_back(&in, &out, &buf) == ONCE_OK);
    once_buf_clear(&buf);
    once_resend_put(&buf, &in);
    for (size_t len = 0; len < buf.len; len++) {
        struct guard guard;
        once_span bytes = guard_copy(&guard, buf.ptr, len);
        EXPECT(once_resend_get(bytes, &out, NULL) == ONCE_INVALID);
        guard_release(&guard);
    }
    once_buf_add_byte(&buf, 0);
    EXPECT(once_resend_get(once_buf_span(&buf), &out, NULL) == ONCE_INVALID);
    once_buf_release(&buf);
}

/* RESEND-1, RESEND-2: whoever wrote it. */
static void resend__what_must_not_be_sent_is_refused(void)
{
    static const struct {
        const char *name;
        enum { HEADERS, TARGET, METHOD, UPSTREAM, KEPT, PROBE } field;
        once_span value;
    } rows[] = {
        { "credentials", HEADERS, ONCE_LIT("authorization: Bearer x\r\n") },
        { "cookies", HEADERS, ONCE_LIT("A: b\r\nCookie: x\r\n") },
        { "an API key", HEADERS, ONCE_LIT("X-API-Key: x\r\n") },
        { "a hop's header", HEADERS, ONCE_LIT("Transfer-Encoding: chunked\r\n") },
        { "a length", HEADERS, ONCE_LIT("Content-Length: 3\r\n") },
        { "our own", HEADERS, ONCE_LIT("Once-Key: x\r\n") },
        { "no end", HEADERS, ONCE_LIT("A: b") },
        { "a bare line feed", HEADERS, ONCE_LIT("A: b\nB: c\r\n") },
        { "a carriage return inside", HEADERS, ONCE_LIT("A: b\rB: c\r\n") },
        { "a NUL", HEADERS, ONCE_LIT("A: b\0c\r\n") },
        { "no name", HEADERS, ONCE_LIT(": b\r\n") },
        { "a name with a space", HEADERS, ONCE_LIT("A : b\r\n") },
        { "an empty line", HEADERS, ONCE_LIT("\r\n") },
        { "no path", TARGET, ONCE_LIT("http://elsewhere/") },
        { "another host", TARGET, ONCE_LIT("@elsewhere/") },
        { "a space", TARGET, ONCE_LIT("/a HTTP/1.1") },
        { "a line end", TARGET, ONCE_LIT("/a\r\nX: y") },
        { "a fragment", TARGET, ONCE_LIT("/a#b") },
        { "nothing", TARGET, ONCE_LIT("") },
        { "a method with a space", METHOD, ONCE_LIT("POST /") },
        { "no method", METHOD, ONCE_LIT("") },
        { "no upstream", UPSTREAM, ONCE_LIT("") },
        { "an upstream that is a URL", UPSTREAM, ONCE_LIT("http://x") },
        { "a kept name that is none", KEPT, ONCE_LIT("A:\n") },
        { "a kept name without its end", KEPT, ONCE_LIT("A") },
        { "a cookie that is kept", KEPT, ONCE_LIT("ETag\nset-cookie\n") },
        { "a token that is kept", KEPT, ONCE_LIT("X-Auth-Token\n") },
        { "a probe elsewhere", PROBE, ONCE_LIT("http://elsewhere/") },
        { "a probe with a line end", PROBE, ONCE_LIT("/a\r\nX: y") },
        { "a probe that climbs", PROBE, ONCE_LIT("/a/../admin") },
        { "a probe that climbs at its end", PROBE, ONCE_LIT("/a/..?x=/b") },
        { "a probe that climbs, escaped", PROBE, ONCE_LIT("/a/%2E./admin") },
        { "a probe of nothing", PROBE, ONCE_LIT("/a/./b") },
        { "a probe that climbs over escaped slashes", PROBE, ONCE_LIT("/a/x%2f..%2F..%2fadmin") },
        { "a probe that climbs over a backslash", PROBE, ONCE_LIT("/a/..%5cadmin") },
        { "a probe that climbs before a parameter", PROBE, ONCE_LIT("/a/..;x/admin") },
    };
    struct once_buf buf;
    once_buf_init(&buf, ONCE_REQUEST_LEN_MAX);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct once_resend in = sample(), out;
        once_span *fields[] = { &in.headers, &in.target, &in.method, &in.upstream, &in.kept, &in.probe };
        *fields[rows[i].field] = rows[i].value;
        EXPECT_ROW(rows[i].name, read_back(&in, &out, &buf) == ONCE_INVALID);
    }
    once_buf_release(&buf);
}

/* What counts as credentials is a secret, or a name that was given to who has one; what is new with every request does
 * not count. */
static void resend__credentials_are_secret(void)
{
    size_t count = 0;
    for (const char *const *name = once_header_credentials(); *name != NULL; name++, count++) {
        bool is_name =
            strstr(*name, "-User") != NULL || strstr(*name, "-Email") != NULL || strstr(*name, "-Identity") != NULL;
        EXPECT_ROW(*name, once_header_is_secret(once_span_str(*name)) != is_name);
        EXPECT_ROW(*name, strcmp(*name, "DPoP") != 0 && strcmp(*name, "X-CSRF-Token") != 0);
    }
    EXPECT(count > 0 && count <= 48);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(resend__arrives_with_all_its_fields),
        TEST(resend__cut_anywhere_or_longer_is_refused),
        TEST(resend__what_must_not_be_sent_is_refused),
        TEST(resend__credentials_are_secret),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
