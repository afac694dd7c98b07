/* exporter.c - see exporter.h. */
#include "trace/exporter.h"

#include "core/backoff.h"
#include "core/buf.h"
#include "core/err.h"
#include "core/span.h"
#include "http/http_call.h"
#include "os/os.h"
#include "os/stderr_log.h"
#include "os/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    QUEUE_MAX = 8192, /* about 6 MB: some seconds of a busy gateway */
    BATCH_MAX = 512,  /* about 400 kB of JSON */
    FLUSH_MS = 500,
    TIMEOUT_MS = 10000,
    TRIES_MAX = 4,
    PAUSE_MS = 1000, /* before the second try; then doubled each time, with full jitter */
    END_MS = 3000,
    HEADERS_LEN_MAX = 16 << 10,
    SAY_MS = 60000, /* between two log lines about failures */
};

struct exporter {
    char *url;
    struct once_buf headers; /* lines "Name: value" CR LF */
    struct otlp_resource resource;
    char host[256];
    struct exporter_counters counters;
    pthread_t thread;
    once_time said_at;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t work;
    struct otlp_span *queue;
    size_t first, count;
    bool stopping;
    once_time stop_by; /* monotonic */
};

/* ------------------------------------------------------------------ adding */

void exporter_add(struct exporter *e, const struct otlp_span *span)
{
    if (e == NULL)
        return;
    pthread_mutex_lock(&e->lock);
    bool full = e->count == QUEUE_MAX;
    if (!full) {
        e->queue[(e->first + e->count++) % QUEUE_MAX] = *span;
        if (e->count == BATCH_MAX)
            pthread_cond_signal(&e->work);
    }
    pthread_mutex_unlock(&e->lock);
    if (full)
        atomic_fetch_add(&e->counters.dropped, 1);
}

void exporter_lost(struct exporter *e, uint64_t count)
{
    if (e != NULL)
        atomic_fetch_add(&e->counters.dropped, count);
}

/* Waits for a full batch, or a second, and takes it; 0: the exporter is stopping. */
static size_t take(struct exporter *e, struct otlp_span *batch)
{
    pthread_mutex_lock(&e->lock);
    once_time until = once_os_monotonic_ms() + FLUSH_MS;
    for (;;) {
        once_time now = once_os_monotonic_ms();
        if (e->stopping || e->count >= BATCH_MAX || (e->count > 0 && now >= until))
            break;
        if (now >= until)
            until = now + FLUSH_MS;
        struct timespec at = { .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };
        pthread_cond_timedwait(&e->work, &e->lock, &at);
    }
    size_t count = e->count < BATCH_MAX ? e->count : BATCH_MAX;
    for (size_t i = 0; i < count; i++)
        batch[i] = e->queue[(e->first + i) % QUEUE_MAX];
    e->first = (e->first + count) % QUEUE_MAX;
    e->count -= count;
    pthread_mutex_unlock(&e->lock);
    return count;
}

/* ------------------------------------------------------------------ sending */

static bool is_over(struct exporter *e)
{
    pthread_mutex_lock(&e->lock);
    bool over = e->stopping && once_os_monotonic_ms() >= e->stop_by;
    pthread_mutex_unlock(&e->lock);
    return over;
}

static bool goes_on(void *arg)
{
    return !is_over(arg);
}

static void say(struct exporter *e, const char *text)
{
    once_time now = once_os_monotonic_ms();
    if (e->said_at != 0 && now - e->said_at < SAY_MS)
        return;
    e->said_at = now;
    once_os_log("once", "spans were not exported: %s", text);
}

/* *again: the post may be repeated. */
static bool post(struct exporter *e, once_span body, bool *again, char why[200])
{
    struct http_call call = { .url = e->url,
                              .method = ONCE_LIT("POST"),
                              .lines = { ONCE_LIT("Content-Type: application/json\r\nUser-Agent: once\r\n"),
                                         once_buf_span(&e->headers) },
                              .body = body,
                              .body_max = 4096,
                              .timeout_ms = TIMEOUT_MS,
                              .tick = goes_on,
                              .arg = e };
    struct http_answer answer;
    pthread_mutex_lock(&e->lock);
    if (e->stopping) {
        int64_t left = e->stop_by - once_os_monotonic_ms();
        call.timeout_ms = left < 1 ? 1 : left;
    }
    pthread_mutex_unlock(&e->lock);
    http_call(&call, &answer);
    bool accepted = answer.end == HTTP_ANSWERED && answer.status >= 200 && answer.status < 300;
    *again = answer.end != HTTP_ANSWERED || answer.status == 429 || answer.status == 502 || answer.status == 503 ||
             answer.status == 504;
    if (answer.end == HTTP_ANSWERED)
        snprintf(why, 200, "the collector answered with status %d", answer.status);
    else
        snprintf(why, 200, "%.190s", answer.error);
    http_answer_release(&answer);
    return accepted;
}

static void pause_for(struct exporter *e, int try)
{
    uint32_t random;
    once_os_random(&random, sizeof random);
    once_time until =
        once_os_monotonic_ms() +
        once_backoff_ms((struct once_backoff){ PAUSE_MS, INT64_MAX, ONCE_JITTER_FULL }, (uint32_t)try, random) + 1;
    pthread_mutex_lock(&e->lock);
    while (!e->stopping && once_os_monotonic_ms() < until) {
        struct timespec at = { .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };
        pthread_cond_timedwait(&e->work, &e->lock, &at);
    }
    pthread_mutex_unlock(&e->lock);
}

static void send_batch(struct exporter *e, const struct otlp_span *batch, size_t count)
{
    char *text = NULL, why[200] = "no memory";
    size_t len = 0;
    FILE *file = open_memstream(&text, &len);
    if (file != NULL) {
        otlp_write(file, &e->resource, batch, count);
        if (fclose(file) != 0)
            len = 0;
    }
    bool sent = false, again = len > 0;
    for (int try = 0; again && !sent && try < TRIES_MAX; try++) {
        if (try > 0)
            pause_for(e, try - 1);
        if (try > 0 && is_over(e))
            break;
        sent = post(e, once_span_of(text, len), &again, why);
        if (!sent)
            atomic_fetch_add(&e->counters.failures, 1);
    }
    free(text);
    atomic_fetch_add(sent ? &e->counters.exported : &e->counters.dropped, count);
    if (!sent)
        say(e, why);
}

static void *work(void *arg)
{
    struct exporter *e = arg;
    pthread_setname_np(pthread_self(), "once-otlp");
    struct otlp_span *batch = calloc(BATCH_MAX, sizeof *batch);
    for (size_t count; batch != NULL && (count = take(e, batch)) > 0;)
        send_batch(e, batch, count);
    free(batch);
    return NULL;
}

/* ------------------------------------------------------------------ start, stop */

static once_result add_header(struct exporter *e, once_span line, struct once_error *err)
{
    once_span name, value;
    bool good = once_span_cut(line, ':', &name, &value) && name.len > 0;
    for (size_t i = 0; good && i < line.len; i++)
        good = line.ptr[i] >= (i < name.len ? 0x21 : 0x20) && line.ptr[i] != 0x7f;
    if (!good)
        return once_fail(err, ONCE_INVALID, "a header is 'NAME: VALUE' on one line, or @FILE with such lines");
    once_buf_add(&e->headers, line);
    once_buf_add(&e->headers, ONCE_LIT("\r\n"));
    return ONCE_OK;
}

/* The file may contain credentials: other users must not be able to read it. */
static once_result read_headers(struct exporter *e, const char *path, struct once_error *err)
{
    char text[HEADERS_LEN_MAX];
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 && fstat(fd, &st) == 0 ? read(fd, text, sizeof text) : -1;
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return once_fail(err, ONCE_INVALID, "cannot read '%.200s': %s", path, strerror(error));
    if ((st.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return once_fail(err, ONCE_INVALID, "'%.200s' can be read by others: chmod 600", path);
    once_span rest = once_span_of(text, (size_t)n), line;
    once_result r = ONCE_OK;
    while (r == ONCE_OK && rest.len > 0) {
        once_span_cut(rest, '\n', &line, &rest);
        if (line.len > 0 && line.ptr[line.len - 1] == '\r')
            line.len--;
        if (line.len > 0 && line.ptr[0] != '#')
            r = add_header(e, line, err);
    }
    explicit_bzero(text, sizeof text);
    return r;
}

/* Collectors document "http://host:4318"; the path is always the same. */
static char *full_url(const char *url)
{
    const char *host = strstr(url, "://");
    const char *path = host != NULL ? strchr(host + 3, '/') : NULL;
    char *full = NULL;
    bool bare = strncmp(url, "http://unix:", 12) != 0 && (path == NULL || path[1] == '\0');
    if (asprintf(&full, "%.*s%s", (int)(bare && path != NULL ? path - url : (ptrdiff_t)strlen(url)), url,
                 bare ? "/v1/traces" : "") < 0)
        return NULL;
    return full;
}

static void release(struct exporter *e)
{
    if (e->headers.len > 0)
        explicit_bzero(e->headers.ptr, e->headers.len);
    once_buf_release(&e->headers);
    free(e->queue);
    free(e->url);
    free(e);
}

static once_result prepare(struct exporter *e, const struct exporter_options *options, struct once_error *err)
{
    once_result r = http_url_check(options->url, err);
    for (size_t i = 0; r == ONCE_OK && i < options->header_count; i++)
        r = options->headers[i][0] == '@' ? read_headers(e, options->headers[i] + 1, err)
                                          : add_header(e, once_span_str(options->headers[i]), err);
    if (r != ONCE_OK)
        return r;
    e->url = full_url(options->url);
    e->queue = calloc(QUEUE_MAX, sizeof *e->queue);
    if (e->url == NULL || e->queue == NULL || e->headers.result != ONCE_OK)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for spans, or too many headers");
    if (gethostname(e->host, sizeof e->host - 1) != 0)
        e->host[0] = '\0';
    e->resource = (struct otlp_resource){ .service = options->service, .host = e->host, .pid = (int)getpid() };
    return ONCE_OK;
}

once_result exporter_start(const struct exporter_options *options, struct exporter **out, struct once_error *err)
{
    struct exporter *e = calloc(1, sizeof *e);
    if (e == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for spans");
    once_buf_init(&e->headers, HEADERS_LEN_MAX);
    once_result r = prepare(e, options, err);
    if (r != ONCE_OK) {
        release(e);
        return r;
    }
    pthread_mutex_init(&e->lock, NULL);
    once_cond_init(&e->work);
    if (once_thread_start(&e->thread, work, e) != 0) {
        pthread_cond_destroy(&e->work);
        pthread_mutex_destroy(&e->lock);
        release(e);
        return once_fail(err, ONCE_UNAVAILABLE, "cannot start a thread");
    }
    *out = e;
    return ONCE_OK;
}

void exporter_stop(struct exporter *e)
{
    if (e == NULL)
        return;
    pthread_mutex_lock(&e->lock);
    e->stopping = true;
    e->stop_by = once_os_monotonic_ms() + END_MS;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    release(e);
}

const struct exporter_counters *exporter_counters(const struct exporter *e)
{
    return &e->counters;
}

static void put(FILE *file, const char *name, uint64_t value, const char *help)
{
    fprintf(file, "# HELP %s %s\n# TYPE %s counter\n%s %" PRIu64 "\n", name, help, name, name, value);
}

void exporter_put(const struct exporter *e, FILE *file)
{
    if (e == NULL)
        return;
    put(file, "once_otlp_spans_total", atomic_load(&e->counters.exported), "Spans that the collector accepted.");
    put(file, "once_otlp_spans_dropped_total", atomic_load(&e->counters.dropped),
        "Spans, or reports of the gateway, that were not exported: no room, or the collector did not accept them.");
    put(file, "once_otlp_failures_total", atomic_load(&e->counters.failures), "Posts to the collector that failed.");
}
