/* story.c - see story.h. */
#include "story.h"

#include "core/span.h"
#include "inject.h"

#include <fcntl.h>
#include <semaphore.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

enum { T0 = 1700000000, TRIES = 2, BODY_LEN = 3000 };

static uint8_t bodies[4][BODY_LEN]; /* 0 and 1 compress, the others do not */

static void bodies_init(void)
{
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < BODY_LEN; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        bodies[0][i] = (uint8_t)("All this happened, more or less. "[i % 33]);
        bodies[1][i] = (uint8_t)('a' + i / 100 % 26);
        bodies[2][i] = (uint8_t)x;
        bodies[3][i] = (uint8_t)(x >> 8);
    }
}

static struct once_outcome success(int body)
{
    return (struct once_outcome){ .state = ONCE_STATE_SUCCEEDED,
                                  .status = 200 + body,
                                  .headers = ONCE_LIT("Content-Type: text/plain\r\n"),
                                  .body = once_span_of(bodies[body], BODY_LEN) };
}

/* ------------------------------------------------------------------ the clock */

static once_time clock_ms(void *arg)
{
    return ((const struct story *)arg)->now;
}

static void clock_boot(void *arg, uint8_t id[16])
{
    (void)arg;
    memset(id, 7, 16);
}

/* ------------------------------------------------------------------ what is found out */

__attribute__((format(printf, 2, 3))) static void lie(struct story *s, const char *format, ...)
{
    if (s->lie[0] != '\0')
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(s->lie, sizeof s->lie, format, args);
    va_end(args);
}

static const char *verb_name(enum once_verb verb)
{
    static const char *const names[] = {
        [ONCE_VERB_CLAIM] = "claim",     [ONCE_VERB_EXTEND] = "extend",       [ONCE_VERB_ADVANCE] = "advance",
        [ONCE_VERB_FINISH] = "finish",   [ONCE_VERB_RELEASE] = "release",     [ONCE_VERB_LOOKUP] = "lookup",
        [ONCE_VERB_RESOLVE] = "resolve", [ONCE_VERB_TAKE_OVER] = "take over", [ONCE_VERB_FORGET] = "forget",
    };
    return names[verb];
}

/* What calls other than the protocol's may answer while something fails. */
static bool is_honest(struct story *s, const char *call, once_result r, const struct once_error *err)
{
    s->results[r]++;
    if (r == ONCE_INVALID || r == ONCE_LIMIT || r == ONCE_CORRUPT)
        lie(s, "%s: %s: %s", call, once_result_name(r), err->text);
    return r == ONCE_OK;
}

/* A claim with a nonce that was not asked with before: its grant is a new one. */
static bool is_first(struct story *s, const struct once_request *request)
{
    unsigned nonce = 0;
    if (request->verb == ONCE_VERB_CLAIM)
        memcpy(&nonce, request->claim.nonce, sizeof nonce);
    bool first = nonce > s->nonces_asked;
    if (first)
        s->nonces_asked = nonce;
    return first;
}

static void hear(struct story *s, struct model_key *key, const struct once_request *request, once_result r,
                 const struct once_reply *reply, const struct once_error *err)
{
    s->results[r]++;
    if (r != ONCE_OK && (reply->memory != NULL || reply->arm != ONCE_ARM_NONE))
        lie(s, "%s %.*s: %s, and yet a reply", verb_name(request->verb), ONCE_SPAN_ARGS(key->key), once_result_name(r));
    const char *wrong = model_answered(key, request, r, reply, s->now);
    if (wrong != NULL)
        lie(s, "%s %.*s: %s %s state %s fence %llu attempt %u: %s; %s", verb_name(request->verb),
            ONCE_SPAN_ARGS(key->key), once_result_name(r), once_arm_name(reply->arm),
            once_state_name(reply->record.state), (unsigned long long)reply->record.grant.fence, reply->record.attempt,
            wrong, r != ONCE_OK ? err->text : "");
    uint64_t fence = r == ONCE_OK ? reply->record.grant.fence : 0;
    if (is_first(s, request) && reply->arm == ONCE_ARM_EXECUTE && fence <= s->fence_max)
        lie(s, "claim %.*s: fence %llu after %llu was given (K2)", ONCE_SPAN_ARGS(key->key), (unsigned long long)fence,
            (unsigned long long)s->fence_max);
    if (fence > s->fence_max)
        s->fence_max = fence;
}

/* ------------------------------------------------------------------ one call */

static once_result call(struct once *once, const struct once_request *q, struct once_reply *reply,
                        struct once_error *err)
{
    switch (q->verb) {
    case ONCE_VERB_CLAIM:
        return once_claim(once, &q->claim, reply, err);
    case ONCE_VERB_EXTEND:
        return once_extend(once, q->grant, q->extend.lease_ms, reply, err);
    case ONCE_VERB_ADVANCE:
        return once_advance(once, q->grant, q->advance.point, q->advance.checkpoint, reply, err);
    case ONCE_VERB_FINISH:
        return once_finish(once, q->grant, &q->outcome, reply, err);
    case ONCE_VERB_RELEASE:
        return once_release(once, q->grant, reply, err);
    case ONCE_VERB_LOOKUP:
        return once_lookup(once, q->lookup.tenant, q->lookup.key, reply, err);
    case ONCE_VERB_RESOLVE:
        return once_resolve(once, &q->resolve, reply, err);
    case ONCE_VERB_TAKE_OVER:
        return once_take_over(once, &q->take_over, reply, err);
    case ONCE_VERB_FORGET:
        return once_forget(once, &q->forget, reply, err);
    }
    abort();
}

/* Repeats what fails. The grant of the answer, or one with fence 0. */
static struct once_grant ask(struct story *s, struct model_key *key, const struct once_request *request)
{
    struct once_grant grant = { .fence = 0 };
    for (int i = 0; i < TRIES; i++) {
        struct once_reply reply;
        struct once_error err = { .text = "" };
        inject_begin();
        once_result r = call(s->once, request, &reply, &err);
        inject_end();
        hear(s, key, request, r, &reply, &err);
        if (r == ONCE_OK && reply.arm == ONCE_ARM_EXECUTE)
            grant = reply.record.grant;
        once_reply_release(&reply);
        if (r == ONCE_OK)
            break;
    }
    return grant;
}

static struct once_request claim_of(struct story *s, const struct model_key *key, int64_t lease_ms,
                                    int64_t retention_ms, enum once_takeover takeover)
{
    struct once_request q = { .verb = ONCE_VERB_CLAIM };
    q.claim = (struct once_claim){ .key = key->key, .lease_ms = lease_ms, .retention_ms = retention_ms };
    q.claim.takeover = takeover;
    memset(&q.claim.fingerprint, 3, sizeof q.claim.fingerprint);
    unsigned nonce = ++s->nonces;
    memcpy(q.claim.nonce, &nonce, sizeof nonce);
    return q;
}

static struct once_grant claim(struct story *s, struct model_key *key, int64_t lease_ms, enum once_takeover takeover)
{
    struct once_request q = claim_of(s, key, lease_ms, 3600000, takeover);
    return ask(s, key, &q);
}

/* A holder's call; nothing without a grant. */
static void hold(struct story *s, struct model_key *key, struct once_grant grant, struct once_request q)
{
    q.grant = grant;
    if (grant.fence != 0)
        ask(s, key, &q);
}

static void finish(struct story *s, struct model_key *key, struct once_grant grant, struct once_outcome outcome)
{
    hold(s, key, grant, (struct once_request){ .verb = ONCE_VERB_FINISH, .outcome = outcome });
}

static void advance(struct story *s, struct model_key *key, struct once_grant grant, once_span point,
                    once_span checkpoint)
{
    hold(s, key, grant, (struct once_request){ .verb = ONCE_VERB_ADVANCE, .advance = { point, checkpoint } });
}

static void lookup(struct story *s, struct model_key *key)
{
    ask(s, key, &(struct once_request){ .verb = ONCE_VERB_LOOKUP, .lookup = { .key = key->key } });
}

static struct model_key *new_key(struct story *s, once_span name)
{
    if (s->key_count == STORY_KEYS)
        abort();
    struct model_key *key = &s->keys[s->key_count++];
    model_init(key, name);
    return key;
}

/* ------------------------------------------------------------------ several in one commit */

enum { BATCH = 3 };

struct waiting {
    bool accepted;
    once_result result;
    struct once_reply reply;
    struct once_error err;
    sem_t *answered, *gate;
};

static void on_answer(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    struct waiting *w = arg;
    w->result = result;
    w->reply = *reply;
    w->err = *err;
    if (w->gate != NULL)
        sem_wait(w->gate); /* keeps the writer here until the others are queued */
    sem_post(w->answered);
}

static void submit(struct story *s, const struct once_request *request, struct waiting *w)
{
    w->result = once_submit(s->once, request, on_answer, w, &w->err);
    w->accepted = w->result == ONCE_OK;
}

static void batch(struct story *s)
{
    static const char *const names[BATCH] = { "batch one", "batch two", "batch three" };
    sem_t answered, gate;
    sem_init(&answered, 0, 0);
    sem_init(&gate, 0, 0);
    struct model_key *keys[BATCH];
    struct once_request requests[BATCH];
    struct waiting all[BATCH + 1] = { 0 };
    struct waiting *first = &all[BATCH];
    for (int i = 0; i <= BATCH; i++)
        all[i].answered = &answered;
    first->gate = &gate;
    for (int i = 0; i < BATCH; i++) {
        keys[i] = new_key(s, once_span_str(names[i]));
        requests[i] = claim_of(s, keys[i], 60000, 3600000, ONCE_TAKEOVER_ESCALATE);
    }
    inject_begin();
    submit(s, &(struct once_request){ .verb = ONCE_VERB_LOOKUP, .lookup = { .key = ONCE_LIT("nobody") } }, first);
    for (int i = 0; i < BATCH; i++)
        submit(s, &requests[i], &all[i]);
    sem_post(&gate);
    for (int i = 0; i <= BATCH; i++)
        if (all[i].accepted)
            sem_wait(&answered);
    inject_end();
    once_reply_release(&first->reply);
    uint64_t fence_max = s->fence_max;
    for (int i = 0; i < BATCH; i++) {
        s->fence_max = fence_max; /* their order among each other is free */
        hear(s, keys[i], &requests[i], all[i].result, &all[i].reply, &all[i].err);
        once_reply_release(&all[i].reply);
    }
    s->fence_max = fence_max;
    for (int i = 0; i < BATCH; i++)
        ask(s, keys[i], &requests[i]); /* the same grant again, or now */
    sem_destroy(&gate);
    sem_destroy(&answered);
}

/* ------------------------------------------------------------------ the rest of the API */

static void on_problem(void *arg, const struct once_problem *problem)
{
    lie(arg, "once_check: %s at fence %llu: %s", problem->invariant, (unsigned long long)problem->fence, problem->text);
}

static void check(struct story *s)
{
    struct once_error err = { .text = "" };
    struct once_check_report report;
    inject_begin();
    once_result r = once_check(s->once, on_problem, s, &report, &err);
    inject_end();
    is_honest(s, "check", r, &err);
}

static void list(struct story *s)
{
    struct once_error err = { .text = "" };
    struct once_page page;
    inject_begin();
    once_result r = once_list(s->once, NULL, &page, &err);
    inject_end();
    if (is_honest(s, "list", r, &err)) {
        size_t must = 0, may = 0;
        for (size_t i = 0; i < s->key_count; i++) {
            must += model_must_live(&s->keys[i], s->now);
            may += model_may_live(&s->keys[i], s->now);
        }
        if (page.count < must || page.count > may)
            lie(s, "list: %zu records, expected %zu to %zu", page.count, must, may);
    } else if (page.memory != NULL || page.count != 0) {
        lie(s, "list: %s, and yet a page", once_result_name(r));
    }
    once_page_release(&page);
}

static void history(struct story *s, const struct model_key *key)
{
    struct once_error err = { .text = "" };
    struct once_history history;
    inject_begin();
    once_result r = once_history(s->once, once_span_of(NULL, 0), key->key, &history, &err);
    inject_end();
    if (is_honest(s, "history", r, &err) && history.count == 0 && model_must_live(key, s->now))
        lie(s, "history: nothing of %.*s", ONCE_SPAN_ARGS(key->key));
    once_history_release(&history);
}

static void expire(struct story *s)
{
    for (int i = 0; i < TRIES; i++) {
        struct once_error err = { .text = "" };
        uint64_t removed = 0;
        bool more = false;
        inject_begin();
        once_result r = once_expire(s->once, 100, &removed, &more, &err);
        inject_end();
        if (is_honest(s, "expire", r, &err))
            return;
    }
}

static bool open_store(struct story *s)
{
    struct once_clock clock = { clock_ms, clock_ms, clock_boot, s };
    static struct once_clock kept; /* the store keeps a pointer */
    kept = clock;
    struct once_options options = { .shared = s->shared, .clock = &kept };
    for (int i = 0; i < TRIES; i++) {
        struct once_error err = { .text = "" };
        s->once = NULL;
        inject_begin();
        once_result r = once_open(s->url, &options, &s->once, &err);
        inject_end();
        if (is_honest(s, "open", r, &err))
            return true;
        if (s->once != NULL)
            lie(s, "open: %s, and yet a store", once_result_name(r));
    }
    return false;
}

static void close_store(struct story *s)
{
    struct once_stats stats;
    struct once_error err = { .text = "" };
    inject_begin();
    once_result r = once_stats(s->once, &stats, &err);
    is_honest(s, "stats", r, &err);
    s->settled += stats.recovered;
    once_close(s->once);
    inject_end();
    s->once = NULL;
}

/* ------------------------------------------------------------------ the story */

static void tell_plain(struct story *s)
{
    struct model_key *key = new_key(s, ONCE_LIT("plain"));
    struct once_grant grant = claim(s, key, 60000, ONCE_TAKEOVER_ESCALATE);
    advance(s, key, grant, ONCE_LIT("first"), once_span_of(bodies[2], 900));
    advance(s, key, grant, ONCE_LIT("second"), ONCE_LIT("at the second"));
    finish(s, key, grant, success(0));
    claim(s, key, 60000, ONCE_TAKEOVER_ESCALATE); /* replays */
    struct once_request other = claim_of(s, key, 60000, 3600000, ONCE_TAKEOVER_ESCALATE);
    other.claim.fingerprint.bytes[0]++;
    ask(s, key, &other); /* mismatch */
}

static void tell_takeover(struct story *s)
{
    struct model_key *key = new_key(s, ONCE_LIT("taken over"));
    struct once_grant first = claim(s, key, 1000, ONCE_TAKEOVER_RERUN);
    advance(s, key, first, ONCE_LIT("half"), ONCE_LIT("of it"));
    claim(s, key, 1000, ONCE_TAKEOVER_RERUN); /* in progress */
    s->now += 5000;
    struct once_grant second = claim(s, key, 60000, ONCE_TAKEOVER_RERUN);
    finish(s, key, first, success(1)); /* fenced, if there is a second */
    finish(s, key, second, success(2));
    lookup(s, key);
}

static void tell_unknown(struct story *s)
{
    struct model_key *key = new_key(s, ONCE_LIT("unknown"));
    struct once_grant grant = claim(s, key, 1000, ONCE_TAKEOVER_ESCALATE);
    s->now += 5000;
    claim(s, key, 1000, ONCE_TAKEOVER_ESCALATE);
    finish(s, key, grant, success(1)); /* fenced, if it is unknown now */
    struct once_request q = { .verb = ONCE_VERB_RESOLVE };
    q.resolve = (struct once_resolve){ .key = key->key,
                                       .verdict = ONCE_VERDICT_DONE,
                                       .outcome = success(3),
                                       .actor = ONCE_LIT("somebody"),
                                       .reason = ONCE_LIT("the bank says so") };
    ask(s, key, &q);
    claim(s, key, 1000, ONCE_TAKEOVER_ESCALATE);
    history(s, key);
}

static void tell_failed(struct story *s)
{
    struct model_key *key = new_key(s, ONCE_LIT("failed"));
    struct once_grant grant = claim(s, key, 60000, ONCE_TAKEOVER_ESCALATE);
    finish(s, key, grant, (struct once_outcome){ .state = ONCE_STATE_FAILED, .retryable = true, .status = 1 });
    grant = claim(s, key, 60000, ONCE_TAKEOVER_ESCALATE);
    hold(s, key, grant, (struct once_request){ .verb = ONCE_VERB_EXTEND, .extend = { 90000 } });
    hold(s, key, grant, (struct once_request){ .verb = ONCE_VERB_RELEASE });
    lookup(s, key);
}

static void tell_released(struct story *s)
{
    struct model_key *key = new_key(s, ONCE_LIT("released"));
    struct once_grant grant = claim(s, key, 60000, ONCE_TAKEOVER_ESCALATE);
    hold(s, key, grant, (struct once_request){ .verb = ONCE_VERB_RELEASE });
    lookup(s, key);
}

static void tell_expired(struct story *s)
{
    struct model_key *key = new_key(s, ONCE_LIT("expired"));
    struct once_request q = claim_of(s, key, 60000, 1000, ONCE_TAKEOVER_ESCALATE);
    finish(s, key, ask(s, key, &q), success(1));
    s->now += 5000;
    lookup(s, key);
    expire(s);
    lookup(s, key);
    finish(s, key, claim(s, key, 60000, ONCE_TAKEOVER_ESCALATE), success(0)); /* a new life */
}

void story_tell(struct story *s)
{
    if (!open_store(s))
        return;
    tell_plain(s);
    tell_takeover(s);
    batch(s);
    tell_unknown(s);
    tell_failed(s);
    tell_released(s);
    tell_expired(s);
    list(s);
    check(s);
    close_store(s);
}

void story_verify(struct story *s, bool shared)
{
    s->shared = shared;
    unsigned failed = 0;
    memset(s->results, 0, sizeof s->results);
    if (!open_store(s)) {
        lie(s, "cannot be opened again");
        return;
    }
    check(s);
    for (size_t i = 0; i < s->key_count; i++)
        lookup(s, &s->keys[i]);
    list(s);
    for (size_t i = 0; i < s->key_count; i++)
        finish(s, &s->keys[i], claim(s, &s->keys[i], 60000, ONCE_TAKEOVER_RERUN), success(1));
    check(s);
    close_store(s);
    for (int r = ONCE_OK + 1; r < STORY_RESULTS; r++)
        failed += s->results[r];
    if (failed > 0)
        lie(s, "opened again, %u calls failed", failed);
}

/* ------------------------------------------------------------------ files */

static const char *const old_names[STORY_OLD] = { "old 1", "old 2", "old 3", "old 4", "old 5", "old 6" };

static void old_state(struct model_key *key, int i)
{
    struct once_outcome outcome = success(i % 4);
    key->may[0] = (struct model_state){ .state = outcome.state,
                                        .status = outcome.status,
                                        .headers = outcome.headers,
                                        .body = outcome.body,
                                        .attempt = 1,
                                        .retention_ms = ONCE_NEVER,
                                        .expires_at = ONCE_NEVER };
    memset(&key->may[0].fingerprint, 3, sizeof key->may[0].fingerprint);
}

void story_init(struct story *s, const char *folder, const char *wrapper, bool shared, bool old)
{
    bodies_init();
    *s = (struct story){ .shared = shared, .now = (once_time)T0 * 1000 };
    snprintf(s->url, sizeof s->url, "%ssqlite:%s/once.db?reserve=64K", wrapper, folder);
    for (int i = 0; old && i < STORY_OLD; i++)
        old_state(new_key(s, once_span_str(old_names[i])), i);
    s->nonces = old ? 1000 : 0;
}

void story_found(const char *folder)
{
    struct story s;
    story_init(&s, folder, "", true, false);
    if (!open_store(&s))
        abort();
    for (int i = 0; i < STORY_OLD; i++) {
        struct model_key *key = new_key(&s, once_span_str(old_names[i]));
        struct once_request q = claim_of(&s, key, 60000, ONCE_NEVER, ONCE_TAKEOVER_ESCALATE);
        finish(&s, key, ask(&s, key, &q), success(i % 4));
    }
    close_store(&s);
    if (s.lie[0] != '\0')
        abort();
}

static void copy_file(const char *from, const char *to)
{
    static uint8_t bytes[1 << 20];
    int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return;
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t n;
    while ((n = read(in, bytes, sizeof bytes)) > 0)
        if (write(out, bytes, (size_t)n) != n)
            abort();
    close(in);
    close(out);
}

void story_reset(const char *folder, const char *from)
{
    static const char *const names[] = { "once.db",      "once.db-wal",     "once.db-shm",
                                         "once.db-lock", "once.db-reserve", "once.db-journal" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[4200], source[4200];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
        if (from == NULL || i > 1)
            continue;
        snprintf(source, sizeof source, "%s/%s", from, names[i]);
        copy_file(source, path);
    }
}
