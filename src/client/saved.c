/* saved.c - see saved.h. */
#include "client/saved.h"

#include "core/err.h"
#include "core/http/header.h"
#include "core/http/url.h"
#include "core/mac.h"
#include "core/span.h"

#include <curl/curl.h>
#include <strings.h>

#define MAGIC "ONCESND1"

enum { MAGIC_LEN = sizeof MAGIC - 1, METHOD_LEN_MAX = 32, NAME_LEN_MAX = 128 };

/* ------------------------------------------------------------------ parts of a request */

bool client_is_token(once_span s)
{
    return once_header_is_token(s) && s.len <= NAME_LEN_MAX;
}

static bool has_word(once_span name, const char *word)
{
    size_t len = strlen(word);
    for (size_t i = 0; i + len <= name.len; i++)
        if (strncasecmp((const char *)name.ptr + i, word, len) == 0)
            return true;
    return false;
}

bool client_is_secret(once_span name)
{
    static const char *const words[] = { "auth",   "token",   "secret",  "passw",      "cookie",   "api-key",
                                         "apikey", "api_key", "session", "credential", "signature" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (has_word(name, words[i]))
            return true;
    return once_header_is_secret(name);
}

/* Headers that libcurl writes itself, or that would change how the message is framed. */
static bool is_framing(once_span name)
{
    static const char *const names[] = { "content-length", "transfer-encoding", "connection",
                                         "keep-alive",     "proxy-connection",  "te",
                                         "trailer",        "upgrade",           "expect",
                                         "http2-settings" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (once_header_is(name, names[i]))
            return true;
    return false;
}

once_result client_header_check(once_span line, once_span key_header, once_span *name, once_span *value,
                                struct once_error *err)
{
    if (!once_span_cut(line, ':', name, value) || !client_is_token(*name))
        return once_fail(err, ONCE_INVALID, "a header must be 'Name: value'");
    while (value->len > 0 && (value->ptr[0] == ' ' || value->ptr[0] == '\t'))
        *value = once_span_skip(*value, 1);
    while (value->len > 0 && (value->ptr[value->len - 1] == ' ' || value->ptr[value->len - 1] == '\t'))
        value->len--;
    for (size_t i = 0; i < value->len; i++)
        if ((value->ptr[i] < 0x20 && value->ptr[i] != '\t') || value->ptr[i] == 0x7f)
            return once_fail(err, ONCE_INVALID, "header '%.*s' has a control character in its value",
                             ONCE_SPAN_ARGS(*name));
    if (once_span_equal_nocase(*name, key_header))
        return once_fail(err, ONCE_INVALID, "header '%.*s' is the header of the key: give the key separately",
                         ONCE_SPAN_ARGS(*name));
    if (is_framing(*name))
        return once_fail(err, ONCE_INVALID, "header '%.*s' is set by HTTP itself", ONCE_SPAN_ARGS(*name));
    return ONCE_OK;
}

once_result client_method_check(once_span method, struct once_error *err)
{
    if (!client_is_token(method) || method.len > METHOD_LEN_MAX || once_span_equal(method, ONCE_LIT("CONNECT")))
        return once_fail(err, ONCE_INVALID, "'%.*s' is not a method such as POST, PUT, PATCH, DELETE",
                         method.len > METHOD_LEN_MAX ? METHOD_LEN_MAX : (int)method.len,
                         method.len > 0 ? (const char *)method.ptr : "");
    return ONCE_OK;
}

static bool part_of(CURLU *parsed, CURLUPart part, unsigned flags, char **out)
{
    *out = NULL;
    return curl_url_get(parsed, part, out, flags) == CURLUE_OK;
}

static once_result url_parsed(CURLU *parsed, const char *shown, struct once_buf *origin, struct once_error *err)
{
    char *scheme = NULL, *host = NULL, *port = NULL, *user = NULL, *password = NULL;
    once_result r = ONCE_OK;
    if (part_of(parsed, CURLUPART_USER, 0, &user) || part_of(parsed, CURLUPART_PASSWORD, 0, &password))
        r = once_fail(err, ONCE_INVALID,
                      "the URL contains a user name; send credentials in a header, which is not saved");
    else if (!part_of(parsed, CURLUPART_SCHEME, 0, &scheme) || !part_of(parsed, CURLUPART_HOST, 0, &host) ||
             !part_of(parsed, CURLUPART_PORT, CURLU_DEFAULT_PORT, &port) ||
             (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0))
        r = once_fail(err, ONCE_INVALID, "'%s' is not an http:// or https:// URL", shown);
    else if (origin != NULL)
        once_buf_addf(origin, "%s://%s:%s", scheme, host, port);
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_free(user);
    curl_free(password);
    return r;
}

once_result client_url_check(const char *url, struct once_buf *origin, struct once_error *err)
{
    char shown[ONCE_URL_SHOWN_LEN];
    size_t len = strnlen(url, ONCE_CLIENT_URL_LEN_MAX + 1);
    if (len > ONCE_CLIENT_URL_LEN_MAX)
        return once_fail(err, ONCE_LIMIT, "the URL is longer than %d bytes", ONCE_CLIENT_URL_LEN_MAX);
    for (size_t i = 0; i < len; i++)
        if ((uint8_t)url[i] <= 0x20 || (uint8_t)url[i] >= 0x7f || url[i] == '#')
            return once_fail(err, ONCE_INVALID, "the URL has a character at byte %zu that must be escaped", i + 1);
    once_url_shown(url, shown);
    /* libcurl would read http:///host as http://host. */
    size_t scheme = strncasecmp(url, "http://", 7) == 0 ? 7 : strncasecmp(url, "https://", 8) == 0 ? 8 : 0;
    if (scheme == 0 || strchr("/?:", url[scheme]) != NULL)
        return once_fail(err, ONCE_INVALID, "'%s' is not an http:// or https:// URL", shown);
    CURLU *parsed = curl_url();
    if (parsed == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a URL");
    CURLUcode code = curl_url_set(parsed, CURLUPART_URL, url, 0);
    once_result r = code == CURLUE_OUT_OF_MEMORY ? once_fail(err, ONCE_NO_MEMORY, "no memory for a URL")
                    : code != CURLUE_OK ? once_fail(err, ONCE_INVALID, "'%s': %s", shown, curl_url_strerror(code))
                                        : url_parsed(parsed, shown, origin, err);
    curl_url_cleanup(parsed);
    return r;
}

once_result client_key_check(once_span key, enum once_client_format format, struct once_error *err)
{
    if (key.len == 0 || key.len > ONCE_KEY_LEN_MAX)
        return once_fail(err, ONCE_INVALID, "a key must have 1 to %d characters; this one has %zu", ONCE_KEY_LEN_MAX,
                         key.len);
    for (size_t i = 0; i < key.len; i++) {
        if (key.ptr[i] < 0x21 || key.ptr[i] > 0x7e)
            return once_fail(err, ONCE_INVALID, "a key must be visible ASCII; this one is not, at byte %zu", i + 1);
        if (format == ONCE_CLIENT_FORMAT_BARE && strchr("\",;", key.ptr[i]) != NULL)
            return once_fail(err, ONCE_INVALID, "a bare key must not contain '%c'; this one does, at byte %zu",
                             key.ptr[i], i + 1);
    }
    return ONCE_OK;
}

void client_key_write(struct once_buf *out, once_span key, enum once_client_format format)
{
    if (format == ONCE_CLIENT_FORMAT_BARE) {
        once_buf_add(out, key);
        return;
    }
    once_buf_add_byte(out, '"');
    for (size_t i = 0; i < key.len; i++) {
        if (key.ptr[i] == '"' || key.ptr[i] == '\\')
            once_buf_add_byte(out, '\\');
        once_buf_add_byte(out, key.ptr[i]);
    }
    once_buf_add_byte(out, '"');
}

/* ------------------------------------------------------------------ all of it */

static once_result lines_check(const struct once_client_saved *s, struct once_error *err)
{
    once_span left = s->headers, line, name, value;
    for (unsigned n = 0; left.len > 0; n++) {
        if (n == ONCE_CLIENT_HEADER_COUNT_MAX)
            return once_fail(err, ONCE_LIMIT, "more than %d headers", ONCE_CLIENT_HEADER_COUNT_MAX);
        if (!once_span_cut(left, '\n', &line, &left) || line.len == 0 || line.ptr[line.len - 1] != '\r')
            return once_fail(err, ONCE_INVALID, "a header line without its end");
        line.len--;
        once_result r = client_header_check(line, s->key_header, &name, &value, err);
        if (r != ONCE_OK)
            return r;
    }
    for (left = s->withheld; left.len > 0;)
        if (!once_span_cut(left, '\n', &name, &left) || !client_is_token(name))
            return once_fail(err, ONCE_INVALID, "a withheld header without a name");
    return ONCE_OK;
}

static once_result saved_check(const struct once_client_saved *s, struct once_error *err)
{
    char url[ONCE_CLIENT_URL_LEN_MAX + 1];
    if (s->format != ONCE_CLIENT_FORMAT_SF && s->format != ONCE_CLIENT_FORMAT_BARE)
        return once_fail(err, ONCE_INVALID, "the format of the key is not valid");
    if (!client_is_token(s->key_header))
        return once_fail(err, ONCE_INVALID, "the name of the key's header is not valid");
    if (s->url.len > ONCE_CLIENT_URL_LEN_MAX ||
        memchr(s->url.ptr != NULL ? s->url.ptr : (const uint8_t *)"", '\0', s->url.len) != NULL)
        return once_fail(err, ONCE_LIMIT, "the URL is longer than %d bytes", ONCE_CLIENT_URL_LEN_MAX);
    if (s->headers.len > ONCE_CLIENT_HEADERS_LEN_MAX || s->withheld.len > ONCE_CLIENT_HEADERS_LEN_MAX)
        return once_fail(err, ONCE_LIMIT, "the headers are longer than %d bytes", ONCE_CLIENT_HEADERS_LEN_MAX);
    if (s->body.len > ONCE_CLIENT_BODY_LEN_MAX)
        return once_fail(err, ONCE_LIMIT, "the body is longer than %d bytes", ONCE_CLIENT_BODY_LEN_MAX);
    memcpy(url, s->url.ptr, s->url.len);
    url[s->url.len] = '\0';
    once_result r = client_key_check(s->key, s->format, err);
    if (r == ONCE_OK)
        r = client_method_check(s->method, err);
    if (r == ONCE_OK)
        r = client_url_check(url, NULL, err);
    return r == ONCE_OK ? lines_check(s, err) : r;
}

once_result client_saved_write(const struct once_client_saved *s, struct once_buf *out, struct once_error *err)
{
    uint8_t sum[ONCE_MAC_LEN];
    once_result r = saved_check(s, err);
    if (r != ONCE_OK)
        return r;
    once_buf_clear(out);
    once_buf_add(out, ONCE_LIT(MAGIC));
    once_buf_add_u64(out, (uint64_t)s->created_at);
    once_buf_add_byte(out, (uint8_t)s->format);
    once_buf_add_sized(out, s->key);
    once_buf_add_sized(out, s->key_header);
    once_buf_add_sized(out, s->method);
    once_buf_add_sized(out, s->url);
    once_buf_add_sized(out, s->headers);
    once_buf_add_sized(out, s->withheld);
    once_buf_add_sized(out, s->body);
    if (out->result == ONCE_OK)
        once_sha256(once_buf_span(out), sum);
    once_buf_add(out, once_span_of(sum, sizeof sum));
    return out->result == ONCE_OK ? ONCE_OK : once_fail(err, out->result, "no memory to save the request");
}

once_result once_client_saved_read(once_span saved, struct once_client_saved *out, struct once_error *err)
{
    enum { HEAD_LEN = MAGIC_LEN + 8 + 1 };
    uint8_t sum[ONCE_MAC_LEN];
    struct once_client_saved s = { .created_at = 0 };
    *out = s;
    if (saved.len < HEAD_LEN + ONCE_MAC_LEN || memcmp(saved.ptr, MAGIC, MAGIC_LEN) != 0)
        return once_fail(err, ONCE_CORRUPT, "these bytes are not a saved request");
    once_span sealed = once_span_of(saved.ptr, saved.len - ONCE_MAC_LEN);
    once_sha256(sealed, sum);
    if (memcmp(sum, saved.ptr + sealed.len, ONCE_MAC_LEN) != 0)
        return once_fail(err, ONCE_CORRUPT, "the saved request is damaged: its checksum does not match");
    s.created_at =
        (once_time)((uint64_t)once_read_u32(saved.ptr + MAGIC_LEN) << 32 | once_read_u32(saved.ptr + MAGIC_LEN + 4));
    s.format = (enum once_client_format)saved.ptr[MAGIC_LEN + 8];
    once_span left = once_span_skip(sealed, HEAD_LEN);
    once_span *spans[] = { &s.key, &s.key_header, &s.method, &s.url, &s.headers, &s.withheld, &s.body };
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++)
        if (!once_span_take_sized(&left, spans[i]))
            return once_fail(err, ONCE_CORRUPT, "the saved request is cut off");
    struct once_error why;
    if (left.len > 0 || s.created_at < 0)
        return once_fail(err, ONCE_CORRUPT, "the saved request has extra bytes, or an invalid time");
    once_result r = saved_check(&s, &why);
    if (r != ONCE_OK)
        return once_fail(err, r == ONCE_NO_MEMORY ? r : ONCE_CORRUPT, "the saved request is not valid: %.300s",
                         why.text);
    *out = s;
    return ONCE_OK;
}
