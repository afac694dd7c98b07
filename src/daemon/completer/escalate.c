/* escalate.c - see escalate.h. */
#include "daemon/completer/escalate.h"

#include "core/backoff.h"
#include "core/err.h"
#include "core/json/out.h"
#include "core/mac.h"
#include "core/span.h"
#include "engine/daemon_api.h"
#include "http/http_call.h"
#include "os/os.h"
#include "os/stderr_log.h"
#include "os/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/base64.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    QUEUE_MAX = 1024,
    RECENT_MAX = 4096, /* fences that were told, so that a retry's claim does not tell them again */
    TRIES_MAX = 8,     /* about four minutes */
    TIMEOUT_MS = 10000,
    PAUSE_MS = 1000,            /* before the second try; then doubled each time */
    FRESH_MS = 60 * 60 * 1000,  /* longer than most outages, in which answers are lost and retries come late */
    CLOCK_MS = 10 * 1000,       /* between two looks at the store's clock */
    CLOCK_SLACK_MS = 60 * 1000, /* an answer that took longer says little */
    SECRET_LEN_MAX = 256,
};

struct note {
    struct once_grant grant;
    char why[200];
};

struct escalations {
    struct once *once;
    const char *webhook;
    struct once_mac secret;
    bool is_signed;
    struct escalate_counters counters;
    _Atomic once_time ahead; /* the store's clock, of this machine's steady one */
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t work;
    struct note queue[QUEUE_MAX];
    size_t first, count;
    uint64_t recent[RECENT_MAX];
    bool ending, stopping;
    once_time look_at; /* the thread's own, monotonic: when the store's clock is looked at again */
};

/* ------------------------------------------------------------------ noting */

void escalate_note(struct escalations *e, struct once_grant grant, const char *why)
{
    pthread_mutex_lock(&e->lock);
    uint64_t *recent = &e->recent[grant.fence % RECENT_MAX];
    bool again = *recent == grant.fence;
    *recent = grant.fence;
    bool full = e->count == QUEUE_MAX;
    if (!again && !full) {
        struct note *note = &e->queue[(e->first + e->count++) % QUEUE_MAX];
        note->grant = grant;
        snprintf(note->why, sizeof note->why, "%s", why);
        pthread_cond_signal(&e->work);
    }
    pthread_mutex_unlock(&e->lock);
    if (!again)
        atomic_fetch_add(&e->counters.recorded, 1);
    if (!again && full)
        atomic_fetch_add(&e->counters.dropped, 1);
}

void escalate_found(struct escalations *e, struct once_grant grant, once_time since, const char *why)
{
    if (once_os_lease_ms() + atomic_load(&e->ahead) - since < FRESH_MS)
        escalate_note(e, grant, why);
}

/* A database's clock need not be ours, and may be set, or become another server's. One that cannot be asked is where
 * it was. */
static void look_at_clock(struct escalations *e)
{
    once_time before = once_os_lease_ms(), now;
    if (once_read_clock(e->once, &now, NULL) == ONCE_OK && once_os_lease_ms() - before <= CLOCK_SLACK_MS)
        atomic_store(&e->ahead, now - before);
    e->look_at = once_os_monotonic_ms() + CLOCK_MS;
}

/* With the lock, given up in between. */
static void look_if_due(struct escalations *e)
{
    if (e->stopping || e->ending || once_os_monotonic_ms() < e->look_at)
        return;
    pthread_mutex_unlock(&e->lock);
    look_at_clock(e);
    pthread_mutex_lock(&e->lock);
}

/* Waits for the next one, with a look at the clock now and then. False: the daemon ends. */
static bool take(struct escalations *e, struct note *note)
{
    pthread_mutex_lock(&e->lock);
    look_if_due(e);
    while (e->count == 0 && !e->stopping) {
        struct timespec at = { .tv_sec = e->look_at / 1000, .tv_nsec = e->look_at % 1000 * 1000000 };
        if (e->ending)
            pthread_cond_wait(&e->work, &e->lock);
        else if (pthread_cond_timedwait(&e->work, &e->lock, &at) == ETIMEDOUT)
            look_if_due(e);
    }
    bool taken = !e->stopping;
    if (taken) {
        *note = e->queue[e->first];
        e->first = (e->first + 1) % QUEUE_MAX;
        e->count--;
    }
    pthread_mutex_unlock(&e->lock);
    return taken;
}

/* ------------------------------------------------------------------ telling */

static void put_id(char out[64], struct once_grant grant)
{
    char hex[33];
    for (size_t i = 0; i < sizeof grant.record; i++)
        snprintf(hex + 2 * i, 3, "%02x", grant.record[i]);
    snprintf(out, 64, "once-%s-%llu", hex, (unsigned long long)grant.fence);
}

/* The record as it is: tenant and key are not known to those who hold it. False: it is gone, or was resolved. */
static bool look(struct escalations *e, struct once_grant grant, struct once_page *page)
{
    if (once_lookup_brief(e->once, grant, page, NULL) != ONCE_OK)
        return true; /* then only what is known */
    return page->records[0].state == ONCE_STATE_UNKNOWN && page->records[0].grant.fence == grant.fence;
}

static char *make_body(const struct note *note, const struct once_record *r, size_t *len)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, len);
    if (file == NULL)
        return NULL;
    struct once_json json = { .file = file };
    once_json_open(&json, NULL, '{');
    once_json_text(&json, "type", "once.unknown");
    once_json_hex(&json, "record", once_span_of(note->grant.record, sizeof note->grant.record));
    once_json_uint(&json, "fence", note->grant.fence);
    once_json_text(&json, "why", note->why);
    if (r != NULL) {
        once_json_bytes(&json, "tenant", r->tenant);
        once_json_bytes(&json, "key", r->key);
        once_json_uint(&json, "attempt", r->attempt);
        once_json_int(&json, "status", r->status);
        once_json_bytes(&json, "recovery_point", r->recovery_point);
        once_json_time(&json, "created_at", r->created_at);
        once_json_time(&json, "since", r->finished_at);
    }
    once_json_close(&json);
    bool bad = ferror(file) != 0;
    if (fclose(file) != 0 || bad) {
        free(text);
        return NULL;
    }
    return text;
}

/* "v1,BASE64": HMAC-SHA-256 over id, time and body, with dots between. */
static void sign(struct escalations *e, const char *id, long long at, once_span body, char out[64])
{
    struct hmac_sha256_ctx ctx = e->secret.keyed;
    char head[128];
    int n = snprintf(head, sizeof head, "%s.%lld.", id, at);
    hmac_sha256_update(&ctx, (size_t)n, (const uint8_t *)head);
    hmac_sha256_update(&ctx, body.len, body.ptr);
    uint8_t mac[SHA256_DIGEST_SIZE];
    hmac_sha256_digest(&ctx, sizeof mac, mac);
    memcpy(out, "v1,", 3);
    base64_encode_raw(out + 3, sizeof mac, mac);
    out[3 + BASE64_ENCODE_RAW_LENGTH(sizeof mac)] = '\0';
}

static bool is_stopping(void *arg)
{
    struct escalations *e = arg;
    pthread_mutex_lock(&e->lock);
    bool stopping = e->stopping;
    pthread_mutex_unlock(&e->lock);
    return stopping;
}

static bool goes_on(void *arg)
{
    return !is_stopping(arg);
}

static bool post(struct escalations *e, const char *id, once_span body, char error[200])
{
    char lines[500], signature[64] = "";
    long long at = (long long)(once_os_clock.wall(NULL) / 1000);
    if (e->is_signed)
        sign(e, id, at, body, signature);
    int n = snprintf(lines, sizeof lines,
                     "Content-Type: application/json\r\nIdempotency-Key: \"%s\"\r\nwebhook-id: %s\r\n"
                     "webhook-timestamp: %lld\r\n%s%s%s",
                     id, id, at, e->is_signed ? "webhook-signature: " : "", signature, e->is_signed ? "\r\n" : "");
    struct http_call call = { .url = e->webhook,
                              .method = ONCE_LIT("POST"),
                              .lines = { once_span_of(lines, (size_t)n) },
                              .body = body,
                              .body_max = 4096,
                              .timeout_ms = TIMEOUT_MS,
                              .tick = goes_on,
                              .arg = e };
    struct http_answer answer;
    http_call(&call, &answer);
    bool accepted = answer.end == HTTP_ANSWERED && answer.status < 300;
    snprintf(error, 200, "%s", answer.end == HTTP_ANSWERED ? "" : answer.error);
    if (answer.end == HTTP_ANSWERED && !accepted)
        snprintf(error, 200, "status %d", answer.status);
    http_answer_release(&answer);
    return accepted;
}

/* Full jitter; ends early when the daemon does. */
static void pause_for(struct escalations *e, int try)
{
    uint32_t random;
    once_os_random(&random, sizeof random);
    once_time until =
        once_os_monotonic_ms() +
        once_backoff_ms((struct once_backoff){ PAUSE_MS, INT64_MAX, ONCE_JITTER_FULL }, (uint32_t)try, random);
    struct timespec at = { .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };
    pthread_mutex_lock(&e->lock);
    while (!e->stopping && once_os_monotonic_ms() < until)
        if (pthread_cond_timedwait(&e->work, &e->lock, &at) != 0)
            break;
    pthread_mutex_unlock(&e->lock);
}

static void call_webhook(struct escalations *e, const struct note *note, const struct once_record *record)
{
    char id[64], error[200] = "no memory";
    size_t len = 0;
    put_id(id, note->grant);
    char *body = make_body(note, record, &len);
    bool told = false;
    for (int try = 0; body != NULL && !told && try < TRIES_MAX && !is_stopping(e); try++) {
        if (try > 0)
            pause_for(e, try - 1);
        told = post(e, id, once_span_of(body, len), error);
    }
    free(body);
    atomic_fetch_add(told ? &e->counters.delivered : &e->counters.dropped, 1);
    if (!told)
        once_os_log("once daemon", "the webhook was not told of fence %llu: %s", (unsigned long long)note->grant.fence,
                    error);
}

/* By the record's id, as every log (ADR 32): a key may be somebody's order or account, and logs travel. */
static void log_note(const struct note *note, const char *more)
{
    char id[64];
    put_id(id, note->grant);
    once_os_log("once daemon", "escalated %s: %s%s", id, note->why, more);
}

static void tell(struct escalations *e, const struct note *note)
{
    struct once_page page = { .count = 0 };
    bool stands = look(e, note->grant, &page);
    const struct once_record *r = page.count == 1 ? &page.records[0] : NULL;
    log_note(note, stands ? "" : " (it was resolved since)");
    if (stands && e->webhook != NULL)
        call_webhook(e, note, r);
    once_page_release(&page);
}

static void *work(void *arg)
{
    struct escalations *e = arg;
    pthread_setname_np(pthread_self(), "once-escalate");
    for (struct note note; take(e, &note);)
        tell(e, &note);
    return NULL;
}

/* ------------------------------------------------------------------ start, stop */

/* "whsec_BASE64" as Standard Webhooks writes it, or the bytes themselves. */
static once_result read_secret(struct once_mac *out, const char *path, struct once_error *err)
{
    uint8_t text[SECRET_LEN_MAX + 1], decoded[SECRET_LEN_MAX];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text) : -1;
    if (fd >= 0)
        close(fd);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    if (n < 1 || n > SECRET_LEN_MAX)
        return once_fail(err, ONCE_INVALID, "'%.200s' cannot be read, or has not 1 to %d bytes", path, SECRET_LEN_MAX);
    once_span secret = once_span_of(text, (size_t)n);
    if (once_span_starts(secret, ONCE_LIT("whsec_"))) {
        struct base64_decode_ctx ctx;
        size_t len = sizeof decoded;
        base64_decode_init(&ctx);
        if (!base64_decode_update(&ctx, &len, decoded, secret.len - 6, (const char *)secret.ptr + 6) ||
            !base64_decode_final(&ctx) || len == 0)
            return once_fail(err, ONCE_INVALID, "'%.200s' has no base64 after whsec_", path);
        secret = once_span_of(decoded, len);
    }
    once_mac_init(out, secret);
    explicit_bzero(text, sizeof text);
    explicit_bzero(decoded, sizeof decoded);
    return ONCE_OK;
}

static once_result read_options(const struct escalate_options *options, struct once_mac *secret, struct once_error *err)
{
    once_result r = options->webhook != NULL ? http_url_check(options->webhook, err) : ONCE_OK;
    return r == ONCE_OK && options->secret_file != NULL ? read_secret(secret, options->secret_file, err) : r;
}

once_result escalate_check(const struct escalate_options *options, struct once_error *err)
{
    struct once_mac secret;
    once_result r = read_options(options, &secret, err);
    explicit_bzero(&secret, sizeof secret);
    return r;
}

once_result escalate_start(const struct escalate_options *options, struct escalations **out, struct once_error *err)
{
    struct escalations *e = calloc(1, sizeof *e);
    if (e == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for escalations");
    e->once = options->once;
    e->webhook = options->webhook;
    e->is_signed = options->secret_file != NULL;
    once_result r = read_options(options, &e->secret, err);
    pthread_mutex_init(&e->lock, NULL);
    once_cond_init(&e->work);
    atomic_store(&e->ahead, once_os_clock.wall(NULL) - once_os_lease_ms());
    if (r == ONCE_OK)
        look_at_clock(e);
    if (r == ONCE_OK && once_thread_start(&e->thread, work, e) != 0)
        r = once_fail(err, ONCE_UNAVAILABLE, "cannot start a thread");
    if (r != ONCE_OK) {
        free(e);
        return r;
    }
    *out = e;
    return ONCE_OK;
}

void escalate_end(struct escalations *e)
{
    pthread_mutex_lock(&e->lock);
    e->ending = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
}

void escalate_stop(struct escalations *e)
{
    if (e == NULL)
        return;
    pthread_mutex_lock(&e->lock);
    e->stopping = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
}

void escalate_free(struct escalations *e)
{
    if (e == NULL)
        return;
    for (; e->count > 0; e->count--, e->first = (e->first + 1) % QUEUE_MAX)
        log_note(&e->queue[e->first], e->webhook != NULL ? " (the webhook was not told: the daemon ends)" : "");
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    explicit_bzero(&e->secret, sizeof e->secret);
    free(e);
}

const struct escalate_counters *escalate_counters(const struct escalations *e)
{
    return &e->counters;
}
