/* fetch.c - see reconcile/fetch.h. */
#include "reconcile/fetch.h"

#include <assert.h>
#include <pthread.h>

struct batch {
    struct reconcile *r;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t pending;
    bool failed;
    struct once_error err; /* the first */
};

struct look {
    struct batch *batch;
    struct reconcile_fetch *item;
};

/* Runs on the engine's thread. The parts of `batch->r` that it reads do not change meanwhile. */
static void looked(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    const struct look *look = arg;
    struct batch *batch = look->batch;
    struct reconcile_fetch *item = look->item;
    if (result == ONCE_OK && reply->arm == ONCE_ARM_FOUND)
        item->kind = reconcile_judge_all(batch->r, &reply->record, &item->charge, item->text);
    else
        item->kind = RECONCILE_YOUNG; /* the record was removed after it was listed */
    once_reply_release(reply);
    pthread_mutex_lock(&batch->lock);
    if (result != ONCE_OK && !batch->failed) {
        batch->failed = true;
        batch->err = *err;
    }
    batch->pending--;
    pthread_cond_signal(&batch->changed);
    pthread_mutex_unlock(&batch->lock);
}

/* False: the engine refused it. */
static bool submit(struct batch *batch, struct look *look)
{
    const struct once_record *record = look->item->record;
    const struct once_request request = { .verb = ONCE_VERB_LOOKUP, .lookup = { record->tenant, record->key, false } };
    struct once_error err;
    pthread_mutex_lock(&batch->lock);
    batch->pending++;
    pthread_mutex_unlock(&batch->lock);
    if (once_submit(batch->r->once, &request, looked, look, &err) == ONCE_OK)
        return true;
    pthread_mutex_lock(&batch->lock);
    batch->pending--;
    batch->failed = true;
    batch->err = err;
    pthread_mutex_unlock(&batch->lock);
    return false;
}

int reconcile_fetch(struct reconcile *r, struct reconcile_fetch *items, size_t count)
{
    struct batch batch = { .r = r, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
    struct look looks[RECONCILE_FETCH_MAX];
    assert(count <= RECONCILE_FETCH_MAX);
    bool going = true;
    for (size_t i = 0; i < count && going; i++) {
        if (items[i].record->key.len == 0) {
            snprintf(items[i].text, RECONCILE_TEXT_LEN,
                     "the store does not keep key texts, so its answer cannot be read");
            items[i].kind = RECONCILE_NOT_ASKED;
            continue;
        }
        looks[i] = (struct look){ &batch, &items[i] };
        going = submit(&batch, &looks[i]);
    }
    pthread_mutex_lock(&batch.lock);
    while (batch.pending > 0)
        pthread_cond_wait(&batch.changed, &batch.lock);
    pthread_mutex_unlock(&batch.lock);
    pthread_cond_destroy(&batch.changed);
    pthread_mutex_destroy(&batch.lock);
    return batch.failed ? once_cli_error(&r->cli, &batch.err, "read a record") : ONCE_EXIT_OK;
}
