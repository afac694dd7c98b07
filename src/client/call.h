/*
 * call.h - one try: a request that goes out, and what came back, over libcurl.
 *
 * Unlike the daemon's http_call.h this one reuses connections, speaks HTTP/2 and takes proxies: what libcurl sends
 * again by itself on a dead connection carries the same key, and does no more than our own next try.
 *
 * Invariants: CLIENT-CALL-1 `answered` means that one answer came up to its end, or up to the limit of its body; an end
 * that nothing marks is told by `end_marked`. Everything between is not answered. CLIENT-CALL-2 `sent` is false only if
 * no byte of the request left. CLIENT-CALL-3 bounded: the time, the header lines, the body.
 */
#ifndef ONCE_CLIENT_CALL_H
#define ONCE_CLIENT_CALL_H

#include "client/retry.h"
#include "core/buf.h"
#include "once_client.h"

#include <curl/curl.h>

struct client_call {
    const char *url;
    once_span method;
    struct curl_slist *headers;
    once_span body;
    int64_t timeout_ms, connect_ms;
    const char *user_agent, *ca_file; /* ca_file may be NULL */
    int stop_fd;                      /* 0: none */
};

struct client_result {
    bool answered, sent, stopped;
    bool untrusted; /* trying again will not help: a certificate */
    bool too_large, end_marked;
    int64_t retry_after_ms;
    struct client_facts facts;
    struct once_buf head, body;
    char error[200]; /* not answered: why */
};

void client_result_init(struct client_result *result, size_t answer_len_max);
void client_result_release(struct client_result *result);

/* `curl` has the options that are the same for every try. */
void client_call(CURLM *multi, CURL *curl, const struct client_call *call, struct client_result *result);

#endif
