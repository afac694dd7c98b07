/* migrate.c - `once migrate`: creates or upgrades a store. */
#include "cli/verbs.h"
#include "program/cli.h"

#include "core/err.h"
#include "store/store.h"
#include "store/url.h"

#include "postgres_sql.h"
#include "sqlite_sql.h"

/* clang-format off */
static const char help[] =
    "usage: once migrate [--store URL] [--pg-cron[=off]] [--print] [--quiet]\n"
    "\n"
    "Creates a new store or upgrades an older one, in one transaction, and prints its version.\n"
    "'once run' does the same for a file; a PostgreSQL schema is changed only by this verb. A\n"
    "store of a newer version is refused.\n"
    "\n"
    "  --pg-cron[=off]    also schedule once.expire, which removes expired records, in the\n"
    "                     PostgreSQL database's pg_cron, or unschedule it; may be repeated\n"
    "  --print            only print the SQL of all versions for this kind of store, and change\n"
    "                     nothing; for PostgreSQL: --store postgresql://\n"
    ONCE_CLI_HELP_STORE
    "  --quiet            print nothing but errors\n"
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0; 64 usage; 69 store unavailable; 70 store damaged, or the answer to\n"
    "      COMMIT was lost: migrate again; 75 busy\n"
    "\n"
    "example: once migrate --store sqlite:/var/lib/shop/once.db\n";
/* clang-format on */

enum { OPTION_PRINT = ONCE_CLI_OWN, OPTION_PG_CRON };

enum cron { CRON_UNCHANGED, CRON_ON, CRON_OFF };

static int print_sql(const struct once_cli *cli, enum once_store_kind kind, enum cron cron)
{
    switch (kind) {
    case ONCE_STORE_POSTGRES:
        for (int i = 0; i < postgres_migration_count; i++)
            printf("BEGIN;\n-- %s\n%s\nCOMMIT;\n", postgres_migrations[i].name, postgres_migrations[i].sql);
        if (cron != CRON_UNCHANGED)
            printf("\n-- pg_cron\n%s", cron == CRON_ON ? postgres_sql_cron_on : postgres_sql_cron_off);
        return ONCE_EXIT_OK;
    case ONCE_STORE_SQLITE:
        for (int i = 0; i < sqlite_migration_count; i++)
            printf("-- %s\n%s\n", sqlite_migrations[i].name, sqlite_migrations[i].sql);
        return ONCE_EXIT_OK;
    default:
        return once_cli_usage(cli, "--print: %s",
                              kind == ONCE_STORE_REDIS ? "a store in Redis has no schema"
                                                       : "name the store itself: a daemon migrates its own");
    }
}

static bool cron_of(const char *option, enum cron *cron)
{
    *cron = option == NULL || strcmp(option, "on") == 0 ? CRON_ON : CRON_OFF;
    return *cron == CRON_ON || strcmp(option, "off") == 0;
}

static once_result migrate(const char *url, enum cron cron, int *version, struct once_error *err)
{
    once_result r = once_migrate(url, version, err);
    if (r != ONCE_OK || cron == CRON_UNCHANGED)
        return r;
    r = once_store_postgres_cron(url, cron == CRON_ON, err);
    if (r != ONCE_OK)
        once_error_prefix(err, "it is at version %d, but pg_cron was not changed", *version);
    return r;
}

int once_cli_migrate(int argc, char **argv)
{
    static const struct option options[] = {
        ONCE_CLI_OPTION_HELP,
        ONCE_CLI_OPTION_STORE,
        ONCE_CLI_OPTION_QUIET,
        { "print", no_argument, NULL, OPTION_PRINT },
        { "pg-cron", optional_argument, NULL, OPTION_PG_CRON },
        { 0 },
    };
    struct once_cli cli = { .verb = "migrate", .help = help };
    bool print = false;
    enum cron cron = CRON_UNCHANGED;
    for (int c; (c = once_cli_next(&cli, argc, argv, "", options)) != -1;) {
        if (c == OPTION_PRINT)
            print = true;
        else if (c != OPTION_PG_CRON)
            return cli.exit;
        else if (!cron_of(optarg, &cron))
            return once_cli_usage(&cli, "--pg-cron takes 'on' or 'off', not '%s'", optarg);
    }
    if (optind < argc)
        return once_cli_usage(&cli, "unexpected argument '%s'", argv[optind]);
    struct once_error err;
    enum once_store_kind kind = 0;
    once_result r = once_store_url(cli.store, !print, cli.url, &err);
    if (r == ONCE_OK)
        r = once_store_url_check(cli.url, &kind, &err);
    if (r == ONCE_OK && cron != CRON_UNCHANGED && kind != ONCE_STORE_POSTGRES)
        return once_cli_usage(&cli, "--pg-cron needs a PostgreSQL store");
    if (r == ONCE_OK && print)
        return once_cli_finish(&cli, print_sql(&cli, kind, cron));
    int version = 0;
    if (r == ONCE_OK)
        r = migrate(cli.url, cron, &version, &err);
    if (r != ONCE_OK)
        return once_cli_error(&cli, &err, "migrate the store");
    if (!cli.quiet) /* a PostgreSQL URL may contain a password and is not printed */
        printf("%s is at version %d\n", kind == ONCE_STORE_POSTGRES ? "the PostgreSQL store" : cli.url, version);
    return once_cli_finish(&cli, ONCE_EXIT_OK);
}
