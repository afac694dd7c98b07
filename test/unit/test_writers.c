/*
 * test_writers.c - the engine with two lanes, over a store that only counts, with a tuner that
 * changes its mind all the time: each job is answered once, those of one record in their order,
 * and never by two lanes at a time.
 */
#include "core/record.h"
#include "engine/engine.h"
#include "engine/tuner.h"
#include "os/os.h"

#include "../test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

/* In place of the library's: whoever defines all of them is not given those. */
void tuner_init(struct tuner *t)
{
    *t = (struct tuner){ .writers = 1 };
}

bool tuner_note(struct tuner *t, uint64_t operations, uint64_t now_ns)
{
    (void)operations, (void)now_ns;
    if (++t->batches % 3 != 0)
        return false;
    t->writers = 3 - t->writers;
    return true;
}

void tuner_give_up(struct tuner *t)
{
    t->writers = 1;
}

/* ------------------------------------------------------------------ the store */

enum { RECORDS = 64, THREADS = 4, JOBS_EACH = 20000 };

static struct {
    atomic_int at_it; /* steps that have it in hand */
    atomic_int_fast64_t last;
} records[RECORDS];
static atomic_int out_of_order, side_by_side, steps_of_second;

struct counting_store {
    struct once_store base;
    bool second;
};

static once_result count_all(struct once_store *base, struct once_op *const *ops, size_t count, struct once_error *err)
{
    struct counting_store *s = (struct counting_store *)base;
    steps_of_second += s->second;
    for (size_t i = 0; i < count; i++)
        if (records[ops[i]->record[15]].at_it++ != 0 && i == 0)
            side_by_side++;
    for (int i = 0; i < 20; i++)
        sched_yield(); /* a commit takes its time */
    for (size_t i = 0; i < count; i++) {
        int64_t number = ops[i]->request->extend.lease_ms;
        if (atomic_exchange(&records[ops[i]->record[15]].last, number) != number - 1)
            out_of_order++;
        ops[i]->result = once_reply_set(&ops[i]->reply, ONCE_ARM_DONE, NULL, err);
    }
    for (size_t i = 0; i < count; i++)
        records[ops[i]->record[15]].at_it--;
    return ONCE_OK;
}

static void close_counting(struct once_store *base)
{
    free(base);
}

static once_result another_counting(struct once_store *base, struct once_store **out, struct once_error *err);

static const struct once_store_ops counting = {
    .name = "counting", .apply = count_all, .open_another = another_counting, .close = close_counting
};

static struct once_store *make_store(bool second)
{
    struct counting_store *s = calloc(1, sizeof *s);
    s->base.ops = &counting;
    s->second = second;
    return &s->base;
}

static once_result another_counting(struct once_store *base, struct once_store **out, struct once_error *err)
{
    (void)base, (void)err;
    *out = make_store(true);
    return ONCE_OK;
}

/* ------------------------------------------------------------------ the callers */

static struct engine *engine;
static atomic_int answered, refused;

static void on_answer(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    (void)arg, (void)err;
    refused += result != ONCE_OK;
    answered++;
    once_reply_release(reply);
}

static void submit(int record, int64_t number)
{
    struct job *job = calloc(1, sizeof *job);
    job->kind = JOB_OPERATION;
    job->request = (struct once_request){ .verb = ONCE_VERB_EXTEND, .extend = { number } };
    job->op.request = &job->request;
    job->op.record[15] = (uint8_t)record;
    job->done = on_answer;
    while (engine_submit(engine, job, NULL) == ONCE_BUSY)
        sched_yield();
}

/* Each thread has records of its own, so it knows the order that theirs came in. */
static void *call(void *arg)
{
    int first = (int)(intptr_t)arg * (RECORDS / THREADS);
    for (int i = 0; i < JOBS_EACH; i++)
        submit(first + i % (RECORDS / THREADS), i / (RECORDS / THREADS) + 1);
    return NULL;
}

static void run(bool poll)
{
    struct once_options options = { .queue_len = 256, .batch_len = 32, .waiter_len = 16, .poll = poll };
    struct once_store *store = make_store(false);
    memset(records, 0, sizeof records);
    answered = refused = out_of_order = side_by_side = steps_of_second = 0;
    CHECK(engine_start(store, &options, &engine, NULL) == ONCE_OK);
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, call, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    engine_stop(engine);
    once_store_close(store);
    EXPECT(answered == THREADS * JOBS_EACH);
    EXPECT(refused == 0);
    EXPECT(steps_of_second > 0);
    EXPECT(side_by_side == 0);
    EXPECT(out_of_order == 0);
    if (out_of_order > 0)
        printf("# %d of %d out of order\n", out_of_order, answered);
}

static void lanes__keep_the_order_of_a_record(void)
{
    run(false);
}

static void lanes__are_all_answered_when_polled(void)
{
    run(true);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(lanes__keep_the_order_of_a_record),
        TEST(lanes__are_all_answered_when_polled),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
