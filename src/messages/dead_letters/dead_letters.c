/* dead_letters.c - see dead_letters.h: chooses the database by its URL, makes ids, checks the calls. */
#include "messages/dead_letters/dead_letters.h"

#include "core/err.h"
#include "core/http/url.h"
#include "core/mac.h"
#include "core/span.h"

#include <assert.h>
#include <stdio.h>

static bool is_postgres(const char *url)
{
    return strncmp(url, "postgresql:", 11) == 0 || strncmp(url, "postgres:", 9) == 0;
}

once_result dead_letters_check(const char *url, struct once_error *err)
{
    char scheme[ONCE_URL_SHOWN_LEN];
    if (is_postgres(url) || strncmp(url, "sqlite:", 7) == 0)
        return ONCE_OK;
    once_url_scheme(url, scheme);
    return once_fail(
        err, ONCE_INVALID,
        "'%s' has no table for dead letters: postgresql://... and sqlite:PATH have; give a --dead-letter topic",
        scheme);
}

once_result dead_letters_open(const char *url, struct dead_letters **out, struct once_error *err)
{
    once_result r = dead_letters_check(url, err);
    if (r != ONCE_OK)
        return r;
    return is_postgres(url) ? dead_letters_pg_create(url, out, err) : dead_letters_sqlite_create(url + 7, out, err);
}

void dead_letters_close(struct dead_letters *l)
{
    if (l != NULL)
        l->ops->close(l);
}

/* HMAC-SHA-256 with a fixed key is a hash of the parts with their lengths; 122 bits of it as a UUID of version 8. */
void dead_letter_id(once_span consumer, once_span message_id, once_span payload, char out[ONCE_UUID_LEN + 1])
{
    struct once_mac mac;
    uint8_t b[ONCE_MAC_LEN];
    once_span parts[] = { consumer, message_id, payload };
    once_mac_init(&mac, ONCE_LIT("once dead letter"));
    once_mac_parts(&mac, parts, 3, b);
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x80);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    snprintf(out, ONCE_UUID_LEN + 1, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

static bool is_id(const char *id)
{
    return strlen(id) == ONCE_UUID_LEN;
}

once_result dead_letters_put(struct dead_letters *l, const struct dead_letter *dead_letter, struct once_error *err)
{
    assert(is_id(dead_letter->id) && dead_letter->consumer.len > 0 && dead_letter->incoming != NULL);
    return l->ops->put(l, dead_letter, err);
}

once_result dead_letters_due(struct dead_letters *l, once_span consumer, int32_t most, dead_letters_due_fn *each,
                             void *arg, struct once_error *err)
{
    assert(consumer.len > 0 && most > 0);
    return l->ops->due(l, consumer, most, each, arg, err);
}

once_result dead_letters_settle(struct dead_letters *l, const char *id, struct once_error *err)
{
    assert(is_id(id));
    return l->ops->settle(l, id, err);
}

once_result dead_letters_count(struct dead_letters *l, once_span consumer, int64_t *count, struct once_error *err)
{
    assert(consumer.len > 0);
    once_result r = l->ops->count(l, consumer, count, err);
    assert(r != ONCE_OK || *count >= 0);
    return r;
}

once_result dead_letters_query(struct dead_letters *l, const char *id, const struct message_filter *filter,
                               message_item_fn *each, void *arg, struct once_error *err)
{
    assert((id != NULL) != (filter != NULL));
    return l->ops->query(l, id, filter, each, arg, err);
}

once_result dead_letters_resolve(struct dead_letters *l, const char *id, const char *action, once_span actor,
                                 once_span reason, char did[16], struct once_error *err)
{
    assert(is_id(id) && reason.len > 0);
    assert(strcmp(action, "retry") == 0 || strcmp(action, "drop") == 0);
    once_result r = l->ops->resolve(l, id, action, actor, reason, did, err);
    assert(r != ONCE_OK || did[0] != '\0');
    return r;
}
