/*
 * flow.h - one running attempt of a flow.
 *
 * An attempt holds a grant, is at a recovery point and knows its next step. attempt.c begins it (claim or
 * takeover) and ends it (outcome, postponed, unknown), step.c runs one step, run.c (for a client) and
 * complete.c (for a completer) run a whole attempt.
 *
 * Invariants: K3  after a fenced operation the answer is the stored record.
 *             K4  no call is made, and no answer given, before the state that it depends on is committed.
 *             K10 whether a call was sent is stored (FLOW_CHECKPOINT_SENT); after an attempt that died, a
 *                 call counts as sent.
 *             K11 a phase's writes commit with its recovery point.
 */
#ifndef ONCE_FLOW_FLOW_H
#define ONCE_FLOW_FLOW_H

#include "flow/checkpoint.h"
#include "flow/database.h"

struct attempt {
    const struct once_flow *flow;
    struct once_flow_db *db;
    void *arg;
    struct once_flow_report *report;
    once_span tenant, key;
    struct once_grant grant;
    struct once_fingerprint fingerprint; /* with created_at: identifies the operation of this key */
    once_time created_at;
    uint32_t number;
    int64_t lease_ms;
    size_t next;                        /* index of the next step */
    char point[ONCE_POINT_LEN_MAX + 1]; /* the current recovery point */
    uint8_t flags, crashes;             /* as in checkpoint.h */
    struct once_buf request, state, answer;
    struct once_buf checkpoint; /* being encoded */
};

/* After a step. */
enum attempt_next {
    ATTEMPT_CONTINUES = 1, /* with the next step */
    ATTEMPT_ENDED,         /* the attempt has ended: the reply or the error is set */
};

/* How an attempt gets its record: by a claim, or by a completer's takeover. */
struct attempt_entry {
    const struct once_record *seen; /* takeover: the record as it was seen; NULL: claim */
    once_span request;              /* of a claim */
    bool escalate;                  /* takeover: it was tried too often */
};

/* Reports a mistake in the program, and aborts it. */
__attribute__((noreturn, format(printf, 1, 2))) void flow_bug(const char *format, ...);

void attempt_init(struct attempt *a, const struct once_flow *flow, struct once_flow_db *db, void *arg,
                  struct once_flow_report *report);
void attempt_release(struct attempt *a);

/* Claims or takes over, and commits that. ATTEMPT_CONTINUES: the attempt holds the record. */
enum attempt_next attempt_enter(struct attempt *a, const struct attempt_entry *entry, once_result *result,
                                struct once_reply *reply, struct once_error *err);
/* Runs the remaining steps. */
once_result attempt_drive(struct attempt *a, struct once_reply *reply, struct once_error *err);

/* Ends the attempt; another one will follow later. */
once_result attempt_postpone(struct attempt *a, const char *why, struct once_reply *reply, struct once_error *err);
/* Ends the attempt; the record becomes unknown (K10). */
once_result attempt_escalate(struct attempt *a, const char *why, struct once_reply *reply, struct once_error *err);
/* After a takeover by another attempt: answers from the record (K3); FENCED without a record if the key names another
 * operation by now. */
once_result attempt_answer_fenced(struct attempt *a, struct once_reply *reply, struct once_error *err);
/* Ends the attempt after a COMMIT that failed. `reply` is set if the result is ONCE_OK. */
once_result attempt_after(struct attempt *a, enum flow_fate fate, const char *why, struct once_reply *reply,
                          struct once_error *err);
/* Fills in a reply for a record that was just finished. */
once_result attempt_answer_finished(struct attempt *a, const struct once_record *finished,
                                    const struct once_outcome *outcome, struct once_reply *reply,
                                    struct once_error *err);
/* A transaction of the attempt: begins it; commits it. Both pass crash points. */
once_result attempt_begin(struct attempt *a, struct once_error *err);
enum flow_fate attempt_commit(struct attempt *a, const struct flow_change *mark, struct once_error *err);
/* Encodes the checkpoint with this state and these flags. */
once_result attempt_encode_checkpoint(struct attempt *a, uint8_t flags, once_span state, struct once_error *err);

/* The pause before attempt number `next` of a record: doubles, with a jitter that every completer computes
 * from the record id, so that all agree. */
int64_t flow_backoff_ms(const struct once_flow *flow, const uint8_t record[16], uint32_t next);
/* The name of a recovery point: "FLOW/STEP", or with intent "FLOW/STEP?". */
void flow_point(const struct once_flow *flow, const char *step, bool intent, char out[ONCE_POINT_LEN_MAX + 1]);
/* The step after this recovery point; false: the flow does not have this point. *intent: the call's intent is stored.
 */
bool flow_find(const struct once_flow *flow, once_span point, size_t *next, bool *intent);
bool flow_owns(const struct once_flow *flow, once_span point);

/* The fault of a probe's URL as a text, or NULL. */
const char *flow_probe_url_fault(const char *url);

#endif
