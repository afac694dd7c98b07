/*
 * fuzz_record.c - any bytes as a stored outcome.
 *
 * Input:      a byte, then the outcome. If the byte is odd, the last eight bytes are made
 *             the right checksum first: else nothing behind that check would be reached.
 * Properties: a refusal is CORRUPT and says why; what is accepted keeps to the limits and
 *             lies where it may; encoded again it decodes to the same, and the same bytes
 *             under another seal, or with a bit flipped, are refused.
 */
#include "core/outcome.h"
#include "core/span.h"

#include "fuzz.h"

#include <string.h>
#include <xxhash.h>

enum { SUM_LEN = 8, LEN_MAX = 1 << 20 };

static const uint64_t seal = 0x0123456789abcdefu;

struct decoded {
    once_result result;
    once_span headers, body;
    bool dropped;
    struct once_buf scratch;
};

static bool is_within(once_span part, once_span whole)
{
    return part.len == 0 || (part.ptr >= whole.ptr && part.ptr + part.len <= whole.ptr + whole.len);
}

static struct decoded decode(once_span bytes, uint64_t with)
{
    struct decoded d = { .result = ONCE_OK };
    struct once_error err = { .text = "" };
    once_buf_init(&d.scratch, ONCE_BODY_LEN_MAX + 1);
    d.result = once_outcome_decode(bytes, with, &d.scratch, &d.headers, &d.body, &d.dropped, &err);
    if (d.result == ONCE_OK) {
        HOLDS(d.headers.len <= ONCE_HEADERS_LEN_MAX && d.body.len <= ONCE_BODY_LEN_MAX);
        HOLDS(is_within(d.headers, bytes));
        HOLDS(is_within(d.body, bytes) || is_within(d.body, once_buf_span(&d.scratch)));
    } else {
        HOLDS(d.result == ONCE_CORRUPT && err.result == ONCE_CORRUPT && err.text[0] != '\0');
    }
    return d;
}

static void refuses(once_span bytes, uint64_t with)
{
    struct decoded d = decode(bytes, with);
    HOLDS(d.result == ONCE_CORRUPT);
    once_buf_release(&d.scratch);
}

static void check_again(const struct decoded *d)
{
    struct once_outcome outcome = {
        .state = ONCE_STATE_SUCCEEDED, .body_dropped = d->dropped, .headers = d->headers, .body = d->body
    };
    if (once_outcome_check(&outcome, NULL) != ONCE_OK)
        return; /* nobody could have stored it, but it has the right sum */
    struct once_buf bytes, same;
    once_buf_init(&bytes, 64 + d->headers.len + d->body.len);
    once_buf_init(&same, 64 + d->headers.len + d->body.len);
    HOLDS(once_outcome_encode(&outcome, seal, &bytes, NULL) == ONCE_OK);
    HOLDS(once_outcome_encode(&outcome, seal, &same, NULL) == ONCE_OK);
    HOLDS(once_span_equal(once_buf_span(&bytes), once_buf_span(&same)));
    struct decoded again = decode(once_buf_span(&bytes), seal);
    HOLDS(again.result == ONCE_OK);
    HOLDS(again.dropped == d->dropped);
    HOLDS(once_span_equal(again.headers, d->headers));
    HOLDS(once_span_equal(again.body, d->body));
    once_buf_release(&again.scratch);
    refuses(once_buf_span(&bytes), seal + 1);
    bytes.ptr[bytes.len / 2] ^= 0x10;
    refuses(once_buf_span(&bytes), seal);
    once_buf_release(&bytes);
    once_buf_release(&same);
}

/* The checksum as the format says: big-endian, of everything before it. */
static void set_sum(uint8_t *bytes, size_t len)
{
    uint64_t sum = XXH64(bytes, len - SUM_LEN, seal);
    for (int i = 0; i < SUM_LEN; i++)
        bytes[len - SUM_LEN + (size_t)i] = (uint8_t)(sum >> (56 - 8 * i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > LEN_MAX)
        return 0;
    size_t len = size - 1;
    uint8_t *bytes = malloc(len > 0 ? len : 1);
    HOLDS(bytes != NULL);
    if (len > 0)
        memcpy(bytes, data + 1, len);
    if (data[0] % 2 == 1 && len >= SUM_LEN)
        set_sum(bytes, len);
    struct decoded d = decode(once_span_of(bytes, len), seal);
    if (d.result == ONCE_OK)
        check_again(&d);
    once_buf_release(&d.scratch);
    free(bytes);
    return 0;
}
