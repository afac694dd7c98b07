/*
 * webhook.c - the sink http(s)://: each message is a POST, signed.
 *
 * The URL is the configured one, whatever a message says; redirects are not followed, certificates are
 * verified. The message id is the Idempotency-Key, and the webhook-id of the signature. A 2xx confirms;
 * everything else that was answered, and an answer that did not come after something was sent, is a refusal.
 * A message's own headers go along, but not those that say how HTTP itself is spoken or who is speaking.
 */
#include "messages/sinks/sink.h"

#include "core/buf.h"
#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "messages/sinks/reserved.h"
#include "messages/sinks/signature.h"
#include "os/os.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

enum { POSTS_MAX = 32, SAID_MAX = 120 };
static const int64_t retry_after_max_ms = 24 * 3600 * 1000LL;

struct post {
    const struct message *message; /* NULL: free */
    CURL *curl;
    struct curl_slist *headers;
    char said[SAID_MAX]; /* the beginning of the answer */
    size_t said_len;
    char error[CURL_ERROR_SIZE];
};

struct webhook {
    struct sink base;
    CURLM *multi;
    struct signature_keys keys;
    struct post posts[POSTS_MAX];
};

static struct webhook *webhook_of(struct sink *sink)
{
    return (struct webhook *)sink;
}

static const char *webhook_fault(const char *url)
{
    const char *host = strstr(url, "://");
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return "it does not begin with http:// or https://";
    host += 3;
    if (strlen(url) > ONCE_URL_LEN_MAX)
        return "it is too long";
    if (*host == '\0' || strchr("/?#:", *host) != NULL)
        return "it names no host";
    if (memchr(host, '@', strcspn(host, "/?#")) != NULL)
        return "a user in a URL is seen by everybody who lists processes; sign with --secret-file instead";
    if (strpbrk(url, " \t\r\n") != NULL)
        return "there is white space in it";
    return NULL;
}

/* ------------------------------------------------------------------ a request */

static bool add_line(struct post *post, const struct once_buf *line)
{
    struct curl_slist *longer =
        line->result == ONCE_OK ? curl_slist_append(post->headers, (const char *)line->ptr) : NULL;
    if (longer != NULL)
        post->headers = longer;
    return longer != NULL;
}

__attribute__((format(printf, 2, 3))) static bool add_header(struct post *post, const char *format, ...)
{
    char line[1200];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    struct curl_slist *longer = len >= 0 && (size_t)len < sizeof line ? curl_slist_append(post->headers, line) : NULL;
    if (longer != NULL)
        post->headers = longer;
    return longer != NULL;
}

/* Those of the message itself: traceparent and the like. */
static bool add_own_headers(struct post *post, once_span lines)
{
    struct once_buf line;
    bool ok = true;
    once_buf_init(&line, 32 << 10);
    while (ok && lines.len > 0) {
        once_span one, name, value;
        once_span_cut(lines, '\n', &one, &lines);
        if (one.len > 0 && one.ptr[one.len - 1] == '\r')
            one.len--;
        if (!once_span_cut(one, ':', &name, &value) || header_is_reserved(name))
            continue;
        while (value.len > 0 && value.ptr[0] == ' ')
            value = once_span_skip(value, 1);
        once_buf_clear(&line);
        once_buf_add(&line, name);
        /* libcurl's way to send a name without a value */
        once_buf_addf(&line, value.len > 0 ? ": " : ";");
        once_buf_add(&line, value);
        once_buf_add_byte(&line, '\0');
        ok = add_line(post, &line);
    }
    once_buf_release(&line);
    return ok;
}

static bool add_headers(struct webhook *w, struct post *post, const struct message *m)
{
    int64_t now_s = once_os_clock.wall(once_os_clock.arg) / 1000;
    bool ok = add_header(post, "Idempotency-Key: \"%s\"", m->id) && add_header(post, "webhook-id: %s", m->id) &&
              add_header(post, "webhook-timestamp: %" PRId64, now_s) &&
              add_header(post, "Content-Type: %.*s", ONCE_SPAN_ARGS(m->content_type)) &&
              add_header(post, "Once-Topic: %.*s", ONCE_SPAN_ARGS(m->topic)) &&
              add_header(post, "Once-Attempt: %d", m->refusals + m->crashes + 1) && add_header(post, "Expect:");
    if (ok && w->keys.count > 0) {
        char signature[SIGNATURE_LEN];
        signature_make(&w->keys, m->id, now_s, m->payload, signature);
        ok = add_header(post, "webhook-signature: %s", signature);
    }
    if (ok && m->has_key) {
        char *escaped = curl_easy_escape(post->curl, (const char *)m->key.ptr, (int)m->key.len);
        ok = escaped != NULL && add_header(post, "Once-Message-Key: %s", escaped);
        curl_free(escaped);
    }
    return ok && add_own_headers(post, m->headers);
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg)
{
    struct post *post = arg;
    size_t len = size * count, room = SAID_MAX - 1 - post->said_len;
    memcpy(post->said + post->said_len, bytes, len < room ? len : room);
    post->said_len += len < room ? len : room;
    return len;
}

static bool prepare(struct webhook *w, struct post *post, const struct message *m)
{
    const struct sink_options *options = &w->base.options;
    CURL *curl = post->curl;
    bool ok = true;
#define SET(option, value) ok = ok && curl_easy_setopt(curl, option, value) == CURLE_OK
    curl_easy_reset(curl);
    SET(CURLOPT_URL, options->url);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    if (options->ca_file != NULL) {
        SET(CURLOPT_CAINFO, options->ca_file);
        SET(CURLOPT_CAPATH, NULL);
    }
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_TIMEOUT_MS, (long)options->timeout_ms);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)options->timeout_ms);
    SET(CURLOPT_POST, 1L);
    SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)m->payload.len);
    SET(CURLOPT_POSTFIELDS, m->payload.len > 0 ? (const char *)m->payload.ptr : "");
    SET(CURLOPT_HTTPHEADER, post->headers);
    SET(CURLOPT_USERAGENT, "once-relay");
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, post);
    SET(CURLOPT_ERRORBUFFER, post->error);
    SET(CURLOPT_PRIVATE, post);
#undef SET
    return ok;
}

static void end(struct webhook *w, struct post *post, enum sink_result result, int64_t retry_after_ms,
                const char *reason)
{
    const struct message *m = post->message;
    curl_multi_remove_handle(w->multi, post->curl);
    curl_slist_free_all(post->headers);
    post->headers = NULL;
    post->message = NULL;
    w->base.busy--;
    w->base.options.done(w->base.options.arg, m, result, retry_after_ms, reason);
}

static bool webhook_start(struct sink *sink, const struct message *m)
{
    struct webhook *w = webhook_of(sink);
    struct post *post = NULL;
    for (size_t i = 0; i < POSTS_MAX && post == NULL; i++)
        if (w->posts[i].message == NULL)
            post = &w->posts[i];
    if (post == NULL)
        return false;
    if (post->curl == NULL)
        post->curl = curl_easy_init();
    post->message = m;
    post->said_len = 0;
    post->error[0] = '\0';
    w->base.busy++;
    if (post->curl == NULL || !add_headers(w, post, m) || !prepare(w, post, m) ||
        curl_multi_add_handle(w->multi, post->curl) != CURLM_OK)
        end(w, post, SINK_UNREACHED, 0, "no memory for a request");
    return true;
}

/* ------------------------------------------------------------------ its answer */

/* The beginning of what it said, on one line. */
static void tidy_said(struct post *post)
{
    for (size_t i = 0; i < post->said_len; i++)
        if (post->said[i] < ' ' || post->said[i] > '~')
            post->said[i] = ' ';
    post->said[post->said_len] = '\0';
}

/* Certainly nothing of the request was sent. */
static bool was_not_sent(CURL *curl, CURLcode code)
{
    curl_off_t sent = 0, started = 0;
    curl_easy_getinfo(curl, CURLINFO_PRETRANSFER_TIME_T, &started);
    curl_easy_getinfo(curl, CURLINFO_SIZE_UPLOAD_T, &sent);
    return code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST ||
           code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CONNECT_ERROR ||
           code == CURLE_SSL_CACERT_BADFILE || (started == 0 && sent == 0);
}

static void finish(struct webhook *w, struct post *post, CURLcode code)
{
    char reason[MESSAGE_REASON_LEN];
    long status = 0;
    curl_off_t retry_after = 0;
    curl_easy_getinfo(post->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(post->curl, CURLINFO_RETRY_AFTER, &retry_after);
    tidy_said(post);
    if (code != CURLE_OK) {
        const char *text = post->error[0] != '\0' ? post->error : curl_easy_strerror(code);
        bool unsent = was_not_sent(post->curl, code);
        snprintf(reason, sizeof reason, "%s%.180s", unsent ? "" : "no complete answer: ", text);
        end(w, post, unsent ? SINK_UNREACHED : SINK_REFUSED, 0, reason);
    } else if (status >= 200 && status <= 299) {
        end(w, post, SINK_CONFIRMED, 0, "");
    } else {
        int64_t wait_ms = retry_after > retry_after_max_ms / 1000 ? retry_after_max_ms : (int64_t)retry_after * 1000;
        snprintf(reason, sizeof reason, "status %ld%s%s%s", status,
                 status >= 300 && status <= 399 ? " (redirects are not followed)" : "", post->said_len > 0 ? ": " : "",
                 post->said);
        end(w, post, SINK_REFUSED, wait_ms, reason);
    }
}

static void webhook_poll(struct sink *sink, int ms)
{
    struct webhook *w = webhook_of(sink);
    int running = 0, left;
    curl_multi_perform(w->multi, &running);
    if (running > 0 && ms > 0) {
        curl_multi_poll(w->multi, NULL, 0, ms, NULL);
        curl_multi_perform(w->multi, &running);
    }
    for (CURLMsg *message; (message = curl_multi_info_read(w->multi, &left)) != NULL;) {
        char *post = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &post);
        finish(w, (struct post *)(void *)post, code);
    }
}

/* ------------------------------------------------------------------ open, close */

static void webhook_close(struct sink *sink)
{
    struct webhook *w = webhook_of(sink);
    for (size_t i = 0; i < POSTS_MAX; i++) {
        if (w->posts[i].message != NULL)
            curl_multi_remove_handle(w->multi, w->posts[i].curl);
        curl_slist_free_all(w->posts[i].headers);
        curl_easy_cleanup(w->posts[i].curl);
    }
    curl_multi_cleanup(w->multi);
    free(w);
}

static once_result open_as(const struct sink_ops *ops, const struct sink_options *options, struct sink **out,
                           struct once_error *err)
{
    static bool ready; /* for the whole program, once */
    if (!ready && curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return once_fail(err, ONCE_NO_MEMORY, "cannot initialise libcurl");
    ready = true;
    struct webhook *w = calloc(1, sizeof *w);
    if (w == NULL || (w->multi = curl_multi_init()) == NULL) {
        free(w);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a sink");
    }
    w->base = (struct sink){ .ops = ops, .options = *options };
    once_result r = options->secret_file != NULL ? signature_keys_read(options->secret_file, &w->keys, err) : ONCE_OK;
    if (r != ONCE_OK) {
        once_error_prefix(err, "--secret-file '%s'", options->secret_file);
        webhook_close(&w->base);
        return r;
    }
    *out = &w->base;
    return ONCE_OK;
}

static once_result http_open(const struct sink_options *options, struct sink **out, struct once_error *err)
{
    return open_as(&sink_http, options, out, err);
}

static once_result https_open(const struct sink_options *options, struct sink **out, struct once_error *err)
{
    return open_as(&sink_https, options, out, err);
}

const struct sink_ops sink_http = { .scheme = "http:",
                                    .fault = webhook_fault,
                                    .open = http_open,
                                    .start = webhook_start,
                                    .poll = webhook_poll,
                                    .close = webhook_close };
const struct sink_ops sink_https = { .scheme = "https:",
                                     .fault = webhook_fault,
                                     .open = https_open,
                                     .start = webhook_start,
                                     .poll = webhook_poll,
                                     .close = webhook_close };
