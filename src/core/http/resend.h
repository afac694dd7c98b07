/*
 * resend.h - a stored HTTP request: what the completer needs to send it again and to judge its answer
 * as the gateway's route would.
 *
 * The gateway writes it, the daemon's completer reads it; the store keeps its bytes. The reader checks
 * everything: any client of the daemon may have stored it.
 *
 *     "OR1", flags (1: the client's credentials were left out; 2: the gateway has authenticated
 *     the client; 4: there is a probe; 8: the body was too large to store: it cannot be sent again,
 *     only probed), max_response (4), which statuses are final (75 bytes, one bit each), then, each
 *     with its length (4): upstream, method, target, header lines, names of the answer's headers to
 *     store (one per line), body, and, with a probe, its target
 *
 * Invariants: RESEND-1 it never contains credentials, nor the names of such headers among those to store
 *                (once_header_is_secret): the writer leaves them out, the reader refuses them.
 *             RESEND-2 no part of it can end a header line or the request line early.
 */
#ifndef ONCE_CORE_HTTP_RESEND_H
#define ONCE_CORE_HTTP_RESEND_H

#include "core/http/header.h"

enum { ONCE_RESEND_STATUS_COUNT = 600, ONCE_RESEND_FINAL_LEN = ONCE_RESEND_STATUS_COUNT / 8 };
enum { ONCE_UPSTREAM_NAME_LEN_MAX = 64 };

struct once_resend {
    once_span upstream;       /* its name in the daemon's configuration */
    once_span method, target; /* "POST", "/path?query" */
    once_span headers;        /* lines "Name: value\r\n" */
    once_span kept;           /* lines "Name\n": headers of the answer to store */
    once_span body;
    once_span probe; /* "/path?query" for a GET that tells whether the request took effect; empty: no probe */
    uint32_t max_response;
    uint8_t final[ONCE_RESEND_FINAL_LEN];
    bool needs_identity; /* the client sent credentials, which are not stored */
    bool partial;        /* the body is not stored: the request can be probed, not sent again */
    bool identity;       /* the daemon may send its own credentials: the gateway has authenticated the client */
};

/* Does the route treat this status as final? */
static inline bool once_resend_is_final(const struct once_resend *r, int status)
{
    return status >= 0 && status < ONCE_RESEND_STATUS_COUNT && (r->final[status / 8] >> (status % 8) & 1) != 0;
}

/* Appends the stored form; buf->result says whether there was room. */
void once_resend_put(struct once_buf *buf, const struct once_resend *resend);
/* Reads the stored form. Spans point into `bytes`. ONCE_INVALID: it is not a stored request. */
once_result once_resend_get(once_span bytes, struct once_resend *out, struct once_error *err);

#endif
