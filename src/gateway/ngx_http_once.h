/*
 * ngx_http_once.h - what the files of ngx_http_once_module share.
 *
 *     ngx_http_once_module.c    registration, variables
 *     ngx_http_once_conf.c      directives
 *     ngx_http_once_check.c     what does not combine, and is refused when they are read
 *     ngx_http_once_daemon.c    one connection per worker to the daemon: frames, calls, reconnecting
 *     ngx_http_once_due.c       how long the daemon has, where it may be this worker that was late
 *     ngx_http_once_nonce.c     random bytes that name a call
 *     ngx_http_once_request.c   a request: its key; the claim; what follows
 *     ngx_http_once_held.c      claims and their leases, while the upstream works
 *     ngx_http_once_caller.c    who asks: tenant, credentials
 *     ngx_http_once_body.c      what was asked: fingerprint, members of the body
 *     ngx_http_once_resend.c    the request as it is stored for the completer
 *     ngx_http_once_route.c     what a request is counted as
 *     ngx_http_once_probe.c     routes whose service can be asked whether a request happened
 *     ngx_http_once_forward.c   what the upstream is told about an attempt
 *     ngx_http_once_upstream.c  one try upstream; whether what came back is an answer
 *     ngx_http_once_capture.c   the answer withheld until its outcome is stored
 *     ngx_http_once_withheld.c  its bytes meanwhile, in memory or in a file
 *     ngx_http_once_retention.c how long what is kept: directives, and what is said after that
 *     ngx_http_once_answer.c    problem documents, replays, the policy document
 *     ngx_http_once_tier.c      what a route may ask of a store that promises less
 *     ngx_http_once_trace.c     whose trace a request is part of, and its spans
 *
 * Invariants (DESIGN 4): K3 a fenced attempt answers from the stored record; K4 nothing is sent
 * upstream before the claim is durable (and, with intent, before the mark is), nothing to the client
 * before the finish is; and a claimed request is sent upstream at most once.
 */
#ifndef NGX_HTTP_ONCE_H
#define NGX_HTTP_ONCE_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_http.h>

#include "core/buf.h"
#include "core/mac.h"
#include "core/trace.h"
#include "once.h"

#define NGX_HTTP_ONCE_OFF       0
#define NGX_HTTP_ONCE_OBSERVE   1
#define NGX_HTTP_ONCE_ON        2
#define NGX_HTTP_ONCE_REQUIRED  3

#define NGX_HTTP_ONCE_STATUS_MAX  600
#define NGX_HTTP_ONCE_UNSET       ((int64_t) -2)  /* of a duration; -1 is ONCE_NEVER */

/* handed upstream up to this length: a header must fit a service's buffers; longer ones are fetched */
#define NGX_HTTP_ONCE_CHECKPOINT_MAX  4096

typedef struct ngx_http_once_daemon_s  ngx_http_once_daemon_t;
typedef struct ngx_http_once_call_s    ngx_http_once_call_t;
typedef struct ngx_http_once_ctx_s     ngx_http_once_ctx_t;
typedef struct ngx_http_once_trace_s   ngx_http_once_trace_t;

typedef struct {
    ngx_array_t                daemons;     /* ngx_http_once_daemon_t * */
    ngx_array_t                upstreams;   /* ngx_http_once_upstream_t */
    ngx_array_t                places;      /* ngx_http_once_location_t */
    ngx_array_t                passes;      /* ngx_http_once_redirect_t: by once_pass */
    ngx_array_t                hidings;     /* ngx_http_once_redirect_t: by an error page that leaves no trace */
} ngx_http_once_main_conf_t;

/* an upstream whose requests are watched: ngx_http_once_upstream.c */
typedef struct {
    ngx_http_upstream_srv_conf_t    *uscf;
    ngx_http_upstream_init_peer_pt   init;
} ngx_http_once_upstream_t;

typedef enum {
    NGX_HTTP_ONCE_BODY_AUTO = 0,   /* as JSON where the Content-Type says so */
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
    ngx_array_t               *headers;        /* ngx_str_t: fingerprinted */
    ngx_array_t               *credentials;    /* ngx_str_t: fingerprinted, and never stored; NULL: not said */
    ngx_array_t               *exclude;        /* once_span: JSON pointers */
    int64_t                    lease_ms;
    int64_t                    retention_ms;   /* or ONCE_NEVER */
    int64_t                    body_retention_ms; /* 0: as long */
    ngx_flag_t                 key_time;       /* a client's UUIDv7 that is older is refused */
    int64_t                    wait_ms;
    ngx_uint_t                 takeover;       /* enum once_takeover */
    ngx_http_complex_value_t  *probe;          /* where to ask; NULL: nowhere */
    int64_t                    probe_after_ms; /* how soon after a broken answer */
    u_char                    *final;          /* [status]: this answer ends it */
    size_t                     max_response;
    size_t                     response_memory; /* of it, while it is withheld; more is in a file */
    ngx_array_t               *replay_headers; /* ngx_str_t */
    ngx_flag_t                 forward;
    ngx_flag_t                 intent;
    ngx_str_t                  complete;       /* the upstream's name at the daemon; empty: off */
    ngx_array_t               *complete_headers; /* ngx_str_t: stored, besides the usual ones */
    ngx_uint_t                 complete_identity; /* clients are authenticated here: the daemon may use its own */
    ngx_http_complex_value_t  *route;          /* NULL: route_name */
    once_span                  route_name;     /* empty: none */
    ngx_uint_t                 route_said;
    ngx_uint_t                 trace;          /* of a million requests without a trace, so many begin one; see below */
    ngx_uint_t                 store_down;     /* NGX_HTTP_ONCE_REFUSE, PASS */
    ngx_str_t                  pass;           /* a named location, or empty */
    u_char                    *file;           /* where `once` was said */
    ngx_uint_t                 line;
} ngx_http_once_loc_conf_t;

/* where keys count, for the policy document */
typedef struct {
    void                      *server;      /* ngx_http_core_srv_conf_t * */
    ngx_str_t                  name;
    ngx_http_once_loc_conf_t  *conf;
} ngx_http_once_location_t;

/* a location that leads to a named one */
typedef struct {
    ngx_http_core_srv_conf_t  *server;
    ngx_http_core_loc_conf_t  *location;
    ngx_http_once_loc_conf_t  *conf;
} ngx_http_once_redirect_t;

/* once_trace off: also what clients send is left as it is */
#define NGX_HTTP_ONCE_TRACE_OFF   ((ngx_uint_t) 2000000)
#define NGX_HTTP_ONCE_TRACE_ALL   ((ngx_uint_t) 1000000)

#define NGX_HTTP_ONCE_REFUSE  0
#define NGX_HTTP_ONCE_PASS    1

/* ---------------------------------------------------------------- the daemon */

typedef struct {
    once_result                result;          /* ONCE_OK: what follows counts */
    enum once_arm              arm;
    int64_t                    retry_after_ms;
    struct once_record         record;          /* its spans: during the callback */
    struct once_error          err;
} ngx_http_once_reply_t;

typedef void (*ngx_http_once_done_pt)(void *data, ngx_http_once_reply_t *reply);
typedef void (*ngx_http_once_ready_pt)(void *data);

/* who wants to know when the daemon can be asked */
typedef struct {
    ngx_queue_t                queue;
    ngx_http_once_ready_pt     handler;
    void                      *data;
} ngx_http_once_waiter_t;

/* How long the daemon has (ngx_http_once_due.c). */
typedef struct {
    ngx_msec_t  at;
    ngx_uint_t  late;  /* how often it was */
} ngx_http_once_due_t;

void ngx_http_once_due(ngx_http_once_due_t *due, ngx_event_t *ev, ngx_event_handler_pt handler, void *data, ngx_msec_t ms);
/* In the timer's handler. NGX_AGAIN: it was late, and begins anew. */
ngx_int_t ngx_http_once_due_late(ngx_http_once_due_t *due, ngx_event_t *ev);

ngx_http_once_daemon_t *ngx_http_once_daemon_add(ngx_conf_t *cf,
    ngx_http_once_main_conf_t *omcf, ngx_str_t *path);
void ngx_http_once_daemon_start(ngx_http_once_daemon_t *d);
void ngx_http_once_daemon_stop(ngx_http_once_daemon_t *d);

/* NGX_OK: ask now.  NGX_AGAIN: it is being connected, wait.  NGX_DECLINED: it is away. */
ngx_int_t ngx_http_once_daemon_state(ngx_http_once_daemon_t *d);
void ngx_http_once_daemon_wait(ngx_http_once_daemon_t *d, ngx_http_once_waiter_t *w);
/* NULL: it was never there */
const struct once_mac *ngx_http_once_daemon_secret(ngx_http_once_daemon_t *d);
/* Its store may lose what it acknowledged: answers say so. Known from its first welcome on. */
ngx_uint_t ngx_http_once_daemon_best_effort(ngx_http_once_daemon_t *d);
/* of the tenant without a name */
const struct once_mac *ngx_http_once_daemon_salt(ngx_http_once_daemon_t *d);

/*
 * Asks the daemon. The handler is called once: with the answer, or after `timeout` (later, where this
 * worker was late) with ONCE_UNAVAILABLE. The call itself goes on: what changes the store is repeated over new
 * connections until it is answered, and a claim that is granted to nobody is released.
 * NULL: no memory, or too many calls are under way; the handler is not called then.
 */
ngx_http_once_call_t *ngx_http_once_call(ngx_http_once_daemon_t *d,
    const struct once_request *request, ngx_msec_t timeout,
    ngx_http_once_done_pt handler, void *data);
ngx_int_t ngx_http_once_nonce(uint8_t nonce[16]);
/* The one who asked is gone. */
void ngx_http_once_call_disown(ngx_http_once_call_t *call);

/* ---------------------------------------------------------------- a request */

typedef struct {
    ngx_uint_t                 status;
    const char                *code;
    const char                *title;
    const char                *detail;
    ngx_uint_t                 retryable;
    ngx_uint_t                 retry_after;  /* seconds; 0: do not say */
} ngx_http_once_problem_t;

typedef enum {
    NGX_HTTP_ONCE_READING = 0,  /* its body */
    NGX_HTTP_ONCE_WAITING,      /* for the daemon to be connected */
    NGX_HTTP_ONCE_CLAIMING,
    NGX_HTTP_ONCE_DECIDED,      /* ctx->reply says what is to be done */
    NGX_HTTP_ONCE_RECORDING_INTENT,      /* claimed with intent: that it is about to be sent is being stored */
    NGX_HTTP_ONCE_HELD,         /* claimed: the upstream works, or will */
    NGX_HTTP_ONCE_STORING,     /* finish or release under way, the answer is withheld */
    NGX_HTTP_ONCE_DONE          /* everything passes */
} ngx_http_once_state_e;

typedef enum {
    NGX_HTTP_ONCE_NOTHING = 0,
    NGX_HTTP_ONCE_OUTCOME,      /* a complete answer: stored, then sent */
    NGX_HTTP_ONCE_FAILURE,      /* something was sent, no complete answer came */
    NGX_HTTP_ONCE_NOT_SENT      /* nothing was: released, then nginx's own answer is sent */
} ngx_http_once_capture_e;

/* ngx_http_once_withheld.c */
typedef struct {
    struct once_buf            memory;
    ngx_file_t                *file;       /* NULL: it is in memory */
    size_t                     len;        /* in the file */
    u_char                    *bytes;      /* all of that, as memory; NULL: not yet */
    unsigned                   mapped:1;
} ngx_http_once_withheld_t;

struct ngx_http_once_ctx_s {
    ngx_http_request_t        *request;
    ngx_http_once_loc_conf_t  *conf;       /* of the location that claimed */
    ngx_http_once_state_e      state;
    ngx_http_once_call_t      *call;       /* claim, finish or release under way */
    ngx_http_once_call_t      *renewal;    /* extend under way */
    ngx_http_once_waiter_t     waiter;
    ngx_event_t                parked;     /* nginx has the answer, and waits for us */
    ngx_event_t                timer;      /* waiting: for how long; held: the next renewal */
    ngx_http_once_due_t        due;        /* waiting */
    ngx_queue_t                queue;      /* of what this worker holds */

    ngx_str_t                  key;
    ngx_str_t                  tenant;
    struct once_fingerprint    fingerprint;

    ngx_http_once_problem_t   *refusal;    /* before anything is asked; sent after the body was read */
    ngx_http_once_reply_t      reply;      /* the claim's; its spans are in r->pool */
    struct once_grant          grant;
    enum once_takeover         takeover;   /* as it was claimed */
    once_time                  expires_at; /* 0: not known */

    ngx_http_handler_pt        content_handler;
    ngx_int_t                (*process_header)(ngx_http_request_t *r);  /* the upstream's, behind ours */
    void                     (*finalize_request)(ngx_http_request_t *r, ngx_int_t rc);

    ngx_http_once_capture_e    capture;
    ngx_uint_t                 status;     /* of the answer that is withheld */
    ngx_uint_t                 http_version; /* the client's: nginx forgets it over a bad answer */
    ngx_http_once_withheld_t   withheld;   /* the answer so far */
    ngx_http_once_trace_t     *trace;      /* NULL: once_trace is off here */
    ngx_chain_t               *rest;       /* what did not fit */

    unsigned                   named:1;    /* grant.record is known */
    unsigned                   left:1;     /* its end is not known, and the completer asks */
    unsigned                   marked:1;   /* that it is about to be sent is stored */
    unsigned                   sent:1;     /* at least a byte may have gone upstream */
    unsigned                   failed:1;   /* the upstream's answer broke off */
    unsigned                   dropped:1;  /* too large, or of uncertain end: not kept */
    unsigned                   refused:1;  /* by the store, as an outcome with answer */
    unsigned                   unknown:1;  /* stored so, though the answer is complete: 5xx */
    unsigned                   ended:1;    /* the last byte of the answer was seen */
    unsigned                   replayed:1;
    unsigned                   stranger:1; /* not let in by the service: its key is free again */
    unsigned                   turned_away:1; /* no key, or no tenant, as they have to be */
    unsigned                   fenced:1;   /* another attempt's outcome counts */
    unsigned                   called:1;   /* by nginx, which runs what is posted itself */
    unsigned                   queued:1;
    unsigned                   observed:1;
    unsigned                   guarded:1;  /* its upstream is tried once, and so on */
    unsigned                   blocked:1;  /* r->blocked counts us */
    unsigned                   natural:1;  /* the key is the operation's own, not the client's */
    unsigned                   handed:1;   /* X-Accel-Redirect: its answer is made by nginx itself */
};

extern ngx_module_t   ngx_http_once_module;
extern ngx_command_t  ngx_http_once_commands[];

/* says which value of which directive is wrong, and why */
char *ngx_http_once_bad(ngx_conf_t *cf, ngx_str_t *value, const char *why);
ngx_uint_t ngx_http_once_is_token(ngx_str_t *name);
void *ngx_http_once_create_main_conf(ngx_conf_t *cf);
void *ngx_http_once_create_loc_conf(ngx_conf_t *cf);
char *ngx_http_once_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child);
/* of one location, with what it has from those around it */
char *ngx_http_once_check(ngx_conf_t *cf, ngx_http_once_loc_conf_t *olcf);
/* of what once_pass names, when everything was read */
ngx_int_t ngx_http_once_check_leads(ngx_conf_t *cf);

/* the request's context, also after internal redirects; NULL: not ours */
ngx_http_once_ctx_t *ngx_http_once_get_ctx(ngx_http_request_t *r);
ngx_int_t ngx_http_once_handler(ngx_http_request_t *r);
/* before anything is asked. NGX_OK: it is refused when its body was read */
ngx_int_t ngx_http_once_refuse(ngx_http_once_ctx_t *ctx, const ngx_http_once_problem_t *problem);
char *ngx_http_once_set_tenant(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* NGX_OK: ctx->tenant, or it will be refused.  Else: it was. */
ngx_int_t ngx_http_once_read_tenant(ngx_http_once_ctx_t *ctx);
ngx_uint_t ngx_http_once_counts_credentials(const ngx_http_once_loc_conf_t *olcf);
/* a word of once_fingerprint; NGX_DECLINED: it is not about credentials */
ngx_int_t ngx_http_once_set_credentials(ngx_conf_t *cf, ngx_http_once_loc_conf_t *olcf, ngx_str_t *word);
/* `list`: ngx_str_t, names of headers; NULL: none */
ngx_uint_t ngx_http_once_is_listed(const ngx_str_t *name, const ngx_array_t *list);
/* does the service not admit the caller, so that his key is not his? */
ngx_uint_t ngx_http_once_is_unauthorized(ngx_http_once_ctx_t *ctx);
/* how many field lines of that name, and the first (NULL: not wanted) */
ngx_uint_t ngx_http_once_find_header(ngx_http_request_t *r, ngx_str_t *name, ngx_str_t *value);
ngx_int_t ngx_http_once_drop_headers(ngx_http_request_t *r, ngx_str_t *names, ngx_uint_t count);
ngx_int_t ngx_http_once_strip_headers(ngx_http_request_t *r);
ngx_int_t ngx_http_once_forward_headers(ngx_http_once_ctx_t *ctx);
/* as once_child_key() makes it, for the call "upstream" */
void ngx_http_once_child_key(ngx_http_once_ctx_t *ctx, u_char text[ONCE_CHILD_KEY_LEN]);
/* ctx->fingerprint, with the daemon's secret */
once_result ngx_http_once_fingerprint(ngx_http_once_ctx_t *ctx, struct once_error *err);
/* the body as one piece of memory, until it is given back */
ngx_int_t ngx_http_once_whole_body(ngx_http_request_t *r, once_span *body, void **mapped, void **copied);
void ngx_http_once_unmap_body(const once_span *body, void *mapped, void *copied);
/* policy and request of a claim whose tenant and key are there; `stored` stays empty where nothing is, or can be, stored */
void ngx_http_once_claim_request(ngx_http_once_ctx_t *ctx, struct once_buf *stored, struct once_claim *claim);
char *ngx_http_once_set_probe(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* `said`: this location has a once_takeover of its own */
void ngx_http_once_merge_probe(ngx_http_once_loc_conf_t *prev, ngx_http_once_loc_conf_t *conf, ngx_uint_t said);
const char *ngx_http_once_probe_fault(ngx_http_once_loc_conf_t *olcf);
/* once_lease, once_retention, once_body_retention, once_wait */
char *ngx_http_once_set_duration(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
const char *ngx_http_once_retention_fault(ngx_http_once_loc_conf_t *olcf);
/* those terms of a claim that say how long */
void ngx_http_once_claim_terms(ngx_http_once_ctx_t *ctx, struct once_claim *claim);
/* observing: there is no record; would a claim be told that the key is expired? by this machine's clock */
ngx_uint_t ngx_http_once_is_outside(ngx_http_once_ctx_t *ctx);
ngx_int_t ngx_http_once_add_probe_variables(ngx_conf_t *cf);
ngx_int_t ngx_http_once_probe_target(ngx_http_once_ctx_t *ctx, ngx_str_t *target);
ngx_uint_t ngx_http_once_is_deferred(ngx_http_once_ctx_t *ctx, const struct once_outcome *outcome);
void ngx_http_once_defer(ngx_http_once_ctx_t *ctx, struct once_request *request);
char *ngx_http_once_set_route(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
void ngx_http_once_merge_route(ngx_conf_t *cf, ngx_http_once_loc_conf_t *prev, ngx_http_once_loc_conf_t *conf);
once_span ngx_http_once_route(ngx_http_once_ctx_t *ctx);
/* $once_json_NAME: a member of the request's body */
ngx_int_t ngx_http_once_json_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data);
/* all that are held, when the worker exits */
void ngx_http_once_end_all_leases(void);
void ngx_http_once_lease_begin(ngx_http_once_ctx_t *ctx);
void ngx_http_once_lease_end(ngx_http_once_ctx_t *ctx);
/* may the request's bytes have reached an upstream? */
ngx_uint_t ngx_http_once_was_sent(ngx_http_once_ctx_t *ctx);
/* asks for the end of what is held, with nobody waiting for the answer */
void ngx_http_once_abandon(ngx_http_once_ctx_t *ctx);

ngx_int_t ngx_http_once_filter_init(ngx_conf_t *cf);
/* the answer that was withheld, or that there is none: asks the daemon to store it */
ngx_int_t ngx_http_once_store_outcome(ngx_http_once_ctx_t *ctx);
/* instead of the upstream's own finalize_request, which is in the context */
void ngx_http_once_upstream_ended(ngx_http_request_t *r, ngx_int_t rc);
ngx_uint_t ngx_http_once_is_answer(ngx_http_once_ctx_t *ctx);
ngx_uint_t ngx_http_once_end_is_certain(ngx_http_request_t *r);
/* is the answer to a claimed request to be made by nginx itself (X-Accel-Redirect)? */
ngx_uint_t ngx_http_once_is_handed(ngx_http_request_t *r);
ngx_int_t ngx_http_once_watch_upstreams(ngx_conf_t *cf);
/* before a claimed request goes on to its content */
void ngx_http_once_guard(ngx_http_once_ctx_t *ctx);

/* The bytes of the answer that is withheld. */
void ngx_http_once_withhold_begin(ngx_http_once_ctx_t *ctx);
/* Takes more in, all of these or none. NGX_DECLINED: they are too many, or there is no room for them. */
ngx_int_t ngx_http_once_withhold(ngx_http_once_ctx_t *ctx, u_char *bytes, size_t len);
/* All of them as one piece, until they are released. Nothing is taken in any more then. */
ngx_int_t ngx_http_once_withheld(ngx_http_once_ctx_t *ctx, once_span *bytes);
void ngx_http_once_withheld_release(ngx_http_once_ctx_t *ctx);

/* ---------------------------------------------------------------- traces */

/* of a worker's spans that wait to be told to a daemon; the rest is dropped and counted */
#define NGX_HTTP_ONCE_SPANS_LEN  (256 << 10)

char *ngx_http_once_set_trace(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* $once_trace_id */
ngx_int_t ngx_http_once_trace_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data);
/* A request with a key: from here on it is part of a trace. Nothing of all this fails a request. */
void ngx_http_once_trace_begin(ngx_http_once_ctx_t *ctx);
/* A span begins, and the one before it ends. With ONCE_TRACE_UPSTREAM: the service is told. */
void ngx_http_once_trace_step(ngx_http_once_ctx_t *ctx, ngx_uint_t name);
/* The span that is under way ends, with what the store said. */
void ngx_http_once_trace_answered(ngx_http_once_ctx_t *ctx, const ngx_http_once_reply_t *reply);
/* The request is over: its spans are told. */
void ngx_http_once_trace_end(ngx_http_once_ctx_t *ctx);
/* What goes before the frame of the call that a step begins with; `data` is the call's. */
void ngx_http_once_trace_context(struct once_buf *frame, uint32_t id, const void *data);
/* The call's own frame. */
once_span ngx_http_once_trace_skip(once_span frame);
/* Spans that wait go out where there is room. */
void ngx_http_once_trace_gather(ngx_http_once_daemon_t *d);
/* For an attempt of the completer. */
void ngx_http_once_trace_store(ngx_http_once_ctx_t *ctx, struct once_buf *lines);
void ngx_http_once_post_write(ngx_http_once_daemon_t *d);
/* The record's id, also where the daemon did not tell it; NGX_DECLINED: there is no key, or no secret yet. */
ngx_int_t ngx_http_once_key_hash(ngx_http_once_ctx_t *ctx, uint8_t hash[16]);

/* ---------------------------------------------------------------- answers */

/* Each sends a whole answer, and returns what is to be given to ngx_http_finalize_request(). */
ngx_int_t ngx_http_once_send_problem(ngx_http_request_t *r, const ngx_http_once_problem_t *problem);
ngx_int_t ngx_http_once_send_replay(ngx_http_request_t *r, const struct once_record *record);
/* of `record` only what was stored of an outcome counts */
ngx_int_t ngx_http_once_send_unknown(ngx_http_request_t *r, const struct once_record *record);
ngx_int_t ngx_http_once_send_in_progress(ngx_http_request_t *r, int64_t retry_after_ms);
ngx_int_t ngx_http_once_send_not_kept(ngx_http_request_t *r, const struct once_record *record);
ngx_int_t ngx_http_once_send_expired(ngx_http_once_ctx_t *ctx);
ngx_int_t ngx_http_once_send_deferred(ngx_http_once_ctx_t *ctx);
ngx_int_t ngx_http_once_send_store_down(ngx_http_request_t *r, const char *detail);
ngx_int_t ngx_http_once_send_quota(ngx_http_request_t *r, const char *detail);
ngx_int_t ngx_http_once_policy_handler(ngx_http_request_t *r);

ngx_int_t ngx_http_once_add_header(ngx_http_request_t *r, const char *name, const u_char *value, size_t len);
/* What every answer to a keyed request says: Idempotency-Expires, and Once-Tier where it is not the full one. */
ngx_int_t ngx_http_once_add_facts(ngx_http_once_ctx_t *ctx);
ngx_int_t ngx_http_once_add_tier(ngx_http_once_ctx_t *ctx);
/* Does the route want more than the daemon's store gives? Then ctx->refusal says so. */
ngx_uint_t ngx_http_once_refuse_tier(ngx_http_once_ctx_t *ctx);

#endif
