/* routes.c - the paths of the JSON API and their functions; docs/openapi.json describes the same. */
#include "daemon/api/call.h"

const struct api_route api_routes[] = {
    { "/v1/claim", "POST", API_BODY_LEN_MAX, api_claim },
    { "/v1/take-over", "POST", API_SMALL_LEN_MAX, api_take_over },
    { "/v1/extend", "POST", API_SMALL_LEN_MAX, api_extend },
    { "/v1/advance", "POST", API_CHECKPOINT_LEN_MAX, api_advance },
    { "/v1/finish", "POST", API_BODY_LEN_MAX, api_finish },
    { "/v1/release", "POST", API_SMALL_LEN_MAX, api_release },
    { "/v1/child-key", "POST", API_SMALL_LEN_MAX, api_child_key },
    { "/v1/records", "GET", 0, api_lookup },
    { "/healthz", "GET", 0, api_health },
    { "/readyz", "GET", 0, api_ready },
    { "/metrics", "GET", 0, api_metrics },
};

const size_t api_route_count = sizeof api_routes / sizeof *api_routes;

bool api_call_charge(struct api_call *call, uint64_t bytes)
{
    uint64_t before = atomic_fetch_add(&call->budget->used, bytes);
    if (before + bytes <= call->budget->max) {
        call->charged += bytes;
        return true;
    }
    atomic_fetch_sub(&call->budget->used, bytes);
    api_answer_problem(&call->answer, API_PROBLEM_BUSY, NULL, "no room for %llu more bytes of requests and answers",
                       (unsigned long long)bytes);
    return false;
}
