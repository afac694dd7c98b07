/*
 * main.c - the program `once`: a table of its verbs.
 *
 * Each verb has a file of its name. They share cli.c (options, messages, the store),
 * exits.h (exit codes), text.c and json/out.c (printing).
 */
#include "cli/verbs.h"
#include "program/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static const struct verb {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} verbs[] = {
    { "run", once_cli_run, "run a command once per key, then replay its outcome" },
    { "advance", once_cli_advance, "inside such a command: store a recovery point" },
#if ONCE_HAVE_CLIENT
    { "send", once_cli_send, "send an HTTP request with a key, and retry it safely" },
#endif
    { "serve", once_cli_serve, "a gateway before an HTTP service: retries get the first answer" },
    { "daemon", once_cli_daemon, "own a store and serve it to the gateway and to programs" },
    { "status", once_cli_status, "the health and numbers of a running daemon" },
    { "keys", once_cli_keys, "list, show, resolve, release records" },
    { "reconcile", once_cli_reconcile, "compare the records with the data of another service" },
    { "relay", once_cli_relay, "publish the messages of an outbox" },
    { "outbox", once_cli_outbox, "list, show, retry, drop messages" },
    { "consume", once_cli_consume, "deliver the messages of a broker, each under a record" },
    { "inbox", once_cli_inbox, "list, show, retry, drop dead letters" },
    { "key", once_cli_key_new, "print a new key" },
    { "check", once_cli_check, "verify a store" },
    { "expire", once_cli_expire, "remove records past their retention" },
    { "forget", once_cli_forget, "erase the stored data of a tenant or a key" },
    { "migrate", once_cli_migrate, "create or upgrade a store" },
};

enum { VERB_COUNT = sizeof verbs / sizeof *verbs };

static int print_help(void)
{
    puts("usage: once VERB [OPTIONS]\n"
         "\n"
         "Retry safety: an operation with a key is executed once, and every retry gets the same\n"
         "answer.\n");
    for (size_t i = 0; i < VERB_COUNT; i++)
        printf("  %-10s %s\n", verbs[i].name, verbs[i].help);
    puts("\n"
         "See 'once help VERB' or 'once VERB --help'; 'once --version' prints the version.\n"
         "\n"
         "exit codes of all verbs: 0 done; 1 problems found, or no such key; 64 usage; 65 the key\n"
         "belongs to another command; 66 the data to compare was not readable; 69 store unavailable;\n"
         "70 it may have happened, or the store is damaged; 71 no memory or process; 74 output\n"
         "not written; 75 in progress or busy; 77 not the holder any more; 'once run' also exits\n"
         "as its command did, 'once send' as curl(1): 22, 60, 63\n"
         "\n"
         "example: once run --key order-17 -- ./charge --amount 100");
    return ONCE_EXIT_OK;
}

static int call_verb(int argc, char **argv)
{
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (strcmp(argv[0], verbs[i].name) == 0)
            return verbs[i].run(argc, argv);
    struct once_cli cli = { .verb = argv[0] };
    fprintf(stderr, "once: unknown verb '%.60s'; 'once --help' lists the verbs\n", cli.verb);
    return ONCE_EXIT_USAGE;
}

/* `once help keys list` is `once keys list --help`. */
static int help_verb(int argc, char **argv)
{
    char *asked[4] = { NULL };
    if (argc == 0)
        return print_help();
    if (argc > 2) {
        fprintf(stderr, "once: help takes one verb\n");
        return ONCE_EXIT_USAGE;
    }
    for (int i = 0; i < argc; i++)
        asked[i] = argv[i];
    char help[] = "--help";
    asked[argc] = help;
    return call_verb(argc + 1, asked);
}

/* If descriptor 0, 1 or 2 is closed, the next file opened, for instance the store, would get
 * its number and be written to. The replacements fail as a closed descriptor does: 0 cannot
 * be read, 1 and 2 cannot be written. */
static void open_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(ONCE_EXIT_OS);
}

int main(int argc, char **argv)
{
    open_standard_streams();
    if (argc < 2) {
        fprintf(stderr, "once: VERB is missing; 'once --help' lists the verbs\n");
        return ONCE_EXIT_USAGE;
    }
    struct once_cli cli = { .verb = argv[1] };
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("once %s\n", once_version());
        return once_cli_finish(&cli, ONCE_EXIT_OK);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return once_cli_finish(&cli, print_help());
    if (strcmp(argv[1], "help") == 0)
        return once_cli_finish(&cli, help_verb(argc - 2, argv + 2));
    return call_verb(argc - 1, argv + 1);
}
