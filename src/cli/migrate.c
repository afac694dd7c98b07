/* migrate.c - `once migrate`: makes a store, or brings one up to date. */
#include "cli/cli.h"
#include "cli/verbs.h"

static const char help[] =
    "usage: once migrate [--store URL] [--quiet]\n"
    "\n"
    "Makes a new store, or brings an older one up to date. 'once run' does the same by\n"
    "itself; the verbs that only look do not. A store of a newer version is refused.\n"
    "\n" ONCE_CLI_HELP_STORE
    "  --quiet            print nothing but errors\n" ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0; 64 usage; 69 store unavailable; 70 store damaged; 75 busy\n"
    "\n"
    "example: once migrate --store sqlite:/var/lib/shop/once.db\n";

int once_cli_migrate(int argc, char **argv)
{
    static const struct option options[] = { ONCE_CLI_OPTION_HELP, ONCE_CLI_OPTION_STORE, ONCE_CLI_OPTION_QUIET,
                                             { 0 } };
    struct once_cli cli = { .verb = "migrate", .help = help };
    for (int c; (c = once_cli_next(&cli, argc, argv, "", options)) != -1;)
        return cli.exit;
    if (optind < argc)
        return once_cli_usage(&cli, "'%s' is too much", argv[optind]);
    struct once *once = NULL;
    int exit = once_cli_open(&cli, ONCE_CLI_CREATE, &once);
    if (exit == ONCE_EXIT_OK && !cli.quiet)
        printf("%s is ready for once %s\n", cli.url, once_version());
    once_close(once);
    return once_cli_finish(&cli, exit);
}
