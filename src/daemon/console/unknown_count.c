/* unknown_count.c - see console/unknown_count.h. */
#include "daemon/console/unknown_count.h"

#include "os/os.h"

/* One page. */
static once_result step(struct console_unknown_count *u, struct once *once, bool *over)
{
    struct once_filter filter = { .states = 1u << ONCE_STATE_UNKNOWN,
                                  .before = u->before,
                                  .limit = CONSOLE_UNKNOWN_COUNT_MAX };
    struct once_page page = { 0 };
    once_result r = once_list(once, &filter, &page, NULL);
    if (r != ONCE_OK)
        return r;
    u->before = page.next;
    u->found += (uint32_t)page.count;
    *over = page.next == 0 || u->found >= CONSOLE_UNKNOWN_COUNT_MAX;
    once_page_release(&page);
    return ONCE_OK;
}

static void tell(struct console_unknown_count *u, bool over)
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

once_result console_unknown_count_step(struct console_unknown_count *u, struct once *once)
{
    once_time until = once_os_monotonic_ms() + CONSOLE_UNKNOWN_COUNT_MS;
    once_result r = ONCE_OK;
    bool over = false;
    for (int i = 0;
         i < CONSOLE_UNKNOWN_COUNT_STEPS && r == ONCE_OK && !over && (i == 0 || once_os_monotonic_ms() < until); i++)
        r = step(u, once, &over);
    if (r == ONCE_OK)
        tell(u, over);
    return r;
}
