/*
 * env.h - the environment variables of a command under `once run`.
 *
 *     ONCE_KEY              the child key to send to a service: the same on every attempt
 *     ONCE_FENCE            number of this grant; larger than that of every earlier attempt
 *     ONCE_ATTEMPT          1, 2, 3 ...
 *     ONCE_RECOVERY_POINT   the recovery point (`once advance`) of earlier attempts; may be empty
 *     ONCE_CHECKPOINT_FILE  a file with the checkpoint of that point; unset without a checkpoint
 *     ONCE_STORE            the store's URL
 *     ONCE_RECORD           record id in hex, ":", fence: the grant that `once advance` uses
 *
 * Variables of an enclosing `once run` are replaced or removed.
 */
#ifndef ONCE_RUN_ENV_H
#define ONCE_RUN_ENV_H

#include "core/buf.h"
#include "once.h"

struct once_run_env {
    char **envp;
    struct once_buf text; /* our own variables, each with its NUL */
    int checkpoint;       /* a memfd, whose path is valid while this process lives; -1: none */
};

/* 0 or an errno; call once_run_env_release() in either case. */
int once_run_env_init(struct once_run_env *env, const struct once_attempt *attempt, const char *url);
void once_run_env_release(struct once_run_env *env);

#define ONCE_RECORD_TEXT_LEN 64

/* The grant as text, and back. */
void once_grant_format(struct once_grant grant, char out[ONCE_RECORD_TEXT_LEN]);
bool once_grant_parse(const char *text, struct once_grant *grant);

#endif
