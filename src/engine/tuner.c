/* tuner.c - see tuner.h. */
#include "engine/tuner.h"

enum {
    WINDOW_NS = 100 * 1000 * 1000,
    INTERVAL_FIRST = 10,
    INTERVAL_MAX = 320,
    BATCH_MIN = 8, /* smaller batches on average: too little load to tune for */
};
static const double BETTER = 1.05;

void tuner_init(struct tuner *t)
{
    *t = (struct tuner){ .writers = 1, .interval = INTERVAL_FIRST, .left = 1 };
}

void tuner_give_up(struct tuner *t)
{
    t->writers = 1;
    t->trying = false;
    t->interval = t->left = INTERVAL_MAX;
}

/* Ends a trial: keeps the number of writers if the rate is better, else goes back. */
static void end_trial(struct tuner *t, double rate)
{
    t->trying = false;
    if (rate > t->rate * BETTER) {
        t->rate = rate;
        t->interval = INTERVAL_FIRST;
    } else {
        t->writers = 3 - t->writers;
        t->interval = t->interval < INTERVAL_MAX ? 2 * t->interval : INTERVAL_MAX;
    }
    t->left = t->interval;
}

static void end_window(struct tuner *t, double rate)
{
    if (t->trying) {
        end_trial(t, rate);
        return;
    }
    t->rate = rate;
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
        t->window_started_ns = now_ns; /* the first batch starts the window and is not counted */
    else
        t->operations += operations;
    uint64_t took = now_ns - t->window_started_ns;
    if (took < WINDOW_NS)
        return false;
    unsigned writers = t->writers;
    if (t->operations / t->batches * t->writers >= BATCH_MIN)
        end_window(t, (double)t->operations / (double)took);
    else if (t->trying) /* the load ended during the trial, which therefore shows nothing */
        end_trial(t, 0);
    t->batches = t->operations = 0;
    return t->writers != writers;
}
