/*
 * wire.h - the daemon's protocol on its unix socket: frames and their payloads.
 *
 * A frame is a length (4 bytes; of all bytes after it), an id that the client chose (4), a
 * type (1) and a payload. An answer has the id of its request; answers come in any order.
 * Integers are big-endian; byte strings have a length (4) before them. The first frame of a
 * connection is HELLO, its answer WELCOME; docs/internals/wire.md has the tables.
 *
 * Pure: bytes in, structures out. Everything that is read is bounded and checked; spans point
 * into the bytes that were read. The nginx module uses the same code.
 */
#ifndef ONCE_WIRE_WIRE_H
#define ONCE_WIRE_WIRE_H

#include "core/buf.h"
#include "core/http/trace.h"
#include "once.h"

enum { WIRE_VERSION = 1, WIRE_HEAD_LEN = 9 };
/* A body, its headers, a checkpoint, a stored request, names, numbers; pages and histories are shorter. */
#define WIRE_FRAME_LEN_MAX                                                                                             \
    (ONCE_BODY_LEN_MAX + ONCE_HEADERS_LEN_MAX + ONCE_CHECKPOINT_LEN_MAX + ONCE_REQUEST_LEN_MAX + (64 << 10))

#define WIRE_TYPES(X)                                                                                                  \
    X(HELLO, 1)                                                                                                        \
    X(WELCOME, 2)                                                                                                      \
    X(CALL, 3) /* one operation; answered by REPLY */                                                                  \
    X(REPLY, 4)                                                                                                        \
    X(LIST, 5) /* answered by PAGE */                                                                                  \
    X(PAGE, 6)                                                                                                         \
    X(HISTORY, 7) /* answered by EVENTS */                                                                             \
    X(EVENTS, 8)                                                                                                       \
    X(EXPIRE, 9) /* answered by EXPIRED */                                                                             \
    X(EXPIRED, 10)                                                                                                     \
    X(CHECK, 11) /* answered by CHECKED */                                                                             \
    X(CHECKED, 12)                                                                                                     \
    X(STATS, 13) /* answered by COUNTS */                                                                              \
    X(COUNTS, 14)                                                                                                      \
    X(FAILED, 15) /* instead of any answer: a result and a text */                                                     \
    X(STATUS, 16) /* answered by STATE, at once, even if the store is slow */                                          \
    X(STATE, 17)                                                                                                       \
    X(CONTEXT, 18) /* the trace of the next CALL; not answered */                                                      \
    X(SPANS, 19)   /* spans of a traced operation; not answered */

enum wire_type {
#define WIRE__TYPE(name, value) WIRE_##name = value,
    WIRE_TYPES(WIRE__TYPE)
#undef WIRE__TYPE
};

struct wire_frame {
    uint32_t id;
    uint8_t type; /* may be unknown */
    once_span payload;
};

/* The first frame of `bytes`; *used is its length, 0 while it is not complete. ONCE_INVALID:
 * this is not a frame, and nothing after it can be read. */
once_result wire_next(once_span bytes, struct wire_frame *frame, size_t *used, struct once_error *err);

/* Begin a frame, add the payload, end it. If the buffer failed, the whole frame is removed. */
size_t wire_begin(struct once_buf *buf, uint32_t id, enum wire_type type);
once_result wire_end(struct once_buf *buf, size_t begin, struct once_error *err);

struct wire_hello {
    uint32_t version;
    once_span name; /* of the client, for logs */
};

struct wire_welcome {
    uint32_t version;
    uint8_t secret[32]; /* key of record ids and fingerprints */
    bool best_effort;   /* the daemon's store may lose acknowledged writes; answers say so */
};

/* An operation. By `nonce` and `again` the engine recognises one that is repeated after a lost answer. */
struct wire_call {
    struct once_request request;
    uint8_t nonce[16];
    bool again;
};

/* Sent before a call, for logs and spans. Its frame has the id 0, so that the answer of a daemon that does not know
 * this type does not count as that of another frame. */
struct wire_context {
    uint32_t call; /* the id of the CALL that follows */
    struct once_trace trace;
    once_span route; /* of the request; up to ONCE_TRACE_TEXT_LEN bytes */
};

/* A frame that is too long, or for which the buffer has no room, is not written: buf->result says
 * why, and stays. */
void wire_put_hello(struct once_buf *buf, uint32_t id, const struct wire_hello *hello);
void wire_put_welcome(struct once_buf *buf, uint32_t id, const struct wire_welcome *welcome);
void wire_put_call(struct once_buf *buf, uint32_t id, const struct wire_call *call);
void wire_put_reply(struct once_buf *buf, uint32_t id, const struct once_reply *reply);
void wire_put_failed(struct once_buf *buf, uint32_t id, once_result result, const char *text);
void wire_put_list(struct once_buf *buf, uint32_t id, const struct once_filter *filter);
void wire_put_page(struct once_buf *buf, uint32_t id, const struct once_page *page);
void wire_put_history(struct once_buf *buf, uint32_t id, const uint8_t record[16]);
void wire_put_events(struct once_buf *buf, uint32_t id, const struct once_history *history);
void wire_put_number(struct once_buf *buf, uint32_t id, enum wire_type type, uint64_t value); /* EXPIRE, CHECK */
void wire_put_expired(struct once_buf *buf, uint32_t id, uint64_t removed, bool more);
void wire_put_context(struct once_buf *buf, uint32_t id, const struct wire_context *context);
/* `lost`: reports dropped for lack of room since the last frame. */
void wire_put_spans(struct once_buf *buf, uint32_t id, uint32_t lost, const struct once_trace_report *report);
void wire_put_counts(struct once_buf *buf, uint32_t id, const struct once_stats *stats);

once_result wire_get_hello(once_span payload, struct wire_hello *hello, struct once_error *err);
once_result wire_get_welcome(once_span payload, struct wire_welcome *welcome, struct once_error *err);
once_result wire_get_call(once_span payload, struct wire_call *call, struct once_error *err);
/* The record's spans point into the payload. */
once_result wire_get_reply(once_span payload, enum once_arm *arm, int64_t *retry_after_ms, struct once_record *record,
                           struct once_error *err);
/* The result that a FAILED frame carries, with its text in *err. */
once_result wire_get_failed(once_span payload, struct once_error *err);
once_result wire_get_list(once_span payload, struct once_filter *filter, once_span *tenant, struct once_error *err);
once_result wire_get_history(once_span payload, uint8_t record[16], struct once_error *err);
once_result wire_get_number(once_span payload, uint64_t *value, struct once_error *err);
once_result wire_get_expired(once_span payload, uint64_t *removed, bool *more, struct once_error *err);
once_result wire_get_context(once_span payload, struct wire_context *context, struct once_error *err);
once_result wire_get_spans(once_span payload, uint32_t *lost, struct once_trace_report *report, struct once_error *err);
once_result wire_get_counts(once_span payload, struct once_stats *stats, struct once_error *err);

/* Reads pages, events and problems one after the other: begin with the payload of PAGE, EVENTS or
 * CHECKED, then read each until *more is false. */
struct wire_reader {
    once_span left;
    uint32_t count;
};
once_result wire_read_page(once_span payload, struct wire_reader *reader, uint64_t *next, struct once_error *err);
once_result wire_read_record(struct wire_reader *reader, struct once_record *record, bool *more,
                             struct once_error *err);
once_result wire_read_events(once_span payload, struct wire_reader *reader, struct once_error *err);
/* `what` is copied out: event names are constants on both sides. */
once_result wire_read_event(struct wire_reader *reader, struct once_event *event, once_span *what, bool *more,
                            struct once_error *err);

/* STATE: the status of a daemon. Numbers have names; a later version may add more. */
enum { WIRE_NUMBERS_MAX = 64 };
struct wire_state {
    bool ready;
    once_span reason;         /* if not, why */
    once_span version, store; /* of the program; the kind of store */
};
struct wire_number {
    once_span name;
    int64_t value;
};
void wire_put_state(struct once_buf *buf, uint32_t id, const struct wire_state *state,
                    const struct wire_number *numbers, size_t count);
once_result wire_read_state(once_span payload, struct wire_reader *reader, struct wire_state *state,
                            struct once_error *err);
once_result wire_read_number(struct wire_reader *reader, struct wire_number *number, bool *more,
                             struct once_error *err);

/* CHECKED: the position that a check reached, its counts, and the problems that it found. */
size_t wire_begin_checked(struct once_buf *buf, uint32_t id);
void wire_add_problem(struct once_buf *buf, const struct once_problem *problem);
once_result wire_end_checked(struct once_buf *buf, size_t begin, uint64_t cursor,
                             const struct once_check_report *report, struct once_error *err);
once_result wire_read_checked(once_span payload, struct wire_reader *reader, uint64_t *cursor,
                              struct once_check_report *report, struct once_error *err);
once_result wire_read_problem(struct wire_reader *reader, uint64_t *fence, once_span *invariant, once_span *text,
                              bool *more, struct once_error *err);

#endif
