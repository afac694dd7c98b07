/*
 * completer.h - drives abandoned records to an end: sends their stored requests again.
 *
 * A thread finds what is abandoned and has a stored request (once_list(), every LOOK_MS); workers read that, take such
 * records over exactly as they were seen (once_take_over()), send the request to the upstream that its route named,
 * with the same child key, a new fence, and recovery point and checkpoint, and store what came, by the route's own
 * rules. So any number of daemons may do this on one store: of all who saw a record, one gets it.
 *
 * Invariants: COMPLETER-1 only configured upstreams are called, once per attempt, without redirects.
 *             COMPLETER-2 credentials come from the operator (an identity file), never from the store, and go only with
 *                requests whose route says that the gateway has authenticated their clients. Where the client had
 *                some and they may not be used, it is not sent: escalated where it may have been, else left alone.
 *             COMPLETER-3 the outcome is stored by the fence of this attempt (K3); a lost lease stops the sending.
 *             COMPLETER-4 after attempts_max attempts, or crashes_max that nobody ended, it is escalated:
 *                a request that kills whoever sends it is not sent for ever (FAULT-9).
 *             COMPLETER-5 a failure that was answered to a client is that client's to retry: of what failed, only what
 *                a completer's attempt left so, and what an operator said is not done, is sent again. A completer
 *                stores such a failure as undelivered, so that other processes know that no client was told it.
 *             COMPLETER-6 what cannot be sent from here (another daemon's upstream) is not touched.
 *             COMPLETER-7 where the route has a probe (takeover `completer`), what may have been sent is asked about
 * first (probe.h): its answer is adopted, or it is sent, or it stays as it is until the next look.
 */
#ifndef ONCE_DAEMON_COMPLETER_COMPLETER_H
#define ONCE_DAEMON_COMPLETER_COMPLETER_H

#include "core/http/resend.h"
#include "daemon/completer/escalate.h"
#include "once.h"

enum { COMPLETER_UPSTREAMS_MAX = 16, COMPLETER_WORKERS = 8 };

struct completer_upstream {
    char name[ONCE_UPSTREAM_NAME_LEN_MAX + 1];
    const char *url;
    const char *identity; /* a file of header lines; NULL: none */
};

struct completer_options {
    struct once *once;
    struct escalations *escalations;
    struct decisions *log;       /* may be NULL */
    const struct tracer *tracer; /* the same */
    struct completer_upstream upstreams[COMPLETER_UPSTREAMS_MAX];
    size_t count;
    uint32_t attempts_max, crashes_max;
    int64_t timeout_ms; /* of one request */
    int64_t lease_ms;   /* how soon another may go on after a daemon that died; renewed while it works */
};

struct completer_counters {
    _Atomic uint64_t taken;     /* records taken over */
    _Atomic uint64_t finished;  /* for good */
    _Atomic uint64_t retryable; /* failed, to be tried again */
    _Atomic uint64_t adopted;   /* finished as well: with what the service said when it was asked */
    _Atomic uint64_t escalated;
    _Atomic uint64_t lost; /* to somebody who was faster, or took over */
};

/* Nobody here completes what a claim with this request defers: the name of its upstream. Else an empty span. */
once_span completer_lacks(const struct completer_options *options, once_span request);

struct completer;

once_result completer_start(const struct completer_options *options, struct completer **out, struct once_error *err);
/* Begins nothing more; breaks off what is under way for longer than 8 s. NULL is fine. */
void completer_stop(struct completer *c);
const struct completer_counters *completer_counters(const struct completer *c);

#endif
