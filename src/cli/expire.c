/* expire.c - `once expire`: removes records past their retention. */
#include "cli/verbs.h"
#include "os/signals.h"
#include "program/cli.h"

#include <inttypes.h>
#include <unistd.h>

/* clang-format off */
static const char help[] =
    "usage: once expire [--store URL] [--limit N] [--step N] [--progress] [--quiet]\n"
    "\n"
    "Removes records past their retention, in bounded steps; others may use the store\n"
    "meanwhile. Such a record counts as absent even before that: this only frees its space.\n"
    "Running and unknown records are never removed.\n"
    "\n"
    "  --limit N          remove N records at most; default: all that are due\n"
    "  --step N           records per step, up to 10000; default 1000\n"
    "  --progress         show how far it got, also if stderr is not a terminal\n"
    ONCE_CLI_HELP_STORE
    "  --quiet            print nothing but errors\n"
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0, also if the default store does not exist yet; 64 usage; 69 store unavailable;\n"
    "      70 store damaged; 75 busy; 128+N stopped by signal N between two steps: the\n"
    "      records removed so far stay removed\n"
    "\n"
    "example: once expire --limit 100000\n";
/* clang-format on */

enum { OPTION_LIMIT = ONCE_CLI_OWN, OPTION_STEP, OPTION_PROGRESS };

struct expire {
    struct once_cli cli;
    struct once_signals signals;
    uint64_t limit, step, removed;
    bool progress, terminal;
    int interrupted;
};

static void show_progress(const struct expire *expire, bool last)
{
    if (!expire->progress)
        return;
    /* On a terminal one line is overwritten each time. */
    fprintf(stderr, "%sonce expire: %" PRIu64 " removed%s", expire->terminal ? "\r" : "", expire->removed,
            last ? ", done" : "");
    if (last || !expire->terminal)
        fputc('\n', stderr);
    fflush(stderr);
}

static int expire_all(struct expire *expire, struct once *once)
{
    bool more = true;
    while (more && expire->removed < expire->limit && expire->interrupted == 0) {
        uint64_t left = expire->limit - expire->removed, removed = 0;
        struct once_error err;
        once_result r = once_expire(once, (uint32_t)(left < expire->step ? left : expire->step), &removed, &more, &err);
        if (r != ONCE_OK) {
            once_cli_fail(&expire->cli, 0, "%" PRIu64 " records were removed before it failed", expire->removed);
            return once_cli_error(&expire->cli, &err, "remove more");
        }
        expire->removed += removed;
        expire->interrupted = more ? once_signals_take(&expire->signals) : 0;
        show_progress(expire, !more);
    }
    if (expire->interrupted != 0)
        return once_cli_fail(&expire->cli, ONCE_EXIT_SIGNAL + expire->interrupted,
                             "stopped after %" PRIu64 " records; run it again to go on", expire->removed);
    if (!expire->cli.quiet)
        printf("%" PRIu64 " removed%s\n", expire->removed,
               more                                          ? ", more are due"
               : strcmp(once_tier(once), "best-effort") == 0 ? ": Redis itself removes records past their retention"
                                                             : "");
    return ONCE_EXIT_OK;
}

int once_cli_expire(int argc, char **argv)
{
    static const struct option options[] = {
        ONCE_CLI_OPTION_HELP,
        ONCE_CLI_OPTION_STORE,
        ONCE_CLI_OPTION_QUIET,
        { "limit", required_argument, NULL, OPTION_LIMIT },
        { "step", required_argument, NULL, OPTION_STEP },
        { "progress", no_argument, NULL, OPTION_PROGRESS },
        { 0 },
    };
    struct expire expire = { .cli = { .verb = "expire", .help = help }, .limit = UINT64_MAX, .step = 1000 };
    struct once_cli *cli = &expire.cli;
    bool good = true;
    for (int c; good && (c = once_cli_next(cli, argc, argv, "", options)) != -1;) {
        if (c == OPTION_LIMIT)
            good = once_cli_number(cli, "--limit", 1, UINT64_MAX, &expire.limit);
        else if (c == OPTION_STEP)
            good = once_cli_number(cli, "--step", 1, ONCE_EXPIRE_BUDGET_MAX, &expire.step);
        else if (c == OPTION_PROGRESS)
            expire.progress = true;
        else
            return cli->exit;
    }
    if (!good)
        return ONCE_EXIT_USAGE;
    if (optind < argc)
        return once_cli_usage(cli, "unexpected argument '%s'", argv[optind]);
    expire.terminal = isatty(STDERR_FILENO);
    expire.progress = expire.progress || (expire.terminal && !cli->quiet);
    struct once *once = NULL;
    int exit = once_cli_open(cli, ONCE_CLI_IF_ANY, &once); /* a timer may run before the first store exists */
    if (once == NULL)
        return exit;
    int error = once_signals_init(&expire.signals);
    if (error != 0)
        exit = once_cli_fail(cli, ONCE_EXIT_OS, "cannot watch for signals: %s", strerror(error));
    if (exit == ONCE_EXIT_OK)
        exit = expire_all(&expire, once);
    once_close(once);
    once_signals_release(&expire.signals);
    return once_cli_finish(cli, exit);
}
