/* run.c - runs a flow for a client, and closes a flow's database. */
#include "core/decide.h"
#include "core/err.h"
#include "flow/flow.h"

void once_flow_close(struct once_flow_db *db)
{
    if (db == NULL)
        return;
    flow_lease_keeper_release(&db->keeper);
    db->ops->close(db);
}

once_result once_flow_run(const struct once_flow *flow, struct once_flow_db *db, const struct once_flow_input *input,
                          void *arg, struct once_flow_report *report, struct once_reply *reply, struct once_error *err)
{
    struct once_flow_report own;
    struct once_error why = { .result = ONCE_OK };
    report = report != NULL ? report : &own;
    *report = (struct once_flow_report){ .executed = false };
    *reply = (struct once_reply){ .arm = ONCE_ARM_NONE };
    if (once_flow_check(flow, &why) != ONCE_OK)
        flow_bug("%s", why.text);
    once_result r = once_name_check(input->tenant, input->key, err);
    if (r == ONCE_OK && input->request.len > ONCE_FLOW_CHECKPOINT_LEN_MAX)
        r = once_fail(err, ONCE_LIMIT, "the request has %zu bytes, the limit is %d", input->request.len,
                      ONCE_FLOW_CHECKPOINT_LEN_MAX);
    if (r == ONCE_OK && !db->ops->is_idle(db))
        r = once_fail(err, ONCE_INVALID, "the connection has an open transaction: a flow begins its own");
    if (r != ONCE_OK)
        return r;
    struct attempt a;
    attempt_init(&a, flow, db, arg, report);
    a.tenant = input->tenant;
    a.key = input->key;
    struct attempt_entry entry = { .request = input->request };
    if (attempt_enter(&a, &entry, &r, reply, &why) == ATTEMPT_CONTINUES)
        r = attempt_drive(&a, reply, &why);
    if (r != ONCE_OK && err != NULL)
        *err = why;
    if (r != ONCE_OK)
        once_reply_release(reply);
    attempt_release(&a);
    return r;
}
