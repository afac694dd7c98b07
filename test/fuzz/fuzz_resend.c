/*
 * fuzz_resend.c - any bytes as a stored request that is about to be sent again.
 *
 * Properties: what is accepted is written again as the same bytes; no field of it has a line end where none
 *             belongs, and no header says who somebody is (RESEND-1, RESEND-2); a refusal is INVALID and says why.
 */
#include "fuzz.h"

#include "core/http/resend.h"
#include "core/span.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct once_resend r;
    struct once_error err = { .result = ONCE_OK };
    once_result result = once_resend_get(once_span_of(data, size), &r, &err);
    if (result != ONCE_OK) {
        HOLDS(result == ONCE_INVALID && err.text[0] != '\0');
        return 0;
    }
    struct once_buf again;
    once_buf_init(&again, size);
    once_resend_put(&again, &r);
    HOLDS(again.result == ONCE_OK && once_span_equal(once_buf_span(&again), once_span_of(data, size)));
    once_buf_release(&again);
    once_span lines = r.headers, name, value;
    while (once_header_line(&lines, &name, &value)) {
        HOLDS(name.len > 0 && !once_header_is_secret(name) && !once_header_is_of_one_hop(name));
        HOLDS(value.len == 0 ||
              (memchr(value.ptr, '\n', value.len) == NULL && memchr(value.ptr, '\r', value.len) == NULL));
    }
    HOLDS(r.target.ptr[0] == '/' && memchr(r.target.ptr, ' ', r.target.len) == NULL);
    HOLDS(r.probe.len == 0 || (r.probe.ptr[0] == '/' && memchr(r.probe.ptr, ' ', r.probe.len) == NULL &&
                               memchr(r.probe.ptr, '\n', r.probe.len) == NULL));
    HOLDS(!r.partial || (r.probe.len > 0 && r.body.len == 0));
    HOLDS(r.method.len > 0 && memchr(r.method.ptr, '\r', r.method.len) == NULL);
    return 0;
}
