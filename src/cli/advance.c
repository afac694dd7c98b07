/* advance.c - `once advance`: a command under `once run` stores a recovery point. */
#include "cli/verbs.h"
#include "core/span.h"
#include "program/cli.h"
#include "run/env.h"

/* clang-format off */
static const char help[] =
    "usage: once advance POINT [--data VALUE]\n"
    "\n"
    "Inside a command of 'once run': stores the recovery point POINT. If this attempt does not\n"
    "finish, the next one finds POINT in ONCE_RECOVERY_POINT and the data in the file that\n"
    "ONCE_CHECKPOINT_FILE names. Recovery points only move forward: an earlier one is refused;\n"
    "the current one may be repeated, with new data.\n"
    "\n"
    "  --data VALUE       the checkpoint stored with it, up to 64K: a text, '@FILE', or '-' for\n"
    "                     standard input\n"
    ONCE_CLI_HELP_HELP
    "\n"
    "environment: ONCE_STORE and ONCE_RECORD, as 'once run' sets them\n"
    "\n"
    "exit:\n"
    "  0    stored, durably\n"
    "  64   not inside 'once run'; an earlier recovery point; usage\n"
    "  69   store unavailable      70   it may have been stored: repeat it\n"
    "  75   store busy: repeat it\n"
    "  77   another attempt took over: stop, the outcome of this one will be refused\n"
    "\n"
    "example: once advance charged --data \"$receipt\" || exit\n";
/* clang-format on */

enum { OPTION_DATA = ONCE_CLI_OWN };

static const struct option options[] = {
    ONCE_CLI_OPTION_HELP,
    { "data", required_argument, NULL, OPTION_DATA },
    { 0 },
};

static int advance(struct once_cli *cli, struct once_grant grant, once_span point, once_span data)
{
    struct once *once = NULL;
    int exit = once_cli_open(cli, ONCE_CLI_EXISTING, &once);
    if (exit != ONCE_EXIT_OK)
        return exit;
    struct once_reply reply = { 0 };
    struct once_error err;
    once_result r = once_advance(once, grant, point, data, &reply, &err);
    if (r != ONCE_OK)
        exit = once_cli_error(cli, &err, "store the recovery point");
    else if (reply.arm != ONCE_ARM_DONE)
        exit = once_cli_fail(cli, ONCE_EXIT_FENCED,
                             "cannot store '%.*s': another attempt took over, the outcome of this one will be refused",
                             ONCE_SPAN_ARGS(point));
    once_reply_release(&reply);
    once_close(once);
    return exit;
}

int once_cli_advance(int argc, char **argv)
{
    struct once_cli cli = { .verb = "advance", .help = help };
    struct once_buf data;
    once_buf_init(&data, 0);
    for (int c; (c = once_cli_next(&cli, argc, argv, "", options)) != -1;) {
        if (c != OPTION_DATA)
            return cli.exit;
        once_buf_release(&data);
        if (!once_cli_bytes(&cli, "--data", &data))
            return ONCE_EXIT_USAGE;
    }
    const char *record = getenv("ONCE_RECORD");
    struct once_grant grant;
    int exit;
    if (optind + 1 != argc)
        exit = once_cli_usage(&cli, "give exactly one POINT");
    else if (record == NULL || getenv("ONCE_STORE") == NULL)
        exit = once_cli_usage(&cli, "this is not inside 'once run': ONCE_RECORD or ONCE_STORE is not set");
    else if (!once_grant_parse(record, &grant))
        exit = once_cli_usage(&cli, "ONCE_RECORD='%.80s' was not set by 'once run'", record);
    else
        exit = advance(&cli, grant, once_span_str(argv[optind]), once_buf_span(&data));
    once_buf_release(&data);
    return exit;
}
