/* load.c - see load.h. */
#include "load.h"

#include "core/span.h"
#include "os/os.h"

#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct run {
    struct load *load;
    struct once *once;
    uint64_t stop_ns;
    atomic_uint_fast64_t next;   /* the next key's number */
    atomic_uint_fast64_t replay; /* walks over the keys that are there */
    uint64_t last;               /* keys below this one only */
    unsigned active;             /* callers that have something under way */
};

struct caller {
    struct run *run;
    bool finishing;
    struct once_grant grant;
    uint64_t started_ns;
    char key[LOAD_KEY_SIZE];
    struct histogram histogram;
    uint64_t operations, records, errors;
    struct once_error err;
};

/* Numbers that look random, each of another one (a bijection). */
static uint64_t scatter(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

void load_key(uint64_t number, char key[LOAD_KEY_SIZE])
{
    uint64_t a = scatter(number), b = scatter(~number);
    snprintf(key, LOAD_KEY_SIZE, "%08x-%04x-4%03x-8%03x-%012llx", (unsigned)(a >> 32), (unsigned)(a >> 16 & 0xffff),
             (unsigned)(a & 0xfff), (unsigned)(b >> 52), (unsigned long long)(b & 0xffffffffffff));
}

void load_body(uint8_t *body, size_t len)
{
    static const char head[] = "{\"id\": \"ch_9f31c2a7\", \"status\": \"paid\", \"amount\": 1799, \"note\": \"",
                      tail[] = "\"}";
    static const char filler[] = "lorem ipsum dolor sit amet, consectetur adipiscing elit; ";
    size_t head_len = strlen(head), tail_len = strlen(tail);
    if (len < head_len + tail_len) {
        memset(body, '1', len);
        return;
    }
    for (size_t i = 0; i < len; i++)
        body[i] = (uint8_t)filler[i % strlen(filler)];
    memcpy(body, head, head_len);
    memcpy(body + len - tail_len, tail, tail_len);
}

/* A quantile is its bucket's end, which may be past the longest of all. */
static double quantile_us(const struct histogram *h, double share)
{
    double of_bucket = histogram_quantile_us(h, share), max = (double)h->max_ns / 1000;
    return of_bucket < max ? of_bucket : max;
}

void load_latencies(struct load_result *result, const struct histogram *h)
{
    result->p50_us = quantile_us(h, 0.50);
    result->p99_us = quantile_us(h, 0.99);
    result->max_us = (double)h->max_ns / 1000;
}

static void measure(struct caller *c)
{
    histogram_add(&c->histogram, once_os_monotonic_ns() - c->started_ns);
    c->operations++;
}

/* Fills in the caller's next request; false when it is to stop. */
static bool next_request(struct caller *c, struct once_request *request)
{
    struct run *run = c->run;
    if (c->finishing) {
        *request = (struct once_request){ .verb = ONCE_VERB_FINISH,
                                          .grant = c->grant,
                                          .outcome = {
                                              .state = ONCE_STATE_SUCCEEDED, .status = 201, .body = run->load->body } };
        return true;
    }
    if (once_os_monotonic_ns() >= run->stop_ns)
        return false;
    uint64_t number;
    if (run->load->kind == LOAD_FRESH) {
        number = atomic_fetch_add(&run->next, 1);
        if (number >= run->last)
            return false;
    } else {
        uint64_t span = run->load->next - run->load->first;
        number = run->load->first + atomic_fetch_add(&run->replay, 7919) % span;
    }
    load_key(number, c->key);
    *request = (struct once_request){ .verb = ONCE_VERB_CLAIM,
                                      .claim = { .tenant = ONCE_LIT("bench"),
                                                 .key = once_span_str(c->key),
                                                 .retention_ms = run->load->retention_ms != 0 ? run->load->retention_ms
                                                                                              : 3600 * 1000,
                                                 .takeover = ONCE_TAKEOVER_RERUN } };
    memcpy(request->claim.fingerprint.bytes, &number, sizeof number);
    return true;
}

static void take_answer(struct caller *c, once_result result, const struct once_reply *reply,
                        const struct once_error *err)
{
    measure(c);
    enum once_arm wanted = c->finishing                        ? ONCE_ARM_DONE
                           : c->run->load->kind == LOAD_REPLAY ? ONCE_ARM_REPLAY
                                                               : ONCE_ARM_EXECUTE;
    if (result != ONCE_OK || reply->arm != wanted) {
        if (c->errors++ == 0) {
            c->err.result = result;
            snprintf(c->err.text, sizeof c->err.text, "%s", result != ONCE_OK ? err->text : once_arm_name(reply->arm));
        }
        c->finishing = false;
        return;
    }
    c->records += c->finishing;
    c->finishing = reply->arm == ONCE_ARM_EXECUTE;
    if (c->finishing)
        c->grant = reply->record.grant;
}

/* ------------------------------------------------------------------ asynchronously */

static void submit_next(struct caller *c);

static void on_done(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    struct caller *c = arg;
    take_answer(c, result, reply, err);
    once_reply_release(reply);
    c->run->active--;
    submit_next(c);
}

static void submit_next(struct caller *c)
{
    struct once_request request;
    if (!next_request(c, &request))
        return;
    c->started_ns = once_os_monotonic_ns();
    once_result r = once_submit(c->run->once, &request, on_done, c, &c->err);
    if (r != ONCE_OK)
        c->errors++;
    else
        c->run->active++;
}

static void run_async(struct run *run, struct caller *callers)
{
    struct pollfd fd = { .fd = once_eventfd(run->once), .events = POLLIN };
    for (unsigned i = 0; i < run->load->callers; i++)
        submit_next(&callers[i]);
    while (run->active > 0) {
        if (poll(&fd, 1, 1000) < 0)
            continue; /* interrupted */
        once_dispatch(run->once, run->load->callers);
    }
}

/* ------------------------------------------------------------------ with threads */

static void *call_in_a_loop(void *arg)
{
    struct caller *c = arg;
    struct once_request request;
    while (next_request(c, &request)) {
        struct once_reply reply;
        struct once_error err;
        c->started_ns = once_os_monotonic_ns();
        once_result r = request.verb == ONCE_VERB_CLAIM
                            ? once_claim(c->run->once, &request.claim, &reply, &err)
                            : once_finish(c->run->once, request.grant, &request.outcome, &reply, &err);
        take_answer(c, r, &reply, &err);
        once_reply_release(&reply);
    }
    return NULL;
}

static void run_threads(struct run *run, struct caller *callers)
{
    pthread_t *threads = calloc(run->load->callers, sizeof *threads);
    unsigned started = 0;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 * 1024);
    while (threads != NULL && started < run->load->callers &&
           pthread_create(&threads[started], &attr, call_in_a_loop, &callers[started]) == 0)
        started++;
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_attr_destroy(&attr);
    free(threads);
}

/* ------------------------------------------------------------------ both */

static void add_up(const struct caller *callers, unsigned count, struct load_result *result)
{
    struct histogram all = { .total = 0 };
    for (unsigned i = 0; i < count; i++) {
        const struct caller *c = &callers[i];
        histogram_merge(&all, &c->histogram);
        result->operations += c->operations;
        result->records += c->records;
        if (c->errors > 0 && result->errors == 0)
            result->err = c->err;
        result->errors += c->errors;
    }
    load_latencies(result, &all);
}

void load_run(struct load *load, struct once *once, struct load_result *result)
{
    assert(load->kind == LOAD_FRESH || load->next > load->first);
    *result = (struct load_result){ .operations = 0 };
    uint64_t start = once_os_monotonic_ns();
    struct run run = { .load = load,
                       .once = once,
                       .stop_ns = load->seconds > 0 ? start + (uint64_t)(load->seconds * 1e9) : UINT64_MAX,
                       .last = load->records > 0 ? load->next + load->records : UINT64_MAX };
    atomic_init(&run.next, load->next);
    atomic_init(&run.replay, 0);
    struct caller *callers = calloc(load->callers, sizeof *callers);
    if (callers == NULL) {
        result->errors = 1;
        return;
    }
    for (unsigned i = 0; i < load->callers; i++)
        callers[i].run = &run;
    if (load->threads)
        run_threads(&run, callers);
    else
        run_async(&run, callers);
    result->seconds = (double)(once_os_monotonic_ns() - start) / 1e9;
    add_up(callers, load->callers, result);
    if (load->kind == LOAD_FRESH)
        load->next = atomic_load(&run.next) < run.last ? atomic_load(&run.next) : run.last;
    free(callers);
}
