/*
 * ngx_http_once.h - types and functions that the files of the nginx module share. Files, in the order of a request:
 *
 *     _module.c     registration, variables            _upstream.c   one try upstream; checks its answer
 *     _conf.c       the table of directives, defaults  _capture.c    output filters that withhold the answer
 *     _directives.c values of directives               _withheld.c   its bytes meanwhile, in memory or in a file
 *     _conf_check.c refuses combinations               _outcome.c    stores the outcome, then sends the answer
 *     _request.c    the handler; a request's context   _answer.c     problem documents, replays, policy document
 *     _caller.c     tenant and credentials             _retention.c  durations; answers about expired records
 *     _body.c       fingerprint, JSON members          _trace.c      trace context and spans
 *     _claim.c      the claim, and what its reply does _daemon.c     one connection to the daemon per worker
 *     _state.c      states, legal moves, checks        _call.c       calls over that connection
 *     _leases.c     claims that this worker holds      _deadline.c   timeouts that allow for a paused worker
 *     _route.c      the route label                    _header.c     nginx's lists of header fields
 *     _resend.c     the request stored for completion  _forward.c    Once-* headers for the upstream
 *     _probe.c      routes that can be probed
 *
 * Invariants (docs/design.md): K3 a fenced attempt answers from the stored record. K4 the module sends nothing
 * upstream before the claim is durable (with once_intent: before the intent is), and nothing to the client before
 * the outcome is. It sends a claimed request upstream at most once.
 */
#ifndef NGX_HTTP_ONCE_H
#define NGX_HTTP_ONCE_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_http.h>

#include "core/buf.h"
#include "core/http/verdict.h"
#include "core/mac.h"
#include "core/http/trace.h"
#include "once.h"

#define NGX_HTTP_ONCE_OFF       0
#define NGX_HTTP_ONCE_OBSERVE   1
#define NGX_HTTP_ONCE_ON        2
#define NGX_HTTP_ONCE_REQUIRED  3

#define NGX_HTTP_ONCE_HTTP_STATUS_MAX  600
/* bytes of a withheld answer in memory, unless once_max_response sets it; the rest goes to a file */
#define NGX_HTTP_ONCE_RESPONSE_MEMORY  (64 * 1024)
#define NGX_HTTP_ONCE_UNSET       ((int64_t) -2)  /* of durations; -1 is ONCE_NEVER */

/* a longer checkpoint is not forwarded, because a header must fit the service's buffers: the service fetches it */
#define NGX_HTTP_ONCE_CHECKPOINT_MAX  4096

typedef struct ngx_http_once_daemon_s  ngx_http_once_daemon_t;
typedef struct ngx_http_once_call_s    ngx_http_once_call_t;
typedef struct ngx_http_once_ctx_s     ngx_http_once_ctx_t;
typedef struct ngx_http_once_trace_s   ngx_http_once_trace_t;

typedef struct {
    ngx_array_t                daemons;     /* ngx_http_once_daemon_t * */
    ngx_array_t                upstreams;   /* ngx_http_once_upstream_t */
    ngx_array_t                locations;   /* ngx_http_once_location_t */
    ngx_array_t                pass_redirects;  /* ngx_http_once_redirect_t: by once_pass */
    ngx_array_t                error_redirects; /* ngx_http_once_redirect_t: by an error_page that clears the error */
} ngx_http_once_main_conf_t;

/* an upstream whose init function was replaced: ngx_http_once_upstream.c */
typedef struct {
    ngx_http_upstream_srv_conf_t    *uscf;
    ngx_http_upstream_init_peer_pt   init;
} ngx_http_once_upstream_t;

typedef enum {
    NGX_HTTP_ONCE_BODY_AUTO = 0,   /* JSON if the Content-Type is JSON */
    NGX_HTTP_ONCE_BODY_EXACT,
    NGX_HTTP_ONCE_BODY_JSON
} ngx_http_once_body_e;

typedef struct {
    ngx_uint_t                 mode;
    ngx_http_once_daemon_t    *daemon;
    ngx_http_complex_value_t  *tenant;
    ngx_flag_t                 tenant_single;  /* once_tenant -; */
    ngx_str_t                  key_header;
    ngx_uint_t                 key_format;     /* enum once_key_format */
    ngx_http_complex_value_t  *key_natural;
    ngx_uint_t                 methods;        /* NGX_HTTP_POST|... */
    ngx_uint_t                 body;           /* ngx_http_once_body_e */
    ngx_array_t               *headers;        /* ngx_str_t: header names in the fingerprint */
    ngx_array_t               *credentials;    /* ngx_str_t: like headers, but never stored; NULL: not set */
    ngx_array_t               *exclude;        /* once_span: JSON pointers */
    int64_t                    lease_ms;
    int64_t                    retention_ms;   /* or ONCE_NEVER */
    int64_t                    body_retention_ms; /* 0: as long as the record */
    ngx_flag_t                 key_time;       /* refuse a client's UUIDv7 key that is older than the retention */
    int64_t                    wait_ms;
    ngx_uint_t                 takeover;       /* enum once_takeover */
    ngx_http_complex_value_t  *probe;          /* the probe's target; NULL: none */
    int64_t                    probe_after_ms; /* after an incomplete answer, the completer waits so long */
    u_char                    *final;          /* [HTTP status]: an answer with it is final */
    size_t                     max_response;
    size_t                     response_memory; /* bytes of it in memory, while it is withheld; the rest goes to a file */
    ngx_array_t               *replay_headers; /* ngx_str_t */
    ngx_flag_t                 forward;
    ngx_flag_t                 intent;
    ngx_str_t                  complete;       /* the daemon's name for the upstream; empty: off */
    ngx_array_t               *complete_headers; /* ngx_str_t: stored in addition to the default headers */
    ngx_uint_t                 complete_identity; /* nginx authenticates clients: the daemon may send its own credentials */
    ngx_http_complex_value_t  *route;          /* NULL: route_name */
    once_span                  route_name;     /* empty: no route */
    ngx_uint_t                 route_set;
    ngx_uint_t                 trace;          /* per million: requests that start a trace; or NGX_HTTP_ONCE_TRACE_OFF */
    ngx_uint_t                 store_down;     /* NGX_HTTP_ONCE_REFUSE, PASS */
    ngx_str_t                  pass;           /* a named location, or empty */
    u_char                    *file;           /* position of the `once` directive, for messages */
    ngx_uint_t                 line;
} ngx_http_once_loc_conf_t;

/* a location with keys, for the policy document */
typedef struct {
    void                      *server;      /* ngx_http_core_srv_conf_t * */
    ngx_str_t                  name;
    ngx_http_once_loc_conf_t  *conf;
} ngx_http_once_location_t;

/* a location from which nginx continues in a named location */
typedef struct {
    ngx_http_core_srv_conf_t  *server;
    ngx_http_core_loc_conf_t  *location;
    ngx_http_once_loc_conf_t  *conf;
} ngx_http_once_redirect_t;

/* once_trace off: trace headers of clients are not even read */
#define NGX_HTTP_ONCE_TRACE_OFF   ((ngx_uint_t) 2000000)
#define NGX_HTTP_ONCE_TRACE_ALL   ((ngx_uint_t) 1000000)

#define NGX_HTTP_ONCE_REFUSE  0
#define NGX_HTTP_ONCE_PASS    1

/* ---------------------------------------------------------------- the daemon */

typedef struct {
    once_result                result;          /* the members below are set if it is ONCE_OK */
    enum once_arm              arm;
    int64_t                    retry_after_ms;
    struct once_record         record;          /* its spans are valid during the callback */
    struct once_error          err;
} ngx_http_once_reply_t;

typedef void (*ngx_http_once_done_pt)(void *data, ngx_http_once_reply_t *reply);
typedef void (*ngx_http_once_ready_pt)(void *data);

/* waits for the connection to the daemon */
typedef struct {
    ngx_queue_t                queue;
    ngx_http_once_ready_pt     handler;
    void                      *data;
} ngx_http_once_waiter_t;

/* a timeout that is extended if this worker was paused: ngx_http_once_deadline.c */
typedef struct {
    ngx_msec_t  at;
    ngx_uint_t  extensions;  /* so far */
} ngx_http_once_deadline_t;

void ngx_http_once_deadline(ngx_http_once_deadline_t *deadline, ngx_event_t *ev, ngx_event_handler_pt handler,
    void *data, ngx_msec_t ms);
/* In the timer's handler. NGX_AGAIN: the worker was paused, and the timer was set again. */
ngx_int_t ngx_http_once_deadline_late(ngx_http_once_deadline_t *deadline, ngx_event_t *ev);

ngx_http_once_daemon_t *ngx_http_once_daemon_add(ngx_conf_t *cf, ngx_http_once_main_conf_t *omcf, ngx_str_t *path);
void ngx_http_once_daemon_start(ngx_http_once_daemon_t *d);
void ngx_http_once_daemon_stop(ngx_http_once_daemon_t *d);

/* NGX_OK: connected. NGX_AGAIN: connecting, wait. NGX_DECLINED: down. */
ngx_int_t ngx_http_once_daemon_state(ngx_http_once_daemon_t *d);
void ngx_http_once_daemon_wait(ngx_http_once_daemon_t *d, ngx_http_once_waiter_t *w);
/* NULL: never connected so far */
const struct once_mac *ngx_http_once_daemon_secret(ngx_http_once_daemon_t *d);
/* The daemon's store may lose acknowledged records; answers carry Once-Tier then. Known since the first WELCOME. */
ngx_uint_t ngx_http_once_daemon_best_effort(ngx_http_once_daemon_t *d);
/* the fingerprint salt of the tenant with the empty name */
const struct once_mac *ngx_http_once_daemon_salt(ngx_http_once_daemon_t *d);

/*
 * Sends a call to the daemon. The handler runs once: with the reply, or after `timeout` (later if this worker was
 * paused) with ONCE_UNAVAILABLE. After a timeout the call itself continues: calls that change the store are sent
 * again over new connections until they are answered, and a claim granted after its timeout is released.
 * NULL: no memory, or too many calls in flight; the handler does not run.
 */
ngx_http_once_call_t *ngx_http_once_call(ngx_http_once_daemon_t *d, const struct once_request *request,
    ngx_msec_t timeout, ngx_http_once_done_pt handler, void *data);
ngx_int_t ngx_http_once_nonce(uint8_t nonce[16]);
/* The caller is gone: its handler is not called any more. */
void ngx_http_once_call_detach(ngx_http_once_call_t *call);

/* ---------------------------------------------------------------- a request */

typedef struct {
    ngx_uint_t                 status;
    const char                *code;
    const char                *title;
    const char                *detail;
    ngx_uint_t                 retryable;
    ngx_uint_t                 retry_after;  /* seconds; 0: no Retry-After */
} ngx_http_once_problem_t;

/* ngx_http_once_state.c has the legal moves, and the facts of each state */
typedef enum {
    NGX_HTTP_ONCE_READING = 0,        /* nginx reads the body */
    NGX_HTTP_ONCE_WAITING,            /* for the connection to the daemon */
    NGX_HTTP_ONCE_CLAIMING,           /* the claim (observing: the look-up) is in flight */
    NGX_HTTP_ONCE_DECIDED,            /* ctx->reply is set; the handler acts on it */
    NGX_HTTP_ONCE_RECORDING_INTENT,   /* with once_intent: the intent to send is being stored */
    NGX_HTTP_ONCE_INTENT_RECORDED,    /* the intent is durable */
    NGX_HTTP_ONCE_HELD,               /* claimed; the upstream works on it, or will */
    NGX_HTTP_ONCE_STORING,            /* the call that ends the claim is in flight; the answer is withheld */
    NGX_HTTP_ONCE_DONE,               /* the module lets everything pass */
    NGX_HTTP_ONCE_BROKEN              /* a state check failed: nothing passes */
} ngx_http_once_state_e;

/* how far the request came on its way to the service */
typedef enum {
    NGX_HTTP_ONCE_UNLIMITED = 0,
    NGX_HTTP_ONCE_ONE_TRY,            /* nginx was configured to try one upstream server, once */
    NGX_HTTP_ONCE_SENT,               /* at least one byte may have been sent upstream */
    NGX_HTTP_ONCE_ACCEL_REDIRECTED    /* the service answered X-Accel-Redirect: nginx produces the answer itself */
} ngx_http_once_upstream_e;

typedef enum {
    NGX_HTTP_ONCE_NOTHING = 0,
    NGX_HTTP_ONCE_OUTCOME,      /* a complete answer: store it, then send it */
    NGX_HTTP_ONCE_FAILURE,      /* the request was sent, no complete answer came */
    NGX_HTTP_ONCE_NOT_SENT      /* the request was not sent: release the claim, then send nginx's own answer */
} ngx_http_once_capture_e;

/* how the withheld answer ended */
typedef enum {
    NGX_HTTP_ONCE_STREAMING = 0,
    NGX_HTTP_ONCE_COMPLETE,     /* its last byte was seen */
    NGX_HTTP_ONCE_TRUNCATED     /* the upstream failed */
} ngx_http_once_end_e;

/* whether the answer is stored for replays, or why not */
typedef enum {
    NGX_HTTP_ONCE_KEEP = 0,
    NGX_HTTP_ONCE_TOO_LARGE,
    NGX_HTTP_ONCE_UNCERTAIN_END,
    NGX_HTTP_ONCE_UNSTORABLE,   /* headers too large, trailers, or the answer could not be read back */
    NGX_HTTP_ONCE_STORE_REFUSED
} ngx_http_once_keep_e;

/* what became of the request: $once_status */
#define NGX_HTTP_ONCE_STATUSES(X)                                                                          \
    X(INCOMPLETE, "incomplete")           /* not decided yet */                                    \
    X(BYPASSED, "bypassed")                                                                                \
    X(OBSERVED, "observed")                                                                                \
    X(REFUSED, "refused")                                                                                  \
    X(UNAVAILABLE, "unavailable")                                                                          \
    X(MISMATCH, "mismatch")                                                                                \
    X(IN_PROGRESS, "in-progress")                                                                          \
    X(EXPIRED, "expired")                                                                                  \
    X(REPLAYED, "replayed")                                                                                \
    X(EXECUTING, "executing")             /* claimed, not answered yet */                              \
    X(EXECUTED, "executed")                                                                                \
    X(FAILED, "failed")                   /* no complete answer; a retry is executed */                    \
    X(UNKNOWN, "unknown")                                                                                  \
    X(NOT_SENT, "not-sent")                                                                                \
    X(UNAUTHORIZED, "unauthorized")       /* the service rejected the caller: key released */                      \
    X(DEFERRED, "in-progress")            /* no complete answer; the completer probes */                \
    X(DEFERRED_ANSWERED, "executed")      /* the client gets a 5xx; the completer probes */        \
    X(FENCED, "fenced")                   /* the outcome of another attempt is valid */

typedef enum {
#define NGX_HTTP_ONCE__STATUS(name, text)  NGX_HTTP_ONCE_STATUS_##name,
    NGX_HTTP_ONCE_STATUSES(NGX_HTTP_ONCE__STATUS)
#undef NGX_HTTP_ONCE__STATUS
} ngx_http_once_status_e;

/* the bytes of a withheld answer: ngx_http_once_withheld.c */
typedef struct {
    struct once_buf            memory;
    ngx_file_t                *file;       /* NULL: it is in memory */
    size_t                     len;        /* bytes in the file */
    u_char                    *bytes;      /* the file's bytes in memory; NULL: not mapped */
    unsigned                   mapped:1;
} ngx_http_once_withheld_t;

struct ngx_http_once_ctx_s {
    ngx_http_request_t        *request;
    ngx_http_once_loc_conf_t  *conf;       /* of the location that claimed */
    ngx_http_once_state_e      state;
    ngx_http_once_call_t      *call;       /* in flight: claim, intent, finish or release */
    ngx_http_once_call_t      *renewal;    /* in flight: extend */
    ngx_http_once_waiter_t     waiter;
    ngx_event_t                ignore_client; /* ends waiting for the client, after nginx has the whole answer */
    ngx_event_t                timer;      /* WAITING: the deadline; while the claim is held: the next renewal */
    ngx_http_once_deadline_t   deadline;   /* of WAITING */
    ngx_queue_t                queue;      /* of claims that this worker holds; next is NULL: not linked */

    ngx_str_t                  key;
    ngx_str_t                  tenant;
    struct once_fingerprint    fingerprint;

    ngx_http_once_problem_t   *refusal;    /* decided before the claim; sent after the body was read */
    ngx_http_once_reply_t      reply;      /* to the claim; its spans are in r->pool */
    struct once_grant          grant;
    enum once_takeover         takeover;   /* as claimed */
    once_time                  expires_at; /* 0: unknown */

    ngx_http_handler_pt        content_handler;
    ngx_int_t                (*process_header)(ngx_http_request_t *r);  /* the upstream's, called by ours */
    void                     (*finalize_request)(ngx_http_request_t *r, ngx_int_t rc);

    ngx_http_once_upstream_e   upstream;
    ngx_http_once_capture_e    capture;
    ngx_http_once_end_e        end;
    ngx_http_once_keep_e       keep;
    ngx_http_once_status_e     status;     /* $once_status */
    ngx_uint_t                 answer_status; /* the HTTP status of the answer that is withheld */
    ngx_uint_t                 http_version; /* the client's: nginx resets it for an invalid answer */
    ngx_http_once_withheld_t   withheld;   /* the answer so far */
    ngx_http_once_trace_t     *trace;      /* NULL: once_trace is off */
    ngx_chain_t               *overflow;   /* buffers of the answer that exceed the limit */

    unsigned                   record_known:1; /* grant.record is set, although no claim was granted yet */
    unsigned                   natural_key:1;  /* the key comes from once_key_natural, not from the client */
    unsigned                   blocked:1;      /* the module has incremented r->blocked */
};

static ngx_inline ngx_uint_t
ngx_http_once_is_observing(const ngx_http_once_ctx_t *ctx)
{
    return ctx->conf->mode == NGX_HTTP_ONCE_OBSERVE;
}

/* The only function that changes ctx->state; checks the move and the new state. NGX_ERROR: the request is BROKEN. */
ngx_int_t ngx_http_once_set_state(ngx_http_once_ctx_t *ctx, ngx_http_once_state_e to);
/* Checks the facts of ctx->state; called wherever nginx or the daemon enters. NGX_ERROR: the request is BROKEN. */
ngx_int_t ngx_http_once_check_state(ngx_http_once_ctx_t *ctx);
/* Sets ctx->capture, and $once_status accordingly. */
void ngx_http_once_set_capture(ngx_http_once_ctx_t *ctx, ngx_http_once_capture_e capture);

extern ngx_module_t   ngx_http_once_module;
extern ngx_command_t  ngx_http_once_commands[];

typedef struct { ngx_uint_t bit; const char *name; } ngx_http_once_method_t;
extern ngx_array_t  ngx_http_once_default_headers;  /* ngx_str_t: of once_replay_headers */
extern const char  *const ngx_http_once_modes[4];
extern const ngx_http_once_method_t  ngx_http_once_methods[4];

/* logs which value of which directive is invalid, and why */
char *ngx_http_once_invalid(ngx_conf_t *cf, ngx_str_t *value, const char *why);
char *ngx_http_once_set_mode(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_daemon(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_name(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_methods(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_fingerprint(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_final(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_max_response(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_replay_headers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_complete(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_pass(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_policy(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
void ngx_http_once_final_default(u_char *final);
ngx_http_complex_value_t *ngx_http_once_compile(ngx_conf_t *cf, ngx_str_t *value);
/* appends a header name to a list: `value` without its first `skip` bytes */
char *ngx_http_once_add_name(ngx_conf_t *cf, ngx_array_t *names, ngx_str_t *value, size_t skip);
void *ngx_http_once_create_main_conf(ngx_conf_t *cf);
void *ngx_http_once_create_loc_conf(ngx_conf_t *cf);
char *ngx_http_once_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child);
/* checks one location, after inheritance */
char *ngx_http_once_check(ngx_conf_t *cf, ngx_http_once_loc_conf_t *olcf);
/* checks targets of once_pass and error pages, after the whole configuration was read */
ngx_int_t ngx_http_once_check_redirects(ngx_conf_t *cf);

/* the context of a request, also after internal redirects; NULL: none */
ngx_http_once_ctx_t *ngx_http_once_get_ctx(ngx_http_request_t *r);
ngx_int_t ngx_http_once_handler(ngx_http_request_t *r);
/* nginx has read the body: begins the claim */
void ngx_http_once_body_read(ngx_http_request_t *r);
/* acts on the reply to the claim; returns the handler's result */
ngx_int_t ngx_http_once_act_on_claim(ngx_http_once_ctx_t *ctx);
ngx_int_t ngx_http_once_execute(ngx_http_once_ctx_t *ctx);
/* copies bytes of a reply; the copy is shorter if there is no memory */
once_span ngx_http_once_copy(ngx_pool_t *pool, once_span bytes);
/* refuses a request before its claim. NGX_OK: the refusal is sent after the body was read */
ngx_int_t ngx_http_once_refuse(ngx_http_once_ctx_t *ctx, const ngx_http_once_problem_t *problem);
char *ngx_http_once_set_tenant(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* NGX_OK: ctx->tenant or ctx->refusal is set. Otherwise it was refused. */
ngx_int_t ngx_http_once_read_tenant(ngx_http_once_ctx_t *ctx);
ngx_uint_t ngx_http_once_fingerprints_credentials(const ngx_http_once_loc_conf_t *olcf);
/* one word of once_fingerprint; NGX_DECLINED: it is not about credentials */
ngx_int_t ngx_http_once_set_credentials(ngx_conf_t *cf, ngx_http_once_loc_conf_t *olcf, ngx_str_t *word);
/* did the service reject the caller (401, 403), so that the key must be released? */
ngx_uint_t ngx_http_once_is_unauthorized(ngx_http_once_ctx_t *ctx);
ngx_int_t ngx_http_once_strip_headers(ngx_http_request_t *r);
ngx_int_t ngx_http_once_forward_headers(ngx_http_once_ctx_t *ctx);
/* the child key of the call "upstream" */
void ngx_http_once_child_key(ngx_http_once_ctx_t *ctx, char text[ONCE_CHILD_KEY_LEN + 1]);
/* computes ctx->fingerprint with the daemon's secret */
once_result ngx_http_once_fingerprint(ngx_http_once_ctx_t *ctx, struct once_error *err);
/* the body as one piece of memory, until it is released */
ngx_int_t ngx_http_once_map_body(ngx_http_request_t *r, once_span *body, void **mapped, void **copied);
void ngx_http_once_release_body(const once_span *body, void *mapped, void *copied);
/* sets takeover and stored request of a claim that has tenant and key; `stored` stays empty if no request is stored */
void ngx_http_once_set_stored_request(ngx_http_once_ctx_t *ctx, struct once_buf *stored, struct once_claim *claim);
char *ngx_http_once_set_probe(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* `is_set`: this location has its own once_takeover */
void ngx_http_once_merge_probe(ngx_http_once_loc_conf_t *prev, ngx_http_once_loc_conf_t *conf, ngx_uint_t is_set);
const char *ngx_http_once_probe_fault(ngx_http_once_loc_conf_t *olcf);
/* once_lease, once_retention, once_body_retention, once_wait */
char *ngx_http_once_set_duration(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
const char *ngx_http_once_retention_fault(ngx_http_once_loc_conf_t *olcf);
/* the durations of a claim */
void ngx_http_once_set_claim_durations(ngx_http_once_ctx_t *ctx, struct once_claim *claim);
/* observing, without a record: would a claim be answered EXPIRED? by this machine's clock */
ngx_uint_t ngx_http_once_is_outside_window(ngx_http_once_ctx_t *ctx);
ngx_int_t ngx_http_once_probe_target(ngx_http_once_ctx_t *ctx, ngx_str_t *target);
char *ngx_http_once_set_route(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
void ngx_http_once_merge_route(ngx_conf_t *cf, ngx_http_once_loc_conf_t *prev, ngx_http_once_loc_conf_t *conf);
once_span ngx_http_once_route(ngx_http_once_ctx_t *ctx);
ngx_int_t ngx_http_once_set_variable(ngx_http_variable_value_t *v, u_char *data, size_t len);
/* $once_json_NAME: a member of the request's body */
ngx_int_t ngx_http_once_json_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data);
/* $once_uri_json_NAME, $once_key, $once_client_key */
ngx_int_t ngx_http_once_uri_json_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data);
ngx_int_t ngx_http_once_child_key_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data);
ngx_int_t ngx_http_once_client_key_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data);
/* when the worker exits */
void ngx_http_once_end_all_leases(void);
void ngx_http_once_lease_begin(ngx_http_once_ctx_t *ctx);
void ngx_http_once_lease_end(ngx_http_once_ctx_t *ctx);
/* ends the claim; nobody waits for the reply */
void ngx_http_once_end_claim(ngx_http_once_ctx_t *ctx);
/* the same, and the request is DONE */
void ngx_http_once_abandon(ngx_http_once_ctx_t *ctx);
/* may bytes of the request have been sent upstream? */
ngx_uint_t ngx_http_once_was_sent(ngx_http_once_ctx_t *ctx);
/* fills in the call that ends a claim whose request was sent */
enum once_http_verdict ngx_http_once_make_end_request(ngx_http_once_ctx_t *ctx, ngx_uint_t status, ngx_uint_t complete,
    struct once_request *request);

/* the last of four bits of r->buffered; ssi, sub and copy use the others */
#define NGX_HTTP_ONCE_BUFFERED  0x08

extern ngx_http_output_header_filter_pt  ngx_http_once_next_header_filter;
extern ngx_http_output_body_filter_pt    ngx_http_once_next_body_filter;

ngx_int_t ngx_http_once_filter_init(ngx_conf_t *cf);
/* asks the daemon to store the outcome; the answer is sent after its reply */
ngx_int_t ngx_http_once_store_outcome(ngx_http_once_ctx_t *ctx);
/* replaces the upstream's finalize_request, which is in the context */
void ngx_http_once_upstream_finished(ngx_http_request_t *r, ngx_int_t rc);
ngx_uint_t ngx_http_once_is_valid_answer(ngx_http_once_ctx_t *ctx);
ngx_uint_t ngx_http_once_end_is_marked(ngx_http_request_t *r);
/* did the upstream tell nginx to produce the answer (X-Accel-Redirect)? */
ngx_uint_t ngx_http_once_is_accel_redirect(ngx_http_request_t *r);
ngx_int_t ngx_http_once_hook_upstreams(ngx_conf_t *cf);
/* before nginx runs the content handler of a claimed request */
void ngx_http_once_limit_to_one_try(ngx_http_once_ctx_t *ctx);

/* The bytes of a withheld answer. */
void ngx_http_once_withhold_begin(ngx_http_once_ctx_t *ctx);
/* Appends all of the bytes or none. NGX_DECLINED: too many, or no room. */
ngx_int_t ngx_http_once_withhold(ngx_http_once_ctx_t *ctx, u_char *bytes, size_t len);
/* Returns all of them in one piece, valid until the release. Nothing may be appended afterwards. */
ngx_int_t ngx_http_once_withheld(ngx_http_once_ctx_t *ctx, once_span *bytes);
void ngx_http_once_withheld_release(ngx_http_once_ctx_t *ctx);

/* ---------------------------------------------------------------- headers */

/* a position in a list of headers; { &list.part, 0 } is the start */
typedef struct {
    ngx_list_part_t           *part;
    ngx_uint_t                 i;
} ngx_http_once_cursor_t;

/* NULL: at the end */
ngx_table_elt_t *ngx_http_once_next_header(ngx_http_once_cursor_t *at);
ngx_uint_t ngx_http_once_is_name(const ngx_str_t *name, const char *wanted);
/* `list`: ngx_str_t, header names; may be NULL */
ngx_uint_t ngx_http_once_is_listed(const ngx_str_t *name, const ngx_array_t *list);
/* counts field lines with this name; *first is set if there is one */
ngx_uint_t ngx_http_once_find_header(ngx_list_t *headers, const char *name, ngx_table_elt_t **first);
/* returns a zeroed element */
ngx_table_elt_t *ngx_http_once_push_header(ngx_list_t *list);
ngx_int_t ngx_http_once_add_header(ngx_http_request_t *r, const char *name, const u_char *value, size_t len);
ngx_int_t ngx_http_once_drop_headers(ngx_http_request_t *r, ngx_str_t *names, ngx_uint_t count);
/* adds "name: value\r\n" */
void ngx_http_once_add_line(struct once_buf *lines, const ngx_str_t *name, const ngx_str_t *value);

/* ---------------------------------------------------------------- traces */

/* spans of a worker that wait for the daemon; more are dropped and counted */
#define NGX_HTTP_ONCE_SPANS_LEN  (256 << 10)

char *ngx_http_once_set_trace(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* 16 bytes; NULL: the request is not part of a trace */
const uint8_t *ngx_http_once_trace_id(const ngx_http_once_ctx_t *ctx);
/* Starts the trace of a request with a key. No trace function fails a request. */
void ngx_http_once_trace_begin(ngx_http_once_ctx_t *ctx);
/* Ends the open span and begins the next one. ONCE_TRACE_UPSTREAM: also sets traceparent for the service. */
void ngx_http_once_trace_step(ngx_http_once_ctx_t *ctx, ngx_uint_t name);
/* Ends the open span with the daemon's reply. */
void ngx_http_once_trace_answered(ngx_http_once_ctx_t *ctx, const ngx_http_once_reply_t *reply);
/* The request ends: queues its spans for the daemon. */
void ngx_http_once_trace_end(ngx_http_once_ctx_t *ctx);
/* Adds the CONTEXT frame before the frame of the call that a step belongs to; `data` is the call's. */
void ngx_http_once_trace_context(struct once_buf *frame, uint32_t id, const void *data);
/* Returns the call's frame, without the CONTEXT frame before it. */
once_span ngx_http_once_trace_skip_context(once_span frame);
/* Adds waiting spans to the output, if there is room. */
void ngx_http_once_trace_write(ngx_http_once_daemon_t *d);
/* Adds the traceparent line to a stored request, for attempts of the completer. */
void ngx_http_once_trace_add_line(ngx_http_once_ctx_t *ctx, struct once_buf *lines);
void ngx_http_once_post_write(ngx_http_once_daemon_t *d);
/* The record's id, also before the daemon has told it. NGX_DECLINED: no key, or no secret yet. */
ngx_int_t ngx_http_once_key_hash(ngx_http_once_ctx_t *ctx, uint8_t hash[16]);

/* ---------------------------------------------------------------- answers */

/* Each sends a complete answer and returns the argument for ngx_http_finalize_request(). */
ngx_int_t ngx_http_once_send_problem(ngx_http_request_t *r, const ngx_http_once_problem_t *problem);
ngx_int_t ngx_http_once_send_replay(ngx_http_request_t *r, const struct once_record *record);
/* of `record` only the outcome is used */
ngx_int_t ngx_http_once_send_unknown(ngx_http_request_t *r, const struct once_record *record);
ngx_int_t ngx_http_once_send_in_progress(ngx_http_request_t *r, int64_t retry_after_ms);
ngx_int_t ngx_http_once_send_not_kept(ngx_http_request_t *r, const struct once_record *record);
ngx_int_t ngx_http_once_send_expired(ngx_http_once_ctx_t *ctx);
ngx_int_t ngx_http_once_send_deferred(ngx_http_once_ctx_t *ctx);
ngx_int_t ngx_http_once_send_store_down(ngx_http_request_t *r, const char *detail);
ngx_int_t ngx_http_once_send_quota(ngx_http_request_t *r, const char *detail);
ngx_int_t ngx_http_once_policy_handler(ngx_http_request_t *r);

/* Adds the headers of every answer to a keyed request: Idempotency-Expires, and Once-Tier on a best-effort store. */
ngx_int_t ngx_http_once_add_key_headers(ngx_http_once_ctx_t *ctx);
/* Does the route need more than a best-effort store gives? Sets ctx->refusal then. */
ngx_uint_t ngx_http_once_refuse_tier(ngx_http_once_ctx_t *ctx);

#endif
