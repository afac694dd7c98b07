/* tuner.c - see tuner.h. */
#include "engine/tuner.h"

enum {
    WINDOW_NS = 100 * 1000 * 1000,
    PATIENCE_FIRST = 10,
    PATIENCE_MAX = 320,
    BATCH_MIN = 8, /* smaller ones on average: there is no load worth tuning for */
};
static const double BETTER = 1.05;

void tuner_init(struct tuner *t)
{
    *t = (struct tuner){ .writers = 1, .patience = PATIENCE_FIRST, .left = 1 };
}

void tuner_give_up(struct tuner *t)
{
    t->writers = 1;
    t->trying = false;
    t->patience = t->left = PATIENCE_MAX;
}

/* The trial is over: was it worth it? */
static void judge(struct tuner *t, double rate)
{
    t->trying = false;
    if (rate > t->before * BETTER) {
        t->before = rate;
        t->patience = PATIENCE_FIRST;
    } else {
        t->writers = 3 - t->writers;
        t->patience = t->patience < PATIENCE_MAX ? 2 * t->patience : PATIENCE_MAX;
    }
    t->left = t->patience;
}

static void end_window(struct tuner *t, double rate)
{
    if (t->trying) {
        judge(t, rate);
        return;
    }
    t->before = rate;
    if (t->left > 0)
        t->left--;
    if (t->left == 0) {
        t->trying = true;
        t->writers = 3 - t->writers;
    }
}

bool tuner_note(struct tuner *t, uint64_t operations, uint64_t now_ns)
{
    if (t->batches++ == 0)
        t->window_started_ns = now_ns; /* what it begins with is not counted */
    else
        t->operations += operations;
    uint64_t took = now_ns - t->window_started_ns;
    if (took < WINDOW_NS)
        return false;
    unsigned writers = t->writers;
    if (t->operations / t->batches * t->writers >= BATCH_MIN)
        end_window(t, (double)t->operations / (double)took);
    else if (t->trying) /* the load went away meanwhile: that says nothing */
        judge(t, 0);
    t->batches = t->operations = 0;
    return t->writers != writers;
}
