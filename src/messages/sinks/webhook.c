/*
 * webhook.c - the sink http(s)://: each message is a signed POST.
 *
 * The URL is the configured one: a message cannot change it. Redirects are not followed, certificates are verified. The
 * message id is the Idempotency-Key, and the webhook-id of the signature. A 2xx confirms. Every other answer is a
 * refusal, and so is a missing answer after a part of the request was sent. The message's own headers are sent along,
 * except those that control HTTP itself or name the sender.
 */
#include "messages/sinks/sink.h"

#include "core/buf.h"
#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "http/curl.h"
#include "messages/brokers/headers.h"
#include "messages/sinks/reserved.h"
#include "messages/sinks/signature.h"
#include "os/os.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

enum { POSTS_MAX = 32, ANSWER_LEN = 120 };
static const int64_t retry_after_max_ms = 24 * 3600 * 1000LL;

struct post {
    const struct message *message; /* NULL: the slot is free */
    CURL *curl;
    struct curl_slist *headers;
    char answer[ANSWER_LEN]; /* the beginning of the answer */
    size_t answer_len;
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
        return "it has no host";
    if (memchr(host, '@', strcspn(host, "/?#")) != NULL)
        return "other users can see a login in a URL; sign with --secret-file instead";
    if (strpbrk(url, " \t\r\n") != NULL)
        return "it contains white space";
    return NULL;
}

/* ------------------------------------------------------------------ a request */

__attribute__((format(printf, 3, 4))) static bool add_header(struct post *post, const char *name, const char *format,
                                                             ...)
{
    char value[1200];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(value, sizeof value, format, args);
    va_end(args);
    if (len == 0)
        return http_header_drop(&post->headers, name); /* otherwise libcurl would add its own Content-Type */
    return len > 0 && (size_t)len < sizeof value &&
           http_header_add(&post->headers, once_span_str(name), once_span_of(value, (size_t)len));
}

/* The message's own headers: traceparent and the like. */
static bool add_own_headers(struct post *post, once_span lines)
{
    once_span name, value;
    bool ok = true;
    while (ok && headers_next(&lines, &name, &value))
        ok = header_is_reserved(name) || http_header_add(&post->headers, name, value);
    return ok;
}

static bool add_headers(struct webhook *w, struct post *post, const struct message *m)
{
    int64_t now_s = once_os_clock.wall(once_os_clock.arg) / 1000;
    bool ok = add_header(post, "Idempotency-Key", "\"%s\"", m->id) && add_header(post, "webhook-id", "%s", m->id) &&
              add_header(post, "webhook-timestamp", "%" PRId64, now_s) &&
              add_header(post, "Content-Type", "%.*s", ONCE_SPAN_ARGS(m->content_type)) &&
              add_header(post, "Once-Topic", "%.*s", ONCE_SPAN_ARGS(m->topic)) &&
              add_header(post, "Once-Attempt", "%d", m->refusals + m->crashes + 1) &&
              http_header_drop(&post->headers, "Expect");
    if (ok && w->keys.count > 0) {
        char signature[SIGNATURE_LEN];
        signature_make(&w->keys, m->id, now_s, m->payload, signature);
        ok = add_header(post, "webhook-signature", "%s", signature);
    }
    if (ok && m->has_key) {
        char *escaped = curl_easy_escape(post->curl, (const char *)m->key.ptr, (int)m->key.len);
        ok = escaped != NULL && add_header(post, "Once-Message-Key", "%s", escaped);
        curl_free(escaped);
    }
    return ok && add_own_headers(post, m->headers);
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg)
{
    struct post *post = arg;
    size_t len = size * count, room = ANSWER_LEN - 1 - post->answer_len;
    memcpy(post->answer + post->answer_len, bytes, len < room ? len : room);
    post->answer_len += len < room ? len : room;
    return len;
}

static bool prepare(struct webhook *w, struct post *post, const struct message *m)
{
    const struct sink_options *options = &w->base.options;
    CURL *curl = post->curl;
    curl_easy_reset(curl);
    bool ok = http_setup(curl, &(struct http_setup){ .url = options->url,
                                                     .method = ONCE_LIT("POST"),
                                                     .body = m->payload,
                                                     .headers = post->headers,
                                                     .timeout_ms = options->timeout_ms,
                                                     .connect_ms = options->timeout_ms,
                                                     .user_agent = "once-relay",
                                                     .ca_file = options->ca_file,
                                                     .error = post->error });
#define SET(option, value) ok = ok && curl_easy_setopt(curl, option, value) == CURLE_OK
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, post);
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
    post->answer_len = 0;
    post->error[0] = '\0';
    w->base.busy++;
    if (post->curl == NULL || !add_headers(w, post, m) || !prepare(w, post, m) ||
        curl_multi_add_handle(w->multi, post->curl) != CURLM_OK)
        end(w, post, SINK_UNREACHED, 0, "no memory for a request");
    return true;
}

/* ------------------------------------------------------------------ its answer */

/* Makes the beginning of the answer one printable line. */
static void make_printable(struct post *post)
{
    for (size_t i = 0; i < post->answer_len; i++)
        if (post->answer[i] < ' ' || post->answer[i] > '~')
            post->answer[i] = ' ';
    post->answer[post->answer_len] = '\0';
}

/* True only if no part of the request was sent. */
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
    make_printable(post);
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
                 status >= 300 && status <= 399 ? " (redirects are not followed)" : "",
                 post->answer_len > 0 ? ": " : "", post->answer);
        end(w, post, SINK_REFUSED, wait_ms, reason);
    }
}

static void webhook_poll(struct sink *sink, int ms)
{
    struct webhook *w = webhook_of(sink);
    int running = 0;
    CURLcode code = CURLE_OK;
    curl_multi_perform(w->multi, &running);
    if (running > 0 && ms > 0) {
        curl_multi_poll(w->multi, NULL, 0, ms, NULL);
        curl_multi_perform(w->multi, &running);
    }
    for (struct post *post; (post = http_multi_ended(w->multi, &code)) != NULL;)
        finish(w, post, code);
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

static once_result webhook_open(const struct sink_options *options, struct sink **out, struct once_error *err)
{
    if (!http_curl_init())
        return once_fail(err, ONCE_NO_MEMORY, "cannot initialise libcurl");
    struct webhook *w = calloc(1, sizeof *w);
    if (w == NULL || (w->multi = curl_multi_init()) == NULL) {
        free(w);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a sink");
    }
    w->base = (struct sink){ .ops = &sink_webhook, .options = *options };
    once_result r = options->secret_file != NULL ? signature_keys_read(options->secret_file, &w->keys, err) : ONCE_OK;
    if (r != ONCE_OK) {
        once_error_prefix(err, "--secret-file '%s'", options->secret_file);
        webhook_close(&w->base);
        return r;
    }
    *out = &w->base;
    return ONCE_OK;
}

const struct sink_ops sink_webhook = {
    .schemes = { "http:", "https:" },
    .fault = webhook_fault,
    .open = webhook_open,
    .start = webhook_start,
    .poll = webhook_poll,
    .close = webhook_close,
};
