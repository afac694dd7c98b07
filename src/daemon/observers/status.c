/* status.c - see status.h. */
#include "daemon/observers/status.h"

#include "core/span.h"
#include "daemon/completer/completer.h"
#include "daemon/completer/escalate.h"
#include "daemon/observers/health.h"
#include "daemon/reaper/reaper.h"
#include "daemon/socket/admin_queries.h"
#include "engine/engine_stats.h"
#include "messages/consume_loop.h"
#include "messages/relay_counters.h"
#include "os/os.h"
#include "wire/wire.h"

#include <assert.h>
#include <unistd.h>

struct numbers {
    struct wire_number all[WIRE_NUMBERS_MAX];
    size_t count;
};

static void add(struct numbers *n, const char *name, int64_t value)
{
    assert(n->count < WIRE_NUMBERS_MAX);
    n->all[n->count++] = (struct wire_number){ once_span_str(name), value };
}

static void add_engine(struct numbers *n, struct once *once)
{
    struct once_engine_stats i;
    once_engine_stats(once, &i);
    add(n, "executions", (int64_t)(i.claims[ONCE_ARM_EXECUTE] + i.claims[ONCE_ARM_PROBE]));
    add(n, "replays", (int64_t)i.claims[ONCE_ARM_REPLAY]);
    add(n, "conflicts", (int64_t)i.claims[ONCE_ARM_IN_PROGRESS]);
    add(n, "mismatches", (int64_t)i.claims[ONCE_ARM_MISMATCH]);
    add(n, "unknowns", (int64_t)i.claims[ONCE_ARM_UNKNOWN]);
    add(n, "succeeded", (int64_t)i.outcomes[ONCE_STATE_SUCCEEDED]);
    add(n, "failed", (int64_t)i.outcomes[ONCE_STATE_FAILED]);
    add(n, "unknown", (int64_t)i.outcomes[ONCE_STATE_UNKNOWN]);
    add(n, "errors", (int64_t)i.errors);
}

static void add_jobs(struct numbers *n, const struct status *s)
{
    if (s->expiry != NULL) {
        add(n, "expired", (int64_t)atomic_load(&s->expiry->removed));
        add(n, "expiry_lag_ms", once_os_monotonic_ms() - atomic_load(&s->expiry->caught_up_ms));
    }
    if (s->escalations != NULL)
        add(n, "escalations", (int64_t)atomic_load(&s->escalations->recorded));
    if (s->completer != NULL)
        add(n, "completer_takeovers", (int64_t)atomic_load(&s->completer->taken));
    if (s->relay != NULL && atomic_load(&s->relay->counted)) {
        add(n, "outbox_pending", atomic_load(&s->relay->pending));
        add(n, "outbox_lag_ms", atomic_load(&s->relay->lag_ms));
        add(n, "outbox_dead", atomic_load(&s->relay->dead));
    }
    if (s->consume != NULL) {
        add(n, "consume_done", (int64_t)atomic_load(&s->consume->done));
        add(n, "consume_dead_letters", (int64_t)atomic_load(&s->consume->dead));
    }
}

void status_answer(const struct status *s, size_t clients, struct once_buf *buf, uint32_t id)
{
    struct health_view view;
    health_read(s->health, &view);
    struct numbers n = { .count = 0 };
    add(&n, "pid", getpid());
    add(&n, "uptime_ms", view.up_ms);
    add(&n, "store_up", view.store);
    add(&n, "queue", view.queued);
    add(&n, "queue_max", view.queue_max);
    add(&n, "clients", (int64_t)clients - 1); /* whoever asks this is none */
    add_engine(&n, s->once);
    add_jobs(&n, s);
    struct wire_state state = { .ready = view.ready,
                                .reason = once_span_str(view.reason),
                                .version = once_span_str(once_version()),
                                .store = once_span_str(s->store) };
    wire_put_state(buf, id, &state, n.all, n.count);
}
