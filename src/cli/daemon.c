/*
 * daemon.c - `once daemon`: owns a store and serves it to nginx, to `once` and to libonce
 * over a unix socket, and to everybody else over HTTP on loopback.
 */
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/store_url.h"
#include "cli/verbs.h"
#include "daemon/api.h"
#include "daemon/server.h"

#include <errno.h>
#include <pwd.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* clang-format off */
static const char help[] =
    "usage: once daemon [--store URL] [--socket PATH] [--allow USER]... [--http ADDR]\n"
    "\n"
    "Owns the store and serves it over a unix socket: to the gateway, to libonce and to the\n"
    "verbs of `once` (--store once:PATH); and to services in any language as JSON over HTTP on\n"
    "loopback, with /healthz and /metrics. What all of them ask for is committed together.\n"
    "Ends with SIGTERM or SIGINT, after what is under way was answered.\n"
    "\n"
    "  --socket PATH      where to listen; default once.sock in $XDG_RUNTIME_DIR, as root\n"
    "                     /run/once/once.sock\n"
    "  --allow USER       this user may connect, too (name or number); else only the daemon's\n"
    "                     own and root; may be given up to 16 times\n"
    "  --http ADDR        where the JSON API listens, or 'off'; default 127.0.0.1:7411. Port 0:\n"
    "                     any that is free\n"
    ONCE_CLI_HELP_STORE
    ONCE_CLI_HELP_QUIET
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0 ended by a signal; 64 usage; 69 store unavailable, or socket or port are taken\n"
    "\n"
    "example: once daemon --store sqlite:/var/lib/once/once.db --allow www-data\n";
/* clang-format on */

enum { OPTION_SOCKET = ONCE_CLI_OWN, OPTION_ALLOW, OPTION_HTTP };

/* Calls that wait for the engine: of many connections. */
enum { QUEUE_LEN = 32768, WAITER_LEN = 32768 };

struct daemon {
    struct once_cli cli;
    struct server_options options;
    struct once_signals signals;
    char socket[200];
    const char *http; /* NULL: off */
};

static bool add_user(struct daemon *d, const char *name)
{
    struct server_options *o = &d->options;
    if (o->user_count == SERVER_USERS_MAX) {
        once_cli_usage(&d->cli, "--allow can be given %d times", SERVER_USERS_MAX);
        return false;
    }
    char *end = NULL;
    unsigned long number = strtoul(name, &end, 10);
    const struct passwd *user = getpwnam(name);
    if (user == NULL && (*name == '\0' || *end != '\0' || number >= (uid_t)-1)) {
        once_cli_usage(&d->cli, "there is no user '%.60s'", name);
        return false;
    }
    o->users[o->user_count++] = user != NULL ? user->pw_uid : (uid_t)number;
    return true;
}

/* The default's directory is made where it can be. */
static bool choose_socket(struct daemon *d, const char *given)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int len;
    if (given != NULL) {
        len = snprintf(d->socket, sizeof d->socket, "%s", given);
    } else if (geteuid() == 0) {
        mkdir("/run/once", 0755);
        len = snprintf(d->socket, sizeof d->socket, "/run/once/once.sock");
    } else if (runtime != NULL && runtime[0] == '/') {
        len = snprintf(d->socket, sizeof d->socket, "%s/once.sock", runtime);
    } else {
        once_cli_usage(&d->cli, "where to listen? XDG_RUNTIME_DIR is not set: give --socket");
        return false;
    }
    if (len < 1 || (size_t)len >= sizeof d->socket) {
        once_cli_usage(&d->cli, "--socket takes a path");
        return false;
    }
    d->options.socket_path = d->socket;
    return true;
}

static int serve(struct daemon *d)
{
    struct once_error err;
    struct server *server = NULL;
    struct once_api *api = NULL;
    if (server_open(&d->options, &server, &err) != ONCE_OK)
        return once_cli_error(&d->cli, &err, "serve");
    struct once_api_options options = { .once = d->options.once, .listen = d->http };
    if (d->http != NULL && once_api_start(&options, &api, &err) != ONCE_OK) {
        server_close(server);
        return once_cli_error(&d->cli, &err, "serve HTTP");
    }
    printf("once: ready: socket %s, http %s\n", d->socket, api != NULL ? once_api_address(api) : "off");
    fflush(stdout);
    int signal = server_run(server);
    if (!d->cli.quiet)
        fprintf(stderr, "once daemon: ended by signal %d\n", signal);
    once_api_stop(api);
    server_close(server);
    return ONCE_EXIT_OK;
}

static int run(struct daemon *d)
{
    struct once_error err;
    if (once_store_url(d->cli.store, true, d->cli.url, &err) != ONCE_OK)
        return once_cli_error(&d->cli, &err, "find the store");
    int error = once_signals_init(&d->signals);
    if (error != 0)
        return once_cli_fail(&d->cli, ONCE_EXIT_OS, "cannot watch for signals: %s", strerror(error));
    d->options.signals = d->signals.fd;
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); /* nobody reads these counters, and each allocation pays for them */
    struct once_options options = { .poll = true, .queue_len = QUEUE_LEN, .waiter_len = WAITER_LEN };
    int exit = ONCE_EXIT_OK;
    if (once_open(d->cli.url, &options, &d->options.once, &err) != ONCE_OK)
        exit = once_cli_error(&d->cli, &err, "open the store");
    else
        exit = serve(d);
    once_signals_release(&d->signals);
    return exit;
}

int once_cli_daemon(int argc, char **argv)
{
    static const struct option options[] = {
        ONCE_CLI_OPTION_HELP,
        ONCE_CLI_OPTION_STORE,
        ONCE_CLI_OPTION_QUIET,
        { "socket", required_argument, NULL, OPTION_SOCKET },
        { "allow", required_argument, NULL, OPTION_ALLOW },
        { "http", required_argument, NULL, OPTION_HTTP },
        { 0 },
    };
    struct daemon d = { .cli = { .verb = "daemon", .help = help }, .http = ONCE_API_LISTEN_DEFAULT };
    const char *socket = NULL;
    for (int c; (c = once_cli_next(&d.cli, argc, argv, "", options)) != -1;) {
        if (c == OPTION_SOCKET)
            socket = optarg;
        else if (c == OPTION_HTTP)
            d.http = strcmp(optarg, "off") != 0 ? optarg : NULL;
        else if (c != OPTION_ALLOW)
            return d.cli.exit;
        else if (!add_user(&d, optarg))
            return ONCE_EXIT_USAGE;
    }
    if (optind < argc)
        return once_cli_usage(&d.cli, "'%s' is too much", argv[optind]);
    if (!choose_socket(&d, socket))
        return ONCE_EXIT_USAGE;
    return once_cli_finish(&d.cli, run(&d));
}
