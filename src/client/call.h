/*
 * call.h - one try: sends a request and reads its answer, with libcurl.
 *
 * Unlike http_call.h it reuses connections, speaks HTTP/2 and uses proxies. libcurl may send the request again by
 * itself on a dead connection; that is safe, since the request has the same key, like our own next try.
 *
 * Invariants: CLIENT-CALL-1 `answered`: one answer came completely, or up to the limit of its body; `end_marked` says
 *                whether its end is certain. In all other cases it is not answered.
 *             CLIENT-CALL-2 `sent` is false only if no byte of the request was sent.
 *             CLIENT-CALL-3 time, header lines and body are bounded.
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
    bool untrusted; /* a certificate was refused: a retry would not help */
    bool too_large, end_marked;
    int64_t retry_after_ms;
    struct client_facts facts;
    struct once_buf head, body;
    char error[200]; /* not answered: why */
};

void client_result_init(struct client_result *result, size_t answer_len_max);
void client_result_release(struct client_result *result);

/* `curl` already has the options that do not change between tries. */
void client_call(CURLM *multi, CURL *curl, const struct client_call *call, struct client_result *result);

#endif
