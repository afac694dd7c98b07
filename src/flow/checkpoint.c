/* checkpoint.c - see checkpoint.h. */
#include "flow/checkpoint.h"

#include "core/err.h"
#include "core/span.h"

once_result flow_checkpoint_encode(const struct flow_checkpoint *k, struct once_buf *out, struct once_error *err)
{
    once_buf_clear(out);
    once_buf_add(out, ONCE_LIT("F1"));
    once_buf_add_byte(out, k->flags);
    once_buf_add_byte(out, k->crashes);
    once_buf_add_u32(out, (uint32_t)k->request.len);
    once_buf_add_u32(out, (uint32_t)k->state.len);
    once_buf_add_u32(out, (uint32_t)k->answer.len);
    once_buf_add(out, k->request);
    once_buf_add(out, k->state);
    once_buf_add(out, k->answer);
    if (out->result == ONCE_LIMIT)
        return once_fail(err, ONCE_LIMIT, "request, state and answer have %zu bytes together, a checkpoint takes %d",
                         k->request.len + k->state.len + k->answer.len,
                         ONCE_CHECKPOINT_LEN_MAX - FLOW_CHECKPOINT_HEAD_LEN);
    return out->result == ONCE_OK ? ONCE_OK : once_fail(err, out->result, "no memory for a checkpoint");
}

static once_span take(once_span *bytes, size_t len)
{
    once_span head = once_span_of(bytes->ptr, len);
    *bytes = once_span_skip(*bytes, len);
    return head;
}

static size_t take_u32(once_span *bytes)
{
    return once_read_u32(take(bytes, 4).ptr);
}

bool flow_checkpoint_decode(once_span bytes, struct flow_checkpoint *out)
{
    if (bytes.len < FLOW_CHECKPOINT_HEAD_LEN || bytes.len > ONCE_CHECKPOINT_LEN_MAX ||
        !once_span_equal(take(&bytes, 2), ONCE_LIT("F1")))
        return false;
    *out = (struct flow_checkpoint){ .flags = bytes.ptr[0], .crashes = bytes.ptr[1] };
    bytes = once_span_skip(bytes, 2);
    size_t request = take_u32(&bytes), state = take_u32(&bytes), answer = take_u32(&bytes);
    if (request > bytes.len || state > bytes.len || answer > bytes.len || request + state + answer != bytes.len)
        return false;
    out->request = take(&bytes, request);
    out->state = take(&bytes, state);
    out->answer = take(&bytes, answer);
    return true;
}
