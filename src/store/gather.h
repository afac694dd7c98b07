/*
 * gather.h - putting records and events that a store reads one by one into one page.
 *
 * Bytes are gathered in a buffer that may move, so spans hold offsets into it until the page
 * is made: one piece of memory that the caller releases at once.
 */
#ifndef ONCE_STORE_GATHER_H
#define ONCE_STORE_GATHER_H

#include "core/buf.h"
#include "once.h"

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

#endif
