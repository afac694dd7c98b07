/* migrate.c - `once migrate`: makes a store, or brings one up to date. */
#include "cli/cli.h"
#include "cli/verbs.h"

#include "cli/store_url.h"

#include "postgres_sql.h"
#include "sqlite_sql.h"

/* clang-format off */
static const char help[] =
    "usage: once migrate [--store URL] [--print] [--quiet]\n"
    "\n"
    "Makes a new store, or brings an older one up to date, and prints its version. For a file\n"
    "'once run' does the same by itself; a PostgreSQL database is only changed by this verb.\n"
    "All or nothing: one transaction. A store of a newer version is refused.\n"
    "\n"
    "  --print            print the SQL of all versions for this kind of store instead, and\n"
    "                     touch nothing\n"
    ONCE_CLI_HELP_STORE
    "  --quiet            print nothing but errors\n"
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0; 64 usage; 69 store unavailable; 70 store damaged; 75 busy\n"
    "\n"
    "example: once migrate --store sqlite:/var/lib/shop/once.db\n";
/* clang-format on */

enum { OPTION_PRINT = ONCE_CLI_OWN };

/* Its URL may hold a password, and is not shown. */
static bool is_postgres(const char *url)
{
    return strncmp(url, "postgres", strlen("postgres")) == 0;
}

static void print_sql(const char *url)
{
    if (is_postgres(url)) {
        for (int i = 0; i < postgres_migration_count; i++)
            printf("BEGIN;\n-- %s\n%s\nCOMMIT;\n", postgres_migrations[i].name, postgres_migrations[i].sql);
        return;
    }
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
    struct once_error err;
    once_result r = once_store_url(cli.store, !print, cli.url, &err);
    int version = 0;
    if (r == ONCE_OK && print)
        print_sql(cli.url);
    else if (r == ONCE_OK)
        r = once_migrate(cli.url, &version, &err);
    if (r != ONCE_OK)
        return once_cli_error(&cli, &err, "migrate the store");
    if (!print && !cli.quiet)
        printf("%s is at version %d\n", is_postgres(cli.url) ? "the PostgreSQL store" : cli.url, version);
    return once_cli_finish(&cli, ONCE_EXIT_OK);
}
