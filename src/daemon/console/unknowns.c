/* unknowns.c - see console/unknowns.h. */
#include "daemon/console/unknowns.h"

#include "os/os.h"

/* One page. */
static once_result step(struct unknowns *u, struct once *once, bool *over)
{
    struct once_filter filter = { .states = 1u << ONCE_STATE_UNKNOWN, .before = u->before, .limit = UNKNOWNS_MAX };
    struct once_page page = { 0 };
    once_result r = once_list(once, &filter, &page, NULL);
    if (r != ONCE_OK)
        return r;
    u->before = page.next;
    u->found += (uint32_t)page.count;
    *over = page.next == 0 || u->found >= UNKNOWNS_MAX;
    once_page_release(&page);
    return ONCE_OK;
}

static void tell(struct unknowns *u, bool over)
{
    if (over) {
        u->more = u->before != 0;
        u->count = u->found;
        u->walked = true;
        u->before = u->found = 0;
    } else if (u->found > u->count || !u->walked) {
        u->more = true;
        u->count = u->found;
    }
}

once_result unknowns_look(struct unknowns *u, struct once *once)
{
    once_time until = once_os_monotonic_ms() + UNKNOWNS_MS;
    once_result r = ONCE_OK;
    bool over = false;
    for (int i = 0; i < UNKNOWNS_STEPS && r == ONCE_OK && !over && (i == 0 || once_os_monotonic_ms() < until); i++)
        r = step(u, once, &over);
    if (r == ONCE_OK)
        tell(u, over);
    return r;
}
