/*
 * wire_frames.h - read a frame of any type and write it again.
 *
 *     once_result r = frame_again(&frame, &out, &exact, &err);
 *
 * What is accepted comes out as the same bytes: there is one way to write a frame. The unit
 * test asks that of frames it made, the fuzz target of any bytes. Where a text went through a
 * C string that cannot hold all of it, *exact is false.
 */
#ifndef ONCE_TEST_WIRE_FRAMES_H
#define ONCE_TEST_WIRE_FRAMES_H

#include "core/limits.h"
#include "core/span.h"
#include "wire/wire.h"

#include <stdlib.h>

/* A copy with a NUL behind it; freed by the caller. */
static char *frame__text(once_span text, bool *exact)
{
    char *copy = calloc(text.len + 1, 1);
    if (copy == NULL)
        abort();
    if (text.len > 0)
        memcpy(copy, text.ptr, text.len);
    *exact = *exact && strlen(copy) == text.len;
    return copy;
}

static once_result frame__page_again(const struct wire_frame *f, struct once_buf *out, struct once_error *err)
{
    struct wire_reader reader;
    struct once_page page = { .count = 0 };
    once_result r = wire_read_page(f->payload, &reader, &page.next, err);
    if (r != ONCE_OK)
        return r;
    page.records = calloc(reader.count + 1, sizeof *page.records);
    if (page.records == NULL)
        abort();
    for (bool more = true; r == ONCE_OK && more;) {
        r = wire_read_record(&reader, &page.records[page.count], &more, err);
        page.count += r == ONCE_OK && more;
    }
    if (r == ONCE_OK)
        wire_put_page(out, f->id, &page);
    free(page.records);
    return r;
}

static once_result frame__events_again(const struct wire_frame *f, struct once_buf *out, bool *exact,
                                       struct once_error *err)
{
    struct wire_reader reader;
    struct once_history history = { .count = 0 };
    once_result r = wire_read_events(f->payload, &reader, err);
    if (r != ONCE_OK)
        return r;
    history.events = calloc(reader.count + 1, sizeof *history.events);
    if (history.events == NULL)
        abort();
    for (bool more = true; r == ONCE_OK && more;) {
        once_span what;
        r = wire_read_event(&reader, &history.events[history.count], &what, &more, err);
        if (r == ONCE_OK && more)
            history.events[history.count++].what = frame__text(what, exact);
    }
    if (r == ONCE_OK)
        wire_put_events(out, f->id, &history);
    for (size_t i = 0; i < history.count; i++)
        free((void *)(uintptr_t)history.events[i].what);
    free(history.events);
    return r;
}

static once_result frame__state_again(const struct wire_frame *f, struct once_buf *out, struct once_error *err)
{
    struct wire_reader reader;
    struct wire_state state;
    struct wire_number numbers[WIRE_NUMBERS_MAX + 1];
    size_t count = 0;
    once_result r = wire_read_state(f->payload, &reader, &state, err);
    for (bool more = true; r == ONCE_OK && more;) {
        r = wire_read_number(&reader, &numbers[count], &more, err);
        count += r == ONCE_OK && more;
    }
    if (r == ONCE_OK)
        wire_put_state(out, f->id, &state, numbers, count);
    return r;
}

static once_result frame__checked_again(const struct wire_frame *f, struct once_buf *out, bool *exact,
                                        struct once_error *err)
{
    struct wire_reader reader;
    struct once_check_report report = { .records = 0 };
    uint64_t cursor = 0;
    once_result r = wire_read_checked(f->payload, &reader, &cursor, &report, err);
    size_t begin = wire_begin_checked(out, f->id);
    for (bool more = true; r == ONCE_OK && more;) {
        uint64_t fence;
        once_span invariant, text;
        r = wire_read_problem(&reader, &fence, &invariant, &text, &more, err);
        if (r != ONCE_OK || !more)
            continue;
        char *name = frame__text(invariant, exact), *problem = frame__text(text, exact);
        wire_add_problem(out, &(struct once_problem){ name, fence, problem });
        free(name);
        free(problem);
    }
    if (r == ONCE_OK)
        r = wire_end_checked(out, begin, cursor, &report, err);
    else
        once_buf_clear(out);
    return r;
}

/* wire_get_failed() cannot tell a refusal from a frame that carries ONCE_INVALID: looked at here. */
static bool frame__failed_is_whole(once_span p)
{
    if (p.len < 5 || p.ptr[0] == ONCE_OK || p.ptr[0] > ONCE_QUOTA)
        return false;
    return ((uint32_t)p.ptr[1] << 24 | (uint32_t)p.ptr[2] << 16 | (uint32_t)p.ptr[3] << 8 | p.ptr[4]) == p.len - 5;
}

static once_result frame__failed_again(const struct wire_frame *f, struct once_buf *out, bool *exact,
                                       struct once_error *err)
{
    once_result carried = wire_get_failed(f->payload, err);
    if (err->result != carried || carried == ONCE_OK)
        abort();
    if (!frame__failed_is_whole(f->payload))
        return carried;
    if (carried != (once_result)f->payload.ptr[0])
        abort();
    wire_put_failed(out, f->id, carried, err->text);
    *exact = out->len == f->payload.len + WIRE_HEAD_LEN; /* a text ends at a NUL, or is cut to an error's length */
    *err = (struct once_error){ .result = ONCE_OK };
    return ONCE_OK;
}

/* The types whose payload is one structure. */
static once_result frame__plain_again(const struct wire_frame *f, struct once_buf *out, struct once_error *err)
{
    once_result r;
    switch (f->type) {
    case WIRE_HELLO: {
        struct wire_hello hello;
        r = wire_get_hello(f->payload, &hello, err);
        if (r == ONCE_OK)
            wire_put_hello(out, f->id, &hello);
        return r;
    }
    case WIRE_WELCOME: {
        struct wire_welcome welcome;
        r = wire_get_welcome(f->payload, &welcome, err);
        if (r == ONCE_OK)
            wire_put_welcome(out, f->id, &welcome);
        return r;
    }
    case WIRE_CALL: {
        struct wire_call call;
        r = wire_get_call(f->payload, &call, err);
        if (r == ONCE_OK)
            wire_put_call(out, f->id, &call);
        return r;
    }
    case WIRE_REPLY: {
        struct once_reply reply = { .memory = NULL };
        r = wire_get_reply(f->payload, &reply.arm, &reply.retry_after_ms, &reply.record, err);
        if (r == ONCE_OK)
            wire_put_reply(out, f->id, &reply);
        return r;
    }
    case WIRE_LIST: {
        struct once_filter filter;
        once_span tenant;
        r = wire_get_list(f->payload, &filter, &tenant, err);
        if (r == ONCE_OK)
            wire_put_list(out, f->id, &filter);
        return r;
    }
    case WIRE_HISTORY: {
        uint8_t record[16];
        r = wire_get_history(f->payload, record, err);
        if (r == ONCE_OK)
            wire_put_history(out, f->id, record);
        return r;
    }
    case WIRE_EXPIRED: {
        uint64_t removed;
        bool more;
        r = wire_get_expired(f->payload, &removed, &more, err);
        if (r == ONCE_OK)
            wire_put_expired(out, f->id, removed, more);
        return r;
    }
    case WIRE_COUNTS: {
        struct once_stats stats;
        r = wire_get_counts(f->payload, &stats, err);
        if (r == ONCE_OK)
            wire_put_counts(out, f->id, &stats);
        return r;
    }
    case WIRE_CONTEXT: {
        struct wire_context context;
        r = wire_get_context(f->payload, &context, err);
        if (r == ONCE_OK)
            wire_put_context(out, f->id, &context);
        return r;
    }
    case WIRE_SPANS: {
        struct once_trace_report report;
        uint32_t lost;
        r = wire_get_spans(f->payload, &lost, &report, err);
        if (r == ONCE_OK)
            wire_put_spans(out, f->id, lost, &report);
        return r;
    }
    default: { /* EXPIRE, CHECK, STATS, STATUS */
        uint64_t value;
        r = wire_get_number(f->payload, &value, err);
        if (r == ONCE_OK)
            wire_put_number(out, f->id, (enum wire_type)f->type, value);
        return r;
    }
    }
}

/* `out` is empty; it stays so where the frame is refused. The type is one of ours. */
static once_result frame_again(const struct wire_frame *f, struct once_buf *out, bool *exact, struct once_error *err)
{
    *exact = true;
    switch (f->type) {
    case WIRE_PAGE:
        return frame__page_again(f, out, err);
    case WIRE_EVENTS:
        return frame__events_again(f, out, exact, err);
    case WIRE_CHECKED:
        return frame__checked_again(f, out, exact, err);
    case WIRE_STATE:
        return frame__state_again(f, out, err);
    case WIRE_FAILED:
        return frame__failed_again(f, out, exact, err);
    default:
        return frame__plain_again(f, out, err);
    }
}

#endif
