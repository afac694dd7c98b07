/*
 * env.h - what a command under `once run` finds in its environment.
 *
 *     ONCE_KEY              the key to hand to a service it calls: the same on every attempt
 *     ONCE_FENCE            number of this grant; larger than that of every earlier attempt
 *     ONCE_ATTEMPT          1, 2, 3 ...
 *     ONCE_RECOVERY_POINT   where the attempt before got to (`once advance`); may be empty
 *     ONCE_CHECKPOINT_FILE  a file with the bytes kept at that point; unset if there are none
 *     ONCE_STORE            the store's URL
 *     ONCE_RECORD           record id in hex, ":", fence: the grant that `once advance` uses
 *
 * Values of an enclosing `once run` are replaced or removed.
 */
#ifndef ONCE_RUN_ENV_H
#define ONCE_RUN_ENV_H

#include "core/buf.h"
#include "once.h"

struct once_run_env {
    char **envp;
    struct once_buf text; /* of our own variables */
    int checkpoint;       /* a memfd, or -1: its path is good while this process lives */
};

/* 0 or an errno; release in either case. */
int once_run_env_init(struct once_run_env *env, const struct once_attempt *attempt, const char *url);
void once_run_env_release(struct once_run_env *env);

#define ONCE_RECORD_TEXT_LEN 64

/* The grant as text, and back. */
void once_grant_format(struct once_grant grant, char out[ONCE_RECORD_TEXT_LEN]);
bool once_grant_parse(const char *text, struct once_grant *grant);

#endif
