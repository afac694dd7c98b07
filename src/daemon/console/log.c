/* log.c - see console/log.h. */
#include "daemon/console/log.h"

#include "core/span.h"
#include "os/os.h"
#include "os/stderr_log.h"

#include <stdarg.h>
#include <stdio.h>

void console_log_init(struct console_log *log)
{
    *log = (struct console_log){ 0 };
    pthread_mutex_init(&log->lock, NULL);
}

void console_log_release(struct console_log *log)
{
    pthread_mutex_destroy(&log->lock);
}

static uint8_t copy(uint8_t *to, size_t size, once_span from)
{
    size_t len = from.len < size ? from.len : size;
    if (len > 0)
        memcpy(to, from.ptr, len);
    return (uint8_t)len;
}

void console_log_note(struct console_log *log, const char *name, const struct once_grant *record, once_span tenant,
                      once_span key, const char *what, ...)
{
    char id[2 * sizeof record->record + 1] = "";
    va_list args;
    pthread_mutex_lock(&log->lock);
    struct console_entry *e = &log->entries[log->count++ % CONSOLE_LOG_LEN];
    *e = (struct console_entry){ .at = once_os_clock.wall(once_os_clock.arg) };
    snprintf(e->name, sizeof e->name, "%s", name);
    va_start(args, what);
    vsnprintf(e->what, sizeof e->what, what, args);
    va_end(args);
    e->key_len = copy(e->key, sizeof e->key, key);
    e->tenant_len = copy(e->tenant, sizeof e->tenant, tenant);
    if (record != NULL) {
        for (size_t i = 0; i < sizeof record->record; i++)
            snprintf(id + 2 * i, 3, "%02x", record->record[i]);
        once_os_log("once daemon", "console: %s: %s: record %s, fence %llu", name, e->what, id,
                    (unsigned long long)record->fence);
    } else {
        once_os_log("once daemon", "console: %s: %s", name, e->what);
    }
    pthread_mutex_unlock(&log->lock);
}

void console_log_put(struct console_log *log, struct once_json *json, const char *name)
{
    once_json_open(json, name, '[');
    pthread_mutex_lock(&log->lock);
    uint64_t kept = log->count < CONSOLE_LOG_LEN ? log->count : CONSOLE_LOG_LEN;
    for (uint64_t i = 0; i < kept; i++) {
        const struct console_entry *e = &log->entries[(log->count - 1 - i) % CONSOLE_LOG_LEN];
        once_json_open(json, NULL, '{');
        once_json_int(json, "at", e->at);
        once_json_text(json, "name", e->name);
        once_json_text(json, "what", e->what);
        if (e->key_len > 0) {
            once_json_bytes(json, "key", once_span_of(e->key, e->key_len));
            once_json_bytes(json, "tenant", once_span_of(e->tenant, e->tenant_len));
        }
        once_json_close(json);
    }
    pthread_mutex_unlock(&log->lock);
    once_json_close(json);
}
