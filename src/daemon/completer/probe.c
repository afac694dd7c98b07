/* probe.c - see probe.h. */
#include "daemon/completer/probe.h"

#include "core/span.h"

#include <stdio.h>
#include <strings.h>

#define STATUS_FIELD "Once-Status"

/* Does it say that a GET is something else? */
static bool is_method(once_span name)
{
    return once_header_is(name, "X-HTTP-Method-Override") || once_header_is(name, "X-HTTP-Method") ||
           once_header_is(name, "X-Method-Override");
}

/* Those of the request that are neither about its body nor about what is done: Host, say. */
static void add_lines(once_span lines, struct once_buf *out)
{
    once_span name, value;
    while (once_header_line(&lines, &name, &value)) {
        bool about_body = name.len > 8 && strncasecmp((const char *)name.ptr, "content-", 8) == 0;
        if (!about_body && !is_method(name) && !once_header_is(name, "Prefer"))
            once_buf_addf(out, "%.*s: %.*s\r\n", ONCE_SPAN_ARGS(name), ONCE_SPAN_ARGS(value));
    }
}

/* The status that the request was answered with: a line is taken out, and its value returned. 0: there is none; -1: it
 * is none, or there are several. */
static int take_status(struct once_buf *headers)
{
    once_span lines = once_buf_span(headers), line, name, value;
    size_t kept = 0;
    int status = 0;
    while (lines.len > 0) {
        once_span whole = lines;
        once_header_line(&lines, &name, &value);
        line = once_span_of(whole.ptr, whole.len - lines.len);
        if (!once_header_is(name, STATUS_FIELD)) {
            memmove(headers->ptr + kept, line.ptr, line.len);
            kept += line.len;
            continue;
        }
        bool good = status == 0 && value.len == 3;
        int said = 0;
        for (size_t i = 0; good && i < value.len; i++) {
            good = value.ptr[i] >= '0' && value.ptr[i] <= '9';
            said = 10 * said + (value.ptr[i] - '0');
        }
        status = good && said >= 200 ? said : -1;
    }
    headers->len = kept;
    return status;
}

static void judge_200(const struct once_resend *request, struct probe_answer *a)
{
    if (a->http.headers_lost) { /* and with them how it ended */
        snprintf(a->why, sizeof a->why, "asked whether it happened, the service answered with too many header lines");
        return;
    }
    int said = take_status(&a->http.headers);
    if (said < 0 || (said > 0 && !once_resend_is_final(request, said))) {
        snprintf(a->why, sizeof a->why, "asked whether it happened, the service answered with a bad " STATUS_FIELD);
        return;
    }
    if (said == 0 && a->http.received == 0) {
        snprintf(a->why, sizeof a->why, "asked whether it happened, the service answered with nothing");
        return;
    }
    int status = said > 0 ? said : 200;
    a->says = PROBE_HAPPENED;
    a->outcome = (struct once_outcome){ .state = status < 400 ? ONCE_STATE_SUCCEEDED : ONCE_STATE_FAILED,
                                        .status = status,
                                        .body_dropped = a->http.dropped,
                                        .headers = once_buf_span(&a->http.headers),
                                        .body = once_buf_span(&a->http.body) };
}

static void judge(const struct once_resend *request, struct probe_answer *a)
{
    for (char *p = a->http.error; *p != '\0'; p++) /* a line of the log, and perhaps words of theirs */
        *p = *p < ' ' || *p > '~' ? '?' : *p;
    if (a->http.end != HTTP_ANSWERED)
        snprintf(a->why, sizeof a->why, "the service could not be asked whether it happened: %.120s", a->http.error);
    else if (a->http.status == 404)
        a->says = PROBE_DID_NOT_HAPPEN;
    else if (a->http.status == 200)
        judge_200(request, a);
    else
        snprintf(a->why, sizeof a->why, "asked whether it happened, the service answered %d", a->http.status);
}

void probe_ask(const struct probe_question *q, struct probe_answer *answer)
{
    struct once_buf lines, kept;
    *answer = (struct probe_answer){ .says = PROBE_NOT_KNOWN };
    once_buf_init(&lines, ONCE_HEADERS_LEN_MAX);
    once_buf_init(&kept, ONCE_HEADERS_LEN_MAX + sizeof STATUS_FIELD);
    add_lines(q->request->headers, &lines);
    once_buf_add(&kept, q->request->kept);
    once_buf_add(&kept, ONCE_LIT(STATUS_FIELD "\n"));
    if (lines.result == ONCE_OK && kept.result == ONCE_OK) {
        struct http_call call = { .url = q->url,
                                  .method = ONCE_LIT("GET"),
                                  .target = q->request->probe,
                                  .lines = { once_buf_span(&lines), q->own, q->identity },
                                  .kept = once_buf_span(&kept),
                                  .body_max = q->request->max_response,
                                  .timeout_ms = q->timeout_ms,
                                  .tick = q->tick,
                                  .arg = q->arg };
        http_call(&call, &answer->http);
    } else {
        snprintf(answer->http.error, sizeof answer->http.error, "no memory for a request");
    }
    judge(q->request, answer);
    once_buf_release(&lines);
    once_buf_release(&kept);
}

void probe_answer_release(struct probe_answer *answer)
{
    http_answer_release(&answer->http);
}
