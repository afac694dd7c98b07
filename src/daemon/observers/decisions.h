/*
 * decisions.h - a line for every decision of the store: who asked, about which key, what was answered, how long it
 * took.
 *
 * For the socket, the JSON API and the completer alike. A decision is the answer to a claim, a takeover, a finish, a
 * release or a verdict; renewals and points decide nothing. The key itself is never written, only its hash: the
 * record's id, an HMAC under the store's secret, which does not tell a key that could be guessed and is the same on
 * every attempt (ADR 32). Texts that clients chose are escaped and cut (once_trace_text()).
 *
 * Whoever notes one does not wait: lines go into a bounded buffer, a thread writes them out. Where there is no room a
 * line is dropped, counted, and the log says how many.
 */
#ifndef ONCE_DAEMON_OBSERVERS_DECISIONS_H
#define ONCE_DAEMON_OBSERVERS_DECISIONS_H

#include "core/http/trace.h"

#include <stdatomic.h>
#include <stdio.h>

enum decisions_format { DECISIONS_OFF = 0, DECISIONS_JSON, DECISIONS_LOGFMT };

struct decision {
    enum once_verb verb;
    const char *by; /* socket, http, completer */
    once_result result;
    enum once_arm arm;
    uint8_t record[16]; /* zeros: not known */
    uint64_t fence;
    uint32_t attempt;
    enum once_state state; /* of a finish: what was stored */
    bool has_tenant;       /* a holder's calls do not name it: the claim's line does, by the same fence */
    once_span tenant;
    const struct once_trace *trace; /* NULL: none came with it */
    once_span route;
    uint64_t duration_ns;
};

struct decisions;

/* `path` NULL: to standard error. The path is kept, not copied. */
once_result decisions_start(enum decisions_format format, const char *path, struct decisions **out,
                            struct once_error *err);
/* Is this verb's answer a decision? */
bool decisions_cover(enum once_verb verb);
/* From any thread. NULL: nothing is logged. */
void decisions_note(struct decisions *log, const struct decision *decision);
/* Of a reply, the usual way: fence, attempt, arm, state, and the record where it is named. */
void decision_take_reply(struct decision *decision, once_result result, const struct once_reply *reply);
/* The file's name may stand for another file now. From a signal handler, too. */
void decisions_reopen(struct decisions *log);
/* Writes out what is there, for a moment. NULL is fine. */
void decisions_stop(struct decisions *log);
/* For /metrics. */
void decisions_put(const struct decisions *log, FILE *file);

/* One line, with its end; the length. For tests. */
#define DECISION_LINE_LEN 1200
size_t decision_format(enum decisions_format format, uint64_t now_ns, const struct decision *decision,
                       char out[DECISION_LINE_LEN]);

#endif
