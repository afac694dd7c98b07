/* consumer.c - see consumer.h. */
#include "messages/consumer.h"

#include "core/backoff.h"
#include "core/buf.h"
#include "core/err.h"
#include "core/span.h"
#include "messages/relay.h"
#include "os/crash_point.h"
#include "os/os.h"
#include "os/thread.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUCKETS = 4096, STORE_WAIT_MS = 200, BUSY_WAIT_MS_MAX = 5000 };
#define FAILED_POINT                                                                                                   \
    ONCE_LIT("failed") /* the recovery point of a failed delivery; its checkpoint is the number of failures, and a !   \
                          after a refusal for good */

struct queue {
    struct delivery *first, *last;
};

struct consumer {
    struct consumer_options o;
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t work, ended;
    struct queue ready, finished;
    struct delivery *waiting;         /* waiting for their due_ms, in no order */
    struct delivery *bucket[BUCKETS]; /* hash table by key: the last admitted message of each key */
    size_t busy, working;
    bool stop;
    struct consumer_counts counts;
    char last_failure[DELIVER_REASON_LEN];
    pthread_t threads[CONSUMER_PARALLEL_MAX];
    size_t thread_count;
};

/* ------------------------------------------------------------------ queues and keys, under the lock */

static void push(struct queue *q, struct delivery *d)
{
    d->next = NULL;
    if (q->last != NULL)
        q->last->next = d;
    else
        q->first = d;
    q->last = d;
}

static struct delivery *pop(struct queue *q)
{
    struct delivery *d = q->first;
    if (d != NULL) {
        q->first = d->next;
        if (q->first == NULL)
            q->last = NULL;
        d->next = NULL;
    }
    return d;
}

static struct delivery **bucket_of(struct consumer *c, once_span key)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < key.len; i++)
        h = (h ^ key.ptr[i]) * 1099511628211u;
    return &c->bucket[(h ^ h >> 32) % BUCKETS];
}

/* CONSUMER-2. Queues it behind the last message of its key; true if it is the first. */
static bool queue_behind_key(struct consumer *c, struct delivery *d)
{
    struct delivery **at = bucket_of(c, d->incoming->message.key);
    for (; *at != NULL; at = &(*at)->in_bucket)
        if (once_span_equal((*at)->incoming->message.key, d->incoming->message.key)) {
            struct delivery *before = *at;
            before->behind = d;
            d->in_bucket = before->in_bucket;
            *at = d;
            return false;
        }
    d->in_bucket = *at;
    *at = d;
    return true;
}

static void release_key(struct consumer *c, struct delivery *d)
{
    struct delivery *behind = d->behind;
    if (!d->incoming->message.has_key)
        return;
    d->behind = NULL;
    if (behind != NULL) { /* then the bucket contains a later message, not this one */
        push(&c->ready, behind);
        return;
    }
    for (struct delivery **at = bucket_of(c, d->incoming->message.key); *at != NULL; at = &(*at)->in_bucket)
        if (*at == d) {
            *at = d->in_bucket;
            return;
        }
}

static void end_delivery(struct consumer *c, struct delivery *d, enum consumer_verdict verdict)
{
    d->verdict = verdict;
    c->counts.done += verdict == CONSUMER_DONE;
    c->counts.dead += verdict == CONSUMER_DEAD_LETTER;
    release_key(c, d);
    push(&c->finished, d);
    pthread_cond_signal(&c->ended);
}

/* ------------------------------------------------------------------ one try */

/* CONSUMER-3 */
static int32_t failures_before(const struct once_record *record, bool *refused)
{
    char text[16];
    snprintf(text, sizeof text, "%.*s", ONCE_SPAN_ARGS(record->checkpoint));
    char *end = text;
    long n = once_span_equal(record->recovery_point, FAILED_POINT) ? strtol(text, &end, 10) : 0;
    *refused = end > text && *end == '!';
    return n < 0 || n > CONSUMER_ATTEMPTS_MAX ? CONSUMER_ATTEMPTS_MAX : (int32_t)n;
}

static void count_failure(struct delivery *d, struct once_attempt *attempt)
{
    char text[16];
    d->failures++;
    d->refused = d->end == DELIVER_REFUSED;
    int len = snprintf(text, sizeof text, "%" PRId32 "%s", d->failures, d->refused ? "!" : "");
    /* If it cannot be stored it is counted here, and a crash forgets it. */
    once_result r = once_attempt_advance(attempt, FAILED_POINT, once_span_of(text, (size_t)len), NULL);
    (void)r;
}

struct work {
    struct consumer *c;
    struct delivery *d;
};

static void end_span(const struct consumer *c, const struct tracer_span *span, const struct delivery *d,
                     const struct once_record *record, int32_t status)
{
    struct otlp_span otlp = { .fence = record->grant.fence, .attempt = record->attempt };
    memcpy(otlp.record, record->grant.record, sizeof otlp.record);
    otlp.span.name = ONCE_TRACE_DELIVER;
    otlp.span.arm = ONCE_ARM_EXECUTE;
    otlp.span.status = status;
    otlp.span.failed = d->end != DELIVER_DONE;
    once_trace_text(c->o.name, otlp.tenant);
    once_trace_text(d->incoming->message.topic, otlp.topic);
    once_trace_text(d->id, otlp.message);
    tracer_end(c->o.tracer, span, &otlp);
}

/* One attempt, under its own span in the trace of the message; the receiver gets the span in traceparent. */
static void deliver(struct consumer *c, struct delivery *d, struct once_attempt *attempt,
                    struct delivery_answer *answer)
{
    struct delivery_call call = { .incoming = d->incoming,
                                  .headers = d->incoming->message.headers,
                                  .consumer = c->o.name,
                                  .id = d->id,
                                  .attempt = attempt };
    struct tracer_span span;
    struct once_buf headers;
    tracer_begin(c->o.tracer, d->incoming->message.headers, &span);
    once_buf_init(&headers, d->incoming->message.headers.len + 128);
    if (span.on) {
        once_trace_replace(d->incoming->message.headers, &span.own, &headers);
        if (headers.result == ONCE_OK)
            call.headers = once_buf_span(&headers);
        else
            span.on = false;
    }
    d->end = c->o.target.deliver(&c->o.target, &call, answer);
    if (span.on)
        end_span(c, &span, d, once_attempt_record(attempt), answer->status);
    once_buf_release(&headers);
}

static enum once_work work(struct once_attempt *attempt, void *arg, struct once_outcome *outcome)
{
    struct consumer *c = ((struct work *)arg)->c;
    struct delivery *d = ((struct work *)arg)->d;
    struct delivery_answer answer;
    if (!d->tried && !d->incoming->is_dead_letter)
        d->failures = failures_before(once_attempt_record(attempt), &d->refused);
    d->tried = true;
    if (d->refused || d->failures >= c->o.attempts_max) {
        d->exhausted = true; /* it was exhausted before a crash, and was not acknowledged */
        d->end = DELIVER_REFUSED;
        snprintf(d->reason, sizeof d->reason,
                 d->refused ? "it was refused, after %" PRId32 " attempts" : "%" PRId32 " attempts have failed",
                 d->failures);
        return ONCE_WORK_NOT_STARTED;
    }
    ONCE_CRASH_POINT("consume.delivering");
    deliver(c, d, attempt, &answer);
    ONCE_CRASH_POINT("consume.delivered");
    d->retry_after_ms = answer.retry_after_ms;
    if (d->end != DELIVER_DONE)
        memcpy(d->reason, answer.reason, sizeof d->reason);
    bool must_not_repeat =
        c->o.takeover != ONCE_TAKEOVER_RERUN; /* only an attempt that certainly had no effect may be repeated */
    *outcome = (struct once_outcome){ .state = ONCE_STATE_FAILED, .retryable = true, .status = answer.status };
    switch (d->end) {
    case DELIVER_DONE:
        outcome->state = ONCE_STATE_SUCCEEDED;
        outcome->retryable = false;
        return ONCE_WORK_ENDED;
    case DELIVER_NOT_SENT:
        return ONCE_WORK_NOT_STARTED;
    case DELIVER_LATER:
        return ONCE_WORK_ENDED;
    case DELIVER_LOST:
        if (must_not_repeat)
            return ONCE_WORK_UNKNOWN;
        break;
    case DELIVER_FAILED:
        if (must_not_repeat && c->o.target.url != NULL && answer.status >= 500)
            return ONCE_WORK_UNKNOWN; /* as in the gateway: the effect may be partial */
        break;
    case DELIVER_REFUSED:
        break;
    }
    count_failure(d, attempt);
    outcome->body = once_span_str(d->reason);
    return ONCE_WORK_ENDED;
}

static int64_t backoff(const struct consumer *c, int32_t failures)
{
    uint32_t random;
    once_os_random(&random, sizeof random);
    return once_backoff_ms((struct once_backoff){ c->o.backoff_ms, c->o.backoff_ms_max, ONCE_JITTER_FULL },
                           failures > 0 ? (uint32_t)failures : 0, random);
}

/* The verdict after a failed attempt; for RETRY, also when. */
static enum consumer_verdict judge_failure(struct consumer *c, struct delivery *d, int64_t *wait_ms)
{
    switch (d->end) {
    case DELIVER_NOT_SENT:
    case DELIVER_LATER:
        *wait_ms = backoff(c, d->delays++);
        break;
    default:
        if (d->refused || d->failures >= c->o.attempts_max)
            return CONSUMER_DEAD_LETTER;
        d->delays = 0;
        *wait_ms = backoff(c, d->failures - 1);
        break;
    }
    if (d->retry_after_ms > *wait_ms)
        *wait_ms = d->retry_after_ms;
    return CONSUMER_RETRY;
}

static enum consumer_verdict judge(struct consumer *c, struct delivery *d, bool executed,
                                   const struct once_reply *reply, int64_t *wait_ms)
{
    switch (reply->arm) {
    case ONCE_ARM_REPLAY:
        if (reply->record.state == ONCE_STATE_SUCCEEDED || !reply->record.retryable)
            return CONSUMER_DONE; /* also if an operator resolved it */
        if (executed)
            return judge_failure(c, d, wait_ms);
        return CONSUMER_RETRY;
    case ONCE_ARM_DONE: /* the claim was released */
        return d->exhausted ? CONSUMER_DEAD_LETTER : judge_failure(c, d, wait_ms);
    case ONCE_ARM_IN_PROGRESS:
        *wait_ms = reply->retry_after_ms < BUSY_WAIT_MS_MAX ? reply->retry_after_ms : BUSY_WAIT_MS_MAX;
        return CONSUMER_RETRY;
    case ONCE_ARM_MISMATCH:
        snprintf(d->reason, sizeof d->reason, "another message had the same id");
        return CONSUMER_DEAD_LETTER;
    case ONCE_ARM_UNKNOWN:
        if (!executed)
            snprintf(d->reason, sizeof d->reason,
                     "not known whether it was delivered: attempt %" PRIu32 " began, and its end was not recorded",
                     reply->record.attempt);
        return CONSUMER_DEAD_LETTER;
    default:
        return CONSUMER_RETRY;
    }
}

static enum consumer_verdict try_once(struct consumer *c, struct delivery *d, int64_t *wait_ms, bool *executed,
                                      bool *store_failed)
{
    struct once_claim claim = { .tenant = c->o.name,
                                .key = d->id,
                                .lease_ms = c->o.lease_ms,
                                .retention_ms = c->o.retention_ms,
                                .takeover = c->o.takeover };
    struct work w = { c, d };
    struct once_reply reply;
    struct once_error err;
    *wait_ms = STORE_WAIT_MS;
    d->retry_after_ms = 0;
    once_fingerprint_list(c->o.once, c->o.name, &d->incoming->message.payload, 1, &claim.fingerprint);
    once_result r = once_run(c->o.once, &claim, NULL, work, &w, executed, &reply, &err);
    enum consumer_verdict verdict = CONSUMER_RETRY;
    *store_failed = r != ONCE_OK;
    if (r == ONCE_OK) {
        verdict = judge(c, d, *executed, &reply, wait_ms);
        if (verdict == CONSUMER_DONE)
            ONCE_CRASH_POINT("consume.finished");
    } else {
        *wait_ms = STORE_WAIT_MS + backoff(c, d->delays++);
        snprintf(d->reason, sizeof d->reason, "%.200s", err.text);
    }
    once_reply_release(&reply);
    return verdict;
}

/* ------------------------------------------------------------------ the threads */

/* Moves the waiting deliveries that are due to `ready`; *until: when the next one is due. Under the lock. */
static void ready_due(struct consumer *c, once_time now, once_time *until)
{
    *until = now + 60000;
    for (struct delivery **at = &c->waiting; *at != NULL;) {
        struct delivery *d = *at;
        if (d->due_ms <= now) {
            *at = d->next;
            push(&c->ready, d);
        } else {
            if (d->due_ms < *until)
                *until = d->due_ms;
            at = &d->next;
        }
    }
}

static void wait_until(struct consumer *c, once_time until)
{
    struct timespec t = { .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };
    pthread_cond_timedwait(&c->work, &c->lock, &t);
}

static void count_attempt(struct consumer *c, const struct delivery *d, enum consumer_verdict verdict, bool executed,
                          bool store_failed)
{
    c->counts.duplicates += verdict == CONSUMER_DONE && !executed;
    bool delayed = d->end == DELIVER_NOT_SENT || d->end == DELIVER_LATER;
    if (executed && !store_failed && d->end != DELIVER_DONE && !d->exhausted) {
        c->counts.delayed += delayed;
        c->counts.failed += !delayed;
    }
    if (store_failed || (executed && d->end == DELIVER_NOT_SENT))
        memcpy(c->last_failure, d->reason, sizeof c->last_failure);
}

static void *deliver_thread(void *arg)
{
    struct consumer *c = arg;
    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        once_time until;
        ready_due(c, once_os_monotonic_ms(), &until);
        struct delivery *d = pop(&c->ready);
        if (d == NULL) {
            wait_until(c, until);
            continue;
        }
        if (c->ready.first != NULL)
            pthread_cond_signal(&c->work);
        c->working++;
        pthread_mutex_unlock(&c->lock);
        int64_t wait_ms;
        bool executed, store_failed;
        enum consumer_verdict verdict = try_once(c, d, &wait_ms, &executed, &store_failed);
        pthread_mutex_lock(&c->lock);
        c->working--;
        count_attempt(c, d, verdict, executed, store_failed);
        if (verdict != CONSUMER_RETRY) {
            end_delivery(c, d, verdict);
            pthread_cond_signal(&c->work);
            continue;
        }
        d->due_ms = once_os_monotonic_ms() + wait_ms;
        d->next = c->waiting;
        c->waiting = d;
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ------------------------------------------------------------------ for the admitting thread */

void consumer_admit(struct consumer *c, struct delivery *d)
{
    pthread_mutex_lock(&c->lock);
    assert(c->busy < c->o.window);
    c->busy++;
    if (!d->incoming->message.has_key || queue_behind_key(c, d)) {
        push(&c->ready, d);
        pthread_cond_signal(&c->work);
    }
    pthread_mutex_unlock(&c->lock);
}

struct delivery *consumer_take(struct consumer *c, int ms)
{
    once_time until = once_os_monotonic_ms() + ms;
    struct timespec t = { .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };
    pthread_mutex_lock(&c->lock);
    struct delivery *d = pop(&c->finished);
    if (d == NULL && ms > 0) {
        pthread_cond_timedwait(&c->ended, &c->lock, &t);
        d = pop(&c->finished);
    }
    c->busy -= d != NULL;
    pthread_mutex_unlock(&c->lock);
    return d;
}

size_t consumer_busy(struct consumer *c)
{
    pthread_mutex_lock(&c->lock);
    size_t busy = c->busy;
    pthread_mutex_unlock(&c->lock);
    return busy;
}

void consumer_counts(struct consumer *c, struct consumer_counts *counts)
{
    pthread_mutex_lock(&c->lock);
    *counts = c->counts;
    pthread_mutex_unlock(&c->lock);
}

bool consumer_last_failure(struct consumer *c, char text[DELIVER_REASON_LEN])
{
    pthread_mutex_lock(&c->lock);
    bool any = c->last_failure[0] != '\0';
    memcpy(text, c->last_failure, sizeof c->last_failure);
    c->last_failure[0] = '\0';
    pthread_mutex_unlock(&c->lock);
    return any;
}

void consumer_stop(struct consumer *c)
{
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_broadcast(&c->work);
    pthread_mutex_unlock(&c->lock);
}

/* The threads have ended: the remaining messages are returned, each key in its order. */
static void return_rest(struct consumer *c)
{
    pthread_mutex_lock(&c->lock);
    while (c->waiting != NULL) {
        struct delivery *d = c->waiting;
        c->waiting = d->next;
        push(&c->ready, d);
    }
    for (struct delivery *d; (d = pop(&c->ready)) != NULL;)
        end_delivery(c, d, CONSUMER_RETURN);
    pthread_mutex_unlock(&c->lock);
}

size_t consumer_working(struct consumer *c)
{
    pthread_mutex_lock(&c->lock);
    size_t working = c->working;
    pthread_mutex_unlock(&c->lock);
    return working;
}

void consumer_join(struct consumer *c)
{
    consumer_stop(c);
    for (size_t i = 0; i < c->thread_count; i++)
        pthread_join(c->threads[i], NULL);
    c->thread_count = 0;
    return_rest(c);
}

void consumer_close(struct consumer *c)
{
    if (c == NULL)
        return;
    consumer_join(c);
    pthread_cond_destroy(&c->work);
    pthread_cond_destroy(&c->ended);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

once_result consumer_open(const struct consumer_options *options, struct consumer **out, struct once_error *err)
{
    struct consumer *c = calloc(1, sizeof *c);
    if (c == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a consumer");
    assert(options->parallel >= 1 && options->parallel <= CONSUMER_PARALLEL_MAX);
    c->o = *options;
    pthread_mutex_init(&c->lock, NULL);
    once_cond_init(&c->work);
    once_cond_init(&c->ended);
    int error = 0;
    while (error == 0 && c->thread_count < options->parallel) {
        error = once_thread_start(&c->threads[c->thread_count], deliver_thread, c);
        c->thread_count += error == 0;
    }
    if (error != 0) {
        consumer_close(c);
        return once_fail(err, ONCE_NO_MEMORY, "cannot start %zu threads: %s", options->parallel, strerror(error));
    }
    *out = c;
    return ONCE_OK;
}
