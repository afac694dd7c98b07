/* migrate.c - `once migrate`: makes a store, or brings one up to date. */
#include "cli/cli.h"
#include "cli/verbs.h"

#include "sqlite_sql.h"

static const char help[] =
    "usage: once migrate [--store URL] [--print] [--quiet]\n"
    "\n"
    "Makes a new store, or brings an older one up to date, and prints its version. 'once run'\n"
    "does the same by itself; the verbs that only look do not. A store of a newer version is\n"
    "refused.\n"
    "\n"
    "  --print            print the SQL of all versions instead, and touch nothing\n" ONCE_CLI_HELP_STORE
    "  --quiet            print nothing but errors\n" ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0; 64 usage; 69 store unavailable; 70 store damaged; 75 busy\n"
    "\n"
    "example: once migrate --store sqlite:/var/lib/shop/once.db\n";

enum { OPTION_PRINT = ONCE_CLI_OWN };

static void print_sql(void)
{
    for (int i = 0; i < sqlite_migration_count; i++)
        printf("-- %s\n%s\n", sqlite_migrations[i].name, sqlite_migrations[i].sql);
}

int once_cli_migrate(int argc, char **argv)
{
    static const struct option options[] = {
        ONCE_CLI_OPTION_HELP,
        ONCE_CLI_OPTION_STORE,
        ONCE_CLI_OPTION_QUIET,
        { "print", no_argument, NULL, OPTION_PRINT },
        { 0 },
    };
    struct once_cli cli = { .verb = "migrate", .help = help };
    bool print = false;
    for (int c; (c = once_cli_next(&cli, argc, argv, "", options)) != -1;) {
        if (c != OPTION_PRINT)
            return cli.exit;
        print = true;
    }
    if (optind < argc)
        return once_cli_usage(&cli, "'%s' is too much", argv[optind]);
    if (print) {
        print_sql();
        return once_cli_finish(&cli, ONCE_EXIT_OK);
    }
    struct once *once = NULL;
    int exit = once_cli_open(&cli, ONCE_CLI_CREATE, &once);
    if (exit == ONCE_EXIT_OK && !cli.quiet)
        printf("%s is at version %d\n", cli.url, sqlite_migration_count);
    once_close(once);
    return once_cli_finish(&cli, exit);
}
