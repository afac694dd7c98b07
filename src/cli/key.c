/* key.c - `once key`: prints a new key. */
#include "cli/verbs.h"
#include "program/cli.h"

/* clang-format off */
static const char help[] =
    "usage: once key\n"
    "\n"
    "Prints a new unique key, a UUIDv7. Make one per operation, store it with the operation,\n"
    "and use it for every attempt.\n"
    "\n"
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0; 64 usage\n"
    "\n"
    "example: key=$(once key)\n"
    "         until once run --key \"$key\" -- ./pay; do sleep 10; done\n"
    "         A failed command is tried again; a killed one needs a decision, exit 70\n";
/* clang-format on */

int once_cli_key_new(int argc, char **argv)
{
    static const struct option options[] = { ONCE_CLI_OPTION_HELP, { 0 } };
    struct once_cli cli = { .verb = "key", .help = help };
    for (int c; (c = once_cli_next(&cli, argc, argv, "", options)) != -1;)
        return cli.exit;
    if (optind < argc)
        return once_cli_usage(&cli, "unexpected argument '%s'", argv[optind]);
    char key[ONCE_UUID_LEN + 1];
    once_key_new(key);
    puts(key);
    return once_cli_finish(&cli, ONCE_EXIT_OK);
}
