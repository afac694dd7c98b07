/* http_call.c - see http_call.h. */
#include "http/http_call.h"

#include "core/err.h"
#include "core/http/header.h"
#include "core/http/url.h"
#include "core/span.h"
#include "http/curl.h"

#include <stdio.h>
#include <stdlib.h>

#define UNIX "http://unix:" /* then the socket's path, as nginx writes it */

enum { CONNECT_MS = 10000, LINES_MAX = 200, URL_LEN_MAX = 2000 };

once_result http_call_init(struct once_error *err)
{
    return http_curl_init() ? ONCE_OK : once_fail(err, ONCE_NO_MEMORY, "cannot set up libcurl");
}

/* Is the text after the last ':' a number, unless that ':' is part of an IPv6 address? */
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
    once_url_shown(url, shown); /* the message may be logged */
    if ((!http && !https) || strlen(url) > URL_LEN_MAX || strpbrk(url, " \t\r\n#?") != NULL)
        return once_fail(err, ONCE_INVALID, "'%.100s' is not an http:// or https:// URL without a query", shown);
    const char *host = url + (http ? 7 : 8);
    if (http && strncmp(host, "unix:/", 6) == 0)
        return ONCE_OK;
    size_t len = strcspn(host, "/");
    if (len == 0)
        return once_fail(err, ONCE_INVALID, "'%.100s' has no host", shown);
    if (memchr(host, '@', len) != NULL)
        return once_fail(err, ONCE_INVALID, "'%.100s' contains credentials", shown);
    if (!is_port(host, len)) /* or a password with a slash in it */
        return once_fail(err, ONCE_INVALID, "'%.100s' has a port that is not a number", shown);
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
    struct http_head head;
};

static size_t on_header(char *bytes, size_t size, size_t count, void *arg)
{
    struct receiver *r = arg;
    once_span name, value;
    r->head.body_began = r->answer->received > 0;
    switch (http_head_line(&r->head, once_span_of(bytes, size * count), &name, &value)) {
    case HTTP_LINE_STATUS:
        once_buf_clear(&r->answer->headers);
        break;
    case HTTP_LINE_HEADER:
        if (once_header_is_listed(name, r->call->kept))
            once_header_add(&r->answer->headers, name, value);
        break;
    case HTTP_LINE_IGNORED:
        break;
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

static bool add_lines(struct curl_slist **list, once_span lines, bool *has_type, bool *has_accept)
{
    once_span name, value;
    for (unsigned i = 0; once_header_line(&lines, &name, &value); i++) {
        if (i == LINES_MAX || !http_header_add(list, name, value))
            return false;
        *has_type = *has_type || once_header_is(name, "Content-Type");
        *has_accept = *has_accept || once_header_is(name, "Accept");
    }
    return true;
}

static struct curl_slist *make_headers(const struct http_call *call)
{
    struct curl_slist *list = NULL;
    bool type = false, accept = false, whole = http_header_drop(&list, "Expect");
    for (size_t i = 0; whole && i < sizeof call->lines / sizeof *call->lines; i++)
        whole = add_lines(&list, call->lines[i], &type, &accept);
    whole = whole && (type || http_header_drop(&list, "Content-Type")) && (accept || http_header_drop(&list, "Accept"));
    if (whole)
        return list;
    curl_slist_free_all(list);
    return NULL;
}

/* ------------------------------------------------------------------ how it ended */

static void judge(CURL *curl, CURLcode code, struct receiver *r, const char *error)
{
    struct http_answer *a = r->answer;
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    a->status = (int)status;
    if (code != CURLE_OK) {
        a->end = http_is_not_sent(curl, code) ? HTTP_NOT_SENT : HTTP_BROKEN;
        http_error_text(code, error, a->error);
        return;
    }
    bool whole = http_head_is_whole(&r->head, a->status, a->error) && a->headers.result != ONCE_NO_MEMORY;
    a->end = whole ? HTTP_ANSWERED : HTTP_BROKEN;
    a->headers_lost = a->headers.result != ONCE_OK;
    a->dropped = a->dropped || a->headers_lost || !http_head_marks_end(&r->head, a->status);
    if (a->headers_lost)
        once_buf_clear(&a->headers);
    if (a->dropped)
        once_buf_clear(&a->body);
}

static void perform(CURL *curl, const struct http_call *call, struct receiver *r, const char *url,
                    struct curl_slist *headers)
{
    char error[CURL_ERROR_SIZE] = "";
    bool ok = http_setup(curl, &(struct http_setup){ .url = url,
                                                     .method = call->method,
                                                     .body = call->body,
                                                     .headers = headers,
                                                     .timeout_ms = call->timeout_ms,
                                                     .connect_ms = CONNECT_MS,
                                                     .path_as_is = true,
                                                     .error = error });
#define SET(option, value) ok = ok && curl_easy_setopt(curl, option, value) == CURLE_OK
    SET(CURLOPT_NOPROXY, "*");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_FRESH_CONNECT, 1L);
    SET(CURLOPT_FORBID_REUSE, 1L);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, r);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, r);
    SET(CURLOPT_NOPROGRESS, 0L);
    SET(CURLOPT_XFERINFOFUNCTION, on_tick);
    SET(CURLOPT_XFERINFODATA, r);
    if (strncmp(call->url, UNIX, strlen(UNIX)) == 0)
        SET(CURLOPT_UNIX_SOCKET_PATH, call->url + strlen(UNIX));
#undef SET
    if (!ok) {
        snprintf(r->answer->error, sizeof r->answer->error, "no memory for a request");
        return;
    }
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
    char *url = NULL;
    struct curl_slist *headers = make_headers(call);
    CURL *curl = curl_easy_init();
    bool ready = curl != NULL && headers != NULL &&
                 asprintf(&url, "%.*s%.*s", (int)base, place, ONCE_SPAN_ARGS(call->target)) >= 0;
    if (ready)
        perform(curl, call, &r, url, headers);
    else
        snprintf(answer->error, sizeof answer->error, "no memory for a request");
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    free(url);
}
