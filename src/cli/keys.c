/* keys.c - `once keys`: the table of its verbs. */
#include "cli/verbs.h"
#include "program/cli.h"

/* clang-format off */
static const char help[] =
    "usage: once keys VERB ...\n"
    "\n"
    "  list       records, newest first\n"
    "  show       one record with its history\n"
    "  resolve    decide on the outcome of an unknown or abandoned record\n"
    "  release    remove such a record whose operation had no effect\n"
    "\n"
    "See 'once keys VERB --help'.\n"
    "\n"
    "exit: 0; 1 no such key; 64 usage; for others see the verb\n"
    "\n"
    "example: once keys list --state unknown\n";
/* clang-format on */

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} verbs[] = {
    { "list", once_cli_keys_list },
    { "show", once_cli_keys_show },
    { "resolve", once_cli_keys_resolve },
    { "release", once_cli_keys_release },
};

int once_cli_keys(int argc, char **argv)
{
    static const struct option options[] = { ONCE_CLI_OPTION_HELP, { 0 } };
    struct once_cli cli = { .verb = "keys", .help = help };
    for (size_t i = 0; argc > 1 && i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].run(argc - 1, argv + 1);
    for (int c; (c = once_cli_next(&cli, argc, argv, "+", options)) != -1;)
        return cli.exit;
    if (optind == argc)
        return once_cli_usage(&cli, "VERB is missing: list, show, resolve or release");
    return once_cli_usage(&cli, "unknown verb '%s'; the verbs are list, show, resolve and release", argv[optind]);
}
