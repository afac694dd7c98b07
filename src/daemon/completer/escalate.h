/*
 * escalate.h - a record became unknown: somebody has to look, and is told.
 *
 * Whoever stores `unknown` through the daemon (a gateway's finish, a claim that found a holder gone, the
 * completer) notes it here. A thread of its own looks the record up, writes one line to the daemon's log (the record's
 * id and fence, not tenant or key), and where there is a webhook sends it, with tenant and key (JSON, signed as
 * Standard Webhooks has it) until it is accepted, with backoff and full jitter, a bounded number of times. The record
 * itself is the truth and stays until a person resolves it (`once keys list --state unknown`). What waits here when the
 * daemon ends still gets its line, but no webhook any more; with a process that is killed it is lost.
 *
 * Bounds: QUEUE_MAX wait; more are counted and dropped. One fence is told once, as far as is remembered: after a
 * restart, or by another daemon, within an hour perhaps again. Every try has the same webhook-id and
 *         Idempotency-Key.
 */
#ifndef ONCE_DAEMON_COMPLETER_ESCALATE_H
#define ONCE_DAEMON_COMPLETER_ESCALATE_H

#include "once.h"

#include <stdatomic.h>

struct escalate_counters {
    _Atomic uint64_t recorded, delivered, dropped; /* delivered: accepted by the webhook; dropped: never will be */
};

struct escalate_options {
    struct once *once;
    const char *webhook; /* NULL: none */
    const char *secret_file;
};

struct escalations;

/* Webhook and secret, as escalate_start() needs them: before anything is begun. */
once_result escalate_check(const struct escalate_options *options, struct once_error *err);
once_result escalate_start(const struct escalate_options *options, struct escalations **out, struct once_error *err);
/* The daemon was told to end: the store is not asked for its time any more. */
void escalate_end(struct escalations *e);
/* The webhook is not waited for. What is noted from then on, and what waits, is left to escalate_free(). NULL is fine,
 * there too. */
void escalate_stop(struct escalations *e);
void escalate_free(struct escalations *e); /* writes the lines that are due */
/* From any thread; neither blocks. `why` is a constant. */
void escalate_note(struct escalations *e, struct once_grant grant, const char *why);
/* The same, of one that was found unknown since then, if that is less than an hour ago by the store's clock. Else
 * somebody was told at the time, perhaps by another daemon; or a store was away for so long that nobody was. */
void escalate_found(struct escalations *e, struct once_grant grant, once_time since, const char *why);
const struct escalate_counters *escalate_counters(const struct escalations *e);

#endif
