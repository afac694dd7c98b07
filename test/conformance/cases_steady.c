/*
 * cases_steady.c - steady intake over many retention windows: the store stays as large as it is, loses nothing that is
 * not expired, and never takes a running record away (K7, K8).
 *
 * Time is the suite's. ONCE_STEADY="WINDOWS PER_STEP SEED" makes it larger; what fails prints it.
 */
#include "suite.h"

#define HOUR_MS (3600 * 1000LL)
#define WINDOW_MS (24 * HOUR_MS)
#define STEP_MS (6 * HOUR_MS)
#define LONG_MS (3 * WINDOW_MS)
#define BODY_LEN 3000

enum { STEPS_PER_WINDOW = WINDOW_MS / STEP_MS, RUNNING = 3, LIVE_STEPS = LONG_MS / STEP_MS + 1 };

static struct {
    int windows, per_step;
    unsigned seed;
} size = { 8, 24, 1 };

static uint64_t state; /* of the random numbers */

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* What becomes of a key, by its number. */
struct terms {
    int64_t retention_ms, body_ms; /* 0: as long */
};

static struct terms terms_of(int n)
{
    static const struct terms kinds[] = {
        { WINDOW_MS, 0 },
        { WINDOW_MS, 0 },
        { WINDOW_MS, WINDOW_MS / 2 },   /* a body that goes with its generation */
        { LONG_MS, WINDOW_MS },         /* a record that outlives the ring, without its body */
        { LONG_MS, WINDOW_MS * 3 / 2 }, /* and with it, for a while */
        { WINDOW_MS / 8, 0 },
    };
    return kinds[(size_t)n % LENGTH(kinds)];
}

static once_span key_of(int n, char key[24])
{
    snprintf(key, 24, "steady-%d", n);
    return span_str(key);
}

static void body_of(int n, uint8_t body[BODY_LEN])
{
    uint64_t x = (uint64_t)n * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < BODY_LEN; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        body[i] = (uint8_t)x;
    }
}

/* One key from its claim to its end; when that was. */
static once_time take_in(int n)
{
    char key[24];
    uint8_t body[BODY_LEN];
    struct terms t = terms_of(n);
    struct once_claim claim = { .key = key_of(n, key), .retention_ms = t.retention_ms, .body_retention_ms = t.body_ms };
    struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED, .status = 200, .body = { body, sizeof body } };
    struct once_reply reply, done;
    body_of(n, body);
    CHECK(once_claim(suite.once, &claim, &reply, &suite.err) == ONCE_OK && reply.arm == ONCE_ARM_EXECUTE);
    CHECK(once_finish(suite.once, reply.record.grant, &outcome, &done, &suite.err) == ONCE_OK);
    CHECK(done.arm == ONCE_ARM_DONE);
    once_time finished_at = done.record.finished_at;
    once_reply_release(&reply);
    once_reply_release(&done);
    return finished_at;
}

/* Is it just what it has to be by now? */
static void look(int n, once_time finished_at, once_time now)
{
    char key[24];
    uint8_t body[BODY_LEN];
    struct terms t = terms_of(n);
    struct once_reply found;
    CHECK(once_lookup(suite.once, span_str(""), key_of(n, key), &found, &suite.err) == ONCE_OK);
    bool kept = now < finished_at + t.retention_ms;
    bool whole = t.body_ms == 0 || now < finished_at + t.body_ms;
    EXPECT_ROW(key, (found.arm == ONCE_ARM_FOUND) == kept);
    if (found.arm == ONCE_ARM_FOUND) {
        body_of(n, body);
        EXPECT_ROW(key, found.record.body_expired == !whole && found.record.body_dropped == !whole);
        EXPECT_ROW(key, whole ? span_equal(found.record.body, (once_span){ body, sizeof body })
                              : found.record.body.len == 0);
        EXPECT_ROW(key, found.record.status == 200);
    }
    once_reply_release(&found);
}

static void expire_all(void)
{
    uint64_t removed;
    for (bool more = true; more;)
        CHECK(once_expire(suite.once, 0, &removed, &more, &suite.err) == ONCE_OK);
    sut_tidy();
}

static uint64_t bytes_now(void)
{
    struct once_stats stats;
    CHECK(once_stats(suite.once, &stats, &suite.err) == ONCE_OK);
    return stats.bytes;
}

static once_time now_there(void)
{
    struct once_stats stats;
    CHECK(once_stats(suite.once, &stats, &suite.err) == ONCE_OK);
    return stats.now;
}

static void check_running(void)
{
    for (int i = 0; i < RUNNING; i++) {
        char key[24];
        struct once_reply found;
        snprintf(key, sizeof key, "running-%05d", i);
        CHECK(once_lookup(suite.once, span_str(""), span_str(key), &found, &suite.err) == ONCE_OK);
        EXPECT_ROW(key, found.arm == ONCE_ARM_FOUND && found.record.state == ONCE_STATE_RUNNING);
        EXPECT_ROW(key, span_equal(found.record.checkpoint, ONCE_LIT("so far")));
        once_reply_release(&found);
    }
}

static void begin_running(void)
{
    for (int i = 0; i < RUNNING; i++) {
        struct once_grant grant = granted(.key = numbered("running-", i), .lease_ms = 1000, .retention_ms = 1000);
        do_advance(grant, ONCE_LIT("p"), ONCE_LIT("so far"));
    }
}

/* Of a step that may still be remembered: all of it, or some where there are many. */
static void look_at_step(int first, const once_time *finished, once_time now)
{
    int all = size.per_step <= 24 || draw() % 16 == 0 ? size.per_step : 24;
    for (int i = 0; i < all; i++) {
        int n = all == size.per_step ? i : (int)(draw() % (unsigned)size.per_step);
        look(first + n, finished[n], now);
    }
}

static void read_size(void)
{
    const char *text = getenv("ONCE_STEADY");
    if (text != NULL && (sscanf(text, "%d %d %u", &size.windows, &size.per_step, &size.seed) != 3 || size.windows < 5 ||
                         size.per_step < 1 || size.per_step > 100000)) {
        printf("# ONCE_STEADY is not \"WINDOWS PER_STEP SEED\"\n");
        CHECK(false);
    }
    state = 88172645463325252u + size.seed;
}

static void steady__intake_leaves_the_store_as_large_as_it_is(void)
{
    if (!sut.compact) {
        skip("its size says something else; the other cases show what is kept");
        return;
    }
    read_size();
    int steps = size.windows * STEPS_PER_WINDOW;
    once_time *finished = calloc((size_t)steps * (size_t)size.per_step, sizeof *finished);
    CHECK(finished != NULL);
    begin_running();
    uint64_t recovered = 0, low = UINT64_MAX, high = 0;
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < size.per_step; i++) {
            int n = step * size.per_step + i;
            finished[n] = take_in(n);
            clock_advance(STEP_MS / size.per_step);
        }
        expire_all();
        once_time now = now_there();
        int from = step - LIVE_STEPS > 0 ? step - LIVE_STEPS : 0;
        for (int s = from; s <= step; s++)
            look_at_step(s * size.per_step, finished + (ptrdiff_t)s * size.per_step, now);
        check_running();
        uint64_t bytes = bytes_now();
        if (step == LIVE_STEPS + STEPS_PER_WINDOW)
            recovered = bytes;
        if (step < LIVE_STEPS + STEPS_PER_WINDOW)
            continue;
        low = bytes < low ? bytes : low;
        high = bytes > high ? bytes : high;
    }
    free(finished);
    printf("# ONCE_STEADY=\"%d %d %u\": %llu bytes after %d windows; later between %llu and %llu\n", size.windows,
           size.per_step, size.seed, (unsigned long long)recovered, (LIVE_STEPS + STEPS_PER_WINDOW) / STEPS_PER_WINDOW,
           (unsigned long long)low, (unsigned long long)high);
    EXPECT(recovered > 0 && low * 10 >= recovered * 9 && high * 10 <= recovered * 11);
}

const struct suite_case steady_cases[] = {
    CASE(steady__intake_leaves_the_store_as_large_as_it_is),
    { NULL, NULL },
};
