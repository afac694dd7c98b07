/*
 * flow.h - one attempt at a flow, under way.
 *
 * An attempt holds a grant, stands at a recovery point and knows the step that is next. attempt.c takes it
 * on (claim or takeover) and ends it (outcome, postponed, unknown), step.c does one step, run.c and
 * complete.c are the two that drive it.
 *
 * Invariants: K3  after a fenced operation the answer is the stored record.
 *             K4  nothing is called, and nothing answered, before what it rests on is committed.
 *             K10 whether a call was sent is a fact that is kept (FLOW_CHECKPOINT_SENT), or taken for granted
 *                 after an attempt that ended without a word.
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
    struct once_fingerprint fingerprint; /* with created_at: which operation of this key it is */
    once_time created_at;
    uint32_t number;
    int64_t lease_ms;
    size_t next;                        /* the step to do */
    char point[ONCE_POINT_LEN_MAX + 1]; /* where it stands */
    uint8_t flags, crashes;             /* as checkpoint.h has them */
    struct once_buf request, state, answer;
    struct once_buf checkpoint; /* being encoded */
};

/* What comes after a step. */
enum attempt_next {
    ATTEMPT_CONTINUES = 1, /* the next one */
    ATTEMPT_ENDED,         /* the attempt is over: reply or error are set */
};

/* How somebody comes to hold a record. */
struct attempt_entry {
    const struct once_record *seen; /* a completer's: exactly this is taken over; NULL: claim */
    once_span request;              /* a claim's */
    bool escalate;                  /* a completer's: it was tried too often */
};

/* A mistake in the program: says which, and stops it. */
__attribute__((noreturn, format(printf, 1, 2))) void flow_bug(const char *format, ...);

void attempt_init(struct attempt *a, const struct once_flow *flow, struct once_flow_db *db, void *arg,
                  struct once_flow_report *report);
void attempt_release(struct attempt *a);

/* Claims or takes over, and commits that. ATTEMPT_CONTINUES: it is ours. */
enum attempt_next attempt_enter(struct attempt *a, const struct attempt_entry *entry, once_result *result,
                                struct once_reply *reply, struct once_error *err);
/* One step, and everything until the end. */
once_result attempt_drive(struct attempt *a, struct once_reply *reply, struct once_error *err);

/* Ends it for now: to be tried again later. */
once_result attempt_postpone(struct attempt *a, const char *why, struct once_reply *reply, struct once_error *err);
/* Ends it: nobody knows (K10). */
once_result attempt_escalate(struct attempt *a, const char *why, struct once_reply *reply, struct once_error *err);
/* It is not ours any more: answers from the record (K3); FENCED without one where the key is another operation's by
 * now. */
once_result attempt_answer_fenced(struct attempt *a, struct once_reply *reply, struct once_error *err);
/* What a failing COMMIT means for this attempt. `reply` is set where ONCE_OK is returned. */
once_result attempt_after(struct attempt *a, enum flow_fate fate, const char *why, struct once_reply *reply,
                          struct once_error *err);
/* Fills in a reply for a record that was just finished. */
once_result attempt_answer_finished(struct attempt *a, const struct once_record *finished,
                                    const struct once_outcome *outcome, struct once_reply *reply,
                                    struct once_error *err);
/* A transaction of the attempt: begins it; commits it. Both pass crash points. */
once_result attempt_begin(struct attempt *a, struct once_error *err);
enum flow_fate attempt_commit(struct attempt *a, const struct flow_change *mark, struct once_error *err);
/* Encodes what is kept, with this state and these flags. */
once_result attempt_encode_checkpoint(struct attempt *a, uint8_t flags, once_span state, struct once_error *err);

/* The pause before try number `next` of a record: doubles, with a jitter that every completer computes
 * alike. */
int64_t flow_backoff_ms(const struct once_flow *flow, const uint8_t record[16], uint32_t next);
/* "FLOW/STEP", "FLOW/STEP?". */
void flow_point(const struct once_flow *flow, const char *step, bool intent, char out[ONCE_POINT_LEN_MAX + 1]);
/* The step after this recovery point; false: the flow has none such. *intent: of that call. */
bool flow_find(const struct once_flow *flow, once_span point, size_t *next, bool *intent);
bool flow_owns(const struct once_flow *flow, once_span point);

/* What is wrong with the URL of a probe, or NULL. */
const char *flow_probe_url_fault(const char *url);

#endif
