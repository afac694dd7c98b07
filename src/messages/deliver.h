/*
 * deliver.h - where consumed messages go: an HTTP endpoint or a command.
 *
 * One try of one message, on the thread that calls. It says how that ended, and no more: counting, waiting, giving up
 * and storing are consumer.c's.
 */
#ifndef ONCE_MESSAGES_DELIVER_H
#define ONCE_MESSAGES_DELIVER_H

#include "messages/sources/source.h"

#include <signal.h>

#define DELIVER_REASON_LEN 240

enum deliver_end {
    DELIVER_DONE = 1, /* its effect is there */
    DELIVER_FAILED,   /* it said no, or made no sense; another try may help */
    DELIVER_REFUSED,  /* it said that this message will never do */
    DELIVER_LATER,    /* it asked for another time; that counts for nothing */
    DELIVER_NOT_SENT, /* it was not reached: certainly no effect */
    DELIVER_LOST,     /* something was sent, and nobody saw the end */
};

struct delivery_call {
    const struct incoming *incoming;
    once_span headers; /* the message's, perhaps with our own traceparent among them */
    once_span consumer, id;
    struct once_attempt *attempt; /* while it is not held any more, stop */
};

struct delivery_answer {
    int32_t status;         /* of HTTP, or an exit status */
    int64_t retry_after_ms; /* it asked for that much time; 0: it did not */
    char reason[DELIVER_REASON_LEN];
};

struct target {
    enum deliver_end (*deliver)(const struct target *target, const struct delivery_call *call,
                                struct delivery_answer *answer);
    const char *url;     /* HTTP */
    const char *command; /* for /bin/sh -c */
    sigset_t mask;       /* signals to block in the command */
    int64_t timeout_ms;  /* of one try */
};

/* A POST. 2xx is done; 400, 413, 415 and 422 refuse; 408, 425, 429 and 503 with Retry-After ask for later. */
enum deliver_end deliver_http(const struct target *target, const struct delivery_call *call,
                              struct delivery_answer *answer);
/* The payload on standard input, the rest in the environment. 0 is done, 65 (EX_DATAERR) refuses, 75 (EX_TEMPFAIL) asks
 * for later. Call it from threads that live until it has returned only. */
enum deliver_end deliver_exec(const struct target *target, const struct delivery_call *call,
                              struct delivery_answer *answer);

#endif
