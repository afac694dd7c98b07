/*
 * derive.c - derives child keys and fingerprints from a store's secret.
 */
#include "core/fingerprint.h"
#include "core/record.h"
#include "engine/handle.h"

void once_child_key(const struct once *once, const struct once_grant *grant, once_span call_name,
                    char out[ONCE_CHILD_KEY_LEN + 1])
{
    once_child_key_of(&once->store->secret, grant->record, call_name, out);
}

once_result once_fingerprint_http(const struct once *once, once_span tenant, const struct once_http *http,
                                  struct once_fingerprint *out, struct once_error *err)
{
    struct once_mac salt;
    once_fingerprint_salt(&once->store->secret, tenant, &salt);
    return once_fingerprint_http_with(&salt, http, out, err);
}

void once_fingerprint_list(const struct once *once, once_span tenant, const once_span *parts, size_t count,
                           struct once_fingerprint *out)
{
    struct once_mac salt;
    once_fingerprint_salt(&once->store->secret, tenant, &salt);
    once_fingerprint_list_with(&salt, parts, count, out);
}
