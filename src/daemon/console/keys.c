/*
 * keys.c - records: searching them, one with its history, what it holds, an operator's word on it.
 *
 * The calls are the library's public ones. What may be secret (bodies, header lines, checkpoint, the stored
 * request) leaves by console_reveal() only, which notes who asked (CONSOLE-3).
 */
#include "core/http/resend.h"
#include "core/http/trace.h"
#include "core/json/record_json.h"
#include "core/limits.h"
#include "core/span.h"
#include "daemon/api/query.h"
#include "daemon/console/link.h"
#include "daemon/console/parts.h"
#include "engine/recent_events.h"

#include <stdlib.h>

static struct console *console_of(const struct api_call *call)
{
    return call->context;
}

/* Decimal digits; false if it is something else. */
static bool read_number(once_span text, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;
    if (text.len == 0 || text.len > 20)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9' || __builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text.ptr[i] - '0'), &value))
            return false;
    }
    *out = value;
    return value <= max;
}

/* ---------------------------------------------------------------- searching */

enum { P_STATES, P_TENANT, P_PREFIX, P_ROUTE, P_OLDER, P_ABANDONED, P_BEFORE, P_LIMIT, P_COUNT };

struct search {
    struct api_parameter parameters[P_COUNT];
    struct once_filter filter;
    once_span tenant;
};

static bool read_states(once_span text, unsigned *states)
{
    while (text.len > 0) {
        once_span word;
        unsigned bit = 0;
        once_span_cut(text, ',', &word, &text);
        for (enum once_state state = ONCE_STATE_RUNNING; state <= ONCE_STATE_UNKNOWN; state++)
            if (once_span_equal(word, once_span_str(once_state_name(state))))
                bit = 1u << state;
        if (bit == 0)
            return false;
        *states |= bit;
    }
    return true;
}

/* NULL, or the parameter that is wrong. */
static const char *read_filter(struct search *s)
{
    once_span values[P_COUNT];
    uint64_t older = 0, limit = 50, abandoned = 0;
    for (int i = 0; i < P_COUNT; i++)
        values[i] = once_buf_span(&s->parameters[i].value);
    if (!read_states(values[P_STATES], &s->filter.states))
        return "states";
    if (values[P_OLDER].len > 0 && !read_number(values[P_OLDER], INT64_MAX, &older))
        return "older_ms";
    if (values[P_BEFORE].len > 0 && !read_number(values[P_BEFORE], UINT64_MAX, &s->filter.before))
        return "before";
    if (values[P_LIMIT].len > 0 && (!read_number(values[P_LIMIT], CONSOLE_LIST_LIMIT_MAX, &limit) || limit == 0))
        return "limit";
    if (values[P_ABANDONED].len > 0 && !read_number(values[P_ABANDONED], 1, &abandoned))
        return "abandoned";
    s->filter.age_ms_min = (int64_t)older;
    s->filter.limit = (uint32_t)limit;
    s->filter.abandoned = abandoned == 1;
    s->filter.key_prefix = values[P_PREFIX];
    s->filter.route = values[P_ROUTE];
    s->tenant = values[P_TENANT];
    s->filter.tenant = s->parameters[P_TENANT].there ? &s->tenant : NULL;
    return NULL;
}

static void put_page(struct once_json *json, const struct once_page *page)
{
    for (size_t i = 0; i < page->count; i++) {
        once_json_open(json, NULL, '{');
        once_record_json(json, &page->records[i]);
        once_json_close(json);
    }
}

/* A few bounded steps, each a job of its own for the writer (CONSOLE-4); then the page may go on. */
static void search(struct api_call *call, struct once_filter *filter)
{
    struct once *once = call->once;
    struct once_page page = { 0 };
    struct once_error err;
    struct once_json json;
    uint32_t left = filter->limit;
    once_result r = once_list(once, filter, &page, &err);
    if (r != ONCE_OK) {
        api_answer_error(&call->answer, &err);
        return;
    }
    if (console_answer_begin(call, &json)) {
        once_json_open(&json, "records", '[');
        for (int step = 1;; step++) {
            put_page(&json, &page);
            left -= (uint32_t)page.count;
            filter->before = page.next;
            filter->limit = left;
            if (left == 0 || page.next == 0 || step == CONSOLE_LIST_STEPS)
                break;
            once_page_release(&page);
            if (once_list(once, filter, &page, &err) != ONCE_OK)
                break; /* what was found is told; going on will say what is wrong */
        }
        once_json_close(&json);
        if (filter->before != 0)
            once_json_fence(&json, "next", filter->before);
        else
            once_json_null(&json, "next");
        console_answer_end(call, &json);
    }
    once_page_release(&page);
}

void console_keys(struct api_call *call)
{
    static const char *const names[P_COUNT] = { "states",   "tenant",    "prefix", "route",
                                                "older_ms", "abandoned", "before", "limit" };
    struct search s = { 0 };
    for (int i = 0; i < P_COUNT; i++) {
        s.parameters[i].name = names[i];
        once_buf_init(&s.parameters[i].value, ONCE_KEY_LEN_MAX);
    }
    if (api_query_read(call, s.parameters, P_COUNT)) {
        const char *wrong = read_filter(&s);
        if (wrong != NULL) {
            api_answer_problem(&call->answer, API_PROBLEM_INVALID, wrong, "parameter '%s' cannot be that", wrong);
        } else {
            pthread_mutex_lock(&console_of(call)->list_lock);
            search(call, &s.filter);
            pthread_mutex_unlock(&console_of(call)->list_lock);
        }
    }
    for (int i = 0; i < P_COUNT; i++)
        once_buf_release(&s.parameters[i].value);
}

/* ---------------------------------------------------------------- one record */

/* What a stored request is, without its query, headers and body. */
static void put_request(struct once_json *json, once_span bytes)
{
    struct once_resend request;
    once_span path, query, trace;
    if (bytes.len == 0)
        return;
    once_json_open(json, "request", '{');
    once_json_uint(json, "len", bytes.len);
    if (once_resend_get(bytes, &request, NULL) == ONCE_OK) {
        once_span_cut(request.target, '?', &path, &query);
        once_json_bytes(json, "upstream", request.upstream);
        once_json_bytes(json, "method", request.method);
        once_json_bytes(json, "path", path);
        once_json_uint(json, "body_len", request.body.len);
        once_json_bool(json, "needs_identity", request.needs_identity);
        if (once_header_find(request.headers, "traceparent", &trace) && trace.len == ONCE_TRACEPARENT_LEN)
            once_json_bytes(json, "traceparent", trace);
    }
    once_json_close(json);
}

/* What only this process has seen of it, since it began. */
static void put_recent_events(struct once_json *json, struct once *once, const uint8_t record[16])
{
    struct recent_events_view view;
    if (!once_recent_events(once, record, &view))
        return;
    once_json_open(json, "seen", '{');
    once_json_time(json, "since", view.began);
    once_json_bool(json, "whole", view.whole);
    once_json_uint(json, "replays", view.replays);
    once_json_uint(json, "renewals", view.renewals);
    once_json_uint(json, "fenced", view.fenced);
    once_json_time(json, "first_replay", view.first_replay);
    once_json_time(json, "last_replay", view.last_replay);
    once_json_open(json, "recent_events", '[');
    for (size_t i = 0; i < view.count; i++) {
        const struct recent_event *recent_event = &view.newest[i];
        once_json_open(json, NULL, '{');
        once_json_time(json, "at", recent_event->at);
        once_json_text(json, "what", recent_event_name(recent_event->kind));
        once_json_fence(json, "fence", recent_event->fence);
        if (recent_event->point_len > 0)
            once_json_bytes(json, "point", once_span_of(recent_event->point, recent_event->point_len));
        once_json_close(json);
    }
    once_json_close(json);
    once_json_close(json);
    free(view.newest);
}

static void put_found(struct api_call *call, struct once_json *json, struct once_reply *reply)
{
    struct once_record *record = &reply->record;
    const char *traces = console_of(call)->options.traces;
    char child[ONCE_CHILD_KEY_LEN + 1];
    once_record_json(json, record);
    once_json_uint(json, "body_len", record->body.len);
    once_json_uint(json, "headers_len", record->headers.len);
    once_json_uint(json, "checkpoint_len", record->checkpoint.len);
    once_span type;
    once_header_find(record->headers, "Content-Type", &type);
    once_json_bytes(json, "content_type", type);
    once_record_details_json(json, record);
    once_child_key(call->once, &record->grant, ONCE_LIT("upstream"), child);
    once_json_text(json, "child_key", child);
    if (traces != NULL)
        console_link_put(json, "traces_url", traces, record->grant.record);
    put_request(json, record->request);
    put_recent_events(json, call->once, record->grant.record);
}

static void show(struct api_call *call, once_span tenant, once_span key)
{
    struct once_reply reply = { 0 };
    struct once_history history = { 0 };
    struct once_stats stats;
    struct once_error err;
    struct once_json json;
    if (once_lookup_request(call->once, tenant, key, &reply, &err) != ONCE_OK ||
        once_history(call->once, tenant, key, &history, &err) != ONCE_OK ||
        once_stats(call->once, &stats, &err) != ONCE_OK) {
        api_answer_error(&call->answer, &err);
    } else if (console_answer_begin(call, &json)) {
        once_json_text(&json, "arm", once_arm_name(reply.arm));
        once_json_int(&json, "now", stats.now);
        if (reply.arm == ONCE_ARM_FOUND) {
            reply.record.key = key; /* some stores do not keep it */
            reply.record.tenant = tenant;
            put_found(call, &json, &reply);
        }
        once_history_json(&json, &history);
        once_json_bool(&json, "outbox", console_of(call)->options.outbox != NULL);
        console_answer_end(call, &json);
    }
    once_history_release(&history);
    once_reply_release(&reply);
}

void console_key(struct api_call *call)
{
    struct api_parameter parameters[] = { { .name = "tenant" }, { .name = "key" } };
    for (int i = 0; i < 2; i++)
        once_buf_init(&parameters[i].value, ONCE_KEY_LEN_MAX + 1);
    if (api_query_read(call, parameters, 2))
        show(call, once_buf_span(&parameters[0].value), once_buf_span(&parameters[1].value));
    for (int i = 0; i < 2; i++)
        once_buf_release(&parameters[i].value);
}

/* ---------------------------------------------------------------- what it holds */

struct revealed {
    once_span tenant, key;
    uint64_t fence;
    size_t what;
    bool all;
};

static const char *const whats[] = { "response", "checkpoint", "request" };

static void read_fence(struct api_input *in, uint64_t *fence)
{
    once_span text = { 0 };
    if (api_input_bytes(in, "fence", API_REQUIRED, &text) && !read_number(text, UINT64_MAX, fence))
        api_input_fail(in, "fence", ONCE_INVALID, "must be a number as text");
}

static void put_bytes(struct once_json *json, const char *name, once_span bytes, bool all)
{
    char len_name[40];
    snprintf(len_name, sizeof len_name, "%s_len", name);
    once_json_uint(json, len_name, bytes.len);
    if (!all && bytes.len > CONSOLE_SHOWN_LEN)
        bytes.len = CONSOLE_SHOWN_LEN;
    once_json_bytes(json, name, bytes);
}

static void put_revealed(struct once_json *json, const struct revealed *r, const struct once_record *record)
{
    struct once_resend request;
    if (r->what == 0) {
        put_bytes(json, "headers", record->headers, true);
        put_bytes(json, "body", record->body, r->all);
    } else if (r->what == 1) {
        put_bytes(json, "body", record->checkpoint, true);
    } else if (once_resend_get(record->request, &request, NULL) == ONCE_OK) {
        once_json_bytes(json, "method", request.method);
        once_json_bytes(json, "target", request.target);
        put_bytes(json, "headers", request.headers, true);
        put_bytes(json, "body", request.body, r->all);
    } else {
        put_bytes(json, "body", record->request, r->all);
    }
}

static void reveal(struct api_call *call, const struct revealed *r)
{
    struct console *console = console_of(call);
    struct once_reply reply = { 0 };
    struct once_error err;
    struct once_json json;
    char name[CONSOLE_NAME_LEN_MAX + 1];
    once_result result = r->what == 2 ? once_lookup_request(call->once, r->tenant, r->key, &reply, &err)
                                      : once_lookup(call->once, r->tenant, r->key, &reply, &err);
    const struct once_record *record = &reply.record;
    size_t len = 2 * (record->body.len + record->headers.len + record->checkpoint.len + record->request.len);
    if (result != ONCE_OK) {
        api_answer_error(&call->answer, &err);
    } else if (reply.arm != ONCE_ARM_FOUND || record->grant.fence != r->fence) {
        if (console_answer_begin(call, &json)) {
            once_json_text(&json, "arm", reply.arm != ONCE_ARM_FOUND ? "absent" : "fenced");
            console_answer_end(call, &json);
        }
    } else if (len <= API_UNCOUNTED_LEN || api_call_charge(call, len)) {
        console_name_of(call, name);
        console_log_note(&console->log, name, &record->grant, r->tenant, r->key, "revealed the %s", whats[r->what]);
        if (console_answer_begin(call, &json)) {
            once_json_text(&json, "arm", "found");
            put_revealed(&json, r, record);
            console_answer_end(call, &json);
        }
    }
    once_reply_release(&reply);
}

void console_reveal(struct api_call *call)
{
    struct api_input in;
    struct revealed r = { 0 };
    if (api_input_parse(&in, call->body) == ONCE_OK) {
        api_input_bytes(&in, "tenant", API_OPTIONAL, &r.tenant);
        api_input_bytes(&in, "key", API_REQUIRED, &r.key);
        read_fence(&in, &r.fence);
        api_input_word(&in, "what", API_REQUIRED, whats, sizeof whats / sizeof *whats, &r.what);
        api_input_bool(&in, "all", &r.all);
    }
    if (api_call_accept(call, &in))
        reveal(call, &r);
    api_input_release(&in);
}

/* ---------------------------------------------------------------- an operator's word */

static const char *const verdicts[] = { "done", "not done", "release" };

static void read_resolve(struct api_input *in, struct once_resolve *word)
{
    size_t verdict = 0;
    int64_t status = 0;
    bool failed = false;
    api_input_bytes(in, "tenant", API_OPTIONAL, &word->tenant);
    api_input_bytes(in, "key", API_REQUIRED, &word->key);
    read_fence(in, &word->fence);
    if (api_input_word(in, "verdict", API_REQUIRED, verdicts, sizeof verdicts / sizeof *verdicts, &verdict))
        word->verdict = (enum once_verdict)(verdict + 1);
    if (word->verdict == ONCE_VERDICT_DONE) {
        if (!api_input_has(in, "status"))
            api_input_fail(in, "status", ONCE_INVALID, "is missing: further tries will be answered with it");
        api_input_int(in, "status", 0, INT32_MAX, &status);
        api_input_bool(in, "failed", &failed);
        api_input_bytes(in, "headers", API_OPTIONAL, &word->outcome.headers);
        api_input_bytes(in, "body", API_OPTIONAL, &word->outcome.body);
        word->outcome.status = (int32_t)status;
        word->outcome.state = failed ? ONCE_STATE_FAILED : ONCE_STATE_SUCCEEDED;
    }
    if (api_input_bytes(in, "reason", API_REQUIRED, &word->reason) && word->reason.len == 0)
        api_input_fail(in, "reason", ONCE_INVALID, "is empty: how do you know?");
    if (word->fence == 0)
        api_input_fail(in, "fence", ONCE_INVALID, "must be that of the record that was looked at");
}

static void resolve(struct api_call *call, struct once_resolve *word)
{
    struct console *console = console_of(call);
    struct once_reply reply = { 0 };
    struct once_error err;
    struct once_json json;
    char name[CONSOLE_NAME_LEN_MAX + 1], actor[CONSOLE_NAME_LEN_MAX + 16];
    console_name_of(call, name);
    snprintf(actor, sizeof actor, "%s (console)", name);
    word->actor = once_span_str(actor);
    if (once_resolve(call->once, word, &reply, &err) != ONCE_OK) {
        api_answer_error(&call->answer, &err);
    } else {
        if (reply.arm == ONCE_ARM_DONE)
            console_log_note(&console->log, name, &reply.record.grant, word->tenant, word->key, "resolved: %s",
                             verdicts[word->verdict - 1]);
        if (console_answer_begin(call, &json)) {
            once_json_text(&json, "arm", once_arm_name(reply.arm));
            if (reply.record.state != ONCE_STATE_NONE)
                once_record_json(&json, &reply.record);
            console_answer_end(call, &json);
        }
    }
    once_reply_release(&reply);
}

void console_resolve(struct api_call *call)
{
    struct api_input in;
    struct once_resolve word = { 0 };
    if (api_input_parse(&in, call->body) == ONCE_OK)
        read_resolve(&in, &word);
    if (api_call_accept(call, &in))
        resolve(call, &word);
    api_input_release(&in);
}

/* ---------------------------------------------------------------- erasure */

/* Only what keeps a retry from executing again: dropping records whole is for `once forget --drop`. */
static void forget(struct api_call *call, struct once_forget *word)
{
    struct console *console = console_of(call);
    struct once_reply reply = { 0 };
    struct once_error err;
    struct once_json json;
    char name[CONSOLE_NAME_LEN_MAX + 1], actor[CONSOLE_NAME_LEN_MAX + 16];
    console_name_of(call, name);
    snprintf(actor, sizeof actor, "%s (console)", name);
    word->actor = once_span_str(actor);
    if (once_forget(call->once, word, &reply, &err) != ONCE_OK) {
        api_answer_error(&call->answer, &err);
    } else {
        if (reply.arm == ONCE_ARM_DONE) /* whose it was is not noted any more */
            console_log_note(&console->log, name, &reply.record.grant, once_span_of(NULL, 0), once_span_of(NULL, 0),
                             "forgot a record");
        if (console_answer_begin(call, &json)) {
            once_json_text(&json, "arm", once_arm_name(reply.arm));
            console_answer_end(call, &json);
        }
    }
    once_reply_release(&reply);
}

void console_forget(struct api_call *call)
{
    struct api_input in;
    struct once_forget word = { 0 };
    if (api_input_parse(&in, call->body) == ONCE_OK) {
        api_input_bytes(&in, "tenant", API_OPTIONAL, &word.tenant);
        api_input_bytes(&in, "key", API_REQUIRED, &word.key);
        read_fence(&in, &word.seen.fence);
        if (api_input_bytes(&in, "reason", API_REQUIRED, &word.reason) && word.reason.len == 0)
            api_input_fail(&in, "reason", ONCE_INVALID, "is empty: it is kept in the audit trail");
        if (word.seen.fence == 0)
            api_input_fail(&in, "fence", ONCE_INVALID, "must be that of the record that was looked at");
    }
    if (api_call_accept(call, &in))
        forget(call, &word);
    api_input_release(&in);
}

void console_child_key(struct api_call *call)
{
    struct api_input in;
    struct once_grant grant = { 0 };
    once_span name = { 0 };
    struct once_json json;
    char key[ONCE_CHILD_KEY_LEN + 1];
    if (api_input_parse(&in, call->body) == ONCE_OK) {
        api_input_hex(&in, "record", API_REQUIRED, grant.record, sizeof grant.record);
        api_input_bytes(&in, "call", API_REQUIRED, &name);
    }
    if (api_call_accept(call, &in) && console_answer_begin(call, &json)) {
        once_child_key(call->once, &grant, name, key);
        once_json_text(&json, "child_key", key);
        console_answer_end(call, &json);
    }
    api_input_release(&in);
}
