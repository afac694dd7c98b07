/*
 * problem.c - see problem.h.
 *
 * The parser reports each value. `names` holds the path to it; the rules need three levels at most.
 */
#include "client/problem.h"

#include "core/json/events.h"
#include "core/json/strict.h"
#include "core/span.h"

#include <stdio.h>

enum { DEPTH_MAX = 16, NAME_LEN_MAX = 32 };

struct reader {
    struct client_problem *out;
    bool is_problem;
    int depth;                               /* of nested objects and arrays */
    char names[DEPTH_MAX][NAME_LEN_MAX + 1]; /* the current member's name per level; "" in an array */
};

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

/* Only in problem documents: `code` is a common name elsewhere. */
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

static void keep_name(struct reader *r, once_span bytes)
{
    char *name = r->names[r->depth - 1];
    bool fits = bytes.len <= NAME_LEN_MAX && memchr(bytes.ptr, '\0', bytes.len) == NULL;
    if (fits)
        memcpy(name, bytes.ptr, bytes.len);
    name[fits ? bytes.len : 0] = '\0';
}

static bool on_event(void *arg, enum once_json_event event, once_span bytes)
{
    struct reader *r = arg;
    switch (event) {
    case ONCE_JSON_STRING:
        if (r->is_problem)
            read_problem(r, bytes);
        else
            read_others(r, bytes);
        return r->depth > 0;
    case ONCE_JSON_TRUE:
    case ONCE_JSON_FALSE:
        if (r->is_problem && is_at(r, 1, "retryable", "", ""))
            r->out->retryable = event == ONCE_JSON_TRUE ? CLIENT_YES : CLIENT_NO;
        return true;
    case ONCE_JSON_NAME:
        keep_name(r, bytes);
        return true;
    case ONCE_JSON_ARRAY:
    case ONCE_JSON_OBJECT:
        if (r->depth == DEPTH_MAX)
            return false;
        r->names[r->depth++][0] = '\0';
        return true;
    case ONCE_JSON_END:
        r->depth--;
        return true;
    default:
        return true;
    }
}

void client_problem_read(once_span body, bool is_problem, struct client_problem *out)
{
    *out = (struct client_problem){ .retryable = CLIENT_UNSAID };
    if (body.len == 0 || body.len > CLIENT_PROBLEM_LEN_MAX || !once_json_is_strict(body))
        return;
    struct reader reader = { .out = out, .is_problem = is_problem };
    /* A body that breaks off, or is not JSON, says nothing, even if its beginning does. */
    if (once_json_parse(body, on_event, &reader, NULL) != ONCE_OK)
        *out = (struct client_problem){ .retryable = CLIENT_UNSAID };
}
