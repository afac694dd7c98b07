/* seal_ring.c - see seal_ring.h. */
#include "core/seal_ring.h"

#include "core/err.h"
#include "core/span.h"

#include <stdlib.h>

struct entry {
    struct once_seal_key key;
    uint8_t tenant[ONCE_TENANT_LEN_MAX];
    size_t tenant_len; /* 0: for all tenants without their own key */
    size_t line;
    bool gone;
};

struct once_seal_ring {
    struct entry
        *entries; /* in the order of their lines: sorting them would leave copies of keys that we cannot wipe */
    size_t count, room;
    struct entry **ids;     /* sorted by id */
    struct entry **tenants; /* keys of tenants, sorted by tenant and line */
    size_t tenant_count;
    const struct entry *common; /* the last key without a tenant */
};

/* ------------------------------------------------------------------ lines */

static once_span next_word(once_span *rest)
{
    size_t from = 0, to;
    while (from < rest->len && (rest->ptr[from] == ' ' || rest->ptr[from] == '\t' || rest->ptr[from] == '\r'))
        from++;
    for (to = from; to < rest->len && rest->ptr[to] != ' ' && rest->ptr[to] != '\t' && rest->ptr[to] != '\r';)
        to++;
    once_span word = once_span_of(rest->ptr + from, to - from);
    *rest = once_span_skip(*rest, to);
    return word;
}

static int hex_digit(uint8_t c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool read_key(once_span word, struct once_seal_key *key)
{
    uint8_t bytes[ONCE_SEAL_KEY_LEN];
    bool good = word.len == 2 * sizeof bytes;
    for (size_t i = 0; good && i < sizeof bytes; i++) {
        int high = hex_digit(word.ptr[2 * i]), low = hex_digit(word.ptr[2 * i + 1]);
        good = high >= 0 && low >= 0;
        bytes[i] = good ? (uint8_t)(high << 4 | low) : 0;
    }
    if (good)
        once_mac_init(&key->derive, once_span_of(bytes, sizeof bytes));
    explicit_bzero(bytes, sizeof bytes);
    return good;
}

static bool read_tenant(once_span word, struct entry *entry)
{
    for (size_t i = 0; i < word.len; i++) {
        uint8_t byte = word.ptr[i];
        if (byte == '%') {
            bool whole = word.len - i > 2;
            int high = whole ? hex_digit(word.ptr[i + 1]) : -1, low = whole ? hex_digit(word.ptr[i + 2]) : -1;
            if (high < 0 || low < 0)
                return false;
            byte = (uint8_t)(high << 4 | low);
            i += 2;
        }
        if (entry->tenant_len == sizeof entry->tenant)
            return false;
        entry->tenant[entry->tenant_len++] = byte;
    }
    return entry->tenant_len > 0;
}

/* What is wrong with a line, or NULL. */
static const char *read_line(once_span line, struct entry *entry)
{
    once_span id = next_word(&line), second = next_word(&line), third = next_word(&line), rest = next_word(&line);
    if (!once_seal_id_is_valid(id))
        return "the first word is not a key id: 1 to 32 of A-Z a-z 0-9 . _ -";
    memcpy(entry->key.id, id.ptr, id.len);
    if (second.len == 0 || rest.len > 0)
        return "it is not 'ID KEY', 'ID TENANT KEY' or 'ID gone'";
    entry->gone = third.len == 0 && once_span_equal(second, ONCE_LIT("gone"));
    if (entry->gone)
        return NULL;
    if (third.len > 0 && !read_tenant(second, entry))
        return "the second word is not a tenant: 1 to 255 bytes, with %XX for bytes that are not visible ASCII";
    if (!read_key(third.len > 0 ? third : second, &entry->key))
        return "the key is not 64 hexadecimal digits";
    return NULL;
}

/* ------------------------------------------------------------------ the ring */

static int by_id(const void *left, const void *right)
{
    const struct entry *a = *(struct entry *const *)left, *b = *(struct entry *const *)right;
    return strcmp(a->key.id, b->key.id);
}

static once_span tenant_of(const struct entry *entry)
{
    return once_span_of(entry->tenant, entry->tenant_len);
}

static int by_tenant(const void *left, const void *right)
{
    const struct entry *a = *(struct entry *const *)left, *b = *(struct entry *const *)right;
    int order = once_span_order(tenant_of(a), tenant_of(b));
    return order != 0 ? order : (a->line > b->line) - (a->line < b->line);
}

/* No realloc: memory that held keys is wiped before it is freed. */
static bool make_room(struct once_seal_ring *ring)
{
    if (ring->count < ring->room)
        return true;
    size_t room = ring->room == 0 ? 16 : 2 * ring->room;
    struct entry *bigger = calloc(room, sizeof *bigger);
    if (bigger == NULL)
        return false;
    if (ring->count > 0) {
        memcpy(bigger, ring->entries, ring->count * sizeof *bigger);
        explicit_bzero(ring->entries, ring->count * sizeof *bigger);
    }
    free(ring->entries);
    ring->entries = bigger;
    ring->room = room;
    return true;
}

static once_result read_lines(struct once_seal_ring *ring, once_span text, const char *where, struct once_error *err)
{
    for (size_t number = 1; text.len > 0; number++) {
        once_span line, look;
        once_span_cut(text, '\n', &line, &text);
        look = line;
        once_span first = next_word(&look);
        if (first.len == 0 || first.ptr[0] == '#')
            continue;
        if (ring->count == ONCE_SEAL_KEYS_MAX)
            return once_fail(err, ONCE_LIMIT, "%s line %zu: more than %d keys", where, number, ONCE_SEAL_KEYS_MAX);
        if (!make_room(ring))
            return once_fail(err, ONCE_NO_MEMORY, "no memory for the keys of %s", where);
        struct entry *entry = &ring->entries[ring->count++];
        entry->line = number;
        const char *wrong = read_line(line, entry);
        if (wrong != NULL)
            return once_fail(err, ONCE_INVALID, "%s line %zu: %s", where, number, wrong);
    }
    return ONCE_OK;
}

static once_result index_ring(struct once_seal_ring *ring, const char *where, struct once_error *err)
{
    ring->ids = calloc(ring->count + 1, sizeof(struct entry *));
    ring->tenants = calloc(ring->count + 1, sizeof(struct entry *));
    if (ring->ids == NULL || ring->tenants == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the keys of %s", where);
    for (size_t i = 0; i < ring->count; i++)
        ring->ids[i] = &ring->entries[i];
    qsort(ring->ids, ring->count, sizeof(struct entry *), by_id);
    for (size_t i = 0; i < ring->count; i++) {
        struct entry *entry = ring->ids[i], *before = i > 0 ? ring->ids[i - 1] : NULL;
        if (before != NULL && strcmp(entry->key.id, before->key.id) == 0)
            return once_fail(err, ONCE_INVALID, "%s line %zu: key '%s' was on line %zu already", where,
                             entry->line > before->line ? entry->line : before->line, entry->key.id,
                             entry->line > before->line ? before->line : entry->line);
        if (entry->gone)
            continue;
        if (entry->tenant_len > 0)
            ring->tenants[ring->tenant_count++] = entry;
        else if (ring->common == NULL || entry->line > ring->common->line)
            ring->common = entry;
    }
    qsort(ring->tenants, ring->tenant_count, sizeof(struct entry *), by_tenant);
    if (ring->common == NULL)
        return once_fail(err, ONCE_INVALID, "%s has no key without a tenant: a line 'ID KEY'", where);
    return ONCE_OK;
}

once_result once_seal_ring_parse(once_span text, const char *where, struct once_seal_ring **out, struct once_error *err)
{
    struct once_seal_ring *ring = calloc(1, sizeof *ring);
    if (ring == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the keys of %s", where);
    once_result r = read_lines(ring, text, where, err);
    if (r == ONCE_OK)
        r = index_ring(ring, where, err);
    if (r != ONCE_OK) {
        once_seal_ring_free(ring);
        return r;
    }
    *out = ring;
    return ONCE_OK;
}

void once_seal_ring_free(struct once_seal_ring *ring)
{
    if (ring == NULL)
        return;
    if (ring->entries != NULL)
        explicit_bzero(ring->entries, ring->count * sizeof *ring->entries);
    free(ring->entries);
    free(ring->ids);
    free(ring->tenants);
    free(ring);
}

/* ------------------------------------------------------------------ looking */

const struct once_seal_key *once_seal_ring_for(const struct once_seal_ring *ring, once_span tenant)
{
    size_t low = 0, high = ring->tenant_count; /* finds the first entry after all of this tenant */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (once_span_order(tenant_of(ring->tenants[middle]), tenant) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    const struct entry *last = low > 0 ? ring->tenants[low - 1] : NULL;
    if (last != NULL && once_span_equal(tenant_of(last), tenant))
        return &last->key;
    return &ring->common->key;
}

static const struct entry *find(const struct once_seal_ring *ring, once_span id)
{
    struct entry wanted = { .line = 0 };
    if (ring == NULL || !once_seal_id_is_valid(id))
        return NULL;
    memcpy(wanted.key.id, id.ptr, id.len);
    const struct entry *asked = &wanted, *const *found =
                                             bsearch(&asked, ring->ids, ring->count, sizeof(struct entry *), by_id);
    return found != NULL ? *found : NULL;
}

const struct once_seal_key *once_seal_ring_find(const struct once_seal_ring *ring, once_span id)
{
    const struct entry *entry = find(ring, id);
    return entry != NULL && !entry->gone ? &entry->key : NULL;
}

bool once_seal_ring_has_tenants(const struct once_seal_ring *ring)
{
    return ring->tenant_count > 0;
}

bool once_seal_ring_is_gone(const struct once_seal_ring *ring, once_span id)
{
    const struct entry *entry = find(ring, id);
    return entry != NULL && entry->gone;
}
