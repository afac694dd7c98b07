/*
 * log.h - what was done through the console, by whom: a line of the daemon's log each,
 * and the last of them for the page itself.
 *
 * The log has records' ids and fences, never keys or bodies. Verdicts are in the store's own audit
 * trail besides, with their reasons, and stay there.
 */
#ifndef ONCE_DAEMON_CONSOLE_LOG_H
#define ONCE_DAEMON_CONSOLE_LOG_H

#include "core/json/out.h"
#include "daemon/console/auth.h"
#include "once.h"

#include <pthread.h>

enum { CONSOLE_LOG_LEN = 200, CONSOLE_WHAT_LEN = 120 };

struct console_entry {
    once_time at; /* wall clock */
    char name[CONSOLE_NAME_LEN_MAX + 1];
    char what[CONSOLE_WHAT_LEN];
    uint8_t key[ONCE_KEY_LEN_MAX], tenant[ONCE_TENANT_LEN_MAX];
    uint8_t key_len, tenant_len; /* key_len 0: it is about none */
};

struct console_log {
    pthread_mutex_t lock;
    struct console_entry entries[CONSOLE_LOG_LEN]; /* a ring */
    uint64_t count;                                /* ever */
};

void console_log_init(struct console_log *log);
void console_log_release(struct console_log *log);
/* `record` may be NULL, and then tenant and key are empty. `what` is plain ASCII. */
__attribute__((format(printf, 6, 7))) void console_log_note(struct console_log *log, const char *name,
                                                            const struct once_grant *record, once_span tenant,
                                                            once_span key, const char *what, ...);
/* As an array, newest first. */
void console_log_put(struct console_log *log, struct once_json *json, const char *name);

#endif
