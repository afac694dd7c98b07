/* absent.c - the console of a program that was built without it (-Dconsole=disabled): it does not start. */
#include "core/err.h"
#include "daemon/console/console.h"

once_result console_start(const struct console_options *options, struct console **out, struct once_error *err)
{
    (void)options;
    (void)out;
    return once_fail(err, ONCE_INVALID, "this program was built without the console");
}

void console_stop(struct console *console)
{
    (void)console;
}

const char *console_address(const struct console *console)
{
    (void)console;
    return "";
}

void console_print_url(struct console *console)
{
    (void)console;
}
