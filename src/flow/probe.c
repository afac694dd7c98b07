/*
 * probe.c - a probe by HTTP GET, for a step with a URL instead of a probe function.
 *
 * Invariants: a complete 200 with a body is the answer, a complete 404 means that the call did not happen; any other
 * end says nothing (K10). The probe ends when the lease does.
 */
#include "core/err.h"
#include "core/span.h"
#include "flow/flow.h"
#include "http/http_call.h"

#include <stdio.h>

#define KEY "{key}"

enum { TIMEOUT_MS_DEFAULT = 10000, URL_LEN_MAX = 2000 };

const char *flow_probe_url_fault(const char *url)
{
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return "is not an http:// or https:// URL";
    if (strncmp(url, "http://unix:", 12) == 0)
        return "is a socket, and has no path";
    if (strlen(url) > URL_LEN_MAX)
        return "is too long";
    for (const char *p = url; *p != '\0'; p++)
        if (*p <= ' ' || *p == 0x7f || *p == '#')
            return "has a character that must be escaped";
    return strstr(url, KEY) == NULL ? "does not have " KEY " in it, so it would be the same for all calls" : NULL;
}

static void add_url(struct once_buf *out, const char *url, const char *key)
{
    for (const char *at; (at = strstr(url, KEY)) != NULL; url = at + strlen(KEY)) {
        once_buf_add(out, once_span_of(url, (size_t)(at - url)));
        once_buf_add(out, once_span_str(key));
    }
    once_buf_add(out, once_span_str(url));
    once_buf_add_byte(out, '\0');
}

static bool go_on(void *arg)
{
    return once_call_is_held(arg);
}

static once_step_end judge(struct once_call *call, const struct http_answer *answer)
{
    char why[160];
    if (answer->end != HTTP_ANSWERED) {
        snprintf(why, sizeof why, "the probe failed: %.100s", answer->error);
        return once_call_lost(call, why);
    }
    if (answer->status == 404)
        return once_call_not_sent(call, "the call did not happen");
    if (answer->status == 200 && answer->body.len > 0)
        return once_call_answered(call, once_buf_span(&answer->body));
    snprintf(why, sizeof why, "the probe was answered with %d%s", answer->status,
             answer->status != 200 ? ""
             : answer->dropped     ? ", a body that is too large or has no marked end"
                                   : " without a body");
    return once_call_lost(call, why);
}

once_step_end once_call_probe_http(struct once_call *call, const struct once_probe_http *probe)
{
    const char *fault = probe->url != NULL ? flow_probe_url_fault(probe->url) : "is missing";
    if (fault != NULL)
        flow_bug("the URL of a probe, '%s', %s", probe->url != NULL ? probe->url : "", fault);
    struct http_answer answer = { .end = HTTP_NOT_SENT };
    struct once_buf url;
    char own[120];
    once_buf_init(&url, URL_LEN_MAX * 16);
    add_url(&url, probe->url, call->key);
    snprintf(own, sizeof own, "Once-Key: %s\r\nOnce-Fence: %llu\r\n", call->key, (unsigned long long)call->grant.fence);
    if (url.result == ONCE_OK) {
        struct http_call http = { .url = (const char *)url.ptr,
                                  .method = ONCE_LIT("GET"),
                                  .lines = { probe->headers, once_span_str(own) },
                                  .body_max = ONCE_FLOW_CHECKPOINT_LEN_MAX,
                                  .timeout_ms = probe->timeout_ms > 0 ? probe->timeout_ms : TIMEOUT_MS_DEFAULT,
                                  .tick = go_on,
                                  .arg = call };
        http_call(&http, &answer);
    } else {
        snprintf(answer.error, sizeof answer.error, "no memory for a request");
    }
    once_step_end end = judge(call, &answer);
    http_answer_release(&answer);
    once_buf_release(&url);
    return end;
}
