/* curl.c - see curl.h. */
#include "http/curl.h"

#include "core/http/header.h"
#include "core/span.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

static bool curl_ready;

static void init_curl(void)
{
    curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

bool http_curl_init(void)
{
    static pthread_once_t init_once = PTHREAD_ONCE_INIT;
    pthread_once(&init_once, init_curl);
    return curl_ready;
}

/* ------------------------------------------------------------------ a request */

static bool has_body(const struct http_setup *s)
{
    return s->body.len > 0 || once_span_equal(s->method, ONCE_LIT("POST")) ||
           once_span_equal(s->method, ONCE_LIT("PUT")) || once_span_equal(s->method, ONCE_LIT("PATCH"));
}

bool http_setup(CURL *curl, const struct http_setup *s)
{
    char method[64];
    bool ok = snprintf(method, sizeof method, "%.*s", ONCE_SPAN_ARGS(s->method)) < (int)sizeof method;
    int64_t connect_ms = s->connect_ms < s->timeout_ms ? s->connect_ms : s->timeout_ms;
#define SET(option, value) ok = ok && curl_easy_setopt(curl, option, value) == CURLE_OK
    SET(CURLOPT_HTTPGET, 1L); /* forgets the body of the transfer before */
    SET(CURLOPT_NOBODY, once_header_is(s->method, "HEAD") ? 1L : 0L);
    if (has_body(s)) {
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)s->body.len);
        SET(CURLOPT_POSTFIELDS, s->body.len > 0 ? (const char *)s->body.ptr : "");
    }
    SET(CURLOPT_CUSTOMREQUEST, method);
    SET(CURLOPT_URL, s->url);
    SET(CURLOPT_PATH_AS_IS, s->path_as_is ? 1L : 0L);
    SET(CURLOPT_HTTPHEADER, s->headers);
    SET(CURLOPT_USERAGENT, s->user_agent);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    if (s->ca_file != NULL) {
        SET(CURLOPT_CAINFO, s->ca_file);
        SET(CURLOPT_CAPATH, NULL);
    }
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_TIMEOUT_MS, (long)s->timeout_ms);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms);
    SET(CURLOPT_ERRORBUFFER, s->error);
#undef SET
    return ok;
}

static bool append(struct curl_slist **list, const char *text)
{
    struct curl_slist *longer = curl_slist_append(*list, text);
    if (longer != NULL)
        *list = longer;
    return longer != NULL;
}

bool http_header_add(struct curl_slist **list, once_span name, once_span value)
{
    char *text = NULL;
    /* "Name;" is libcurl's way to send a name without a value */
    int n = value.len > 0 ? asprintf(&text, "%.*s: %.*s", ONCE_SPAN_ARGS(name), ONCE_SPAN_ARGS(value))
                          : asprintf(&text, "%.*s;", ONCE_SPAN_ARGS(name));
    bool added = n >= 0 && append(list, text);
    if (n >= 0)
        free(text);
    return added;
}

bool http_header_drop(struct curl_slist **list, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "%s:", name);
    return append(list, text);
}

/* ------------------------------------------------------------------ its answer */

static bool ends_in_chunked(once_span value)
{
    return value.len >= 7 && once_header_is(once_span_skip(value, value.len - 7), "chunked");
}

enum http_line http_head_line(struct http_head *head, once_span line, once_span *name, once_span *value)
{
    *name = *value = once_span_of(NULL, 0);
    if (once_span_starts(line, ONCE_LIT("HTTP/")) && !head->body_began) {
        *head = (struct http_head){ .lengths = 0 };
        return HTTP_LINE_STATUS;
    }
    if (head->ended || head->body_began)
        return HTTP_LINE_IGNORED;
    head->ended = once_span_equal(line, ONCE_LIT("\r\n")) || once_span_equal(line, ONCE_LIT("\n"));
    if (head->ended)
        return HTTP_LINE_IGNORED;
    if (once_header_line(&line, name, value)) {
        head->lengths += once_header_is(*name, "Content-Length");
        head->chunked = head->chunked || (once_header_is(*name, "Transfer-Encoding") && ends_in_chunked(*value));
    }
    return HTTP_LINE_HEADER;
}

bool http_head_is_whole(const struct http_head *head, int status, char error[200])
{
    if (status >= 200 && status <= 599 && head->lengths <= 1 && head->ended)
        return true;
    snprintf(error, 200, "an invalid answer: status %d, %u Content-Length headers, its head is %s", status,
             head->lengths, head->ended ? "complete" : "cut off");
    return false;
}

bool http_head_marks_end(const struct http_head *head, int status)
{
    return head->lengths == 1 || head->chunked || status == 204 || status == 304;
}

/* ------------------------------------------------------------------ how it ended */

/* The errors that libcurl reports before it sends anything. */
static bool is_before_sending(CURLcode code)
{
    switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PROXY:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_ABORTED_BY_CALLBACK:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return true;
    default:
        return false;
    }
}

bool http_is_not_sent(CURL *curl, CURLcode code)
{
    long sent = 0;
    curl_easy_getinfo(curl, CURLINFO_REQUEST_SIZE, &sent);
    return sent == 0 && is_before_sending(code);
}

void http_error_text(CURLcode code, const char *error, char out[200])
{
    snprintf(out, 200, "%.190s", error[0] != '\0' ? error : curl_easy_strerror(code));
}

void *http_multi_ended(CURLM *multi, CURLcode *code)
{
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(multi, &left)) != NULL;) {
        char *own = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        *code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &own);
        return own;
    }
    return NULL;
}
