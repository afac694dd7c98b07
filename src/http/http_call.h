/*
 * http_call.h - one HTTP request to another server, sent at most once; its answer is used only if it is complete.
 *
 * For the completer, deliveries, webhooks and the exporter. No redirects, no proxies, and no reuse of connections:
 * libcurl would send a request again if a reused connection turns out to be dead.
 *
 * Invariants: HTTP-1 NOT_SENT: no byte of the request was sent. ANSWERED: one complete answer came. BROKEN: all
 *                other cases.
 *             HTTP-2 time, header lines and body are bounded (a longer body is read and dropped).
 */
#ifndef ONCE_HTTP_HTTP_CALL_H
#define ONCE_HTTP_HTTP_CALL_H

#include "core/buf.h"

struct http_call {
    const char *url; /* scheme://host[:port][/prefix], or http://unix:/PATH */
    once_span method;
    once_span target;   /* appended to the URL; may be empty */
    once_span lines[3]; /* header lines "Name: value\r\n" */
    once_span body;
    once_span kept; /* lines "Name\n": the headers of the answer to return */
    size_t body_max;
    int64_t timeout_ms;
    bool (*tick)(void *arg); /* called about once a second; false: end the call. May be NULL */
    void *arg;
};

enum http_end { HTTP_NOT_SENT, HTTP_BROKEN, HTTP_ANSWERED };

struct http_answer {
    enum http_end end;
    int status;
    bool dropped;      /* the body was too large, or its end is not marked (ADR 19) */
    bool headers_lost; /* the wanted headers did not fit: `headers` is empty */
    size_t received;   /* bytes of the body, returned or dropped */
    struct once_buf headers, body;
    char error[200]; /* not ANSWERED: why */
};

/* Call it once per process, before there are threads. */
once_result http_call_init(struct once_error *err);
/* Is this a URL that http_call() accepts? Refuses credentials in it. */
once_result http_url_check(const char *url, struct once_error *err);
void http_call(const struct http_call *call, struct http_answer *answer);
void http_answer_release(struct http_answer *answer);

#endif
