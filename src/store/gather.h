/*
 * gather.h - collects what stores read row by row: pages of records, histories, problems of a check, seal keys.
 *
 * Bytes are gathered in a buffer that may move, so spans hold offsets into it until the page
 * is made: one piece of memory that the caller releases at once.
 */
#ifndef ONCE_STORE_GATHER_H
#define ONCE_STORE_GATHER_H

#include "core/buf.h"
#include "store/store.h"

struct gather_page {
    struct once_record *records;
    size_t count;
    struct once_buf bytes;
};

struct gather_history {
    struct once_event *events;
    size_t count;
    struct once_buf bytes; /* actors and reasons; spans hold offsets until the end */
};

/* Whether the filter selects the record. */
bool gather_matches(const struct once_filter *f, const struct once_record *r, once_time now);

once_result gather_page_init(struct gather_page *g, uint32_t limit, struct once_error *err);
void gather_page_release(struct gather_page *g);
/* Keeps it, without checkpoint, headers and body. There must be room. */
void gather_record(struct gather_page *g, const struct once_record *record);
once_result gather_page_make(struct gather_page *g, struct once_page *page, struct once_error *err);

once_result gather_history_init(struct gather_history *t, struct once_error *err);
void gather_history_release(struct gather_history *t);
/* Keeps it while there is room. */
void gather_event(struct gather_history *t, struct once_event event);
/* Sorts by time and makes the history. */
once_result gather_history_make(struct gather_history *t, struct once_history *history, struct once_error *err);
/* The name of an event as a constant; "?" if it is not a known one. */
const char *gather_event_name(once_span what);

/* The receiver of a check's problems. */
struct gather_problems {
    once_problem_fn *each; /* may be NULL */
    void *arg;
    struct once_check_report *report;
};
__attribute__((format(printf, 4, 5))) void gather_problem(struct gather_problems *p, const char *invariant,
                                                          uint64_t fence, const char *format, ...);

/* Adds a seal key. ONCE_CORRUPT: it cannot be one, or they are too many. */
once_result gather_seal_key(struct once_seal_key_refs *out, once_span id, once_span proof, struct once_error *err);

#endif
