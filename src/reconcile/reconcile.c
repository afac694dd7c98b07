/* reconcile.c - one run of `once reconcile`: read the export, compare, report; Ctrl-C ends it between two records. */
#include "reconcile/reconcile.h"

#include "os/os.h"
#include "program/record_out.h"

#include <inttypes.h>

bool reconcile_is_interrupted(struct reconcile *r)
{
    if (r->interrupted == 0)
        r->interrupted = once_signals_take(&r->signals);
    return r->interrupted != 0;
}

void reconcile_show(struct reconcile *r, const char *doing, uint64_t count)
{
    enum { SHOW_MS = 250 };
    if (!r->terminal)
        return;
    once_time now = once_os_monotonic_ms();
    if (doing == NULL && r->shown) {
        fprintf(stderr, "\r\033[K"); /* clears the progress line */
        r->shown = false;
    } else if (doing != NULL && now - r->shown_at >= SHOW_MS) {
        r->shown_at = now;
        r->shown = true;
        fprintf(stderr, "\ronce reconcile: %" PRIu64 " %s\033[K", count, doing);
    }
    fflush(stderr);
}

static int compare(struct reconcile *r)
{
    struct once_error err;
    once_time now;
    int exit = once_record_now(&r->cli, r->once, &now);
    if (exit != ONCE_EXIT_OK)
        return exit;
    r->rules.as_of = r->complete_until != 0 ? r->complete_until : now;
    r->rules.complete = r->from == NULL || r->complete_until != 0;
    if (reconcile_join_open(&r->join, &err) != ONCE_OK)
        return once_cli_fail(&r->cli, ONCE_EXIT_OS, "%s", err.text);
    if (r->from != NULL)
        exit = reconcile_export_read(r);
    if (exit == ONCE_EXIT_OK && r->interrupted == 0)
        exit = reconcile_compare(r);
    reconcile_show(r, NULL, 0); /* before the report */
    if (exit == ONCE_EXIT_OK && r->interrupted == 0)
        exit = reconcile_report(r);
    return exit;
}

int reconcile_run(struct reconcile *r)
{
    int exit = once_cli_open(&r->cli, ONCE_CLI_EXISTING, &r->once);
    if (exit != ONCE_EXIT_OK)
        return exit;
    if (once_signals_init(&r->signals) != 0)
        exit = once_cli_fail(&r->cli, ONCE_EXIT_OS, "cannot wait for signals");
    else
        exit = compare(r);
    reconcile_join_close(r->join);
    once_close(r->once);
    exit = once_cli_finish(&r->cli, exit);
    if (r->interrupted != 0) {
        once_cli_fail(&r->cli, 0, "interrupted after %" PRIu64 " lines and %" PRIu64 " records%s", r->counts.lines,
                      r->counts.records, r->counts.resolved > 0 ? "; the decisions made so far stay" : "");
        once_signals_die(&r->signals, r->interrupted);
    }
    once_signals_release(&r->signals);
    return exit;
}
