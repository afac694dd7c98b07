/* test_mac.c - HMAC-SHA-256 over length-prefixed parts. */
#include "core/mac.h"

#include "core/span.h"

#include "../guard.h"
#include "../test.h"

#include <nettle/hmac.h>
#include <string.h>

static void expect_hex(const char *row, const char *want, const uint8_t got[ONCE_MAC_LEN])
{
    char hex[2 * ONCE_MAC_LEN + 1];
    for (size_t i = 0; i < ONCE_MAC_LEN; i++)
        snprintf(hex + 2 * i, 3, "%02x", got[i]);
    if (strncmp(want, hex, strlen(want)) != 0) {
        printf("# wanted: %s\n# got:    %s\n", want, hex);
        test_failed(__FILE__, __LINE__, row, "the digest differs");
    }
}

/* RFC 4231. The MAC there is over plain bytes: what once_mac_init() prepared is used
 * without the parts' lengths. Test 5 truncates to 128 bits. */
static const struct rfc4231 {
    const char *name;
    const char *key;
    size_t key_repeat; /* of the first byte; 0: the key as it is */
    const char *data;
    size_t data_repeat;
    const char *mac;
} rfc4231[] = {
    { "1", "\x0b", 20, "Hi There", 0, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7" },
    { "2", "Jefe", 0, "what do ya want for nothing?", 0,
      "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843" },
    { "3", "\xaa", 20, "\xdd", 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe" },
    { "4", "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19", 0,
      "\xcd", 50, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b" },
    { "5", "\x0c", 20, "Test With Truncation", 0, "a3b6167473100ee06e0c796c2955552b" },
    { "6", "\xaa", 131, "Test Using Larger Than Block-Size Key - Hash Key First", 0,
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54" },
    { "7", "\xaa", 131,
      "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be "
      "hashed before being used by the HMAC algorithm.",
      0, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2" },
};

static once_span repeated(uint8_t *room, const char *bytes, size_t repeat)
{
    if (repeat == 0)
        return once_span_str(bytes);
    memset(room, bytes[0], repeat);
    return once_span_of(room, repeat);
}

static void mac__prepared_keys_agree_with_rfc_4231(void)
{
    for (size_t i = 0; i < sizeof rfc4231 / sizeof *rfc4231; i++) {
        uint8_t key[200], data[200], got[ONCE_MAC_LEN];
        struct once_mac mac;
        once_mac_init(&mac, repeated(key, rfc4231[i].key, rfc4231[i].key_repeat));
        once_span message = repeated(data, rfc4231[i].data, rfc4231[i].data_repeat);
        struct hmac_sha256_ctx ctx = mac.keyed;
        hmac_sha256_update(&ctx, message.len, message.ptr);
        hmac_sha256_digest(&ctx, sizeof got, got);
        expect_hex(rfc4231[i].name, rfc4231[i].mac, got);
    }
}

static void mac__parts_are_preceded_by_their_lengths(void)
{
    /* By another implementation: HMAC("Jefe", u64(2) "ab" u64(0) u64(1) "c"). */
    static const char want[] = "eceb2714e2361bb4e2f955921e017ffdece810342f330d70b303ed247493d8e9";
    const once_span parts[] = { ONCE_LIT("ab"), { NULL, 0 }, ONCE_LIT("c") };
    struct once_mac mac;
    once_mac_init(&mac, ONCE_LIT("Jefe"));
    uint8_t got[ONCE_MAC_LEN];
    once_mac_parts(&mac, parts, 3, got);
    expect_hex("array", want, got);

    struct once_mac_run run;
    once_mac_start(&mac, &run);
    for (size_t i = 0; i < 3; i++)
        once_mac_add(&run, parts[i]);
    once_mac_end(&run, got);
    expect_hex("one by one", want, got);
}

static void mac__moving_a_byte_between_parts_changes_it(void)
{
    const once_span lists[][3] = {
        { ONCE_LIT("ab"), ONCE_LIT("c"), ONCE_LIT("") },
        { ONCE_LIT("a"), ONCE_LIT("bc"), ONCE_LIT("") },
        { ONCE_LIT("abc"), ONCE_LIT(""), ONCE_LIT("") },
        { ONCE_LIT(""), ONCE_LIT("abc"), ONCE_LIT("") },
    };
    struct once_mac mac;
    once_mac_init(&mac, ONCE_LIT("key"));
    uint8_t macs[8][ONCE_MAC_LEN];
    for (size_t i = 0; i < 4; i++) {
        once_mac_parts(&mac, lists[i], 3, macs[2 * i]);
        once_mac_parts(&mac, lists[i], 2, macs[2 * i + 1]); /* and without the last, empty one */
    }
    for (size_t i = 0; i < 8; i++)
        for (size_t j = 0; j < i; j++)
            EXPECT(memcmp(macs[i], macs[j], ONCE_MAC_LEN) != 0);
}

static void mac__a_prepared_key_can_be_used_again(void)
{
    struct once_mac mac;
    once_mac_init(&mac, ONCE_LIT("key"));
    const once_span part = ONCE_LIT("message");
    uint8_t first[ONCE_MAC_LEN], second[ONCE_MAC_LEN];
    once_mac_parts(&mac, &part, 1, first);
    once_mac_parts(&mac, &part, 1, second);
    EXPECT(memcmp(first, second, sizeof first) == 0);
}

static void sha256__agrees_with_fips_180(void)
{
    uint8_t got[ONCE_MAC_LEN];
    struct guard guard;
    once_sha256(guard_copy(&guard, "abc", 3), got);
    expect_hex("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", got);
    guard_release(&guard);
    once_sha256((once_span){ NULL, 0 }, got);
    expect_hex("empty", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", got);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(mac__prepared_keys_agree_with_rfc_4231),
        TEST(mac__parts_are_preceded_by_their_lengths),
        TEST(mac__moving_a_byte_between_parts_changes_it),
        TEST(mac__a_prepared_key_can_be_used_again),
        TEST(sha256__agrees_with_fips_180),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
