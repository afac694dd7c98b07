/* resend.c - see resend.h. */
#include "core/http/resend.h"

#include "core/err.h"
#include "core/span.h"

#include <strings.h>

static const uint8_t magic[3] = { 'O', 'R', '1' };

enum { FLAG_NEEDS_IDENTITY = 1, FLAG_IDENTITY = 2, FLAG_PROBE = 4, FLAG_PARTIAL = 8, FLAGS = 15 };

enum { METHOD_LEN_MAX = 32, TARGET_LEN_MAX = 32 << 10 };

/* ------------------------------------------------------------------ checks */

static const char *lines_fault(once_span lines)
{
    while (lines.len > 0) {
        once_span line, name, value;
        if (!once_span_cut(lines, '\n', &line, &lines) || line.len < 2 || line.ptr[line.len - 1] != '\r')
            return "a header line without its end";
        line.len--;
        if (!once_span_cut(line, ':', &name, &value) || !once_header_is_token(name))
            return "a header without a name";
        for (size_t i = 0; i < value.len; i++)
            if ((value.ptr[i] < 0x20 && value.ptr[i] != '\t') || value.ptr[i] == 0x7f)
                return "a control character in a header";
        if (once_header_is_secret(name))
            return "credentials";
        if (once_header_is_of_one_hop(name))
            return "a header that is not for sending again";
    }
    return NULL;
}

static const char *names_fault(once_span names)
{
    while (names.len > 0) {
        once_span name;
        if (!once_span_cut(names, '\n', &name, &names) || !once_header_is_token(name))
            return "an invalid header name";
        if (once_header_is_secret(name))
            return "credentials among the headers to store of an answer";
    }
    return NULL;
}

static const char *target_fault(once_span target)
{
    if (target.len == 0 || target.ptr[0] != '/' || target.len > TARGET_LEN_MAX)
        return "a target that is not a path";
    for (size_t i = 0; i < target.len; i++)
        if (target.ptr[i] <= 0x20 || target.ptr[i] == 0x7f || target.ptr[i] == '#')
            return "a target with a character that must be escaped";
    return NULL;
}

/* The length of this character at the front, plain or escaped; 0: it is another. */
static size_t begins(once_span s, uint8_t plain, const char *escaped)
{
    if (s.len > 0 && s.ptr[0] == plain)
        return 1;
    return s.len >= 3 && strncasecmp((const char *)s.ptr, escaped, 3) == 0 ? 3 : 0;
}

/* Is "..", "." or the same escaped a segment of the path? Then a value that was put into the path could lead to another
 * resource. An escaped slash ends a segment as well: a proxy before the service may treat it as a slash. */
static bool climbs(once_span target)
{
    once_span path, query;
    size_t dots = 0, others = 0;
    once_span_cut(target, '?', &path, &query);
    for (size_t n; path.len > 0; path = once_span_skip(path, n)) {
        if ((n = begins(path, '.', "%2e")) > 0) {
            dots++;
        } else if ((n = begins(path, '/', "%2f")) > 0 || (n = begins(path, '\\', "%5c")) > 0 ||
                   (n = begins(path, ';', "%3b")) > 0) {
            if (others == 0 && (dots == 1 || dots == 2))
                return true;
            dots = others = 0;
        } else {
            n = 1;
            others++;
        }
    }
    return others == 0 && (dots == 1 || dots == 2);
}

static const char *probe_fault(const struct once_resend *r)
{
    if (r->probe.len == 0)
        return r->partial ? "neither a body nor a probe" : NULL;
    if (r->partial && r->body.len > 0)
        return "a body although it says that it has none";
    const char *fault = target_fault(r->probe);
    return fault == NULL && climbs(r->probe) ? "a probe with a '.' or '..' segment in its path" : fault;
}

static const char *fault_of(const struct once_resend *r)
{
    if (!once_header_is_token(r->upstream) || r->upstream.len > ONCE_UPSTREAM_NAME_LEN_MAX)
        return "an upstream without a name";
    if (!once_header_is_token(r->method) || r->method.len > METHOD_LEN_MAX)
        return "an invalid method";
    const char *fault = target_fault(r->target);
    if (fault == NULL)
        fault = probe_fault(r);
    if (fault != NULL)
        return fault;
    if (r->headers.len > ONCE_HEADERS_LEN_MAX || r->kept.len > ONCE_HEADERS_LEN_MAX ||
        r->max_response > ONCE_BODY_LEN_MAX)
        return "a part over its limit";
    fault = lines_fault(r->headers);
    return fault != NULL ? fault : names_fault(r->kept);
}

/* ------------------------------------------------------------------ bytes */

void once_resend_put(struct once_buf *buf, const struct once_resend *r)
{
    once_buf_add(buf, once_span_of(magic, sizeof magic));
    once_buf_add_byte(buf, (r->needs_identity ? FLAG_NEEDS_IDENTITY : 0) | (r->identity ? FLAG_IDENTITY : 0) |
                               (r->probe.len > 0 ? FLAG_PROBE : 0) | (r->partial ? FLAG_PARTIAL : 0));
    once_buf_add_u32(buf, r->max_response);
    once_buf_add(buf, once_span_of(r->final, sizeof r->final));
    once_buf_add_sized(buf, r->upstream);
    once_buf_add_sized(buf, r->method);
    once_buf_add_sized(buf, r->target);
    once_buf_add_sized(buf, r->headers);
    once_buf_add_sized(buf, r->kept);
    once_buf_add_sized(buf, r->body);
    if (r->probe.len > 0)
        once_buf_add_sized(buf, r->probe);
}

once_result once_resend_get(once_span bytes, struct once_resend *out, struct once_error *err)
{
    enum { HEAD_LEN = sizeof magic + 1 + 4 + ONCE_RESEND_FINAL_LEN };
    *out = (struct once_resend){ .needs_identity = false };
    if (bytes.len < HEAD_LEN || memcmp(bytes.ptr, magic, sizeof magic) != 0 || bytes.ptr[3] > FLAGS)
        return once_fail(err, ONCE_INVALID, "the stored bytes are not an HTTP request");
    out->needs_identity = (bytes.ptr[3] & FLAG_NEEDS_IDENTITY) != 0;
    out->identity = (bytes.ptr[3] & FLAG_IDENTITY) != 0;
    out->partial = (bytes.ptr[3] & FLAG_PARTIAL) != 0;
    bool probe = (bytes.ptr[3] & FLAG_PROBE) != 0;
    out->max_response = once_read_u32(bytes.ptr + 4);
    memcpy(out->final, bytes.ptr + 8, sizeof out->final);
    once_span left = once_span_skip(bytes, HEAD_LEN);
    once_span *spans[] = { &out->upstream, &out->method, &out->target, &out->headers, &out->kept, &out->body };
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++)
        if (!once_span_take_sized(&left, spans[i]))
            return once_fail(err, ONCE_INVALID, "the stored request is cut off");
    if (probe && (!once_span_take_sized(&left, &out->probe) || out->probe.len == 0))
        return once_fail(err, ONCE_INVALID, "the stored request is cut off");
    const char *fault = left.len > 0 ? "extra bytes at its end" : fault_of(out);
    if (fault != NULL)
        return once_fail(err, ONCE_INVALID, "the stored request has %s", fault);
    return ONCE_OK;
}
