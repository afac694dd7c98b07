/*
 * fingerprint.c - a keyed hash of a request, version 1.
 *
 * Model:    salt        = MAC(secret; "once fingerprint 1", tenant)
 *           http        = MAC(salt; "http", method, path, query, HEADERS, KIND, SHA-256(BODY))
 *           list        = MAC(salt; "list", part, part, ...)
 *           MAC is mac.h's: HMAC-SHA-256, each part behind its length, so that nothing can
 *           move from one part into the next.
 *           HEADERS     one part: for each chosen header line, sorted by lower-cased name,
 *                       lines of one name in the order they came: length, name in lower
 *                       case, length, value without the blanks around it; lengths as 8
 *                       bytes, big-endian.
 *           KIND, BODY  "json" and the canonical form (json.c), if asked for and if
 *                       there is one; else "exact" and the bytes as received. KIND keeps a
 *                       text that is its own canonical form apart from the same exact bytes.
 *
 * Changing any of this makes every stored fingerprint a mismatch: a change is version 2,
 * with another first part in the salt, beside this one.
 *
 * Callers:  the engine's wrappers of the public functions. Pure.
 * Not here: which headers are included and what is JSON (the caller's policy); the secret
 *           (the store's); comparing fingerprints (decide.c).
 */
#include "core/fingerprint.h"

#include "core/buf.h"
#include "core/err.h"
#include "core/json/json.h"
#include "core/span.h"

#include <string.h>

static_assert(sizeof(struct once_fingerprint) == ONCE_MAC_LEN, "a fingerprint is a whole MAC");

void once_fingerprint_salt(const struct once_mac *secret, once_span tenant, struct once_mac *salt)
{
    const once_span parts[] = { ONCE_LIT("once fingerprint 1"), tenant };
    uint8_t key[ONCE_MAC_LEN];
    once_mac_parts(secret, parts, sizeof parts / sizeof *parts, key);
    once_mac_init(salt, once_span_of(key, sizeof key));
    explicit_bzero(key, sizeof key);
}

/* ---------------------------------------------------------------- headers */

/* ASCII only: header names are tokens, and a locale must not change a fingerprint. */
static uint8_t lower(uint8_t c)
{
    return c >= 'A' && c <= 'Z' ? (uint8_t)(c + ('a' - 'A')) : c;
}

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\t';
}

static once_span trim(once_span value)
{
    while (value.len > 0 && is_blank(value.ptr[value.len - 1]))
        value.len--;
    while (value.len > 0 && is_blank(value.ptr[0]))
        value = once_span_skip(value, 1);
    return value;
}

static int name_order(once_span a, once_span b)
{
    for (size_t i = 0; i < a.len && i < b.len; i++) {
        int order = lower(a.ptr[i]) - lower(b.ptr[i]);
        if (order != 0)
            return order;
    }
    return (a.len > b.len) - (a.len < b.len);
}

/* Trims the values. Insertion sort: there are at most 64 headers, and it keeps the lines of
 * one header in their order, which matters (RFC 9110, 5.3). */
static void sort_headers(const struct once_header *headers, size_t count, struct once_header *sorted)
{
    for (size_t i = 0; i < count; i++) {
        struct once_header header = { headers[i].name, trim(headers[i].value) };
        size_t at = i;
        for (; at > 0 && name_order(header.name, sorted[at - 1].name) < 0; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = header;
    }
}

static void add_header(struct once_buf *buf, const struct once_header *header)
{
    once_buf_add_u64(buf, header->name.len);
    uint8_t *name = once_buf_reserve(buf, header->name.len);
    if (name == NULL)
        return;
    for (size_t i = 0; i < header->name.len; i++)
        name[i] = lower(header->name.ptr[i]);
    buf->len += header->name.len;
    once_buf_add_u64(buf, header->value.len);
    once_buf_add(buf, header->value);
}

/* The part HEADERS, into `buf`. */
static once_result add_headers(const struct once_http *http, struct once_buf *buf, struct once_error *err)
{
    if (http->header_count > ONCE_FINGERPRINT_HEADER_COUNT_MAX)
        return once_fail(err, ONCE_LIMIT, "%zu headers are to be fingerprinted, the limit is %d", http->header_count,
                         ONCE_FINGERPRINT_HEADER_COUNT_MAX);
    struct once_header sorted[ONCE_FINGERPRINT_HEADER_COUNT_MAX];
    sort_headers(http->headers, http->header_count, sorted);
    for (size_t i = 0; i < http->header_count; i++)
        add_header(buf, &sorted[i]);
    if (buf->result == ONCE_LIMIT)
        return once_fail(err, ONCE_LIMIT, "headers to be fingerprinted are longer than %zu bytes", buf->max);
    if (buf->result != ONCE_OK)
        return once_fail(err, buf->result, "out of memory for the headers to be fingerprinted");
    return ONCE_OK;
}

/* ---------------------------------------------------------------- body */

/* KIND and SHA-256(BODY). The pointers are checked even if the body turns out not to be
 * JSON, so that the first request finds a malformed one, not the first with a JSON body. */
static once_result digest_body(const struct once_http *http, once_span *kind, uint8_t digest[ONCE_MAC_LEN],
                               struct once_error *err)
{
    struct once_buf form;
    once_buf_init(&form, (size_t)ONCE_JSON_GROWTH_MAX * ONCE_JSON_LEN_MAX);
    bool canonical = false;
    once_result r = ONCE_OK;
    if (http->json)
        r = once_json_canonical(http->body, http->exclude, http->exclude_count, &form, &canonical, err);
    if (r == ONCE_OK) {
        *kind = canonical ? ONCE_LIT("json") : ONCE_LIT("exact");
        once_sha256(canonical ? once_buf_span(&form) : http->body, digest);
    }
    once_buf_release(&form);
    return r;
}

/* ---------------------------------------------------------------- fingerprints */

once_result once_fingerprint_http_with(const struct once_mac *salt, const struct once_http *http,
                                       struct once_fingerprint *out, struct once_error *err)
{
    if (http->exclude_count > ONCE_JSON_EXCLUDE_COUNT_MAX)
        return once_fail(err, ONCE_LIMIT, "%zu JSON pointers are excluded, the limit is %d", http->exclude_count,
                         ONCE_JSON_EXCLUDE_COUNT_MAX);
    once_span kind;
    uint8_t digest[ONCE_MAC_LEN];
    struct once_buf headers;
    once_buf_init(&headers, ONCE_FINGERPRINT_HEADERS_LEN_MAX);
    once_result r = add_headers(http, &headers, err);
    if (r == ONCE_OK)
        r = digest_body(http, &kind, digest, err);
    if (r == ONCE_OK) {
        const once_span body = { digest, sizeof digest };
        const once_span parts[] = { ONCE_LIT("http"),        http->method, http->path, http->query,
                                    once_buf_span(&headers), kind,         body };
        once_mac_parts(salt, parts, sizeof parts / sizeof *parts, out->bytes);
    }
    once_buf_release(&headers);
    return r;
}

void once_fingerprint_list_with(const struct once_mac *salt, const once_span *parts, size_t count,
                                struct once_fingerprint *out)
{
    struct once_mac_run run;
    once_mac_start(salt, &run);
    once_mac_add(&run, ONCE_LIT("list"));
    for (size_t i = 0; i < count; i++)
        once_mac_add(&run, parts[i]);
    once_mac_end(&run, out->bytes);
}
