/*
 * parts.h - what the parts of the console share: console.c is the listener, the others
 * answer its routes.
 */
#ifndef ONCE_DAEMON_CONSOLE_PARTS_H
#define ONCE_DAEMON_CONSOLE_PARTS_H

#include "daemon/api/api.h"
#include "daemon/api/call.h"
#include "daemon/api/input.h"
#include "daemon/console/auth.h"
#include "daemon/console/console.h"
#include "daemon/console/log.h"
#include "daemon/console/sampler.h"

#include <pthread.h>

enum {
    CONSOLE_SMALL_LEN_MAX = 16 << 10, /* of a POST that is no outcome */
    CONSOLE_BODY_LEN_MAX = 2 << 20, /* of an outcome that somebody typed or pasted: 1 MiB as base64, and some change */
    CONSOLE_SHOWN_LEN = 256 << 10,  /* of a body that is revealed, unless all of it is asked for */
    CONSOLE_LIST_LIMIT_MAX = 200,   /* records of a page */
    CONSOLE_LIST_STEPS = 4,         /* of ONCE_LIST_SCAN_MAX rows each, for one search (CONSOLE-4) */
    CONSOLE_OUTBOX_LIMIT_MAX = 500,
    CONSOLE_OUTBOX_SCAN_MAX = 5000, /* messages that are looked at for those of one key */
};

struct outbox;

struct console {
    struct console_options options;
    struct once_api *api;
    struct api_route *routes;
    struct console_auth auth;
    struct console_log log;
    struct console_sampler *sampler;
    pthread_mutex_t list_lock;   /* one search at a time */
    pthread_mutex_t outbox_lock; /* a connection is one thread's */
    struct outbox *outbox;       /* NULL: not connected yet */
};

/* Who asks, as they signed in: admit has checked that they did. */
void console_name_of(const struct api_call *call, char name[CONSOLE_NAME_LEN_MAX + 1]);

/* The answer, as JSON: NULL, and the answer says so, where there is no memory. */
bool console_answer_begin(struct api_call *call, struct once_json *json);
void console_answer_end(struct api_call *call, struct once_json *json);

/* The routes. */
void console_file(struct api_call *call);
void console_login(struct api_call *call);
void console_logout(struct api_call *call);
void console_overview(struct api_call *call);
void console_activity(struct api_call *call);
void console_keys(struct api_call *call);
void console_key(struct api_call *call);
void console_reveal(struct api_call *call);
void console_resolve(struct api_call *call);
void console_forget(struct api_call *call);
void console_child_key(struct api_call *call);
void console_outbox(struct api_call *call);
void console_outbox_reveal(struct api_call *call);
void console_outbox_action(struct api_call *call);

/* For the sampler: false where there is no outbox, or it does not answer. */
struct outbox_counts;
bool console_outbox_counts(struct console *console, struct outbox_counts *counts);
void console_outbox_close(struct console *console);

#endif
