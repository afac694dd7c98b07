/*
 * resend.h - an HTTP request as it is stored for whoever has to send it again, and what its route
 * would make of the answer.
 *
 * The gateway writes it, the daemon's completer reads it; the store keeps its bytes. What is read is
 * checked as if anybody had written it: whoever may connect to the daemon may store one.
 *
 *     "OR1", flags (1: the client's credentials were left out; 2: the route says that the
 *     gateway knows who its clients are; 4: there is a probe; 8: the body was too large and is not
 *     here, it can only be asked about), max_response (4), which statuses are final (75
 *     bytes, bit by bit), then with their lengths (4): upstream, method, target, header lines, names of
 *     headers that are kept of the answer (a line each), body, and of a probe its target
 *
 * Invariants: RESEND-1 credentials are never in it, nor kept of its answer: neither written nor read
 *                (once_header_is_secret).
 *             RESEND-2 nothing in it can end a header line or the request's first line early.
 */
#ifndef ONCE_CORE_HTTP_RESEND_H
#define ONCE_CORE_HTTP_RESEND_H

#include "core/http/header.h"

enum { ONCE_RESEND_STATUS_COUNT = 600, ONCE_RESEND_FINAL_LEN = ONCE_RESEND_STATUS_COUNT / 8 };
enum { ONCE_UPSTREAM_NAME_LEN_MAX = 64 };

struct once_resend {
    once_span upstream;       /* the name that the daemon knows it by */
    once_span method, target; /* "POST", "/path?query" */
    once_span headers;        /* lines "Name: value\r\n" */
    once_span kept;           /* lines "Name\n": of the answer */
    once_span body;
    once_span probe; /* "/path?query" that tells, by GET, whether it happened; empty: none */
    uint32_t max_response;
    uint8_t final[ONCE_RESEND_FINAL_LEN];
    bool needs_identity; /* the client had credentials, which are not here */
    bool partial;        /* the body is not here: it cannot be sent from here, only asked about */
    bool identity;       /* its route lets the daemon's own be used: the gateway has authenticated the client */
};

/* A bit of `final`. */
static inline bool once_resend_is_final(const struct once_resend *r, int status)
{
    return status >= 0 && status < ONCE_RESEND_STATUS_COUNT && (r->final[status / 8] >> (status % 8) & 1) != 0;
}

/* Appends it; buf->result says whether there was room. */
void once_resend_put(struct once_buf *buf, const struct once_resend *resend);
/* Spans point into `bytes`. ONCE_INVALID: it is none. */
once_result once_resend_get(once_span bytes, struct once_resend *out, struct once_error *err);

#endif
