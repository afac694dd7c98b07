/*
 * verbs.c - the verbs of the protocol: read JSON, call the library, write JSON.
 *
 * Members have the names of once.h. An answer has the arm and, in the same object, the members of the record as `once
 * keys show --json` prints them, so that `record` and `fence` of a claim can be sent back.
 */
#include "core/http/resend.h"
#include "core/json/record_json.h"
#include "core/limits.h"
#include "core/record.h"
#include "core/span.h"
#include "daemon/api/call.h"
#include "daemon/api/input.h"
#include "daemon/api/query.h"
#include "daemon/observers/decisions.h"
#include "engine/daemon_api.h"
#include "os/os.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>

static const char type_json[] = "application/json";

/* ---------------------------------------------------------------- answers */

/* Which large parts of a record the answer has: those that the client did not just send itself. */
struct shown {
    bool checkpoint, outcome;
};

static struct shown shown_for(enum once_arm arm)
{
    switch (arm) {
    case ONCE_ARM_EXECUTE:
    case ONCE_ARM_PROBE:
        return (struct shown){ .checkpoint = true };
    case ONCE_ARM_REPLAY:
    case ONCE_ARM_UNKNOWN:
    case ONCE_ARM_FENCED:
    case ONCE_ARM_FOUND:
        return (struct shown){ .checkpoint = true, .outcome = true };
    default:
        return (struct shown){ 0 };
    }
}

/* The members that a holder does not know itself. */
static void put_held(struct once_json *json, const struct once_record *record)
{
    once_json_hex(json, "record", once_span_of(record->grant.record, sizeof record->grant.record));
    once_json_uint(json, "fence", record->grant.fence);
    once_json_text(json, "state", once_state_name(record->state));
    once_json_uint(json, "attempt", record->attempt);
    once_json_time(json, "lease_until", record->lease_until);
    once_json_time(json, "finished_at", record->finished_at);
    once_json_time(json, "expires_at", record->expires_at);
}

static void put_record(struct once_json *json, const struct once_record *record, struct shown shown)
{
    once_record_json(json, record);
    once_record_details_json(json, record);
    if (shown.checkpoint)
        once_json_bytes(json, "checkpoint", record->checkpoint);
    if (record->request.len > 0)
        once_json_bytes(json, "stored_request", record->request);
    if (shown.outcome) {
        once_json_bytes(json, "headers", record->headers);
        once_json_bytes(json, "body", record->body);
    }
}

/* Owns the reply. If the budget has no room for a large answer nothing is lost: only stored bytes are large, and the
 * client can ask again. */
static void answer_reply(struct api_call *call, struct once_reply *reply)
{
    const struct once_record *record = &reply->record;
    struct shown shown = shown_for(reply->arm);
    size_t len = shown.outcome ? 2 * (record->checkpoint.len + record->headers.len + record->body.len) : 0;
    len += 2 * record->request.len;
    FILE *file = NULL;
    if (len <= API_UNCOUNTED_LEN || api_call_charge(call, len))
        file = api_answer_begin(&call->answer, 200, type_json);
    if (file != NULL) {
        struct once_json json = { .file = file, .base64 = true };
        once_json_open(&json, NULL, '{');
        once_json_text(&json, "arm", once_arm_name(reply->arm));
        if (reply->arm == ONCE_ARM_IN_PROGRESS)
            once_json_int(&json, "retry_after_ms", reply->retry_after_ms);
        if (reply->arm == ONCE_ARM_DONE && record->state != ONCE_STATE_NONE)
            put_held(&json, record);
        else if (record->state != ONCE_STATE_NONE)
            put_record(&json, record, shown);
        once_json_close(&json);
        api_answer_end(&call->answer);
    }
    once_reply_release(reply);
}

/* A record that becomes unknown over HTTP is escalated, too. */
static void note_unknown(const struct api_call *call, enum once_verb verb, once_result result,
                         const struct once_reply *reply)
{
    once_time since;
    const char *why = result == ONCE_OK && call->escalated != NULL ? unknown_reason(verb, reply, &since) : NULL;
    if (why != NULL)
        call->escalated(call->escalated_arg, reply->record.grant, since, why);
}

/* A call of the library, for the decision log. */
struct asked {
    struct decision decision;
    struct once_trace trace;
    uint64_t began_ns;
};

static void ask(const struct api_call *call, enum once_verb verb, const struct once_grant *grant, struct asked *asked)
{
    if (call->log == NULL)
        return;
    *asked = (struct asked){ .decision = { .verb = verb, .by = "http" }, .began_ns = once_os_monotonic_ns() };
    if (call->traceparent != NULL && once_trace_parse(once_span_str(call->traceparent), &asked->trace))
        asked->decision.trace = &asked->trace;
    if (grant == NULL)
        return;
    memcpy(asked->decision.record, grant->record, sizeof asked->decision.record);
    asked->decision.fence = grant->fence;
}

static void ask_claim(const struct api_call *call, const struct once_claim *claim, struct asked *asked)
{
    ask(call, ONCE_VERB_CLAIM, NULL, asked);
    if (call->log == NULL)
        return;
    asked->decision.has_tenant = true;
    asked->decision.tenant = claim->tenant;
    once_record_id(once_secret(call->once), claim->tenant, claim->key, asked->decision.record);
}

/* After the call: escalates and logs. */
static void note(const struct api_call *call, struct asked *asked, enum once_verb verb, once_result result,
                 const struct once_reply *reply)
{
    note_unknown(call, verb, result, reply);
    if (call->log == NULL)
        return;
    asked->decision.duration_ns = once_os_monotonic_ns() - asked->began_ns;
    decision_take_reply(&asked->decision, result, reply);
    decisions_note(call->log, &asked->decision);
}

/* Common end of all verbs. */
static void answer_result(struct api_call *call, once_result result, struct once_reply *reply,
                          const struct once_error *err)
{
    if (result == ONCE_OK) {
        answer_reply(call, reply);
        return;
    }
    once_reply_release(reply);
    api_answer_error(&call->answer, err);
}

/* ---------------------------------------------------------------- claim */

static const char *const takeovers[] = {
#define API__NAME(name, text) text,
    ONCE_TAKEOVERS(API__NAME)
};

struct described {
    struct once_http http;
    once_span *headers, *exclude; /* malloc'd */
    bool there;
};

enum { HEADER_COUNT_MAX = 64, EXCLUDE_COUNT_MAX = 64 };

/* `request`: the request to fingerprint, for clients that do not compute fingerprints. */
static void read_request(struct api_input *in, struct described *request)
{
    if (!api_input_enter(in, "request"))
        return;
    request->there = true;
    size_t texts = 0;
    struct once_http *http = &request->http;
    api_input_bytes(in, "method", API_OPTIONAL, &http->method);
    api_input_bytes(in, "path", API_OPTIONAL, &http->path);
    api_input_bytes(in, "query", API_OPTIONAL, &http->query);
    api_input_bytes(in, "body", API_OPTIONAL, &http->body);
    api_input_bool(in, "json", &http->json);
    api_input_texts(in, "headers", 2, HEADER_COUNT_MAX, &request->headers, &texts);
    http->header_count = texts / 2;
    api_input_texts(in, "exclude", 0, EXCLUDE_COUNT_MAX, &request->exclude, &http->exclude_count);
    http->exclude = request->exclude;
    api_input_leave(in);
}

static once_result make_fingerprint(const struct once *once, struct once_claim *claim, struct described *request,
                                    struct once_error *err)
{
    struct once_header headers[HEADER_COUNT_MAX];
    for (size_t i = 0; i < request->http.header_count; i++)
        headers[i] = (struct once_header){ request->headers[2 * i], request->headers[2 * i + 1] };
    request->http.headers = headers;
    return once_fingerprint_http(once, claim->tenant, &request->http, &claim->fingerprint, err);
}

/* Only the gateway, which authenticates its clients, may allow the daemon's credentials for a stored request; here any
 * local program can claim (COMPLETER-2). */
static void read_stored_request(struct api_input *in, struct once_claim *claim)
{
    struct once_resend resend;
    if (api_input_bytes(in, "stored_request", API_OPTIONAL, &claim->request) &&
        once_resend_get(claim->request, &resend, NULL) == ONCE_OK && resend.identity)
        api_input_fail(in, "stored_request", ONCE_INVALID, "must not ask for the daemon's credentials");
}

static void read_claim(struct api_input *in, struct once_claim *claim, struct described *request)
{
    size_t takeover = 0;
    api_input_bytes(in, "tenant", API_OPTIONAL, &claim->tenant);
    api_input_bytes(in, "key", API_REQUIRED, &claim->key);
    if (api_input_has(in, "fingerprint") && api_input_has(in, "request"))
        api_input_fail(in, "request", ONCE_INVALID, "and 'fingerprint' exclude each other");
    api_input_hex(in, "fingerprint", API_OPTIONAL, claim->fingerprint.bytes, sizeof claim->fingerprint.bytes);
    read_request(in, request);
    api_input_int(in, "lease_ms", 0, ONCE_LEASE_MS_MAX, &claim->lease_ms);
    if (api_input_is(in, "retention_ms", "never"))
        claim->retention_ms = ONCE_NEVER;
    else
        api_input_int(in, "retention_ms", 0, ONCE_RETENTION_MS_MAX, &claim->retention_ms);
    if (api_input_is(in, "body_retention_ms", "never"))
        claim->body_retention_ms = ONCE_NEVER;
    else
        api_input_int(in, "body_retention_ms", 0, ONCE_RETENTION_MS_MAX, &claim->body_retention_ms);
    api_input_int(in, "wait_ms", 0, API_WAIT_MS_MAX, &claim->wait_ms);
    if (api_input_word(in, "takeover", API_OPTIONAL, takeovers, sizeof takeovers / sizeof *takeovers, &takeover))
        claim->takeover = (enum once_takeover)(takeover + 1);
    api_input_bool(in, "intent", &claim->intent);
    api_input_bytes(in, "route", API_OPTIONAL, &claim->route);
    api_input_bool(in, "key_time", &claim->key_time);
    read_stored_request(in, claim);
    if (!api_input_hex(in, "nonce", API_OPTIONAL, claim->nonce, sizeof claim->nonce))
        once_os_random(claim->nonce, sizeof claim->nonce);
}

/* Whether the client closed its side. */
static bool is_gone(int fd)
{
    struct pollfd poll_fd = { .fd = fd, .events = POLLRDHUP };
    return poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/* Claims, and waits in steps, so that the wait ends soon if the listener stops or the client hangs up. */
static once_result claim_in_steps(const struct api_call *call, struct once_claim *claim, struct once_reply *reply,
                                  struct once_error *err)
{
    enum { STEP_MS = 1000 };
    if (claim->wait_ms == 0)
        return once_claim(call->once, claim, reply, err);
    once_time until = once_os_monotonic_ms() + claim->wait_ms;
    int64_t left = claim->wait_ms;
    for (;;) {
        claim->wait_ms = left < STEP_MS ? left : STEP_MS;
        once_result r = once_claim_step(call->once, claim, reply, err);
        left = until - once_os_monotonic_ms();
        if (r != ONCE_OK || reply->arm != ONCE_ARM_IN_PROGRESS || left <= 0 || atomic_load(call->ending) ||
            is_gone(call->fd)) {
            if (r == ONCE_OK && reply->arm == ONCE_ARM_IN_PROGRESS)
                once_claim_gave_up(call->once, claim);
            return r;
        }
        once_reply_release(reply);
    }
}

void api_claim(struct api_call *call)
{
    struct api_input in;
    struct once_claim claim = { 0 };
    struct described request = { 0 };
    struct once_reply reply = { 0 };
    struct once_error err;
    if (api_input_parse(&in, call->body) == ONCE_OK)
        read_claim(&in, &claim, &request);
    if (api_call_accept(call, &in)) {
        once_result r = ONCE_OK;
        struct asked asked;
        ask_claim(call, &claim, &asked);
        if (request.there)
            r = make_fingerprint(call->once, &claim, &request, &err);
        if (r == ONCE_OK)
            r = claim_in_steps(call, &claim, &reply, &err);
        note(call, &asked, ONCE_VERB_CLAIM, r, &reply);
        if (reply.record.state != ONCE_STATE_NONE) {
            reply.record.tenant = claim.tenant;
            reply.record.key = claim.key; /* some stores do not keep it */
        }
        answer_result(call, r, &reply, &err);
    }
    free(request.headers);
    free(request.exclude);
    api_input_release(&in);
}

/* ---------------------------------------------------------------- holders */

static void read_grant(struct api_input *in, struct once_grant *grant)
{
    api_input_hex(in, "record", API_REQUIRED, grant->record, sizeof grant->record);
    api_input_uint(in, "fence", API_REQUIRED, &grant->fence);
}

/* If the budget has no room for the answer, the grant stays until its lease is over; a repeated call with the same
 * nonce gets it. */
void api_take_over(struct api_call *call)
{
    struct api_input in;
    struct once_take_over take_over = { 0 };
    struct once_reply reply = { 0 };
    struct once_error err;
    if (api_input_parse(&in, call->body) == ONCE_OK) {
        read_grant(&in, &take_over.seen);
        api_input_int(&in, "lease_ms", 0, ONCE_LEASE_MS_MAX, &take_over.lease_ms);
        api_input_bool(&in, "intent", &take_over.intent);
        if (!api_input_hex(&in, "nonce", API_OPTIONAL, take_over.nonce, sizeof take_over.nonce))
            once_os_random(take_over.nonce, sizeof take_over.nonce);
    }
    if (api_call_accept(call, &in)) {
        struct asked asked;
        ask(call, ONCE_VERB_TAKE_OVER, &take_over.seen, &asked);
        once_result r = once_take_over(call->once, &take_over, &reply, &err);
        note(call, &asked, ONCE_VERB_TAKE_OVER, r, &reply);
        answer_result(call, r, &reply, &err);
    }
    api_input_release(&in);
}

void api_extend(struct api_call *call)
{
    struct api_input in;
    struct once_grant grant = { 0 };
    int64_t lease_ms = 0;
    struct once_reply reply = { 0 };
    struct once_error err;
    if (api_input_parse(&in, call->body) == ONCE_OK) {
        read_grant(&in, &grant);
        api_input_int(&in, "lease_ms", 0, ONCE_LEASE_MS_MAX, &lease_ms);
    }
    if (api_call_accept(call, &in))
        answer_result(call, once_extend(call->once, grant, lease_ms, &reply, &err), &reply, &err);
    api_input_release(&in);
}

void api_advance(struct api_call *call)
{
    struct api_input in;
    struct once_grant grant = { 0 };
    once_span point = { 0 }, checkpoint = { 0 };
    struct once_reply reply = { 0 };
    struct once_error err;
    if (api_input_parse(&in, call->body) == ONCE_OK) {
        read_grant(&in, &grant);
        api_input_bytes(&in, "point", API_REQUIRED, &point);
        api_input_bytes(&in, "checkpoint", API_OPTIONAL, &checkpoint);
    }
    if (api_call_accept(call, &in))
        answer_result(call, once_advance(call->once, grant, point, checkpoint, &reply, &err), &reply, &err);
    api_input_release(&in);
}

static void read_outcome(struct api_input *in, struct once_outcome *outcome)
{
    static const char *const states[] = { "succeeded", "failed", "unknown" };
    static const enum once_state of[] = { ONCE_STATE_SUCCEEDED, ONCE_STATE_FAILED, ONCE_STATE_UNKNOWN };
    size_t state = 0;
    int64_t status = 0;
    if (api_input_word(in, "state", API_REQUIRED, states, sizeof states / sizeof *states, &state))
        outcome->state = of[state];
    api_input_bool(in, "retryable", &outcome->retryable);
    api_input_bool(in, "undelivered", &outcome->undelivered);
    api_input_bool(in, "body_dropped", &outcome->body_dropped);
    api_input_int(in, "status", INT32_MIN, INT32_MAX, &status);
    outcome->status = (int32_t)status;
    api_input_bytes(in, "headers", API_OPTIONAL, &outcome->headers);
    api_input_bytes(in, "body", API_OPTIONAL, &outcome->body);
}

void api_finish(struct api_call *call)
{
    struct api_input in;
    struct once_grant grant = { 0 };
    struct once_outcome outcome = { 0 };
    struct once_reply reply = { 0 };
    struct once_error err;
    if (api_input_parse(&in, call->body) == ONCE_OK) {
        read_grant(&in, &grant);
        read_outcome(&in, &outcome);
    }
    if (api_call_accept(call, &in)) {
        struct asked asked;
        ask(call, ONCE_VERB_FINISH, &grant, &asked);
        once_result r = once_finish(call->once, grant, &outcome, &reply, &err);
        note(call, &asked, ONCE_VERB_FINISH, r, &reply);
        answer_result(call, r, &reply, &err);
    }
    api_input_release(&in);
}

void api_release(struct api_call *call)
{
    struct api_input in;
    struct once_grant grant = { 0 };
    struct once_reply reply = { 0 };
    struct once_error err;
    if (api_input_parse(&in, call->body) == ONCE_OK)
        read_grant(&in, &grant);
    if (api_call_accept(call, &in)) {
        struct asked asked;
        ask(call, ONCE_VERB_RELEASE, &grant, &asked);
        once_result r = once_release(call->once, grant, &reply, &err);
        note(call, &asked, ONCE_VERB_RELEASE, r, &reply);
        answer_result(call, r, &reply, &err);
    }
    api_input_release(&in);
}

/* ---------------------------------------------------------------- others */

void api_child_key(struct api_call *call)
{
    struct api_input in;
    struct once_grant grant = { 0 };
    once_span name = { 0 };
    char key[ONCE_CHILD_KEY_LEN + 1];
    if (api_input_parse(&in, call->body) == ONCE_OK) {
        api_input_hex(&in, "record", API_REQUIRED, grant.record, sizeof grant.record);
        api_input_bytes(&in, "call", API_REQUIRED, &name);
    }
    if (api_call_accept(call, &in)) {
        once_child_key(call->once, &grant, name, key);
        struct once_json json = { .file = api_answer_begin(&call->answer, 200, type_json) };
        if (json.file != NULL) {
            once_json_open(&json, NULL, '{');
            once_json_text(&json, "child_key", key);
            once_json_close(&json);
            api_answer_end(&call->answer);
        }
    }
    api_input_release(&in);
}

enum { LOOKUP_TENANT, LOOKUP_KEY, LOOKUP_RECORD, LOOKUP_PARAMETERS };

static void look_up_key(struct api_call *call, once_span tenant, once_span key)
{
    struct once_reply reply = { 0 };
    struct once_error err;
    once_result r = once_lookup(call->once, tenant, key, &reply, &err);
    if (reply.record.state != ONCE_STATE_NONE)
        reply.record.key = key; /* some stores do not keep it */
    answer_result(call, r, &reply, &err);
}

static void look_up_record(struct api_call *call, once_span text)
{
    struct once_reply reply = { 0 };
    struct once_error err;
    uint8_t record[16];
    if (once_record_id_read(text, record))
        answer_result(call, once_lookup_record(call->once, record, &reply, &err), &reply, &err);
    else
        api_answer_problem(&call->answer, API_PROBLEM_INVALID, "record", "parameter 'record' must be 32 hex digits");
}

void api_lookup(struct api_call *call)
{
    struct api_parameter p[] = { { .name = "tenant" }, { .name = "key" }, { .name = "record" } };
    for (int i = 0; i < LOOKUP_PARAMETERS; i++)
        once_buf_init(&p[i].value, ONCE_KEY_LEN_MAX + 1); /* one byte more: the library reports the limit */
    if (api_query_read(call, p, LOOKUP_PARAMETERS)) {
        if (p[LOOKUP_RECORD].there && (p[LOOKUP_KEY].there || p[LOOKUP_TENANT].there))
            api_answer_problem(&call->answer, API_PROBLEM_INVALID, "record",
                               "parameter 'record' cannot be combined with 'tenant' and 'key'");
        else if (p[LOOKUP_RECORD].there)
            look_up_record(call, once_buf_span(&p[LOOKUP_RECORD].value));
        else if (p[LOOKUP_KEY].there)
            look_up_key(call, once_buf_span(&p[LOOKUP_TENANT].value), once_buf_span(&p[LOOKUP_KEY].value));
        else
            api_answer_problem(&call->answer, API_PROBLEM_INVALID, "key", "parameter 'key' is missing");
    }
    for (int i = 0; i < LOOKUP_PARAMETERS; i++)
        once_buf_release(&p[i].value);
}
