/*
 * fuzz_seal.c - any bytes as sealed bytes, and as a file of keys.
 *
 * Input:      a byte, then the rest. 0 mod 3: the rest is an envelope; 1: it is what an envelope is made of, which is
 *             then cut and changed; 2: it is a file of keys.
 * Properties: what was not sealed with this key for this place is refused as CORRUPT, with a reason; what was sealed
 *             opens to the same bytes; with a bit changed, or cut short, it does not. A ring that was accepted has a
 *             key for everybody, and a message about one that was not never holds 16 of its bytes in a row.
 */
#include "core/err.h"
#include "core/seal_ring.h"
#include "core/span.h"

#include "fuzz.h"

#include <string.h>

enum { LEN_MAX = 1 << 16 };

static const uint8_t record[16] = "the record's id";

static const struct once_seal_key *key(void)
{
    static struct once_seal_key k = { .id = "fuzz-1" };
    static const uint8_t bytes[ONCE_SEAL_KEY_LEN] = "a key that anybody may know ....";
    once_mac_init(&k.derive, once_span_of(bytes, sizeof bytes));
    return &k;
}

static once_result opens(once_span bytes, struct once_buf *out)
{
    struct once_error err = { .text = "" };
    once_buf_init(out, 2 * LEN_MAX);
    once_result r = once_seal_open(key(), ONCE_SEAL_OUTCOME, record, bytes, out, &err);
    HOLDS(r == ONCE_OK || (r == ONCE_CORRUPT && err.result == r && err.text[0] != '\0' && out->len == 0));
    return r;
}

static void as_envelope(once_span bytes)
{
    struct once_buf out;
    once_span id;
    once_result parsed = once_seal_id(bytes, &id, NULL);
    HOLDS(parsed != ONCE_OK || (once_seal_is(bytes) && id.ptr > bytes.ptr && id.len <= ONCE_SEAL_ID_LEN_MAX));
    HOLDS(opens(bytes, &out) == ONCE_CORRUPT || parsed == ONCE_OK);
    once_buf_release(&out);
}

static void as_content(once_span plain)
{
    struct once_buf sealed, out;
    once_buf_init(&sealed, 2 * LEN_MAX);
    once_seal_close(key(), ONCE_SEAL_OUTCOME, record, plain, &sealed);
    HOLDS(sealed.result == ONCE_OK);
    HOLDS(opens(once_buf_span(&sealed), &out) == ONCE_OK && once_span_equal(once_buf_span(&out), plain));
    once_buf_release(&out);
    size_t at = plain.len > 0 ? (size_t)(plain.ptr[0] * 251u + plain.len) % sealed.len : sealed.len / 2;
    HOLDS(opens(once_span_of(sealed.ptr, at), &out) == ONCE_CORRUPT);
    once_buf_release(&out);
    sealed.ptr[at] ^= (uint8_t)(1u << at % 8);
    HOLDS(opens(once_buf_span(&sealed), &out) == ONCE_CORRUPT);
    once_buf_release(&out);
    once_buf_release(&sealed);
}

static void as_keys(once_span text)
{
    struct once_seal_ring *ring = NULL;
    struct once_error err = { .text = "" };
    once_result r = once_seal_ring_parse(text, "F", &ring, &err);
    if (r == ONCE_OK) {
        const struct once_seal_key *common = once_seal_ring_for(ring, once_span_of(NULL, 0));
        HOLDS(common != NULL && once_seal_ring_find(ring, once_span_str(common->id)) == common);
        HOLDS(once_seal_ring_for(ring, text.len > 255 ? once_span_of(text.ptr, 255) : text) != NULL);
    } else {
        HOLDS(ring == NULL && (r == ONCE_INVALID || r == ONCE_LIMIT) && err.text[0] != '\0');
        for (size_t i = 0; i + 40 <= text.len; i++) /* longer than an id, shorter than a key */
            HOLDS(memmem(err.text, strlen(err.text), text.ptr + i, 40) == NULL);
    }
    once_seal_ring_free(ring);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > LEN_MAX)
        return 0;
    once_span rest = once_span_of(data + 1, size - 1);
    if (data[0] % 3 == 0)
        as_envelope(rest);
    else if (data[0] % 3 == 1)
        as_content(rest);
    else
        as_keys(rest);
    return 0;
}
