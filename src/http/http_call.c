/* http_call.c - see http_call.h. */
#include "http/http_call.h"

#include "core/err.h"
#include "core/resend.h"
#include "core/span.h"
#include "core/url.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define UNIX "http://unix:" /* then the socket's path, as nginx writes it */

enum { CONNECT_MS = 10000, LINES_MAX = 200, URL_LEN_MAX = 2000 };

once_result http_call_init(struct once_error *err)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return once_fail(err, ONCE_NO_MEMORY, "cannot set up libcurl");
    return ONCE_OK;
}

/* What is behind the last ':', unless that is part of an IPv6 address. */
static bool is_port(const char *host, size_t len)
{
    const char *colon = memrchr(host, ':', len), *bracket = memrchr(host, ']', len);
    if (colon == NULL || (bracket != NULL && colon < bracket))
        return true;
    return strspn(colon + 1, "0123456789") == (size_t)(host + len - colon - 1);
}

once_result http_url_check(const char *url, struct once_error *err)
{
    bool http = strncmp(url, "http://", 7) == 0, https = strncmp(url, "https://", 8) == 0;
    char shown[ONCE_URL_SHOWN_LEN];
    once_url_shown(url, shown); /* this may end in a log */
    if ((!http && !https) || strlen(url) > URL_LEN_MAX || strpbrk(url, " \t\r\n#?") != NULL)
        return once_fail(err, ONCE_INVALID, "'%.100s' is no http:// or https:// URL without a query", shown);
    const char *host = url + (http ? 7 : 8);
    if (http && strncmp(host, "unix:/", 6) == 0)
        return ONCE_OK;
    size_t len = strcspn(host, "/");
    if (len == 0)
        return once_fail(err, ONCE_INVALID, "'%.100s' names no host", shown);
    if (memchr(host, '@', len) != NULL)
        return once_fail(err, ONCE_INVALID, "'%.100s' has credentials in it", shown);
    if (!is_port(host, len)) /* or a password with a slash in it */
        return once_fail(err, ONCE_INVALID, "'%.100s' has a port that is no number", shown);
    return ONCE_OK;
}

void http_answer_release(struct http_answer *answer)
{
    once_buf_release(&answer->headers);
    once_buf_release(&answer->body);
}

/* ------------------------------------------------------------------ what comes */

struct receiver {
    const struct http_call *call;
    struct http_answer *answer;
    unsigned lengths; /* Content-Length lines */
    bool chunked;
    bool headers_ended; /* of the last answer: libcurl takes those that break off for whole */
};

static bool is_name(once_span name, const char *wanted)
{
    return name.len == strlen(wanted) && strncasecmp((const char *)name.ptr, wanted, name.len) == 0;
}

static bool is_kept(once_span kept, once_span name)
{
    once_span wanted;
    while (kept.len > 0) {
        once_span_cut(kept, '\n', &wanted, &kept);
        if (wanted.len == name.len && strncasecmp((const char *)wanted.ptr, (const char *)name.ptr, name.len) == 0)
            return true;
    }
    return false;
}

/* A line at a time, those of 1xx answers before the last one's. Trailers come here, too: what was said after the
 * body is not said about it. */
static size_t on_header(char *bytes, size_t size, size_t count, void *arg)
{
    struct receiver *r = arg;
    once_span line = once_span_of(bytes, size * count), name, value;
    bool begins = once_span_starts(line, ONCE_LIT("HTTP/")) && r->answer->received == 0;
    if (r->headers_ended && !begins)
        return line.len;
    if (begins) {
        once_buf_clear(&r->answer->headers);
        r->lengths = 0;
        r->chunked = r->headers_ended = false;
        return line.len;
    }
    r->headers_ended = once_span_equal(line, ONCE_LIT("\r\n")) || once_span_equal(line, ONCE_LIT("\n"));
    if (memchr(line.ptr, ':', line.len) == NULL || !once_header_line(&line, &name, &value))
        return size * count;
    r->lengths += is_name(name, "Content-Length");
    r->chunked = r->chunked || (is_name(name, "Transfer-Encoding") && value.len >= 7 &&
                                strncasecmp((const char *)value.ptr + value.len - 7, "chunked", 7) == 0);
    if (is_kept(r->call->kept, name)) {
        once_buf_add(&r->answer->headers, name);
        once_buf_add(&r->answer->headers, ONCE_LIT(": "));
        once_buf_add(&r->answer->headers, value);
        once_buf_add(&r->answer->headers, ONCE_LIT("\r\n"));
    }
    return size * count;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg)
{
    struct receiver *r = arg;
    struct http_answer *a = r->answer;
    size_t len = size * count;
    a->received += len;
    if (!a->dropped)
        once_buf_add(&a->body, once_span_of(bytes, len));
    if (a->body.result != ONCE_OK) {
        a->dropped = true;
        once_buf_clear(&a->body);
    }
    return len;
}

static int on_tick(void *arg, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now)
{
    struct receiver *r = arg;
    (void)total, (void)now, (void)up_total, (void)up_now;
    return r->call->tick != NULL && !r->call->tick(r->call->arg);
}

/* ------------------------------------------------------------------ what goes */

static bool append(struct curl_slist **list, const char *text)
{
    struct curl_slist *longer = curl_slist_append(*list, text);
    if (longer == NULL)
        return false;
    *list = longer;
    return true;
}

static bool add_lines(struct curl_slist **list, once_span lines, bool *has_type, bool *has_accept)
{
    once_span name, value;
    for (unsigned i = 0; once_header_line(&lines, &name, &value); i++) {
        char *text = NULL;
        if (i == LINES_MAX)
            return false;
        /* libcurl takes "Name;" for a header without a value */
        int n = value.len > 0 ? asprintf(&text, "%.*s: %.*s", ONCE_SPAN_ARGS(name), ONCE_SPAN_ARGS(value))
                              : asprintf(&text, "%.*s;", ONCE_SPAN_ARGS(name));
        bool added = n >= 0 && append(list, text);
        if (n >= 0)
            free(text);
        if (!added)
            return false;
        *has_type = *has_type || is_name(name, "Content-Type");
        *has_accept = *has_accept || is_name(name, "Accept");
    }
    return true;
}

static struct curl_slist *make_headers(const struct http_call *call)
{
    struct curl_slist *list = NULL;
    bool type = false, accept = false, whole = append(&list, "Expect:");
    for (size_t i = 0; whole && i < sizeof call->lines / sizeof *call->lines; i++)
        whole = add_lines(&list, call->lines[i], &type, &accept);
    if (whole && !type)
        whole = append(&list, "Content-Type:");
    if (whole && !accept)
        whole = append(&list, "Accept:");
    if (whole)
        return list;
    curl_slist_free_all(list);
    return NULL;
}

static bool has_body(const struct http_call *call)
{
    return call->body.len > 0 || once_span_equal(call->method, ONCE_LIT("POST")) ||
           once_span_equal(call->method, ONCE_LIT("PUT")) || once_span_equal(call->method, ONCE_LIT("PATCH"));
}

static void set_up(CURL *curl, const struct http_call *call, struct receiver *r, char *error)
{
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)call->timeout_ms);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, r);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, r);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_tick);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, r);
    if (has_body(call)) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body.len);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call->body.len > 0 ? (const char *)call->body.ptr : "");
    }
}

/* ------------------------------------------------------------------ how it ended */

static bool is_before_sending(CURLcode code)
{
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_ABORTED_BY_CALLBACK:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return true;
    default:
        return false;
    }
}

static void judge(CURL *curl, CURLcode code, struct receiver *r, const char *error)
{
    struct http_answer *a = r->answer;
    long sent = 0, status = 0;
    curl_easy_getinfo(curl, CURLINFO_REQUEST_SIZE, &sent);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    a->status = (int)status;
    if (code != CURLE_OK) {
        a->end = sent == 0 && is_before_sending(code) ? HTTP_NOT_SENT : HTTP_BROKEN;
        snprintf(a->error, sizeof a->error, "%.150s", error[0] != '\0' ? error : curl_easy_strerror(code));
        return;
    }
    a->end = HTTP_ANSWERED;
    if (status < 200 || status > 599 || r->lengths > 1 || !r->headers_ended || a->headers.result == ONCE_NO_MEMORY) {
        a->end = HTTP_BROKEN;
        snprintf(a->error, sizeof a->error, "an answer with status %ld, %u lengths and %s headers", status, r->lengths,
                 r->headers_ended ? "whole" : "broken");
    }
    bool certain = r->lengths == 1 || r->chunked || status == 204 || status == 304;
    a->dropped = a->dropped || !certain || a->headers.result != ONCE_OK;
    a->headers_lost = a->headers.result != ONCE_OK;
    if (a->headers_lost)
        once_buf_clear(&a->headers);
    if (a->dropped)
        once_buf_clear(&a->body);
}

static void perform(CURL *curl, const struct http_call *call, struct receiver *r, const char *url, const char *method,
                    struct curl_slist *headers)
{
    char error[CURL_ERROR_SIZE] = "";
    set_up(curl, call, r, error);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    if (strncmp(call->url, UNIX, strlen(UNIX)) == 0)
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, call->url + strlen(UNIX));
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    judge(curl, curl_easy_perform(curl), r, error);
}

void http_call(const struct http_call *call, struct http_answer *answer)
{
    *answer = (struct http_answer){ .end = HTTP_NOT_SENT };
    once_buf_init(&answer->headers, ONCE_HEADERS_LEN_MAX);
    once_buf_init(&answer->body, call->body_max);
    struct receiver r = { .call = call, .answer = answer };
    const char *place = strncmp(call->url, UNIX, strlen(UNIX)) == 0 ? "http://localhost" : call->url;
    size_t base = strlen(place);
    while (base > 0 && call->target.len > 0 && place[base - 1] == '/')
        base--;
    char *url = NULL, *method = NULL;
    struct curl_slist *headers = make_headers(call);
    CURL *curl = curl_easy_init();
    bool ready = curl != NULL && headers != NULL &&
                 asprintf(&url, "%.*s%.*s", (int)base, place, ONCE_SPAN_ARGS(call->target)) >= 0 &&
                 asprintf(&method, "%.*s", ONCE_SPAN_ARGS(call->method)) >= 0;
    if (ready)
        perform(curl, call, &r, url, method, headers);
    else
        snprintf(answer->error, sizeof answer->error, "no memory for a request");
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    free(url);
    free(method);
}
