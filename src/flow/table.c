/*
 * table.c - checks a flow's table, and finds a recovery point in it.
 */
#include "core/backoff.h"
#include "core/err.h"
#include "core/span.h"
#include "flow/flow.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define RECEIVED "received"

void flow_bug(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("once flow: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

static once_result check_name(const char *what, const char *name, struct once_error *err)
{
    size_t len = strlen(name);
    if (len == 0 || len > ONCE_FLOW_NAME_LEN_MAX || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != len)
        return once_fail(err, ONCE_INVALID, "%s '%s' is not 1 to %d of a-z, 0-9, -", what, name,
                         ONCE_FLOW_NAME_LEN_MAX);
    return ONCE_OK;
}

static once_result check_step(const struct once_flow *flow, size_t i, struct once_error *err)
{
    const struct once_flow_step *s = &flow->steps[i];
    once_result r = check_name("step", s->name, err);
    if (r != ONCE_OK)
        return r;
    if (strcmp(s->name, RECEIVED) == 0)
        return once_fail(err, ONCE_INVALID, "step '%s' has a reserved name", s->name);
    for (size_t j = 0; j < i; j++)
        if (strcmp(flow->steps[j].name, s->name) == 0)
            return once_fail(err, ONCE_INVALID, "two steps are called '%s'", s->name);
    if ((s->local != NULL) == (s->call != NULL))
        return once_fail(err, ONCE_INVALID, "step '%s' must be either a local phase or a call", s->name);
    if (s->local != NULL && (s->callee != 0 || s->probe != NULL || s->probe_url != NULL || s->intent))
        return once_fail(err, ONCE_INVALID, "step '%s' is a local phase, but has members that only a call has",
                         s->name);
    if (s->callee > ONCE_CALLEE_PROBEABLE)
        return once_fail(err, ONCE_INVALID, "step '%s' has an unknown kind of callee: %d", s->name, (int)s->callee);
    if ((s->callee == ONCE_CALLEE_PROBEABLE) != (s->probe != NULL || s->probe_url != NULL))
        return once_fail(err, ONCE_INVALID, "step '%s': ONCE_CALLEE_PROBEABLE and a probe need each other", s->name);
    if (s->probe != NULL && s->probe_url != NULL)
        return once_fail(err, ONCE_INVALID, "step '%s' has two probes", s->name);
    const char *fault = s->probe_url != NULL ? flow_probe_url_fault(s->probe_url) : NULL;
    if (fault != NULL)
        return once_fail(err, ONCE_INVALID, "step '%s': the URL of its probe %s", s->name, fault);
    if (s->call != NULL && (i == ONCE_FLOW_STEPS_MAX || flow->steps[i + 1].local == NULL))
        return once_fail(err, ONCE_INVALID, "step '%s' is a call without a local phase after it", s->name);
    return ONCE_OK;
}

once_result once_flow_check(const struct once_flow *flow, struct once_error *err)
{
    if (flow->name == NULL || flow->steps[0].name == NULL)
        return once_fail(err, ONCE_INVALID, "a flow needs a name and steps");
    once_result r = check_name("flow", flow->name, err);
    size_t count = 0;
    for (; r == ONCE_OK && count <= ONCE_FLOW_STEPS_MAX && flow->steps[count].name != NULL; count++)
        r = check_step(flow, count, err);
    if (r == ONCE_OK && count > ONCE_FLOW_STEPS_MAX)
        r = once_fail(err, ONCE_INVALID, "flow '%s' has more than %d steps", flow->name, ONCE_FLOW_STEPS_MAX);
    int64_t kept_ms = flow->retention_ms != 0 ? flow->retention_ms : ONCE_RETENTION_MS_DEFAULT;
    if (r == ONCE_OK && (flow->body_retention_ms < 0 || (kept_ms != ONCE_NEVER && flow->body_retention_ms > kept_ms)))
        r = once_fail(err, ONCE_INVALID, "body retention of %lld ms is negative, or longer than the record's",
                      (long long)flow->body_retention_ms);
    if (r == ONCE_OK && (flow->lease_ms < 0 || flow->lease_ms > ONCE_LEASE_MS_MAX))
        r = once_fail(err, ONCE_INVALID, "lease of %lld ms is not between 1 ms and 24 h", (long long)flow->lease_ms);
    if (r == ONCE_OK && (flow->backoff_ms < 0 || flow->backoff_ms_max < 0 || flow->backoff_ms_max > ONCE_LEASE_MS_MAX))
        r = once_fail(err, ONCE_INVALID, "a backoff is not between 1 ms and 24 h");
    return r;
}

void flow_point(const struct once_flow *flow, const char *step, bool intent, char out[ONCE_POINT_LEN_MAX + 1])
{
    snprintf(out, ONCE_POINT_LEN_MAX + 1, "%s/%s%s", flow->name, step != NULL ? step : RECEIVED, intent ? "?" : "");
}

bool flow_owns(const struct once_flow *flow, once_span point)
{
    once_span head, tail;
    return once_span_cut(point, '/', &head, &tail) && once_span_equal(head, once_span_str(flow->name));
}

bool flow_find(const struct once_flow *flow, once_span point, size_t *next, bool *intent)
{
    char name[ONCE_POINT_LEN_MAX + 1];
    *next = 0;
    *intent = false;
    flow_point(flow, NULL, false, name);
    if (once_span_equal(point, once_span_str(name)))
        return true;
    for (size_t i = 0; flow->steps[i].name != NULL; i++) {
        *intent = flow->steps[i].call != NULL; /* a call has no recovery point, but its intent has */
        flow_point(flow, flow->steps[i].name, *intent, name);
        *next = *intent ? i : i + 1;
        if (once_span_equal(point, once_span_str(name)) && flow->steps[*next].name != NULL)
            return true;
    }
    return false;
}

int64_t flow_backoff_ms(const struct once_flow *flow, const uint8_t record[16], uint32_t next)
{
    struct once_backoff policy = {
        flow->backoff_ms != 0 ? flow->backoff_ms : ONCE_FLOW_BACKOFF_MS_DEFAULT,
        flow->backoff_ms_max != 0 ? flow->backoff_ms_max : ONCE_FLOW_BACKOFF_MS_MAX_DEFAULT,
        ONCE_JITTER_HALF,
    };
    /* A record id is a MAC: its bytes are as good as random. */
    uint32_t random = (uint32_t)record[next % 16] << 24 | (uint32_t)record[(next * 5 + 1) % 16] << 16;
    return once_backoff_ms(policy, next > 2 ? next - 2 : 0, random);
}
