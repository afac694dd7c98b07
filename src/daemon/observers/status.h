/*
 * status.h - how a daemon is, as `once status` is told over the socket: the frame STATE.
 *
 * From what is in memory only, so that it is answered at once, also where the store hangs.
 */
#ifndef ONCE_DAEMON_OBSERVERS_STATUS_H
#define ONCE_DAEMON_OBSERVERS_STATUS_H

#include "core/buf.h"
#include "once.h"

struct status {
    struct once *once;
    struct health *health;
    const char *store;                    /* which kind */
    const struct expiry_counters *expiry; /* NULL, as the others: there is no such thing */
    const struct escalate_counters *escalations;
    const struct completer_counters *completer;
    const struct relay_counters *relay;
    const struct consume_counters *consume;
};

void status_answer(const struct status *status, size_t clients, struct once_buf *buf, uint32_t id);

#endif
