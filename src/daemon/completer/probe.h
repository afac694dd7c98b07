/*
 * probe.h - asks a service whether a request happened, and how it ended.
 *
 * One GET of the target that the route wrote for it (once_probe), to the upstream that the request itself would go to,
 * with the same Once-Key. What the answer means:
 *
 *     200        it happened. Its body and the headers that the route keeps are the outcome; the status is
 *                that of the field Once-Status (200 to 599, and final by the route's rules), else 200. Without
 *                that field an empty body tells nothing, nor do header lines that are too many to look for
 *                it. A body that is too large, or whose end is not certain, is not kept (ADR 19); that it
 *                happened is.
 *     404        it did not happen, and will not: it may be sent.
 *     else       not known. Also redirects, which are not followed, and answers that break off.
 *
 * Invariants: PROBE-1 nothing but a whole 200 is adopted, nothing but a whole 404 lets it be sent (K10).
 *             PROBE-2 credentials go with it by the rules of the request itself (COMPLETER-2).
 */
#ifndef ONCE_DAEMON_COMPLETER_PROBE_H
#define ONCE_DAEMON_COMPLETER_PROBE_H

#include "core/http/resend.h"
#include "http/http_call.h"

struct probe_question {
    const char *url;                   /* of the upstream */
    const struct once_resend *request; /* with a probe */
    once_span own, identity;           /* header lines: about the attempt, and the daemon's credentials */
    int64_t timeout_ms;
    bool (*tick)(void *arg);
    void *arg;
};

enum probe_says { PROBE_NOT_KNOWN, PROBE_DID_NOT_HAPPEN, PROBE_HAPPENED };

struct probe_answer {
    enum probe_says says;
    struct once_outcome outcome; /* HAPPENED; points into `http` */
    struct http_answer http;
    char why[200]; /* NOT_KNOWN: for a person */
};

void probe_ask(const struct probe_question *question, struct probe_answer *answer);
void probe_answer_release(struct probe_answer *answer);

#endif
