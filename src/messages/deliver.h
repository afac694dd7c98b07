/*
 * deliver.h - delivers a consumed message to an HTTP endpoint or a command.
 *
 * One attempt for one message, on the calling thread. It reports how the attempt ended; consumer.c counts failures,
 * waits, decides about dead letters and stores the outcome.
 */
#ifndef ONCE_MESSAGES_DELIVER_H
#define ONCE_MESSAGES_DELIVER_H

#include "messages/sources/source.h"

#include <signal.h>

#define DELIVER_REASON_LEN 240

enum deliver_end {
    DELIVER_DONE = 1, /* it succeeded */
    DELIVER_FAILED,   /* the target failed, or its answer was not understood; another attempt may help */
    DELIVER_REFUSED,  /* the target refused this message for good */
    DELIVER_LATER,    /* the target asked to try later; does not count as a failure */
    DELIVER_NOT_SENT, /* the target was not reached: certainly no effect */
    DELIVER_LOST,     /* a part was sent, and no answer came */
};

struct delivery_call {
    const struct incoming *incoming;
    once_span headers; /* the message's, perhaps with our own traceparent */
    once_span consumer, id;
    struct once_attempt *attempt; /* stop when the lease of this attempt is lost */
};

struct delivery_answer {
    int32_t status;         /* an HTTP status or an exit status */
    int64_t retry_after_ms; /* how long the target asked to wait; 0: not said */
    char reason[DELIVER_REASON_LEN];
};

struct target {
    enum deliver_end (*deliver)(const struct target *target, const struct delivery_call *call,
                                struct delivery_answer *answer);
    const char *url;     /* HTTP */
    const char *command; /* for /bin/sh -c */
    sigset_t mask;       /* signals to block in the command */
    int64_t timeout_ms;  /* of one attempt */
};

/* A POST. 2xx is done; 400, 413, 415 and 422 refuse; 408, 425, 429 and 503 with Retry-After ask for later. */
enum deliver_end deliver_http(const struct target *target, const struct delivery_call *call,
                              struct delivery_answer *answer);
/* The payload on standard input, the rest in the environment. 0 is done, 65 (EX_DATAERR) refuses, 75 (EX_TEMPFAIL) asks
 * for later. The calling thread must live until it returns: the guardian dies with it. */
enum deliver_end deliver_exec(const struct target *target, const struct delivery_call *call,
                              struct delivery_answer *answer);

#endif
