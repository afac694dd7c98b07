/* call.c - see call.h. */
#include "client/call.h"

#include "core/resend.h"
#include "core/span.h"
#include "os/os.h"

#include <signal.h>
#include <strings.h>

/* curl_multi_poll() returns earlier when anything happens. */
enum { POLL_MS = 1000 };

void client_result_init(struct client_result *result, size_t answer_len_max)
{
    *result = (struct client_result){ .answered = false };
    once_buf_init(&result->head, ONCE_CLIENT_HEADERS_LEN_MAX);
    once_buf_init(&result->body, answer_len_max);
}

void client_result_release(struct client_result *result)
{
    once_buf_release(&result->head);
    once_buf_release(&result->body);
}

/* ------------------------------------------------------------------ what comes */

struct receiver {
    struct client_result *result;
    once_span method;
    unsigned lengths; /* Content-Length lines */
    bool chunked, is_problem;
    bool headers_ended; /* of the last answer: libcurl takes those that break off for whole */
    bool body_began;    /* lines that come now are trailers */
    char retry_after[64], date[64];
};

static bool is_name(once_span name, const char *wanted)
{
    return name.len == strlen(wanted) && strncasecmp((const char *)name.ptr, wanted, name.len) == 0;
}

static void keep_short(char out[64], once_span value)
{
    bool fits = value.len < 64;
    if (fits)
        memcpy(out, value.ptr, value.len);
    out[fits ? value.len : 0] = '\0';
}

static bool ends_in(once_span value, const char *word)
{
    size_t len = strlen(word);
    return value.len >= len && strncasecmp((const char *)value.ptr + value.len - len, word, len) == 0;
}

static void take_header(struct receiver *r, once_span name, once_span value)
{
    once_span type, rest;
    client_facts_header(&r->result->facts, name, value);
    if (is_name(name, "Content-Length")) {
        r->lengths++;
    } else if (is_name(name, "Transfer-Encoding")) {
        r->chunked = r->chunked || ends_in(value, "chunked");
    } else if (is_name(name, "Retry-After")) {
        keep_short(r->retry_after, value);
    } else if (is_name(name, "Date")) {
        keep_short(r->date, value);
    } else if (is_name(name, "Content-Type")) {
        once_span_cut(value, ';', &type, &rest);
        while (type.len > 0 && type.ptr[type.len - 1] == ' ')
            type.len--;
        r->is_problem = is_name(type, "application/problem+json");
    }
}

/* A line at a time; those of 1xx answers come before the last one's. */
static size_t on_header(char *bytes, size_t size, size_t count, void *arg)
{
    struct receiver *r = arg;
    once_span line = once_span_of(bytes, size * count), name, value;
    if (r->body_began)
        return line.len;
    if (once_span_starts(line, ONCE_LIT("HTTP/"))) {
        *r = (struct receiver){ .result = r->result, .method = r->method };
        r->result->facts = (struct client_facts){ .status = 0 };
        once_buf_clear(&r->result->head);
        once_buf_add(&r->result->head, line);
        return line.len;
    }
    if (once_span_equal(line, ONCE_LIT("\r\n")) || once_span_equal(line, ONCE_LIT("\n"))) {
        r->headers_ended = true;
        return line.len;
    }
    once_buf_add(&r->result->head, line);
    if (memchr(line.ptr, ':', line.len) != NULL && once_header_line(&line, &name, &value))
        take_header(r, name, value);
    /* More lines than the limit break it off. */
    return r->result->head.result == ONCE_OK ? size * count : 0;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg)
{
    struct receiver *r = arg;
    r->body_began = true;
    once_buf_add(&r->result->body, once_span_of(bytes, size * count));
    if (r->result->body.result == ONCE_OK)
        return size * count;
    r->result->too_large = r->result->body.result == ONCE_LIMIT;
    once_buf_clear(&r->result->body);
    return 0; /* the rest is not worth its time */
}

/* ------------------------------------------------------------------ what goes */

static bool has_body(const struct client_call *call)
{
    return call->body.len > 0 || once_span_equal(call->method, ONCE_LIT("POST")) ||
           once_span_equal(call->method, ONCE_LIT("PUT")) || once_span_equal(call->method, ONCE_LIT("PATCH"));
}

static bool set_up(CURL *curl, const struct client_call *call, struct receiver *r, char *error)
{
    char method[64];
    snprintf(method, sizeof method, "%.*s", ONCE_SPAN_ARGS(call->method));
    bool ok = true;
#define SET(option, value) ok = ok && curl_easy_setopt(curl, option, value) == CURLE_OK
    SET(CURLOPT_HTTPGET, 1L); /* forgets the body of the call before */
    SET(CURLOPT_NOBODY, 0L);
    if (is_name(call->method, "HEAD"))
        SET(CURLOPT_NOBODY, 1L);
    if (has_body(call)) {
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body.len);
        SET(CURLOPT_POSTFIELDS, call->body.len > 0 ? (const char *)call->body.ptr : "");
    }
    SET(CURLOPT_CUSTOMREQUEST, method);
    SET(CURLOPT_URL, call->url);
    SET(CURLOPT_HTTPHEADER, call->headers);
    SET(CURLOPT_ERRORBUFFER, error);
    SET(CURLOPT_TIMEOUT_MS, (long)call->timeout_ms);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)(call->connect_ms < call->timeout_ms ? call->connect_ms : call->timeout_ms));
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, r);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, r);
#undef SET
    return ok;
}

/* TLS writes without MSG_NOSIGNAL; a library must not let its caller die of that. */
struct pipe_guard {
    sigset_t before;
    bool pending;
};

static sigset_t sigpipe(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    return set;
}

static void guard_begin(struct pipe_guard *guard)
{
    sigset_t set = sigpipe(), pending;
    sigpending(&pending);
    guard->pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &set, &guard->before);
}

static void guard_end(const struct pipe_guard *guard)
{
    sigset_t set = sigpipe();
    if (!guard->pending)
        sigtimedwait(&set, NULL, &(struct timespec){ 0 });
    pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
}

/* False: stopped. */
static bool perform(CURLM *multi, int stop_fd, CURLcode *code)
{
    int running = 1, left;
    while (running > 0) {
        struct curl_waitfd stop = { .fd = stop_fd, .events = CURL_WAIT_POLLIN };
        if (curl_multi_perform(multi, &running) != CURLM_OK)
            return true;
        if (running > 0 && curl_multi_poll(multi, &stop, stop_fd > 0, POLL_MS, NULL) == CURLM_OK && stop.revents != 0)
            return false;
    }
    for (CURLMsg *message; (message = curl_multi_info_read(multi, &left)) != NULL;)
        if (message->msg == CURLMSG_DONE)
            *code = message->data.result;
    return true;
}

/* ------------------------------------------------------------------ how it ended */

/* What libcurl may say before anything was sent. */
static bool is_before_sending(CURLcode code)
{
    switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PROXY:
        return true;
    default:
        return false;
    }
}

static bool is_of_certificates(CURLcode code)
{
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_CERTPROBLEM;
}

static void judge_answer(CURL *curl, struct receiver *r)
{
    struct client_result *a = r->result;
    long version = 0;
    curl_easy_getinfo(curl, CURLINFO_HTTP_VERSION, &version);
    int status = a->facts.status;
    a->answered = status >= 200 && status <= 599 && r->lengths <= 1 && r->headers_ended;
    if (!a->answered) {
        snprintf(a->error, sizeof a->error, "an answer with status %d, %u lengths and %s headers", status, r->lengths,
                 r->headers_ended ? "whole" : "broken");
        return;
    }
    a->end_marked = version >= CURL_HTTP_VERSION_2_0 || r->lengths == 1 || r->chunked || status == 204 ||
                    status == 304 || is_name(r->method, "HEAD");
    if (status >= 400)
        client_problem_read(once_buf_span(&a->body), r->is_problem, &a->facts.problem);
    a->facts.retry_after = client_retry_after(once_span_str(r->retry_after), once_span_str(r->date),
                                              once_os_clock.wall(once_os_clock.arg), &a->retry_after_ms);
}

static void judge(CURL *curl, CURLcode code, struct receiver *r, const char *error)
{
    struct client_result *a = r->result;
    long sent = 0, status = 0;
    curl_easy_getinfo(curl, CURLINFO_REQUEST_SIZE, &sent);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    a->facts.status = (int)status;
    a->sent = sent > 0 || !is_before_sending(code);
    if (code == CURLE_OK || (a->too_large && code == CURLE_WRITE_ERROR)) {
        judge_answer(curl, r);
        return;
    }
    a->untrusted = !a->sent && is_of_certificates(code);
    snprintf(a->error, sizeof a->error, "%.190s", error[0] != '\0' ? error : curl_easy_strerror(code));
}

void client_call(CURLM *multi, CURL *curl, const struct client_call *call, struct client_result *result)
{
    char error[CURL_ERROR_SIZE] = "";
    struct receiver r = { .result = result, .method = call->method };
    struct pipe_guard guard;
    CURLcode code = CURLE_OUT_OF_MEMORY;
    guard_begin(&guard);
    if (set_up(curl, call, &r, error) && curl_multi_add_handle(multi, curl) == CURLM_OK) {
        result->stopped = !perform(multi, call->stop_fd, &code);
        if (result->stopped) {
            long sent = 0;
            curl_easy_getinfo(curl, CURLINFO_REQUEST_SIZE, &sent);
            result->sent = sent > 0;
        } else {
            judge(curl, code, &r, error);
        }
        curl_multi_remove_handle(multi, curl);
    } else {
        snprintf(result->error, sizeof result->error, "no memory for a request");
    }
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, NULL);
    guard_end(&guard);
}
