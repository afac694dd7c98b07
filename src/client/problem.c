/*
 * problem.c - see problem.h.
 *
 * yajl calls back for each value with the path that leads to it, of which only the last three names matter here.
 */
#include "client/problem.h"

#include "core/json_arena.h"
#include "core/json_strict.h"
#include "core/span.h"

#include <stdio.h>
#include <yajl/yajl_parse.h>

enum { DEPTH_MAX = 16, NAME_LEN_MAX = 32 };

struct reader {
    struct client_problem *out;
    bool is_problem;
    int depth;                               /* of containers that are open */
    char names[DEPTH_MAX][NAME_LEN_MAX + 1]; /* of the member that comes next, per level; "" in an array */
};

enum { STOP = 0, GO_ON = 1 };

static bool is_at(const struct reader *r, int depth, const char *a, const char *b, const char *c)
{
    return r->depth == depth && strcmp(r->names[0], a) == 0 && (depth < 2 || strcmp(r->names[1], b) == 0) &&
           (depth < 3 || strcmp(r->names[2], c) == 0);
}

static void keep_text(struct reader *r, once_span value)
{
    size_t n = 0;
    for (; n < value.len && n < sizeof r->out->text - 1; n++)
        r->out->text[n] = value.ptr[n] < ' ' || value.ptr[n] > '~' ? ' ' : (char)value.ptr[n];
    r->out->text[n] = '\0';
}

static bool is(once_span value, const char *text)
{
    return once_span_equal(value, once_span_str(text));
}

/* Names that are Once's own count in its own documents only: `code` is a common name. */
static void read_problem(struct reader *r, once_span value)
{
    struct client_problem *out = r->out;
    if (is_at(r, 1, "code", "", "")) {
        out->in_progress = out->in_progress || is(value, "in-progress");
        out->mismatch = out->mismatch || is(value, "key-reused");
        out->unknown = out->unknown || is(value, "outcome-unknown");
    } else if (is_at(r, 1, "title", "", "")) {
        out->in_progress = out->in_progress || is(value, "A request is outstanding for this Idempotency-Key");
        out->mismatch = out->mismatch || is(value, "Idempotency-Key is already used");
        keep_text(r, value);
    }
}

static void read_others(struct reader *r, once_span value)
{
    struct client_problem *out = r->out;
    if (is_at(r, 2, "error", "type", ""))
        out->mismatch = out->mismatch || is(value, "idempotency_error");
    else if (is_at(r, 2, "error", "code", ""))
        out->in_progress = out->in_progress || is(value, "idempotency_key_in_use");
    else if (is_at(r, 2, "error", "message", "") || is_at(r, 1, "message", "", ""))
        keep_text(r, value);
    else if (is_at(r, 1, "name", "", "") || is_at(r, 3, "details", "", "issue"))
        out->mismatch =
            out->mismatch || is(value, "PAYPAL_REQUEST_ID_PREVIOUSLY_USED") || is(value, "DUPLICATE_REQUEST_ID");
}

static int on_string(void *arg, const unsigned char *ptr, size_t len)
{
    struct reader *r = arg;
    if (r->is_problem)
        read_problem(r, once_span_of(ptr, len));
    else
        read_others(r, once_span_of(ptr, len));
    return r->depth > 0 ? GO_ON : STOP;
}

static int on_boolean(void *arg, int value)
{
    struct reader *r = arg;
    if (r->is_problem && is_at(r, 1, "retryable", "", ""))
        r->out->retryable = value ? CLIENT_YES : CLIENT_NO;
    return GO_ON;
}

static int on_name(void *arg, const unsigned char *ptr, size_t len)
{
    struct reader *r = arg;
    char *name = r->names[r->depth - 1];
    bool fits = len <= NAME_LEN_MAX && memchr(ptr, '\0', len) == NULL;
    if (fits)
        memcpy(name, ptr, len);
    name[fits ? len : 0] = '\0';
    return GO_ON;
}

static int on_open(void *arg)
{
    struct reader *r = arg;
    if (r->depth == DEPTH_MAX)
        return STOP;
    r->names[r->depth++][0] = '\0';
    return GO_ON;
}

static int on_close(void *arg)
{
    struct reader *r = arg;
    r->depth--;
    return GO_ON;
}

void client_problem_read(once_span body, bool is_problem, struct client_problem *out)
{
    static const yajl_callbacks callbacks = {
        .yajl_boolean = on_boolean,
        .yajl_string = on_string,
        .yajl_start_map = on_open,
        .yajl_map_key = on_name,
        .yajl_end_map = on_close,
        .yajl_start_array = on_open,
        .yajl_end_array = on_close,
    };
    *out = (struct client_problem){ .retryable = CLIENT_UNSAID };
    if (body.len == 0 || body.len > CLIENT_PROBLEM_LEN_MAX || !once_json_is_strict(body))
        return;
    struct reader reader = { .out = out, .is_problem = is_problem };
    struct once_json_arena arena;
    if (!once_json_arena_init(&arena, body.len))
        return;
    yajl_alloc_funcs funcs = once_json_arena_funcs(&arena);
    yajl_handle yajl = yajl_alloc(&callbacks, &funcs, &reader);
    /* What breaks off, or is no JSON, says nothing, whatever its beginning says. */
    if (yajl_parse(yajl, body.ptr, body.len) != yajl_status_ok || yajl_complete_parse(yajl) != yajl_status_ok)
        *out = (struct client_problem){ .retryable = CLIENT_UNSAID };
    yajl_free(yajl);
    once_json_arena_release(&arena);
}
