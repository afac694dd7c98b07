/* call_log.c - see call_log.h. */
#include "daemon/socket/call_log.h"

#include "core/record.h"
#include "core/span.h"
#include "os/os.h"

#include <stdlib.h>

struct call_log_entry {
    enum once_verb verb;
    uint64_t started_ns; /* monotonic */
    uint8_t record[16];
    uint64_t fence;
    bool traced, has_tenant;
    struct once_trace trace;
    size_t tenant_len, route_len;
    uint8_t tenant[ONCE_TENANT_LEN_MAX];
    uint8_t route[ONCE_TRACE_TEXT_LEN];
};

void call_log_context_set(struct call_log_context *context, const struct wire_context *from)
{
    size_t len = from->route.len < sizeof context->route ? from->route.len : sizeof context->route;
    context->there = true;
    context->call = from->call;
    context->trace = from->trace;
    context->route_len = len;
    if (len > 0)
        memcpy(context->route, from->route.ptr, len);
}

static void note_key(struct call_log_entry *n, const struct once_mac *secret, once_span tenant, once_span key)
{
    if (tenant.len > sizeof n->tenant)
        return; /* the call will be refused */
    n->has_tenant = true;
    n->tenant_len = tenant.len;
    if (tenant.len > 0)
        memcpy(n->tenant, tenant.ptr, tenant.len);
    once_record_id(secret, tenant, key, n->record);
}

struct call_log_entry *call_log_begin(const struct call_log_outputs *to, struct call_log_context *context, uint32_t id,
                                      const struct once_mac *secret, const struct once_request *request)
{
    bool traced = context->there && context->call == id;
    context->there = false;
    bool logs = to->log != NULL && decisions_cover(request->verb);
    bool waits = traced && context->trace.sampled && to->exporter != NULL && request->verb == ONCE_VERB_CLAIM &&
                 request->claim.wait_ms > 0;
    struct call_log_entry *n = logs || waits ? malloc(sizeof *n) : NULL;
    if (n == NULL)
        return NULL;
    n->verb = request->verb;
    n->started_ns = once_os_monotonic_ns();
    n->traced = traced;
    n->has_tenant = false;
    n->route_len = n->tenant_len = 0;
    n->fence = request->grant.fence;
    memcpy(n->record, request->grant.record, sizeof n->record);
    if (traced)
        n->trace = context->trace;
    once_span route = request->verb == ONCE_VERB_CLAIM ? request->claim.route : once_span_of(NULL, 0);
    if (route.len == 0 && traced) /* only a claim has a route itself */
        route = once_span_of(context->route, context->route_len);
    n->route_len = route.len < sizeof n->route ? route.len : sizeof n->route;
    if (n->route_len > 0)
        memcpy(n->route, route.ptr, n->route_len);
    if (request->verb == ONCE_VERB_CLAIM)
        note_key(n, secret, request->claim.tenant, request->claim.key);
    else if (request->verb == ONCE_VERB_RESOLVE)
        note_key(n, secret, request->resolve.tenant, request->resolve.key);
    else if (request->verb == ONCE_VERB_TAKE_OVER)
        memcpy(n->record, request->take_over.seen.record, sizeof n->record);
    return n;
}

/* The span begins with the call's arrival: it includes the short time before the wait. */
static void export_wait(struct exporter *exporter, const struct call_log_entry *n, const struct decision *d)
{
    struct once_trace_report report = {
        .fence = d->fence, .attempt = d->attempt, .tenant = d->tenant, .route = d->route, .count = 1
    };
    struct once_trace_span *span = &report.spans[0];
    uint8_t random[8];
    once_os_random(random, sizeof random);
    once_trace_name_span(span->id, random);
    memcpy(report.trace, n->trace.trace, sizeof report.trace);
    memcpy(report.record, d->record, sizeof report.record);
    memcpy(span->parent, n->trace.span, sizeof span->parent);
    span->name = ONCE_TRACE_WAIT;
    span->arm = d->arm;
    span->end_ns = once_os_wall_ns();
    span->start_ns = span->end_ns - d->duration_ns;
    tracer_report(exporter, &report);
}

void call_log_end(const struct call_log_outputs *to, struct call_log_entry *n, once_result result,
                  const struct once_reply *reply, bool waited)
{
    if (n == NULL)
        return;
    struct decision d = { .verb = n->verb,
                          .by = "socket",
                          .fence = n->fence,
                          .has_tenant = n->has_tenant,
                          .tenant = once_span_of(n->tenant, n->tenant_len),
                          .trace = n->traced ? &n->trace : NULL,
                          .route = once_span_of(n->route, n->route_len),
                          .duration_ns = once_os_monotonic_ns() - n->started_ns };
    memcpy(d.record, n->record, sizeof d.record);
    decision_take_reply(&d, result, reply);
    if (decisions_cover(n->verb))
        decisions_note(to->log, &d);
    if (waited && n->traced && n->trace.sampled)
        export_wait(to->exporter, n, &d);
    free(n);
}
