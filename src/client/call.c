/* call.c - see call.h. */
#include "client/call.h"

#include "core/http/header.h"
#include "core/span.h"
#include "http/curl.h"
#include "os/os.h"

#include <signal.h>

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
    struct http_head head;
    bool is_problem;
    char retry_after[64], date[64];
};

static void keep_short(char out[64], once_span value)
{
    bool fits = value.len < 64;
    if (fits)
        memcpy(out, value.ptr, value.len);
    out[fits ? value.len : 0] = '\0';
}

static void take_header(struct receiver *r, once_span name, once_span value)
{
    once_span type, rest;
    client_facts_header(&r->result->facts, name, value);
    if (once_header_is(name, "Retry-After")) {
        keep_short(r->retry_after, value);
    } else if (once_header_is(name, "Date")) {
        keep_short(r->date, value);
    } else if (once_header_is(name, "Content-Type")) {
        once_span_cut(value, ';', &type, &rest);
        while (type.len > 0 && type.ptr[type.len - 1] == ' ')
            type.len--;
        r->is_problem = once_header_is(type, "application/problem+json");
    }
}

static size_t on_header(char *bytes, size_t size, size_t count, void *arg)
{
    struct receiver *r = arg;
    once_span line = once_span_of(bytes, size * count), name, value;
    switch (http_head_line(&r->head, line, &name, &value)) {
    case HTTP_LINE_STATUS:
        *r = (struct receiver){ .result = r->result, .method = r->method };
        r->result->facts = (struct client_facts){ .status = 0 };
        once_buf_clear(&r->result->head);
        once_buf_add(&r->result->head, line);
        break;
    case HTTP_LINE_HEADER:
        once_buf_add(&r->result->head, line);
        take_header(r, name, value);
        break;
    case HTTP_LINE_IGNORED:
        break;
    }
    /* Ends the transfer if the lines exceed the limit. */
    return r->result->head.result == ONCE_OK ? line.len : 0;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg)
{
    struct receiver *r = arg;
    r->head.body_began = true;
    once_buf_add(&r->result->body, once_span_of(bytes, size * count));
    if (r->result->body.result == ONCE_OK)
        return size * count;
    r->result->too_large = r->result->body.result == ONCE_LIMIT;
    once_buf_clear(&r->result->body);
    return 0; /* ends the transfer */
}

/* ------------------------------------------------------------------ what goes */

static bool set_up(CURL *curl, const struct client_call *call, struct receiver *r, char *error)
{
    bool ok = http_setup(curl, &(struct http_setup){ .url = call->url,
                                                     .method = call->method,
                                                     .body = call->body,
                                                     .headers = call->headers,
                                                     .timeout_ms = call->timeout_ms,
                                                     .connect_ms = call->connect_ms,
                                                     .user_agent = call->user_agent,
                                                     .ca_file = call->ca_file,
                                                     .path_as_is = true,
                                                     .error = error });
#define SET(option, value) ok = ok && curl_easy_setopt(curl, option, value) == CURLE_OK
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, r);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, r);
#undef SET
    return ok;
}

/* Blocks SIGPIPE: TLS writes without MSG_NOSIGNAL, and that must not kill the caller's process. */
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
    a->answered = http_head_is_whole(&r->head, status, a->error);
    if (!a->answered)
        return;
    a->end_marked =
        version >= CURL_HTTP_VERSION_2_0 || http_head_marks_end(&r->head, status) || once_header_is(r->method, "HEAD");
    if (status >= 400)
        client_problem_read(once_buf_span(&a->body), r->is_problem, &a->facts.problem);
    a->facts.retry_after = client_retry_after(once_span_str(r->retry_after), once_span_str(r->date),
                                              once_os_clock.wall(once_os_clock.arg), &a->retry_after_ms);
}

static void judge(CURL *curl, CURLcode code, struct receiver *r, const char *error)
{
    struct client_result *a = r->result;
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    a->facts.status = (int)status;
    a->sent = !http_is_not_sent(curl, code);
    if (code == CURLE_OK || (a->too_large && code == CURLE_WRITE_ERROR)) {
        judge_answer(curl, r);
        return;
    }
    a->untrusted = !a->sent && is_of_certificates(code);
    http_error_text(code, error, a->error);
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
