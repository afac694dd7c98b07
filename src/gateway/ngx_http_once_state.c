/*
 * ngx_http_once_state.c - the state of a request: the legal moves, and the facts that hold in each state.
 *
 *     READING -> [WAITING ->] CLAIMING -> DECIDED -> [RECORDING_INTENT -> INTENT_RECORDED ->] HELD -> STORING -> DONE
 *
 * with shortcuts, for example: a refused request goes from READING to DONE, a replay from DECIDED to DONE.
 *
 * A failed check is a bug in this module. Aborting the worker would end its other requests as well and leave all of
 * their claims to their leases: thousands of unknown outcomes because of one. Continuing could send a request
 * twice. So the module stops this one request: it logs an alert, calls ngx_debug_point() (with `debug_points
 * abort` an operator gets a core dump), and makes the request BROKEN. A BROKEN request sends nothing more, neither
 * to the upstream nor to the client, and its claim is left to its lease, as after a crash.
 */
#include "ngx_http_once.h"

#define NGX_HTTP_ONCE_TO(state)  (1u << NGX_HTTP_ONCE_##state)

/* facts of a state */
#define NGX_HTTP_ONCE_CALLS  1  /* a call to the daemon is in flight */
#define NGX_HTTP_ONCE_HOLDS  2  /* this worker holds the claim and renews its lease */
#define NGX_HTTP_ONCE_SENDS  4  /* the claim is durable: the request may be sent upstream (K4) */

static const struct {
    const char  *name;
    ngx_uint_t   next;   /* legal moves, as bits */
    ngx_uint_t   facts;
}  ngx_http_once_states[] = {
    [NGX_HTTP_ONCE_READING] = { "reading", NGX_HTTP_ONCE_TO(WAITING)|NGX_HTTP_ONCE_TO(CLAIMING)
        |NGX_HTTP_ONCE_TO(DECIDED)|NGX_HTTP_ONCE_TO(DONE), 0 },
    [NGX_HTTP_ONCE_WAITING] = { "waiting", NGX_HTTP_ONCE_TO(CLAIMING)|NGX_HTTP_ONCE_TO(DECIDED), 0 },
    [NGX_HTTP_ONCE_CLAIMING] = { "claiming", NGX_HTTP_ONCE_TO(DECIDED), NGX_HTTP_ONCE_CALLS },
    [NGX_HTTP_ONCE_DECIDED] = { "decided", NGX_HTTP_ONCE_TO(RECORDING_INTENT)|NGX_HTTP_ONCE_TO(HELD)
        |NGX_HTTP_ONCE_TO(DONE), 0 },
    [NGX_HTTP_ONCE_RECORDING_INTENT] = { "recording intent", NGX_HTTP_ONCE_TO(INTENT_RECORDED)
        |NGX_HTTP_ONCE_TO(DECIDED)|NGX_HTTP_ONCE_TO(DONE), NGX_HTTP_ONCE_CALLS|NGX_HTTP_ONCE_HOLDS },
    [NGX_HTTP_ONCE_INTENT_RECORDED] = { "intent recorded", NGX_HTTP_ONCE_TO(HELD)|NGX_HTTP_ONCE_TO(DONE),
        NGX_HTTP_ONCE_HOLDS },
    [NGX_HTTP_ONCE_HELD] = { "held", NGX_HTTP_ONCE_TO(STORING)|NGX_HTTP_ONCE_TO(DONE),
        NGX_HTTP_ONCE_HOLDS|NGX_HTTP_ONCE_SENDS },
    [NGX_HTTP_ONCE_STORING] = { "storing", NGX_HTTP_ONCE_TO(STORING)|NGX_HTTP_ONCE_TO(DONE),
        NGX_HTTP_ONCE_CALLS|NGX_HTTP_ONCE_SENDS },
    [NGX_HTTP_ONCE_DONE] = { "done", 0, NGX_HTTP_ONCE_SENDS },
    [NGX_HTTP_ONCE_BROKEN] = { "broken", 0, 0 }
};

/* Returns a fact that does not hold, or NULL. */
static const char *
ngx_http_once_state_fault(const ngx_http_once_ctx_t *ctx)
{
    ngx_uint_t  facts = ngx_http_once_states[ctx->state].facts;

    if ((ctx->call != NULL) != ((facts & NGX_HTTP_ONCE_CALLS) != 0)) {
        return ctx->call != NULL ? "a call to the daemon is in flight" : "no call to the daemon is in flight";
    }

    if ((ctx->queue.next != NULL) != ((facts & NGX_HTTP_ONCE_HOLDS) != 0)) {
        return ctx->queue.next != NULL ? "the claim is held" : "the claim is not held";
    }

    if ((facts & NGX_HTTP_ONCE_HOLDS)
        && (ctx->reply.result != ONCE_OK || ctx->reply.arm != ONCE_ARM_EXECUTE || ngx_http_once_is_observing(ctx)
            || !ctx->timer.timer_set))
    {
        return "the claim was not granted, or its lease is not renewed";
    }

    if (!(facts & NGX_HTTP_ONCE_SENDS)
        && (ctx->upstream != NGX_HTTP_ONCE_UNLIMITED || ctx->capture != NGX_HTTP_ONCE_NOTHING))
    {
        return "the request was sent upstream or answered";
    }

    if (ctx->state == NGX_HTTP_ONCE_STORING && ctx->capture == NGX_HTTP_ONCE_NOTHING) {
        return "no answer was captured";
    }

    if (ctx->state == NGX_HTTP_ONCE_DECIDED && ctx->status == NGX_HTTP_ONCE_STATUS_INCOMPLETE) {
        return "nothing was decided";
    }

    return NULL;
}

static ngx_int_t
ngx_http_once_break(ngx_http_once_ctx_t *ctx, ngx_http_once_state_e from, const char *fault)
{
    ngx_log_error(NGX_LOG_ALERT, ctx->request->connection->log, 0,
                  "once: bug: state \"%s\" (from \"%s\"), but %s; the request is stopped, its claim is left to its lease",
                  ngx_http_once_states[ctx->state].name, ngx_http_once_states[from].name, fault);
    ctx->state = NGX_HTTP_ONCE_BROKEN;
    ngx_debug_point();

    return NGX_ERROR;
}

ngx_int_t
ngx_http_once_check_state(ngx_http_once_ctx_t *ctx)
{
    const char  *fault;

    if (ctx->state == NGX_HTTP_ONCE_BROKEN) {
        return NGX_ERROR;
    }

    fault = ngx_http_once_state_fault(ctx);

    return fault == NULL ? NGX_OK : ngx_http_once_break(ctx, ctx->state, fault);
}

ngx_int_t
ngx_http_once_set_state(ngx_http_once_ctx_t *ctx, ngx_http_once_state_e to)
{
    const char             *fault;
    ngx_http_once_state_e   from = ctx->state;

    if (from == NGX_HTTP_ONCE_BROKEN) {
        return NGX_ERROR;
    }

    ctx->state = to;
    fault = ngx_http_once_states[from].next & (1u << to) ? ngx_http_once_state_fault(ctx) : "this move is not legal";

    return fault == NULL ? NGX_OK : ngx_http_once_break(ctx, from, fault);
}

void
ngx_http_once_set_capture(ngx_http_once_ctx_t *ctx, ngx_http_once_capture_e capture)
{
    ctx->capture = capture;
    ctx->status = capture == NGX_HTTP_ONCE_OUTCOME ? NGX_HTTP_ONCE_STATUS_EXECUTED
                : capture == NGX_HTTP_ONCE_NOT_SENT ? NGX_HTTP_ONCE_STATUS_NOT_SENT
                : ctx->takeover == ONCE_TAKEOVER_RERUN ? NGX_HTTP_ONCE_STATUS_FAILED : NGX_HTTP_ONCE_STATUS_UNKNOWN;
}
