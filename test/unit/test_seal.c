/* test_seal.c - envelopes (SEAL-1, SEAL-2: core/seal.h), and the files that keys come from. */
#include "core/seal_ring.h"
#include "core/span.h"
#include "store/wrap/seal_keys.h"

#include "../test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_A "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define KEY_B "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define KEY_C "fe0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static const uint8_t record[16] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };
static const uint8_t other[16] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17 };

static struct once_seal_ring *ring_of(const char *text)
{
    struct once_seal_ring *ring = NULL;
    struct once_error err;
    if (once_seal_ring_parse(once_span_str(text), "the test", &ring, &err) != ONCE_OK)
        printf("# %s\n", err.text);
    return ring;
}

static struct once_buf seal(const struct once_seal_key *key, enum once_seal_field field, once_span plain)
{
    struct once_buf out;
    once_buf_init(&out, 1 << 20);
    once_seal_close(key, field, record, plain, &out);
    return out;
}

static once_result opens(const struct once_seal_key *key, enum once_seal_field field, const uint8_t id[16],
                         once_span bytes, once_span expected)
{
    struct once_buf out;
    struct once_error err = { .text = "" };
    once_buf_init(&out, 1 << 20);
    once_result r = once_seal_open(key, field, id, bytes, &out, &err);
    if (r == ONCE_OK && !once_span_equal(once_buf_span(&out), expected))
        r = ONCE_UNKNOWN;
    if (r == ONCE_CORRUPT && (err.text[0] == '\0' || out.len != 0))
        r = ONCE_INVALID;
    once_buf_release(&out);
    return r;
}

static void round_trip__of_any_length(void)
{
    struct once_seal_ring *ring = ring_of("k " KEY_A "\n");
    CHECK(ring != NULL);
    const struct once_seal_key *key = once_seal_ring_find(ring, ONCE_LIT("k"));
    uint8_t bytes[300];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(7 * i);
    for (size_t len = 0; len <= sizeof bytes; len++) {
        once_span plain = once_span_of(bytes, len);
        struct once_buf sealed = seal(key, ONCE_SEAL_REQUEST, plain), again = seal(key, ONCE_SEAL_REQUEST, plain);
        EXPECT(once_seal_is(once_buf_span(&sealed)) && sealed.len <= len + ONCE_SEAL_OVERHEAD_MAX);
        EXPECT(once_span_equal(once_buf_span(&sealed), once_buf_span(&again))); /* a repeated finish knows itself */
        EXPECT(len < 8 || memmem(sealed.ptr, sealed.len, bytes, len) == NULL);
        EXPECT(opens(key, ONCE_SEAL_REQUEST, record, once_buf_span(&sealed), plain) == ONCE_OK);
        once_buf_release(&sealed);
        once_buf_release(&again);
    }
    once_seal_ring_free(ring);
}

/* Computed from the words of seal.h by somebody else: Python's hmac, and an AES-256-GCM of its own. */
#define FORMAT_VECTOR "9b6f6e63650d0a01026b31337ce51bb03e1ab789d5c69f18420f9007b3ca571754ae47d79127901fb18930b0"

static void format__is_what_it_was(void)
{
    struct once_seal_ring *ring = ring_of("k1 " KEY_A "\n");
    CHECK(ring != NULL);
    struct once_buf sealed = seal(once_seal_ring_find(ring, ONCE_LIT("k1")), ONCE_SEAL_OUTCOME, ONCE_LIT("hello"));
    char hex[2 * 128 + 1] = "";
    for (size_t i = 0; i < sealed.len && i < 128; i++)
        snprintf(hex + 2 * i, 3, "%02x", sealed.ptr[i]);
    if (strcmp(hex, FORMAT_VECTOR) != 0)
        printf("# %s\n", hex);
    EXPECT(strcmp(hex, FORMAT_VECTOR) == 0);
    once_buf_release(&sealed);
    once_seal_ring_free(ring);
}

static void S1__bytes_cannot_be_moved(void)
{
    struct once_seal_ring *ring = ring_of("k " KEY_A "\nl " KEY_B "\n");
    CHECK(ring != NULL);
    const struct once_seal_key *key = once_seal_ring_find(ring, ONCE_LIT("k"));
    once_span plain = ONCE_LIT("a secret");
    struct once_buf sealed = seal(key, ONCE_SEAL_OUTCOME, plain);
    once_span bytes = once_buf_span(&sealed);
    EXPECT(opens(key, ONCE_SEAL_OUTCOME, other, bytes, plain) == ONCE_CORRUPT);
    EXPECT(opens(key, ONCE_SEAL_REQUEST, record, bytes, plain) == ONCE_CORRUPT);
    EXPECT(opens(key, ONCE_SEAL_CHECKPOINT, record, bytes, plain) == ONCE_CORRUPT);
    EXPECT(opens(once_seal_ring_find(ring, ONCE_LIT("l")), ONCE_SEAL_OUTCOME, record, bytes, plain) == ONCE_CORRUPT);
    EXPECT(opens(key, ONCE_SEAL_OUTCOME, record, bytes, plain) == ONCE_OK);
    once_buf_release(&sealed);
    once_seal_ring_free(ring);
}

static void S2__a_changed_bit_is_found_wherever_it_is(void)
{
    struct once_seal_ring *ring = ring_of("k " KEY_A "\n");
    CHECK(ring != NULL);
    const struct once_seal_key *key = once_seal_ring_find(ring, ONCE_LIT("k"));
    once_span plain = ONCE_LIT("a secret of more than one block of a cipher");
    struct once_buf sealed = seal(key, ONCE_SEAL_OUTCOME, plain);
    for (size_t bit = 0; bit < 8 * sealed.len; bit++) {
        sealed.ptr[bit / 8] ^= (uint8_t)(1u << bit % 8);
        EXPECT(opens(key, ONCE_SEAL_OUTCOME, record, once_buf_span(&sealed), plain) == ONCE_CORRUPT);
        sealed.ptr[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t len = 0; len < sealed.len; len++)
        EXPECT(opens(key, ONCE_SEAL_OUTCOME, record, once_span_of(sealed.ptr, len), plain) == ONCE_CORRUPT);
    once_buf_release(&sealed);
    once_seal_ring_free(ring);
}

static void ring__the_last_key_seals_and_all_open(void)
{
    struct once_seal_ring *ring = ring_of("# keys\n\n one " KEY_A "\r\n\tacme-1 acme " KEY_B "\n two " KEY_C "\n"
                                          "b-1 b%20c " KEY_A "\nacme-2 acme " KEY_A "\nold gone\n");
    CHECK(ring != NULL);
    EXPECT(strcmp(once_seal_ring_for(ring, ONCE_LIT(""))->id, "two") == 0);
    EXPECT(strcmp(once_seal_ring_for(ring, ONCE_LIT("acme"))->id, "acme-2") == 0);
    EXPECT(strcmp(once_seal_ring_for(ring, ONCE_LIT("b c"))->id, "b-1") == 0);
    EXPECT(strcmp(once_seal_ring_for(ring, ONCE_LIT("acm"))->id, "two") == 0);
    EXPECT(strcmp(once_seal_ring_for(ring, ONCE_LIT("acme2"))->id, "two") == 0);
    EXPECT(strcmp(once_seal_ring_for(ring, ONCE_LIT("zzz"))->id, "two") == 0);
    EXPECT(once_seal_ring_find(ring, ONCE_LIT("one")) != NULL && once_seal_ring_find(ring, ONCE_LIT("acme-1")) != NULL);
    EXPECT(once_seal_ring_find(ring, ONCE_LIT("old")) == NULL && once_seal_ring_is_gone(ring, ONCE_LIT("old")));
    EXPECT(!once_seal_ring_is_gone(ring, ONCE_LIT("one")) && once_seal_ring_find(ring, ONCE_LIT("none")) == NULL);
    EXPECT(once_seal_ring_has_tenants(ring));
    once_seal_ring_free(ring);
}

static const struct bad_row {
    const char *name, *text, *line;
} bad_rows[] = {
    { "no key", "# nothing\n", "no key without a tenant" },
    { "only a tenant's", "a acme " KEY_A "\n", "no key without a tenant" },
    { "only gone", "a gone\n", "no key without a tenant" },
    { "short key", "\n\nk 0011\n", "line 3: the key is not 64" },
    { "no hexadecimal", "k g00102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "line 1: the key" },
    { "too long", "k " KEY_A "0\n", "line 1: the key" },
    { "four words", "k a b " KEY_A "\n", "line 1: it is not" },
    { "one word", "k\n", "line 1: it is not" },
    { "id", "k/1 " KEY_A "\n", "line 1: the first word" },
    { "id too long", "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk " KEY_A "\n", "line 1: the first word" },
    { "the key first", KEY_A " k\n", "line 1: the first word" },
    { "twice", "k " KEY_A "\nl " KEY_B "\nk " KEY_C "\n", "line 3: key 'k' was on line 1" },
    { "tenant", "k a%2 " KEY_A "\n", "line 1: the second word" },
};

static void ring__what_is_wrong_is_told_by_line_and_never_the_key(void)
{
    for (size_t i = 0; i < sizeof bad_rows / sizeof *bad_rows; i++) {
        const struct bad_row *row = &bad_rows[i];
        struct once_seal_ring *ring = NULL;
        struct once_error err = { .text = "" };
        EXPECT_ROW(row->name, once_seal_ring_parse(once_span_str(row->text), "F", &ring, &err) == ONCE_INVALID);
        EXPECT_ROW(row->name, ring == NULL && strstr(err.text, row->line) != NULL);
        EXPECT_ROW(row->name, strstr(err.text, "0102030405") == NULL);
    }
}

static void proof__tells_keys_apart(void)
{
    struct once_seal_ring *ring = ring_of("a " KEY_A "\nb " KEY_B "\nc " KEY_A "\n");
    CHECK(ring != NULL);
    uint8_t a[16], b[16], c[16];
    once_seal_proof(once_seal_ring_find(ring, ONCE_LIT("a")), a);
    once_seal_proof(once_seal_ring_find(ring, ONCE_LIT("b")), b);
    once_seal_proof(once_seal_ring_find(ring, ONCE_LIT("c")), c);
    EXPECT(memcmp(a, b, 16) != 0 && memcmp(a, c, 16) == 0);
    once_seal_ring_free(ring);
}

static void file__must_be_its_owners_alone(void)
{
    char path[] = "/tmp/once-seal-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK(write(fd, "k " KEY_A "\n", 67) == 67);
    struct once_seal_ring *ring = NULL;
    struct once_error err = { .text = "" };
    static const mode_t bad[] = { 0640, 0604, 0620, 0602, 0644 };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fchmod(fd, bad[i]);
        EXPECT(once_seal_keys_file(path, &ring, &err) == ONCE_INVALID && strstr(err.text, "chmod 0600") != NULL);
    }
    fchmod(fd, 0400);
    EXPECT(once_seal_keys_file(path, &ring, &err) == ONCE_OK && ring != NULL);
    once_seal_ring_free(ring);
    unlink(path);
    close(fd);
    EXPECT(once_seal_keys_file(path, &ring, &err) == ONCE_UNAVAILABLE && strstr(err.text, path) != NULL);
    EXPECT(once_seal_keys_file("/tmp", &ring, &err) == ONCE_INVALID);
}

static void command__prints_the_keys(void)
{
    struct once_seal_ring *ring = NULL;
    struct once_error err = { .text = "" };
    CHECK(once_seal_keys_command("echo k " KEY_A, &ring, &err) == ONCE_OK);
    EXPECT(once_seal_ring_find(ring, ONCE_LIT("k")) != NULL);
    once_seal_ring_free(ring);
    EXPECT(once_seal_keys_command("echo k " KEY_A "; exit 3", &ring, &err) == ONCE_UNAVAILABLE);
    EXPECT(strstr(err.text, "exit status 3") != NULL && strstr(err.text, "0102") == NULL);
    EXPECT(once_seal_keys_command("echo x", &ring, &err) == ONCE_INVALID && strstr(err.text, "line 1") != NULL);
    EXPECT(once_seal_keys_command("kill -9 $$", &ring, &err) == ONCE_UNAVAILABLE &&
           strstr(err.text, "signal 9") != NULL);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(round_trip__of_any_length),
        TEST(format__is_what_it_was),
        TEST(S1__bytes_cannot_be_moved),
        TEST(S2__a_changed_bit_is_found_wherever_it_is),
        TEST(ring__the_last_key_seals_and_all_open),
        TEST(ring__what_is_wrong_is_told_by_line_and_never_the_key),
        TEST(proof__tells_keys_apart),
        TEST(file__must_be_its_owners_alone),
        TEST(command__prints_the_keys),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
