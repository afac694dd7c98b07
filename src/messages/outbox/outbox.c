/* outbox.c - see outbox.h: chooses the database by its URL, and checks the calls into it. */
#include "messages/outbox/outbox.h"

#include "core/err.h"
#include "core/http/url.h"

#include <assert.h>
#include <string.h>

once_result outbox_create(const char *url, struct outbox **out, struct once_error *err)
{
    struct outbox *o = NULL;
    if (strncmp(url, "postgresql:", 11) == 0 || strncmp(url, "postgres:", 9) == 0)
        o = outbox_pg_create(url);
    else if (strncmp(url, "sqlite:", 7) == 0)
        o = outbox_sqlite_create(url + 7);
    else {
        char scheme[ONCE_URL_SHOWN_LEN];
        once_url_scheme(url, scheme);
        return once_fail(err, ONCE_INVALID,
                         "'%s' cannot have an outbox: give postgresql://..., or sqlite:PATH of the database that "
                         "messages are enqueued in",
                         scheme);
    }
    if (o == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a connection");
    *out = o;
    return ONCE_OK;
}

once_result outbox_open(const char *url, struct outbox **out, struct once_error *err)
{
    struct outbox *o = NULL;
    once_result r = outbox_create(url, &o, err);
    if (r == ONCE_OK)
        r = outbox_connect(o, err);
    if (r != ONCE_OK) {
        outbox_close(o);
        return r;
    }
    *out = o;
    return ONCE_OK;
}

void outbox_close(struct outbox *o)
{
    if (o != NULL)
        o->ops->close(o);
}

once_result outbox_connect(struct outbox *o, struct once_error *err)
{
    return o->ops->connect(o, err);
}

/* Messages are sorted by lane and order: RELAY-1 rests on it. */
static bool is_well_formed(const struct outbox_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        const struct outbox_message *m = &batch->messages[i], *before = i > 0 ? m - 1 : NULL;
        if (strlen(m->message.id) != ONCE_UUID_LEN || m->message.topic.len == 0 || m->verdict != OUTBOX_UNTRIED)
            return false;
        if (before != NULL && (m->lane < before->lane || (m->lane == before->lane && m->seq <= before->seq)))
            return false;
    }
    return true;
}

once_result outbox_take(struct outbox *o, int64_t lease_ms, int32_t most, bool alone, struct outbox_batch *batch,
                        struct once_error *err)
{
    assert(lease_ms >= OUTBOX_LEASE_MS_MIN && lease_ms <= OUTBOX_LEASE_MS_MAX);
    assert(most >= 1 && most <= MESSAGE_BATCH_MAX);
    *batch = (struct outbox_batch){ 0 };
    once_result r = o->ops->take(o, lease_ms, most, alone, batch, err);
    if (r == ONCE_OK && !is_well_formed(batch)) {
        outbox_batch_release(o, batch);
        return once_fail(err, ONCE_CORRUPT, "the outbox returned a batch that breaks its order");
    }
    return r;
}

once_result outbox_settle(struct outbox *o, const struct outbox_batch *batch, struct once_error *err)
{
    assert(batch->count > 0);
    for (size_t i = 0; i < batch->count; i++)
        assert(batch->messages[i].verdict <= OUTBOX_CONFIRMED && batch->messages[i].wait_ms >= 0);
    return o->ops->settle(o, batch, err);
}

void outbox_batch_release(struct outbox *o, struct outbox_batch *batch)
{
    o->ops->batch_release(batch);
    assert(batch->count == 0);
}

once_result outbox_retry_now(struct outbox *o, struct once_error *err)
{
    return o->ops->retry_now(o, err);
}

once_result outbox_upkeep(struct outbox *o, struct once_error *err)
{
    return o->ops->upkeep(o, err);
}

once_result outbox_set_idle(struct outbox *o, bool idle, struct once_error *err)
{
    return o->ops->set_idle(o, idle, err);
}

void outbox_wait(struct outbox *o, int fd, int ms)
{
    assert(ms >= 0);
    o->ops->wait(o, fd, ms);
}

once_result outbox_counts(struct outbox *o, struct outbox_counts *counts, struct once_error *err)
{
    once_result r = o->ops->counts(o, counts, err);
    assert(r != ONCE_OK ||
           (counts->pending >= 0 && counts->stalled >= 0 && counts->scheduled >= 0 && counts->dead >= 0));
    return r;
}

once_result outbox_query(struct outbox *o, const char *id, const struct message_filter *filter, message_item_fn *each,
                         void *arg, struct once_error *err)
{
    assert((id != NULL) != (filter != NULL));
    assert(filter == NULL || (filter->most >= 1 && filter->most <= OUTBOX_LIST_MAX));
    return o->ops->query(o, id, filter, each, arg, err);
}

once_result outbox_resolve(struct outbox *o, const char *id, const char *action, once_span actor, once_span reason,
                           char did[16], struct once_error *err)
{
    assert(strlen(id) == ONCE_UUID_LEN && reason.len > 0);
    assert(strcmp(action, "retry") == 0 || strcmp(action, "drop") == 0);
    once_result r = o->ops->resolve(o, id, action, actor, reason, did, err);
    assert(r != ONCE_OK || did[0] != '\0');
    return r;
}
