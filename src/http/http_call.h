/*
 * http_call.h - one HTTP request to another server, sent at most once, its answer only if it is whole.
 *
 * For the completer and for webhooks. Over libcurl, without anything that it would do by itself: no redirects,
 * no proxies, no reuse of connections (a request on one that turns out to be dead is sent again), no protocols
 * but http and https.
 *
 * Invariants: HTTP-1 NOT_SENT means that no byte of the request left; ANSWERED that one answer came, up to an
 *                end that is marked. Everything between is BROKEN.
 *             HTTP-2 bounded: the time, the header lines, the body (what is over is read and dropped).
 */
#ifndef ONCE_HTTP_HTTP_CALL_H
#define ONCE_HTTP_HTTP_CALL_H

#include "core/buf.h"

struct http_call {
    const char *url; /* scheme://host[:port][/prefix], or http://unix:/PATH */
    once_span method;
    once_span target;   /* after the URL; may be empty */
    once_span lines[3]; /* header lines "Name: value\r\n"; later ones win over none */
    once_span body;
    once_span kept; /* lines "Name\n": which headers of the answer are wanted */
    size_t body_max;
    int64_t timeout_ms;
    bool (*tick)(void *arg); /* about once a second; false: break off. May be NULL */
    void *arg;
};

enum http_end { HTTP_NOT_SENT, HTTP_BROKEN, HTTP_ANSWERED };

struct http_answer {
    enum http_end end;
    int status;
    bool dropped;      /* the body was too large, or nobody can know whether it is whole (ADR 19) */
    bool headers_lost; /* those that are wanted did not fit: none is here */
    size_t received;   /* bytes of the body that came, kept or not */
    struct once_buf headers, body;
    char error[200]; /* not ANSWERED: why */
};

/* Once per process, before there are threads. */
once_result http_call_init(struct once_error *err);
/* Is it a URL that can be called? Refuses credentials in it. */
once_result http_url_check(const char *url, struct once_error *err);
void http_call(const struct http_call *call, struct http_answer *answer);
void http_answer_release(struct http_answer *answer);

#endif
