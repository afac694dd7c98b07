/*
 * outbox.c - messages that wait to be published, and dead letters; as `once outbox` shows them.
 *
 * One connection of its own, opened when it is first needed, again after a failure, and used by one
 * thread at a time.
 */
#include "messages/outbox/outbox.h"

#include "core/err.h"
#include "core/span.h"
#include "daemon/api/query.h"
#include "daemon/console/parts.h"

#include <stdlib.h>

static struct console *console_of(const struct api_call *call)
{
    return call->context;
}

/* With the lock. */
static once_result connect_outbox(struct console *console, struct once_error *err)
{
    if (console->options.outbox == NULL)
        return once_fail(err, ONCE_INVALID, "no outbox is looked after here: --console-outbox URL names one");
    return console->outbox != NULL ? ONCE_OK : outbox_open(console->options.outbox, &console->outbox, err);
}

/* With the lock: after a failure the next one connects anew. */
static void forget_if_lost(struct console *console, once_result r)
{
    if (r != ONCE_UNAVAILABLE && r != ONCE_UNKNOWN)
        return;
    outbox_close(console->outbox);
    console->outbox = NULL;
}

void console_outbox_close(struct console *console)
{
    outbox_close(console->outbox);
    console->outbox = NULL;
}

bool console_outbox_counts(struct console *console, struct outbox_counts *counts)
{
    if (console->options.outbox == NULL)
        return false;
    pthread_mutex_lock(&console->outbox_lock);
    once_result r = connect_outbox(console, NULL);
    if (r == ONCE_OK)
        r = outbox_counts(console->outbox, counts, NULL);
    forget_if_lost(console, r);
    pthread_mutex_unlock(&console->outbox_lock);
    return r == ONCE_OK;
}

/* ---------------------------------------------------------------- listing */

struct shown {
    struct once_json *json;
    bool payload;
    once_span key; /* only those of this message key; empty: all */
    size_t count, looked;
};

static void put_item(void *arg, const struct message_item *item)
{
    const struct outbox_item *o = (const struct outbox_item *)item;
    const struct message *m = &item->message;
    struct shown *shown = arg;
    struct once_json *json = shown->json;
    shown->looked++;
    if (shown->key.len > 0 && (!once_span_equal(m->key, shown->key) || shown->count == CONSOLE_OUTBOX_LIMIT_MAX))
        return;
    shown->count++;
    once_json_open(json, NULL, '{');
    once_json_text(json, "id", m->id);
    once_json_text(json, "state", item->state);
    once_json_bytes(json, "topic", m->topic);
    if (m->has_key)
        once_json_bytes(json, "message_key", m->key);
    once_json_time(json, "created_at", o->created_at);
    once_json_time(json, "at", item->at);
    once_json_int(json, "refusals", m->refusals);
    once_json_int(json, "delays", o->delays);
    once_json_int(json, "crashes", m->crashes);
    once_json_bytes(json, "reason", item->reason);
    once_json_bytes(json, "content_type", m->content_type);
    if (shown->payload) {
        once_json_bytes(json, "headers", m->headers);
        once_json_uint(json, "body_len", m->payload.len);
        once_json_bytes(json, "body", m->payload);
    }
    once_json_close(json);
}

static bool states_are_known(once_span states)
{
    static const char *const known[] = { "pending", "retrying", "blocked", "scheduled", "dead" };
    while (states.len > 0) {
        once_span one;
        bool found = false;
        once_span_cut(states, ',', &one, &states);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found |= once_span_equal(one, once_span_str(known[i]));
        if (!found)
            return false;
    }
    return true;
}

/* Looks, with the lock, and answers. */
static void answer_look(struct api_call *call, const char *id, const char *states, const char *topic, once_span key)
{
    struct console *console = console_of(call);
    struct once_error err;
    struct once_json json;
    struct shown shown = { .json = &json, .payload = id != NULL, .key = key };
    int32_t most = key.len > 0 ? CONSOLE_OUTBOX_SCAN_MAX : CONSOLE_OUTBOX_LIMIT_MAX;
    once_result r = connect_outbox(console, &err);
    if (r == ONCE_OK && console_answer_begin(call, &json)) {
        once_json_open(&json, "messages", '[');
        struct message_filter filter = { .states = states, .topic_prefix = topic, .most = most };
        r = outbox_query(console->outbox, id, id == NULL ? &filter : NULL, put_item, &shown, &err);
        once_json_close(&json);
        once_json_bool(&json, "more", shown.looked == (size_t)most);
        console_answer_end(call, &json);
    }
    if (r != ONCE_OK)
        api_answer_error(&call->answer, &err);
    forget_if_lost(console, r);
}

void console_outbox(struct api_call *call)
{
    struct api_parameter parameters[] = { { .name = "states" }, { .name = "topic" }, { .name = "message_key" } };
    char states[64] = "", topic[ONCE_TOPIC_LEN_MAX + 1] = "";
    once_buf_init(&parameters[0].value, sizeof states - 1);
    once_buf_init(&parameters[1].value, sizeof topic - 1);
    once_buf_init(&parameters[2].value, ONCE_KEY_LEN_MAX);
    if (api_query_read(call, parameters, 3)) {
        once_span wanted = once_buf_span(&parameters[0].value);
        snprintf(states, sizeof states, "%.*s", ONCE_SPAN_ARGS(wanted));
        snprintf(topic, sizeof topic, "%.*s", ONCE_SPAN_ARGS(once_buf_span(&parameters[1].value)));
        if (!states_are_known(wanted)) {
            api_answer_problem(&call->answer, API_PROBLEM_INVALID, "states", "parameter 'states' cannot be that");
        } else {
            pthread_mutex_lock(&console_of(call)->outbox_lock);
            answer_look(call, NULL, states, topic, once_buf_span(&parameters[2].value));
            pthread_mutex_unlock(&console_of(call)->outbox_lock);
        }
    }
    for (int i = 0; i < 3; i++)
        once_buf_release(&parameters[i].value);
}

/* ---------------------------------------------------------------- one message */

static void read_id(struct api_input *in, char id[ONCE_UUID_LEN + 1])
{
    once_span text = { 0 };
    if (!api_input_bytes(in, "id", API_REQUIRED, &text))
        return;
    bool good = text.len == ONCE_UUID_LEN;
    for (size_t i = 0; good && i < ONCE_UUID_LEN; i++)
        good = i == 8 || i == 13 || i == 18 || i == 23
                   ? text.ptr[i] == '-'
                   : text.ptr[i] != '\0' && strchr("0123456789abcdefABCDEF", text.ptr[i]) != NULL;
    if (!good)
        api_input_fail(in, "id", ONCE_INVALID, "is no message id");
    else
        memcpy(id, text.ptr, ONCE_UUID_LEN);
}

void console_outbox_reveal(struct api_call *call)
{
    struct console *console = console_of(call);
    struct api_input in;
    char id[ONCE_UUID_LEN + 1] = "", name[CONSOLE_NAME_LEN_MAX + 1];
    if (api_input_parse(&in, call->body) == ONCE_OK)
        read_id(&in, id);
    if (api_call_accept(call, &in)) {
        console_name_of(call, name);
        console_log_note(&console->log, name, NULL, (once_span){ 0 }, (once_span){ 0 }, "revealed message %s", id);
        pthread_mutex_lock(&console->outbox_lock);
        answer_look(call, id, "", "", (once_span){ 0 });
        pthread_mutex_unlock(&console->outbox_lock);
    }
    api_input_release(&in);
}

void console_outbox_action(struct api_call *call)
{
    static const char *const actions[] = { "retry", "drop" };
    struct console *console = console_of(call);
    struct api_input in;
    once_span reason = { 0 };
    size_t action = 0;
    char id[ONCE_UUID_LEN + 1] = "", did[16] = "", name[CONSOLE_NAME_LEN_MAX + 1], actor[CONSOLE_NAME_LEN_MAX + 16];
    if (api_input_parse(&in, call->body) == ONCE_OK) {
        read_id(&in, id);
        api_input_word(&in, "action", API_REQUIRED, actions, sizeof actions / sizeof *actions, &action);
        if (api_input_bytes(&in, "reason", API_REQUIRED, &reason) &&
            (reason.len == 0 || reason.len > ONCE_REASON_LEN_MAX))
            api_input_fail(&in, "reason", ONCE_INVALID, "must be 1 to %d bytes", ONCE_REASON_LEN_MAX);
    }
    if (api_call_accept(call, &in)) {
        struct once_error err;
        struct once_json json;
        console_name_of(call, name);
        snprintf(actor, sizeof actor, "%s (console)", name);
        pthread_mutex_lock(&console->outbox_lock);
        once_result r = connect_outbox(console, &err);
        if (r == ONCE_OK)
            r = outbox_resolve(console->outbox, id, actions[action], once_span_str(actor), reason, did, &err);
        forget_if_lost(console, r);
        pthread_mutex_unlock(&console->outbox_lock);
        if (r != ONCE_OK) {
            api_answer_error(&call->answer, &err);
        } else {
            console_log_note(&console->log, name, NULL, (once_span){ 0 }, (once_span){ 0 }, "message %s: %s: %s", id,
                             actions[action], did);
            if (console_answer_begin(call, &json)) {
                once_json_text(&json, "did", did);
                console_answer_end(call, &json);
            }
        }
    }
    api_input_release(&in);
}
