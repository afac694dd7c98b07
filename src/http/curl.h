/*
 * curl.h - shared by all users of libcurl: set-up, header lists, the head of an answer, how a transfer ended.
 *
 * http_call.h makes one request on its own connection. The client, the webhook sink and reconcile keep handles and
 * connections, and use these parts for each of their transfers.
 */
#ifndef ONCE_HTTP_CURL_H
#define ONCE_HTTP_CURL_H

#include "core/buf.h"

#include <curl/curl.h>

/* Initialises libcurl, once per process; false: that failed. */
bool http_curl_init(void);

struct http_setup {
    const char *url;
    once_span method;
    once_span body;
    struct curl_slist *headers;
    int64_t timeout_ms, connect_ms;
    const char *user_agent; /* NULL: none is sent */
    const char *ca_file;    /* NULL: the system's */
    bool path_as_is;        /* do not resolve "." and ".." in the path */
    char *error;            /* CURL_ERROR_SIZE bytes */
};

/* Sets the options of a transfer: http and https only, certificates verified, no redirects, no signals. POST, PUT and
 * PATCH always have a body, perhaps an empty one. Body, headers and `error` must live until the transfer has ended.
 * False: no memory. */
bool http_setup(CURL *curl, const struct http_setup *setup);

/* Appends a header to a list for libcurl, also with an empty value; false: no memory. */
bool http_header_add(struct curl_slist **list, once_span name, once_span value);
/* Tells libcurl not to send a header that it would add by itself. */
bool http_header_drop(struct curl_slist **list, const char *name);

/* The head of an answer. libcurl delivers it line by line, the heads of 1xx answers before that of the last. */
struct http_head {
    unsigned lengths; /* Content-Length lines */
    bool chunked;
    bool ended;      /* its empty line came; libcurl itself accepts a truncated head */
    bool body_began; /* set by the caller: further lines are trailers */
};

enum http_line {
    HTTP_LINE_IGNORED, /* the end of the head, or a trailer */
    HTTP_LINE_STATUS,  /* another answer begins: discard what was stored of the one before */
    HTTP_LINE_HEADER,  /* *name is empty if the line is malformed */
};
enum http_line http_head_line(struct http_head *head, once_span line, once_span *name, once_span *value);
/* Is the answer valid, with a complete head? If not, `error` says why. */
bool http_head_is_whole(const struct http_head *head, int status, char error[200]);
/* Is the end of the body marked (ADR 19)? */
bool http_head_marks_end(const struct http_head *head, int status);

/* Is it certain that no byte of the request was sent? */
bool http_is_not_sent(CURL *curl, CURLcode code);
/* The error as a text. `error` is that of http_setup. */
void http_error_text(CURLcode code, const char *error, char out[200]);

/* The CURLOPT_PRIVATE of the next transfer that has ended, or NULL. */
void *http_multi_ended(CURLM *multi, CURLcode *code);

#endif
