/* console_setup.c - see console_setup.h. */
#include "cli/console_setup.h"

#include "daemon/api/guard.h"
#include "daemon/api/listen.h"
#include "daemon/console/link.h"

#include <string.h>

bool console_setup_option(const struct once_cli *cli, struct console_options *console, enum console_option option)
{
    switch (option) {
    case CONSOLE_OPTION_LISTEN:
        console->listen = strcmp(optarg, "off") != 0 ? optarg : NULL;
        return true;
    case CONSOLE_OPTION_TOKEN:
        console->token_file = optarg;
        return true;
    case CONSOLE_OPTION_OUTBOX:
        console->outbox = optarg;
        return true;
    case CONSOLE_OPTION_TRACES: {
        const char *fault = console_link_fault(optarg);
        if (fault != NULL)
            once_cli_usage(cli, "--console-traces: %s", fault);
        console->traces = optarg;
        return fault == NULL;
    }
    case CONSOLE_OPTION_ORIGIN: {
        const char *fault = api_guard_origin_fault(optarg);
        if (fault != NULL)
            once_cli_usage(cli, "--console-origin: %s", fault);
        console->origin = optarg;
        return fault == NULL;
    }
    case CONSOLE_OPTION_ANY:
        console->any_address = true;
        return true;
    case CONSOLE_OPTION_COUNT:
        break;
    }
    return false;
}

bool console_setup_check(const struct once_cli *cli, const struct console_options *console)
{
    const char *needs = console->token_file != NULL ? "--console-token-file"
                        : console->outbox != NULL   ? "--console-outbox"
                        : console->traces != NULL   ? "--console-traces"
                        : console->origin != NULL   ? "--console-origin"
                        : console->any_address      ? "--console-any-address"
                                                    : NULL;
    struct once_error err;
    if (console->listen == NULL && needs != NULL) {
        once_cli_usage(cli, "%s is for --console", needs);
        return false;
    }
    if (console->listen != NULL && console->listen[0] != '/' &&
        api_listen_check(console->listen, console->any_address, &err) != ONCE_OK) {
        once_cli_usage(cli, "--console: %s", err.text);
        return false;
    }
    return true;
}
