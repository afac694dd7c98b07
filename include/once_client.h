/*
 * once_client.h - HTTP requests that may be sent again and again, and take effect once.
 *
 * The other half of retry safety. A client that lost an answer has to ask again, with the same key, also after
 * it crashed. This sends one request under one key, as often as it takes, until there is a final answer:
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
 *         ... answer.status, answer.body: deal with it, then forget what was saved ...
 *     once_client_answer_release(&answer);
 *     once_client_close(client);
 *
 * What it does. It makes a key (a UUIDv7) where none is given; hands the whole request to `save`, before a byte is
 * sent; sends it; and sends it again, after a random pause, when the connection failed, when no whole answer came in
 * time, and when the answer says that asking again makes sense: 408, 425, 429, 5xx, a 409 for a request in progress.
 * Everything else is final.
 *
 * What it needs. A server that honours the key: Once's gateway, or any other (docs/client.md). Sent to one that does
 * not, each try may take effect.
 *
 * The rules of once.h hold here: spans are borrowed, zero is the default, `err` may be NULL. A client is used by one
 * thread at a time; several clients by several threads. libcurl does the work: HTTP/2 where TLS agrees on it, proxies
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
#define ONCE_CLIENT_MAX_TIME_MS_DEFAULT (5 * 60 * 1000) /* longer than the lease of whoever has it now */
#define ONCE_CLIENT_TIME_MS_MAX (24LL * 3600 * 1000)    /* of everything below that is a time */
#define ONCE_CLIENT_TRY_MS_DEFAULT 60000                /* nginx waits as long for an upstream */
#define ONCE_CLIENT_CONNECT_MS_DEFAULT 10000
#define ONCE_CLIENT_BACKOFF_MS_DEFAULT 250
#define ONCE_CLIENT_BACKOFF_MS_MAX_DEFAULT 30000
#define ONCE_CLIENT_URL_LEN_MAX 4096
#define ONCE_CLIENT_HEADER_COUNT_MAX 100
#define ONCE_CLIENT_HEADERS_LEN_MAX ONCE_HEADERS_LEN_MAX /* all lines of a request, and all of an answer */
#define ONCE_CLIENT_BODY_LEN_MAX ONCE_BODY_LEN_MAX       /* of a request */
#define ONCE_CLIENT_ANSWER_LEN_DEFAULT ONCE_BODY_LEN_MAX /* of an answer: what the gateway keeps at most */
#define ONCE_CLIENT_ANSWER_LEN_MAX (1 << 30)
#define ONCE_CLIENT_SAVED_LEN_MAX (ONCE_CLIENT_BODY_LEN_MAX + 2 * ONCE_CLIENT_HEADERS_LEN_MAX)

/* ---------------------------------------------------------------- a client */

struct once_client;

/* How a key is written into its header. */
enum once_client_format {
    ONCE_CLIENT_FORMAT_DEFAULT = 0, /* SF in Idempotency-Key, BARE in any other header */
    ONCE_CLIENT_FORMAT_SF,          /* "abc": a string of RFC 9651, as the IETF draft has it */
    ONCE_CLIENT_FORMAT_BARE,        /* abc: as Stripe, Adyen and PayPal have it */
};

/* Each try that was not the last. */
struct once_client_try {
    unsigned number;    /* 1 for the first of this call */
    int status;         /* of its answer; 0: there was no whole one */
    bool in_progress;   /* the server is at it, for an earlier try */
    const char *reason; /* in words */
    int64_t wait_ms;    /* until the next */
};

/*
 * Keep `saved` durably, where it is found after a crash, before returning ONCE_OK: nothing was sent yet, and nothing is
 * if this fails. It holds all that once_client_resume() needs, the body included; of headers that look like
 * credentials only the names, unless options.save_secrets. Forget it when you have dealt with a final answer, not
 * before: after a crash in between, the next try gets the same answer.
 */
typedef once_result once_client_save_fn(void *arg, once_span key, once_span saved, struct once_error *err);
typedef void once_client_try_fn(void *arg, const struct once_client_try *attempt);

struct once_client_options {
    const char *key_header; /* NULL: "Idempotency-Key" */
    enum once_client_format format;
    unsigned tries;         /* requests at most; 0: 20 */
    int64_t max_time_ms;    /* for all of it, the waiting included; 0: 5 min */
    int64_t try_ms;         /* for one request and its answer; 0: 60 s */
    int64_t connect_ms;     /* of that, for the connection; 0: 10 s */
    int64_t backoff_ms;     /* the pause after try n is random, from 0 to this times 2^(n-1) ... */
    int64_t backoff_ms_max; /* ... or this, whichever is less; 0: 250 ms and 30 s. A Retry-After is waited for
                               first; one that does not fit into max_time_ms ends it at once */
    size_t answer_len_max;  /* of a body; 0: 16 MiB. A longer one is dropped: the end is TOO_LARGE */
    bool save_secrets;      /* hand credentials to `save`, too */
    const char *ca_file;    /* certificates to trust instead of the system's */
    const char *cert_file, *cert_key_file; /* PEM: of this client, where the server asks for it */
    const char *proxy;                     /* instead of the environment's */
    int stop_fd;                           /* when it becomes readable, it ends: STOPPED. 0: none */
    once_client_save_fn *save;             /* NULL: the caller keeps the key itself, if it gave one */
    void *save_arg;
    once_client_try_fn *on_try;
    void *on_try_arg;
};

/* `options` are copied, their strings and what they point to not. NULL: all defaults. */
ONCE_API ONCE_CHECKED once_result once_client_open(const struct once_client_options *options, struct once_client **out,
                                                   struct once_error *err);
ONCE_API void once_client_close(struct once_client *client);

/* ---------------------------------------------------------------- sending */

struct once_client_request {
    once_span method;         /* "POST" */
    const char *url;          /* http:// or https://, without a user in it */
    const once_span *headers; /* "Name: value" each. Not the key's, nor those that frame the message */
    size_t header_count;
    once_span body; /* a body with a Content-Type of its own should say so: none is made up */
    once_span key;  /* 1 to 255 visible ASCII characters, in a BARE header without " , ; - empty: a new UUIDv7 */
};

#define ONCE_CLIENT_ENDS(X)                                                                                            \
    X(ANSWERED, "answered")       /* a final answer, whatever its status: see `status`, `replayed` */                  \
    X(MISMATCH, "mismatch")       /* the key was used for another request; `status`, usually 422 */                    \
    X(UNKNOWN, "unknown")         /* the server says that it does not know whether this was executed. It is not */     \
                                  /* sent again. Asking again later is safe: it stays so until a person resolves it */ \
    X(TOO_LARGE, "too large")     /* a final answer, whose body is longer than answer_len_max */                       \
    X(IN_PROGRESS, "in progress") /* tries or time are used up; the server is at it */                                 \
    X(GAVE_UP, "gave up")         /* tries or time are used up; it may have happened */                                \
    X(NOT_REACHED, "not reached") /* tries or time are used up, and nothing of it was ever sent by this call */        \
    X(UNTRUSTED, "untrusted")     /* the server's certificate is not trusted; nothing was sent, nothing tried again */ \
    X(STOPPED, "stopped")         /* by stop_fd; it may have happened */

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
    int status;      /* of the last whole answer; 0: there was none */
    bool replayed;   /* the server says that it executed this before, and repeats its answer */
    bool lost;       /* an earlier try of this call was sent and brought no answer: where the server does not
                        honour the key, it may have taken effect, too */
    bool end_marked; /* the body's end is marked (a length, chunks, HTTP/2); else it may be cut off */
    once_span head;  /* of that answer: the first line and the header lines, each with its CRLF */
    once_span body;
    int64_t retry_after_ms;         /* what it asked for; 0: nothing */
    char key[ONCE_KEY_LEN_MAX + 1]; /* that was used */
    char reason[256];               /* the last answer or failure in words */
    void *memory;                   /* ours */
};

/*
 * Save and send. ONCE_OK: `answer` says how it ended, whatever that is. ONCE_INVALID, ONCE_LIMIT: the request is none;
 * what `save` returned, where it failed; ONCE_NO_MEMORY. In these cases nothing was sent.
 */
ONCE_API ONCE_CHECKED once_result once_client_send(struct once_client *client,
                                                   const struct once_client_request *request,
                                                   struct once_client_answer *answer, struct once_error *err);

/*
 * Go on with what was saved, under the same key, in the header that it was first sent in. `headers` are those that were
 * withheld from `saved` because they look like credentials, all of them and no others: ONCE_INVALID names
 * what is missing or too much, for the request must be the same. `save` is not called. NOT_REACHED says
 * nothing here about what happened before.
 *
 * A server forgets keys (Once's gateway after 24 h, unless it says otherwise). Resumed after that, the request is
 * executed again: compare created_at below with what the server promises.
 */
ONCE_API ONCE_CHECKED once_result once_client_resume(struct once_client *client, once_span saved,
                                                     const once_span *headers, size_t header_count,
                                                     struct once_client_answer *answer, struct once_error *err);

/* Harmless after a failure. */
ONCE_API void once_client_answer_release(struct once_client_answer *answer);

/* The value of a header of the answer, the first of its name; empty with ptr NULL: there is none. */
ONCE_API once_span once_client_answer_header(const struct once_client_answer *answer, const char *name);

/* ---------------------------------------------------------------- what was saved */

struct once_client_saved {
    once_time created_at; /* the wall clock's */
    once_span key;
    once_span key_header;
    enum once_client_format format;
    once_span method, url;
    once_span headers;  /* lines "Name: value\r\n" */
    once_span withheld; /* lines "Name\n": what once_client_resume() wants to be given again */
    once_span body;
};

/* Spans point into `saved`. ONCE_CORRUPT: it is no saved request, or was damaged. */
ONCE_API ONCE_CHECKED once_result once_client_saved_read(once_span saved, struct once_client_saved *out,
                                                         struct once_error *err);

/* Is it this request? Method, URL, key, header lines, names of credentials and body, compared byte by byte; not
 * when it was saved, nor what the credentials were. */
ONCE_API bool once_client_saved_is(const struct once_client_saved *saved, const struct once_client *client,
                                   const struct once_client_request *request);

#ifdef __cplusplus
}
#endif
#endif
