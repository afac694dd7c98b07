/*
 * once_client.h - HTTP requests that can be sent again and again, and take effect once.
 *
 * The client's half of retry safety. A client that lost an answer must send its request again, with the same key, even
 * after a crash. This library sends one request under one key, as often as necessary, until there is a final answer:
 *
 *     struct once_client *client = NULL;
 *     struct once_client_answer answer;
 *     struct once_error err;
 *     struct once_client_options options = { .save = keep_it_with_the_order, .save_arg = order };
 *     if (once_client_open(&options, &client, &err) != ONCE_OK)
 *         die(err.text);
 *
 *     static const once_span type = ONCE_LIT("Content-Type: application/json");
 *     struct once_client_request request = {
 *         .method = ONCE_LIT("POST"), .url = "https://pay.example/charges",
 *         .headers = &type, .header_count = 1, .body = body,
 *     };
 *     once_result r = once_client_send(client, &request, &answer, &err);
 *     if (r == ONCE_OK && answer.end == ONCE_CLIENT_ANSWERED)
 *         ... process answer.status and answer.body, then delete the saved request ...
 *     once_client_answer_release(&answer);
 *     once_client_close(client);
 *
 * The client makes a key (a UUIDv7) if the caller gives none. It hands the whole request to `save` before it sends a
 * byte. It sends the request, and sends it again after a random pause if the connection failed, if no complete answer
 * came in time, or if the answer invites a retry: 408, 425, 429, 5xx, or 409 for a request in progress. Every other
 * answer is final.
 *
 * The server must honour the key: Once's gateway, or any other that does (docs/client.md). If it does not, each try may
 * take effect.
 *
 * The rules of once.h hold here: spans are borrowed, zero is the default, `err` may be NULL. Only one thread at a time
 * may use a client; several threads use several clients. The client uses libcurl: HTTP/2 if TLS negotiates it, proxies
 * from the environment (https_proxy, no_proxy), certificates always verified, redirects never followed.
 */
#ifndef ONCE_CLIENT_H
#define ONCE_CLIENT_H

#include <once.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- limits */

#define ONCE_CLIENT_TRIES_DEFAULT 20
#define ONCE_CLIENT_TRIES_MAX 10000
#define ONCE_CLIENT_MAX_TIME_MS_DEFAULT (5 * 60 * 1000) /* longer than the default lease of an earlier attempt */
#define ONCE_CLIENT_TIME_MS_MAX (24LL * 3600 * 1000)    /* limit of every option that is a time */
#define ONCE_CLIENT_TRY_MS_DEFAULT 60000                /* as long as nginx waits for an upstream */
#define ONCE_CLIENT_CONNECT_MS_DEFAULT 10000
#define ONCE_CLIENT_BACKOFF_MS_DEFAULT 250
#define ONCE_CLIENT_BACKOFF_MS_MAX_DEFAULT 30000
#define ONCE_CLIENT_URL_LEN_MAX 4096
#define ONCE_CLIENT_HEADER_COUNT_MAX 100
#define ONCE_CLIENT_HEADERS_LEN_MAX ONCE_HEADERS_LEN_MAX /* header lines of a request, and those of an answer */
#define ONCE_CLIENT_BODY_LEN_MAX ONCE_BODY_LEN_MAX       /* body of a request */
#define ONCE_CLIENT_ANSWER_LEN_DEFAULT ONCE_BODY_LEN_MAX /* body of an answer: the limit of the gateway */
#define ONCE_CLIENT_ANSWER_LEN_MAX (1 << 30)
#define ONCE_CLIENT_SAVED_LEN_MAX (ONCE_CLIENT_BODY_LEN_MAX + 2 * ONCE_CLIENT_HEADERS_LEN_MAX)

/* ---------------------------------------------------------------- a client */

struct once_client;

/* How a key is written into its header. */
enum once_client_format {
    ONCE_CLIENT_FORMAT_DEFAULT = 0, /* SF in Idempotency-Key, BARE in any other header */
    ONCE_CLIENT_FORMAT_SF,          /* "abc": a string of RFC 9651, as in the IETF draft */
    ONCE_CLIENT_FORMAT_BARE,        /* abc: as Stripe, Adyen and PayPal expect it */
};

/* A try after which another one follows. */
struct once_client_try {
    unsigned number;    /* 1 for the first of this call */
    int status;         /* of its answer; 0: no complete answer came */
    bool in_progress;   /* the server is still executing an earlier try */
    const char *reason; /* why there will be another try */
    int64_t wait_ms;    /* the pause before it */
};

/*
 * Store `saved` durably, where it is found after a crash, before returning ONCE_OK. Nothing was sent yet; if this
 * fails, nothing is sent. It contains all that once_client_resume() needs, including the body. Of headers that look
 * like credentials it has only the names, unless options.save_secrets is set. Delete it after you have processed a
 * final answer, not before: if the program crashes in between, a resumed request gets the same answer.
 */
typedef once_result once_client_save_fn(void *arg, once_span key, once_span saved, struct once_error *err);
typedef void once_client_try_fn(void *arg, const struct once_client_try *attempt);

struct once_client_options {
    const char *key_header; /* NULL: "Idempotency-Key" */
    enum once_client_format format;
    unsigned tries;         /* at most this many requests; 0: 20 */
    int64_t max_time_ms;    /* for the whole call, pauses included; 0: 5 min */
    int64_t try_ms;         /* for one request and its answer; 0: 60 s */
    int64_t connect_ms;     /* part of try_ms, for the connection; 0: 10 s */
    int64_t backoff_ms;     /* the pause after try n is random, from 0 to this times 2^(n-1) ... */
    int64_t backoff_ms_max; /* ... or this, whichever is less; 0: 250 ms and 30 s. The pause comes after the time of a
                               Retry-After; if that does not fit into max_time_ms, the call ends at once */
    size_t answer_len_max;  /* of a body; 0: 16 MiB. A longer body is dropped: the end is TOO_LARGE */
    bool save_secrets;      /* hand credentials to `save` as well */
    const char *ca_file;    /* certificates to trust instead of the system's */
    const char *cert_file, *cert_key_file; /* PEM: this client's certificate, if the server asks for one */
    const char *proxy;                     /* instead of the environment's */
    int stop_fd;                           /* when it becomes readable, the call ends: STOPPED. 0: none */
    once_client_save_fn *save;             /* NULL: the caller stores the key itself, if it gave one */
    void *save_arg;
    once_client_try_fn *on_try;
    void *on_try_arg;
};

/* `options` are copied, but not their strings. NULL: all defaults. */
ONCE_API ONCE_CHECKED once_result once_client_open(const struct once_client_options *options, struct once_client **out,
                                                   struct once_error *err);
ONCE_API void once_client_close(struct once_client *client);

/* ---------------------------------------------------------------- sending */

struct once_client_request {
    once_span method;         /* "POST" */
    const char *url;          /* http:// or https://, without a user name */
    const once_span *headers; /* "Name: value" each; neither the key's header nor those that frame the message */
    size_t header_count;
    once_span body; /* no Content-Type is added: give one in the headers */
    once_span key;  /* 1 to 255 visible ASCII characters; in a BARE header not " , ; - empty: a new UUIDv7 */
};

#define ONCE_CLIENT_ENDS(X)                                                                                            \
    X(ANSWERED, "answered")       /* a final answer, with any status: see `status`, `replayed` */                      \
    X(MISMATCH, "mismatch")       /* the key was used for another request; `status` is usually 422 */                  \
    X(UNKNOWN, "unknown")         /* the server does not know whether it executed the request, which is not sent */    \
                                  /* again. Resuming it later is safe: it stays unknown until an operator decides */   \
    X(TOO_LARGE, "too large")     /* a final answer, with a body longer than answer_len_max */                         \
    X(IN_PROGRESS, "in progress") /* no tries or time left; the server is still executing the request */               \
    X(GAVE_UP, "gave up")         /* no tries or time left; the request may have taken effect */                       \
    X(NOT_REACHED, "not reached") /* no tries or time left, and this call has not sent a byte of the request */        \
    X(UNTRUSTED, "untrusted")     /* the server's certificate is not trusted; nothing was sent, and no retry made */   \
    X(STOPPED, "stopped")         /* by stop_fd; the request may have taken effect */

enum once_client_end {
    ONCE_CLIENT_END_NONE = 0,
#define ONCE__CLIENT_END(name, text) ONCE_CLIENT_##name,
    ONCE_CLIENT_ENDS(ONCE__CLIENT_END)
#undef ONCE__CLIENT_END
};

ONCE_API const char *once_client_end_name(enum once_client_end end);

struct once_client_answer {
    enum once_client_end end;
    unsigned tries;  /* requests of this call */
    int status;      /* of the last complete answer; 0: none came */
    bool replayed;   /* the server says that it executed the request before, and repeats its answer */
    bool lost;       /* an earlier try of this call was sent and got no answer; if the server does not honour the
                        key, that try may have taken effect as well */
    bool end_marked; /* the end of the body is marked (a length, chunks, HTTP/2); otherwise it may be cut off */
    once_span head;  /* of the last complete answer: the first line and the header lines, each with its CRLF */
    once_span body;
    int64_t retry_after_ms;         /* its Retry-After; 0: it had none */
    char key[ONCE_KEY_LEN_MAX + 1]; /* the key that was used */
    char reason[256];               /* the last answer or failure in words */
    void *memory;                   /* private */
};

/*
 * Save and send a request. ONCE_OK: `answer` says how it ended. ONCE_INVALID, ONCE_LIMIT: the request is not
 * acceptable. ONCE_NO_MEMORY, or the result of `save` if that failed. Unless the result is ONCE_OK, nothing was sent.
 */
ONCE_API ONCE_CHECKED once_result once_client_send(struct once_client *client,
                                                   const struct once_client_request *request,
                                                   struct once_client_answer *answer, struct once_error *err);

/*
 * Send a saved request again, under the same key, in the same key header. `headers` are those that were withheld from
 * `saved` because they look like credentials. Give all of them and no others, since the request must be the same:
 * ONCE_INVALID names a header that is missing or unexpected. `save` is not called. NOT_REACHED says nothing here about
 * earlier calls.
 *
 * A server forgets keys (Once's gateway after 24 h by default). A request that is resumed after that is executed again:
 * compare created_at below with the retention that the server promises.
 */
ONCE_API ONCE_CHECKED once_result once_client_resume(struct once_client *client, once_span saved,
                                                     const once_span *headers, size_t header_count,
                                                     struct once_client_answer *answer, struct once_error *err);

/* Harmless after a failure. */
ONCE_API void once_client_answer_release(struct once_client_answer *answer);

/* The value of the first header of this name in the answer; its ptr is NULL if there is no such header. */
ONCE_API once_span once_client_answer_header(const struct once_client_answer *answer, const char *name);

/* ---------------------------------------------------------------- saved requests */

struct once_client_saved {
    once_time created_at; /* by the wall clock */
    once_span key;
    once_span key_header;
    enum once_client_format format;
    once_span method, url;
    once_span headers;  /* lines "Name: value\r\n" */
    once_span withheld; /* lines "Name\n": the headers that once_client_resume() needs again */
    once_span body;
};

/* Read a saved request. Spans point into `saved`. ONCE_CORRUPT: it is not a saved request, or was damaged. */
ONCE_API ONCE_CHECKED once_result once_client_saved_read(once_span saved, struct once_client_saved *out,
                                                         struct once_error *err);

/* Is it this request? Compares method, URL, key, header lines, names of credentials and body byte by byte; not the
 * time, nor the values of credentials. */
ONCE_API bool once_client_saved_is(const struct once_client_saved *saved, const struct once_client *client,
                                   const struct once_client_request *request);

#ifdef __cplusplus
}
#endif
#endif
