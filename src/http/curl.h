/*
 * curl.h - what every use of libcurl in this project shares: set-up, headers, the head of an answer, how a transfer
 * ended.
 *
 * http_call.h makes one request on a connection of its own. The client, the webhook sink and reconcile keep their
 * handles and connections, run several transfers at a time or again and again, and use these parts for each.
 */
#ifndef ONCE_HTTP_CURL_H
#define ONCE_HTTP_CURL_H

#include "core/buf.h"

#include <curl/curl.h>

/* Initialises libcurl once per process; false: it cannot be. */
bool http_curl_init(void);

struct http_setup {
    const char *url;
    once_span method;
    once_span body;
    struct curl_slist *headers;
    int64_t timeout_ms, connect_ms;
    const char *user_agent; /* NULL: none is sent */
    const char *ca_file;    /* NULL: the system's */
    bool path_as_is;        /* dots in the path are left alone */
    char *error;            /* CURL_ERROR_SIZE bytes */
};

/* http and https only, certificates verified, no redirects, no signals. A POST, PUT or PATCH has a body, even if an
 * empty one. Everything in `setup` but the URL must live until the transfer ended. False: no memory. */
bool http_setup(CURL *curl, const struct http_setup *setup);

/* The lists of headers that libcurl takes; false: no memory. An empty value is sent as one. */
bool http_header_add(struct curl_slist **list, once_span name, once_span value);
/* Takes back a header that libcurl would send by itself. */
bool http_header_drop(struct curl_slist **list, const char *name);

/* The head of an answer, as libcurl hands it over: a line at a time, those of 1xx answers before the last one's. */
struct http_head {
    unsigned lengths; /* Content-Length lines */
    bool chunked;
    bool ended;      /* libcurl takes a head that breaks off for a whole one */
    bool body_began; /* set by the caller: lines that come now are trailers */
};

enum http_line {
    HTTP_LINE_IGNORED, /* the end of the head, or a trailer, which is not said about the body */
    HTTP_LINE_STATUS,  /* another answer begins: what was kept of the one before does not count */
    HTTP_LINE_HEADER,  /* *name is empty if it cannot be read as one */
};
enum http_line http_head_line(struct http_head *head, once_span line, once_span *name, once_span *value);
/* Is the answer a valid one with a whole head? If not, `error` says why. */
bool http_head_is_whole(const struct http_head *head, int status, char error[200]);
/* Does something mark the end of the body (ADR 19)? */
bool http_head_marks_end(const struct http_head *head, int status);

/* Did no byte of the request leave? */
bool http_is_not_sent(CURL *curl, CURLcode code);
/* What went wrong, for a person. `error` is http_setup's. */
void http_error_text(CURLcode code, const char *error, char out[200]);

/* The CURLOPT_PRIVATE of the next transfer that ended; NULL: no other has. */
void *http_multi_ended(CURLM *multi, CURLcode *code);

#endif
