/* outcome.c - see outcome.h, which specifies the format. */
#include "core/outcome.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"

#include <xxhash.h>
#include <zstd.h>
#include <zstd_errors.h>

static_assert(ONCE_OUTCOME_LEN_MIN == 14 + 8, "head and sum");
enum { VERSION = 1, FLAG_COMPRESSED = 1, FLAG_DROPPED = 2, FLAGS_KNOWN = 3, HEAD_LEN = 14, SUM_LEN = 8 };

static uint64_t read_u64(const uint8_t *p)
{
    return (uint64_t)once_read_u32(p) << 32 | once_read_u32(p + 4);
}

struct once_outcome once_outcome_of(const struct once_record *r)
{
    return (struct once_outcome){
        .state = r->state, .retryable = r->retryable, .undelivered = r->undelivered, .status = r->status
    };
}

bool once_outcome_is_of(const struct once_outcome *o, const struct once_record *r)
{
    return o->state == r->state && o->retryable == r->retryable && o->undelivered == r->undelivered &&
           o->status == r->status;
}

uint64_t once_outcome_sum_seed(struct once_grant grant, const struct once_outcome *outcome)
{
    uint8_t bytes[16 + 8 + 1 + 1 + 4];
    memcpy(bytes, grant.record, 16);
    for (int i = 0; i < 8; i++)
        bytes[16 + i] = (uint8_t)(grant.fence >> (56 - 8 * i));
    bytes[24] = (uint8_t)outcome->state;
    bytes[25] = (uint8_t)(outcome->retryable | outcome->undelivered << 1);
    for (int i = 0; i < 4; i++)
        bytes[26 + i] = (uint8_t)((uint32_t)outcome->status >> (24 - 8 * i));
    return XXH64(bytes, sizeof bytes, 0);
}

/* Stored lines are sent again: no byte in one may begin another line. */
once_result once_headers_check(once_span headers, struct once_error *err)
{
    size_t line = 1;
    while (headers.len > 0) {
        once_span text, rest;
        bool cut = once_span_cut(headers, '\n', &text, &rest);
        if (!cut || text.len == 0 || text.ptr[text.len - 1] != '\r')
            return once_fail(err, ONCE_INVALID, "header line %zu does not end with CR LF", line);
        text.len--;
        once_span name, value;
        if (!once_span_cut(text, ':', &name, &value) || name.len == 0)
            return once_fail(err, ONCE_INVALID, "header line %zu has no name", line);
        for (size_t i = 0; i < name.len; i++)
            if (name.ptr[i] <= ' ' || name.ptr[i] == 0x7f)
                return once_fail(err, ONCE_INVALID, "header line %zu has byte 0x%02x in its name", line, name.ptr[i]);
        for (size_t i = 0; i < text.len; i++)
            if (text.ptr[i] == '\r' || text.ptr[i] == '\0')
                return once_fail(err, ONCE_INVALID, "header line %zu holds a forbidden byte 0x%02x", line, text.ptr[i]);
        headers = rest;
        line++;
    }
    return ONCE_OK;
}

once_result once_outcome_check(const struct once_outcome *outcome, struct once_error *err)
{
    switch (outcome->state) {
    case ONCE_STATE_SUCCEEDED:
    case ONCE_STATE_FAILED:
    case ONCE_STATE_UNKNOWN:
        break;
    default:
        return once_fail(err, ONCE_INVALID, "an outcome is succeeded, failed or unknown, not '%s'",
                         once_state_name(outcome->state));
    }
    if (outcome->retryable && outcome->state != ONCE_STATE_FAILED)
        return once_fail(err, ONCE_INVALID, "only a failed outcome is retryable");
    if (outcome->undelivered && !outcome->retryable)
        return once_fail(err, ONCE_INVALID, "only a retryable outcome is undelivered");
    if (outcome->body_dropped && outcome->body.len > 0)
        return once_fail(err, ONCE_INVALID, "body_dropped is set, but the body has %zu bytes", outcome->body.len);
    if (outcome->headers.len > ONCE_HEADERS_LEN_MAX)
        return once_fail(err, ONCE_LIMIT, "header lines of %zu bytes, the limit is %d", outcome->headers.len,
                         ONCE_HEADERS_LEN_MAX);
    if (outcome->body.len > ONCE_BODY_LEN_MAX)
        return once_fail(err, ONCE_LIMIT, "a body of %zu bytes, the limit is %d; finish with body_dropped",
                         outcome->body.len, ONCE_BODY_LEN_MAX);
    if (once_span_starts(outcome->headers, ONCE_LIT("Once-Sealed:")))
        return once_fail(err, ONCE_INVALID, "header line 1 is Once-Sealed, a name that is reserved for the store");
    return once_headers_check(outcome->headers, err);
}

/* Compresses into the buffer; false if that saves less than an eighth. */
static bool add_compressed(struct once_buf *out, once_span body, size_t *stored_len)
{
    if (body.len < ONCE_COMPRESS_LEN_MIN)
        return false;
    uint8_t *to = once_buf_reserve(out, body.len);
    if (to == NULL)
        return false;
    /* Level 1, because the caller waits. One-shot calls give the same bytes every time. */
    size_t n = ZSTD_compress(to, body.len - body.len / 8, body.ptr, body.len, 1);
    if (ZSTD_isError(n))
        return false;
    out->len += n;
    *stored_len = n;
    return true;
}

once_result once_outcome_encode(const struct once_outcome *outcome, uint64_t sum_seed, struct once_buf *out,
                                struct once_error *err)
{
    size_t start = out->len;
    once_buf_add_byte(out, VERSION);
    once_buf_add_byte(out, outcome->body_dropped ? FLAG_DROPPED : 0);
    once_buf_add_u32(out, (uint32_t)outcome->headers.len);
    once_buf_add_u32(out, (uint32_t)outcome->body.len);
    once_buf_add_u32(out, (uint32_t)outcome->body.len);
    once_buf_add(out, outcome->headers);
    size_t stored_len = 0;
    if (add_compressed(out, outcome->body, &stored_len)) {
        out->ptr[start + 1] |= FLAG_COMPRESSED;
        for (int i = 0; i < 4; i++)
            out->ptr[start + 10 + (size_t)i] = (uint8_t)(stored_len >> (24 - 8 * i));
    } else {
        once_buf_add(out, outcome->body);
    }
    if (out->result == ONCE_OK)
        once_buf_add_u64(out, XXH64(out->ptr + start, out->len - start, sum_seed));
    if (out->result != ONCE_OK)
        return once_fail(err, out->result, "cannot store an outcome of %zu bytes", outcome->body.len);
    return ONCE_OK;
}

bool once_outcome_sum_is_right(once_span bytes, uint64_t sum_seed)
{
    return bytes.len >= HEAD_LEN + SUM_LEN &&
           XXH64(bytes.ptr, bytes.len - SUM_LEN, sum_seed) == read_u64(bytes.ptr + bytes.len - SUM_LEN);
}

once_result once_outcome_decode(once_span bytes, uint64_t sum_seed, struct once_buf *scratch, once_span *headers,
                                once_span *body, bool *body_dropped, struct once_error *err)
{
    if (bytes.len < HEAD_LEN + SUM_LEN)
        return once_fail(err, ONCE_CORRUPT, "stored outcome is cut short at %zu bytes", bytes.len);
    const uint8_t *p = bytes.ptr;
    if (p[0] != VERSION)
        return once_fail(err, ONCE_CORRUPT, "stored outcome has version %d, this program knows %d", p[0], VERSION);
    if (!once_outcome_sum_is_right(bytes, sum_seed))
        return once_fail(err, ONCE_CORRUPT, "stored outcome does not match its checksum");
    uint8_t flags = p[1];
    size_t headers_len = once_read_u32(p + 2), body_len = once_read_u32(p + 6), stored_len = once_read_u32(p + 10);
    size_t room = bytes.len - HEAD_LEN - SUM_LEN;
    size_t body_max = (flags & FLAG_COMPRESSED) != 0 ? ONCE_BODY_LEN_MAX : ONCE_STORED_BODY_LEN_MAX;
    if ((flags & ~FLAGS_KNOWN) != 0 || headers_len > ONCE_HEADERS_LEN_MAX || body_len > body_max ||
        headers_len > room || stored_len != room - headers_len)
        return once_fail(err, ONCE_CORRUPT, "stored outcome has impossible lengths");
    once_span stored = once_span_of(p + HEAD_LEN + headers_len, stored_len);
    if (flags & FLAG_COMPRESSED) {
        once_buf_clear(scratch);
        uint8_t *to = once_buf_reserve(scratch, body_len + 1);
        if (to == NULL)
            return once_fail(err, scratch->result, "no memory for a body of %zu bytes", body_len);
        size_t n = ZSTD_decompress(to, body_len, stored.ptr, stored.len);
        if (ZSTD_isError(n) && ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation)
            return once_fail(err, ONCE_NO_MEMORY, "no memory to decompress a body of %zu bytes", body_len);
        if (n != body_len)
            return once_fail(err, ONCE_CORRUPT, "stored body does not decompress to %zu bytes", body_len);
        scratch->len = body_len;
        stored = once_buf_span(scratch);
    } else if (stored_len != body_len) {
        return once_fail(err, ONCE_CORRUPT, "stored outcome has impossible lengths");
    }
    *headers = once_span_of(p + HEAD_LEN, headers_len);
    *body = stored;
    *body_dropped = (flags & FLAG_DROPPED) != 0;
    return ONCE_OK;
}
