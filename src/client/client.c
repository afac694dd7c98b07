/*
 * client.c - one request under one key, sent until there is a final answer (once_client.h).
 *
 * Model:      the request is saved, then sent. retry.c judges the result of each try; between tries there is a pause,
 *             longer after a Retry-After. Tries and time are bounded; if a pause does not fit into the time left, the
 *             call ends.
 * Invariants: CLIENT-1 nothing is sent before `save` returned ONCE_OK.
 *             CLIENT-2 all tries, also of a resumed request, have the same key, method, URL and body, byte for byte.
 *             CLIENT-3 NOT_REACHED only if no try of this call sent a byte (CLIENT-CALL-2).
 * Not here:   where requests are saved (the caller decides; `once send`: src/send/folder.h).
 */
#include "client/call.h"
#include "client/retry.h"
#include "client/saved.h"
#include "core/err.h"
#include "core/http/header.h"
#include "core/span.h"
#include "http/curl.h"
#include "os/crash_point.h"
#include "os/os.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <strings.h>

struct once_client {
    struct once_client_options options; /* defaults filled in */
    CURLM *multi;
    CURL *curl;
};

const char *once_client_end_name(enum once_client_end end)
{
    switch (end) {
#define CASE(name, text)                                                                                               \
    case ONCE_CLIENT_##name:                                                                                           \
        return text;
        ONCE_CLIENT_ENDS(CASE)
#undef CASE
    case ONCE_CLIENT_END_NONE:
        break;
    }
    return "none";
}

/* ------------------------------------------------------------------ open, close */

static bool fill_time(int64_t *ms, int64_t standard)
{
    if (*ms == 0)
        *ms = standard;
    return *ms > 0 && *ms <= ONCE_CLIENT_TIME_MS_MAX;
}

static once_result fill_options(struct once_client_options *o, struct once_error *err)
{
    bool standard = o->key_header == NULL || strcasecmp(o->key_header, "Idempotency-Key") == 0;
    if (o->key_header == NULL)
        o->key_header = "Idempotency-Key";
    if (o->format == ONCE_CLIENT_FORMAT_DEFAULT)
        o->format = standard ? ONCE_CLIENT_FORMAT_SF : ONCE_CLIENT_FORMAT_BARE;
    if (o->tries == 0)
        o->tries = ONCE_CLIENT_TRIES_DEFAULT;
    if (o->answer_len_max == 0)
        o->answer_len_max = ONCE_CLIENT_ANSWER_LEN_DEFAULT;
    bool times = fill_time(&o->max_time_ms, ONCE_CLIENT_MAX_TIME_MS_DEFAULT) &&
                 fill_time(&o->try_ms, ONCE_CLIENT_TRY_MS_DEFAULT) &&
                 fill_time(&o->connect_ms, ONCE_CLIENT_CONNECT_MS_DEFAULT) &&
                 fill_time(&o->backoff_ms, ONCE_CLIENT_BACKOFF_MS_DEFAULT) &&
                 fill_time(&o->backoff_ms_max, ONCE_CLIENT_BACKOFF_MS_MAX_DEFAULT);
    if (!times)
        return once_fail(err, ONCE_INVALID, "a time is negative, or longer than 24h");
    if (!client_is_token(once_span_str(o->key_header)))
        return once_fail(err, ONCE_INVALID, "'%.100s' is not a header name", o->key_header);
    if (o->format > ONCE_CLIENT_FORMAT_BARE)
        return once_fail(err, ONCE_INVALID, "the format of keys is not valid");
    if (o->tries > ONCE_CLIENT_TRIES_MAX)
        return once_fail(err, ONCE_INVALID, "more than %d tries", ONCE_CLIENT_TRIES_MAX);
    if (o->answer_len_max > ONCE_CLIENT_ANSWER_LEN_MAX)
        return once_fail(err, ONCE_INVALID, "answer_len_max is more than %d bytes", ONCE_CLIENT_ANSWER_LEN_MAX);
    if (o->stop_fd < 0)
        return once_fail(err, ONCE_INVALID, "stop_fd is not a descriptor");
    return ONCE_OK;
}

/* Sets the options that do not change between tries. */
static bool prepare(CURL *curl, const struct once_client_options *o)
{
    bool ok = true;
#define SET(option, value) ok = ok && curl_easy_setopt(curl, option, value) == CURLE_OK
    SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    if (o->cert_file != NULL)
        SET(CURLOPT_SSLCERT, o->cert_file);
    if (o->cert_key_file != NULL)
        SET(CURLOPT_SSLKEY, o->cert_key_file);
    if (o->proxy != NULL)
        SET(CURLOPT_PROXY, o->proxy);
#undef SET
    return ok;
}

once_result once_client_open(const struct once_client_options *options, struct once_client **out,
                             struct once_error *err)
{
    struct once_client_options filled = options != NULL ? *options : (struct once_client_options){ 0 };
    once_result r = fill_options(&filled, err);
    if (r != ONCE_OK)
        return r;
    struct once_client *client = http_curl_init() ? calloc(1, sizeof *client) : NULL;
    if (client == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a client");
    client->options = filled;
    client->multi = curl_multi_init();
    client->curl = curl_easy_init();
    if (client->multi == NULL || client->curl == NULL || !prepare(client->curl, &filled)) {
        once_client_close(client);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a client, or libcurl lacks a feature");
    }
    *out = client;
    return ONCE_OK;
}

void once_client_close(struct once_client *client)
{
    if (client == NULL)
        return;
    curl_easy_cleanup(client->curl);
    curl_multi_cleanup(client->multi);
    free(client);
}

/* ------------------------------------------------------------------ headers */

/* The header lines of a request: those that may be saved, and the secret ones. */
struct lines {
    struct once_buf open, secret; /* "Name: value\r\n" */
    struct once_buf withheld;     /* "Name\n" of the secret ones */
};

static void lines_init(struct lines *lines)
{
    once_buf_init(&lines->open, ONCE_CLIENT_HEADERS_LEN_MAX);
    once_buf_init(&lines->secret, ONCE_CLIENT_HEADERS_LEN_MAX);
    once_buf_init(&lines->withheld, ONCE_CLIENT_HEADERS_LEN_MAX);
}

static void lines_release(struct lines *lines)
{
    once_buf_release(&lines->open);
    once_buf_release(&lines->secret);
    once_buf_release(&lines->withheld);
}

static once_result lines_read(const struct once_client_options *o, const once_span *headers, size_t count,
                              struct lines *lines, struct once_error *err)
{
    if (count > ONCE_CLIENT_HEADER_COUNT_MAX)
        return once_fail(err, ONCE_LIMIT, "more than %d headers", ONCE_CLIENT_HEADER_COUNT_MAX);
    for (size_t i = 0; i < count; i++) {
        once_span name, value;
        once_result r = client_header_check(headers[i], once_span_str(o->key_header), &name, &value, err);
        if (r != ONCE_OK)
            return r;
        bool secret = client_is_secret(name) && !o->save_secrets;
        once_header_add(secret ? &lines->secret : &lines->open, name, value);
        if (secret) {
            once_buf_add(&lines->withheld, name);
            once_buf_add_byte(&lines->withheld, '\n');
        }
    }
    once_result r = lines->open.result != ONCE_OK ? lines->open.result : lines->secret.result;
    if (r == ONCE_OK)
        r = lines->withheld.result;
    return r == ONCE_OK ? ONCE_OK
                        : once_fail(err, r, "the headers are longer than %d bytes", ONCE_CLIENT_HEADERS_LEN_MAX);
}

static bool append_lines(struct curl_slist **list, once_span lines, bool *has_type)
{
    once_span name, value;
    while (once_header_line(&lines, &name, &value)) {
        if (!http_header_add(list, name, value))
            return false;
        *has_type = *has_type || once_header_is(name, "Content-Type");
    }
    return true;
}

/* As a list for libcurl; NULL: no memory. */
static struct curl_slist *make_headers(const struct once_client_saved *s, once_span secret)
{
    struct curl_slist *list = NULL;
    struct once_buf key;
    bool type = false;
    once_buf_init(&key, 2 * ONCE_KEY_LEN_MAX + 2);
    client_key_write(&key, s->key, s->format);
    bool whole = key.result == ONCE_OK && http_header_add(&list, s->key_header, once_buf_span(&key)) &&
                 http_header_drop(&list, "Expect") && append_lines(&list, s->headers, &type) &&
                 append_lines(&list, secret, &type) && (type || http_header_drop(&list, "Content-Type"));
    once_buf_release(&key);
    if (whole)
        return list;
    curl_slist_free_all(list);
    return NULL;
}

/* ------------------------------------------------------------------ one call */

struct sending {
    struct once_client *client;
    struct client_call call;
    struct client_result result; /* of the last try */
    struct client_result whole;  /* the last complete answer */
    bool has_whole, sent, lost, in_progress;
    int64_t deadline; /* by the monotonic clock */
    unsigned tries;
    enum once_client_end end;
    char reason[256];
};

static void say_why(struct sending *s)
{
    const struct client_result *r = &s->result;
    if (!r->answered)
        snprintf(s->reason, sizeof s->reason, "%s", r->stopped ? "it was stopped" : r->error);
    else if (r->facts.problem.text[0] != '\0')
        snprintf(s->reason, sizeof s->reason, "HTTP %d: %s", r->facts.status, r->facts.problem.text);
    else
        snprintf(s->reason, sizeof s->reason, "HTTP %d", r->facts.status);
}

/* How the call ends after the last try; NONE: another try follows. */
static enum once_client_end judge_try(struct sending *s)
{
    const struct client_result *r = &s->result;
    s->in_progress = false;
    if (r->stopped)
        return ONCE_CLIENT_STOPPED;
    if (r->untrusted)
        return ONCE_CLIENT_UNTRUSTED;
    if (!r->answered)
        return ONCE_CLIENT_END_NONE;
    switch (client_judge(&r->facts)) {
    case CLIENT_FINAL:
        return r->too_large ? ONCE_CLIENT_TOO_LARGE : ONCE_CLIENT_ANSWERED;
    case CLIENT_MISMATCH:
        return ONCE_CLIENT_MISMATCH;
    case CLIENT_UNKNOWN:
        return ONCE_CLIENT_UNKNOWN;
    case CLIENT_IN_PROGRESS:
        s->in_progress = true;
        return ONCE_CLIENT_END_NONE;
    case CLIENT_AGAIN:
        break;
    }
    return ONCE_CLIENT_END_NONE;
}

static void try_once(struct sending *s, int64_t left)
{
    const struct once_client_options *o = &s->client->options;
    client_result_release(&s->result);
    client_result_init(&s->result, o->answer_len_max);
    s->call.timeout_ms = left < o->try_ms ? left : o->try_ms;
    s->tries++;
    ONCE_CRASH_POINT("client.sending");
    client_call(s->client->multi, s->client->curl, &s->call, &s->result);
    ONCE_CRASH_POINT("client.answered");
    s->sent = s->sent || s->result.sent;
    s->lost = s->lost || (s->result.sent && !s->result.answered);
    say_why(s);
    s->end = judge_try(s);
    if (s->result.answered) {
        struct client_result older = s->whole;
        s->whole = s->result;
        s->result.head = older.head; /* the two results swap their buffers */
        s->result.body = older.body;
        s->has_whole = true;
    }
}

static enum once_client_end end_without_answer(const struct sending *s)
{
    return s->in_progress ? ONCE_CLIENT_IN_PROGRESS : s->sent ? ONCE_CLIENT_GAVE_UP : ONCE_CLIENT_NOT_REACHED;
}

/* False: stopped. */
static bool pause_for(int64_t ms, int stop_fd)
{
    int64_t until = once_os_monotonic_ms() + ms;
    for (;;) {
        int64_t left = until - once_os_monotonic_ms();
        if (left <= 0)
            return true;
        struct pollfd stop = { .fd = stop_fd, .events = POLLIN };
        if (poll(&stop, stop_fd > 0, left < 60000 ? (int)left : 60000) > 0 && stop.revents != 0)
            return false;
    }
}

/* Pauses before the next try. False: there is no next try; s->end is set. */
static bool wait_for_next(struct sending *s)
{
    const struct once_client_options *o = &s->client->options;
    uint32_t random;
    once_os_random(&random, sizeof random);
    int64_t asked = s->result.answered && s->result.facts.retry_after ? s->result.retry_after_ms : 0;
    int64_t wait = client_wait_ms(s->tries, o->backoff_ms, o->backoff_ms_max, asked, random);
    if (s->tries == o->tries || wait >= s->deadline - once_os_monotonic_ms()) {
        s->end = end_without_answer(s);
        return false;
    }
    if (o->on_try != NULL)
        o->on_try(o->on_try_arg, &(struct once_client_try){ .number = s->tries,
                                                            .status = s->result.answered ? s->result.facts.status : 0,
                                                            .in_progress = s->in_progress,
                                                            .reason = s->reason,
                                                            .wait_ms = wait });
    if (pause_for(wait, o->stop_fd))
        return true;
    s->end = ONCE_CLIENT_STOPPED;
    return false;
}

static void send_until_ended(struct sending *s)
{
    do {
        int64_t left = s->deadline - once_os_monotonic_ms();
        if (left <= 0) {
            s->end = end_without_answer(s);
            return;
        }
        try_once(s, left);
    } while (s->end == ONCE_CLIENT_END_NONE && wait_for_next(s));
    assert(s->end != ONCE_CLIENT_END_NONE);
}

/* The memory of an answer's spans. */
struct memory {
    struct once_buf head, body;
};

static void write_answer(struct sending *s, const struct once_client_saved *saved, struct memory *memory,
                         struct once_client_answer *answer)
{
    *answer = (struct once_client_answer){ .end = s->end, .tries = s->tries, .lost = s->lost, .memory = memory };
    snprintf(answer->reason, sizeof answer->reason, "%s", s->reason);
    memcpy(answer->key, saved->key.ptr, saved->key.len);
    once_buf_init(&memory->head, 0);
    once_buf_init(&memory->body, 0);
    if (!s->has_whole)
        return;
    memory->head = s->whole.head;
    memory->body = s->whole.body;
    once_buf_init(&s->whole.head, 0);
    once_buf_init(&s->whole.body, 0);
    answer->status = s->whole.facts.status;
    answer->replayed = s->whole.facts.replayed;
    answer->end_marked = s->whole.end_marked;
    answer->retry_after_ms = s->whole.facts.retry_after ? s->whole.retry_after_ms : 0;
    answer->head = once_buf_span(&memory->head);
    answer->body = once_buf_span(&memory->body);
}

/* `saved` was checked; `secret` are the header lines that are not saved. */
static once_result send_saved(struct once_client *client, const struct once_client_saved *saved, once_span secret,
                              struct once_client_answer *answer, struct once_error *err)
{
    char url[ONCE_CLIENT_URL_LEN_MAX + 1], agent[64];
    struct memory *memory = malloc(sizeof *memory);
    struct curl_slist *headers = make_headers(saved, secret);
    if (memory == NULL || headers == NULL) {
        free(memory);
        curl_slist_free_all(headers);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a request");
    }
    memcpy(url, saved->url.ptr, saved->url.len);
    url[saved->url.len] = '\0';
    snprintf(agent, sizeof agent, "once/%s", once_version());
    struct sending s = {
        .client = client,
        .call = { .url = url,
                  .method = saved->method,
                  .headers = headers,
                  .body = saved->body,
                  .connect_ms = client->options.connect_ms,
                  .user_agent = agent,
                  .ca_file = client->options.ca_file,
                  .stop_fd = client->options.stop_fd },
        .deadline = once_os_monotonic_ms() + client->options.max_time_ms,
    };
    client_result_init(&s.result, client->options.answer_len_max);
    client_result_init(&s.whole, client->options.answer_len_max);
    send_until_ended(&s);
    write_answer(&s, saved, memory, answer);
    client_result_release(&s.result);
    client_result_release(&s.whole);
    curl_slist_free_all(headers);
    return ONCE_OK;
}

/* ------------------------------------------------------------------ the calls */

static struct once_client_saved describe(const struct once_client *client, const struct once_client_request *request,
                                         once_span key, const struct lines *lines)
{
    return (struct once_client_saved){
        .created_at = once_os_clock.wall(once_os_clock.arg),
        .key = key,
        .key_header = once_span_str(client->options.key_header),
        .format = client->options.format,
        .method = request->method,
        .url = once_span_str(request->url),
        .headers = once_buf_span(&lines->open),
        .withheld = once_buf_span(&lines->withheld),
        .body = request->body,
    };
}

once_result once_client_send(struct once_client *client, const struct once_client_request *request,
                             struct once_client_answer *answer, struct once_error *err)
{
    char fresh[ONCE_UUID_LEN + 1];
    struct lines lines;
    struct once_buf bytes;
    once_span key = request->key;
    *answer = (struct once_client_answer){ .end = ONCE_CLIENT_END_NONE };
    if (key.len == 0) {
        once_key_new(fresh);
        key = once_span_str(fresh);
    }
    lines_init(&lines);
    once_buf_init(&bytes, ONCE_CLIENT_SAVED_LEN_MAX);
    once_result r = lines_read(&client->options, request->headers, request->header_count, &lines, err);
    struct once_client_saved saved = describe(client, request, key, &lines);
    if (r == ONCE_OK)
        r = client_saved_write(&saved, &bytes, err);
    if (r == ONCE_OK && client->options.save != NULL)
        r = client->options.save(client->options.save_arg, key, once_buf_span(&bytes), err);
    if (r == ONCE_OK) {
        ONCE_CRASH_POINT("client.saved");
        r = send_saved(client, &saved, once_buf_span(&lines.secret), answer, err);
    }
    once_buf_release(&bytes);
    lines_release(&lines);
    return r;
}

/* The headers that were withheld must be given again, and no others. */
static once_result withheld_read(const struct once_client_saved *saved, const once_span *headers, size_t count,
                                 struct once_buf *secret, struct once_error *err)
{
    struct once_buf given;
    once_span name, value, left = saved->withheld;
    once_result r = count <= ONCE_CLIENT_HEADER_COUNT_MAX
                        ? ONCE_OK
                        : once_fail(err, ONCE_LIMIT, "more than %d headers", ONCE_CLIENT_HEADER_COUNT_MAX);
    once_buf_init(&given, ONCE_CLIENT_HEADERS_LEN_MAX);
    for (size_t i = 0; i < count && r == ONCE_OK; i++) {
        r = client_header_check(headers[i], saved->key_header, &name, &value, err);
        if (r == ONCE_OK && !once_header_is_listed(name, saved->withheld))
            r = once_fail(err, ONCE_INVALID, "header '%.*s' cannot be added to a request that was saved",
                          ONCE_SPAN_ARGS(name));
        if (r == ONCE_OK) {
            once_header_add(secret, name, value);
            once_buf_add(&given, name);
            once_buf_add_byte(&given, '\n');
        }
    }
    while (r == ONCE_OK && left.len > 0) {
        once_span_cut(left, '\n', &name, &left);
        if (!once_header_is_listed(name, once_buf_span(&given)))
            r = once_fail(err, ONCE_INVALID, "header '%.*s' was not saved: give it again", ONCE_SPAN_ARGS(name));
    }
    if (r == ONCE_OK && (secret->result != ONCE_OK || given.result != ONCE_OK))
        r = once_fail(err, ONCE_LIMIT, "the headers are longer than %d bytes", ONCE_CLIENT_HEADERS_LEN_MAX);
    once_buf_release(&given);
    return r;
}

once_result once_client_resume(struct once_client *client, once_span saved, const once_span *headers,
                               size_t header_count, struct once_client_answer *answer, struct once_error *err)
{
    struct once_client_saved read;
    struct once_buf secret;
    *answer = (struct once_client_answer){ .end = ONCE_CLIENT_END_NONE };
    once_buf_init(&secret, ONCE_CLIENT_HEADERS_LEN_MAX);
    once_result r = once_client_saved_read(saved, &read, err);
    if (r == ONCE_OK)
        r = withheld_read(&read, headers, header_count, &secret, err);
    if (r == ONCE_OK)
        r = send_saved(client, &read, once_buf_span(&secret), answer, err);
    once_buf_release(&secret);
    return r;
}

void once_client_answer_release(struct once_client_answer *answer)
{
    struct memory *memory = answer->memory;
    if (memory != NULL) {
        once_buf_release(&memory->head);
        once_buf_release(&memory->body);
        free(memory);
    }
    *answer = (struct once_client_answer){ .end = ONCE_CLIENT_END_NONE };
}

once_span once_client_answer_header(const struct once_client_answer *answer, const char *wanted)
{
    once_span value;
    return !once_header_find(answer->head, wanted, &value) || value.ptr != NULL ? value : ONCE_LIT("");
}

bool once_client_saved_is(const struct once_client_saved *saved, const struct once_client *client,
                          const struct once_client_request *request)
{
    struct lines lines;
    lines_init(&lines);
    bool same = lines_read(&client->options, request->headers, request->header_count, &lines, NULL) == ONCE_OK;
    if (same) {
        struct once_client_saved other = describe(client, request, request->key, &lines);
        same = once_span_equal(saved->key, other.key) && once_span_equal(saved->key_header, other.key_header) &&
               saved->format == other.format && once_span_equal(saved->method, other.method) &&
               once_span_equal(saved->url, other.url) && once_span_equal(saved->headers, other.headers) &&
               once_span_equal(saved->withheld, other.withheld) && once_span_equal(saved->body, other.body);
    }
    lines_release(&lines);
    return same;
}
