/* cli.c - see cli.h. */
#include "program/cli.h"

#include "core/duration.h"
#include "core/err.h"
#include "core/quota_rules.h"
#include "core/span.h"
#include "program/text.h"
#include "store/url.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

/* A value of an option may be as large as a body. */
enum { VALUE_LEN_MAX = ONCE_BODY_LEN_MAX };

static const char *program(const struct once_cli *cli)
{
    return cli->program != NULL ? cli->program : "once";
}

__attribute__((format(printf, 2, 0))) static void print_message(const struct once_cli *cli, const char *format,
                                                                va_list args)
{
    /* One write per line: several processes may share a terminal or a log. */
    struct once_buf line;
    once_buf_init(&line, 64 << 10);
    char text[4096];
    vsnprintf(text, sizeof text, format, args);
    once_buf_addf(&line, "%s %s: %s\n", program(cli), cli->verb, text);
    fflush(stdout);
    fwrite(line.ptr, 1, line.len, stderr);
    fflush(stderr);
    once_buf_release(&line);
}

int once_cli_fail(const struct once_cli *cli, int exit, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_message(cli, format, args);
    va_end(args);
    return exit;
}

int once_cli_usage(const struct once_cli *cli, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_message(cli, format, args);
    va_end(args);
    fprintf(stderr, "see '%s %s --help'\n", program(cli), cli->verb);
    return ONCE_EXIT_USAGE;
}

int once_cli_error(const struct once_cli *cli, const struct once_error *err, const char *what)
{
    return once_cli_fail(cli, (int)once_exit_of(err->result), "cannot %s: %s", what, err->text);
}

static int refuse_option(struct once_cli *cli, int c, char **argv)
{
    const char *given = argv[optind - 1];
    if (c == ':')
        cli->exit = once_cli_usage(cli, "option '%s' needs a value", given);
    else if (optopt > 0 && optopt < ONCE_CLI_HELP)
        cli->exit = once_cli_usage(cli, "unknown option '-%c'", optopt);
    else if (optopt >= ONCE_CLI_HELP)
        cli->exit = once_cli_usage(cli, "option '%s' takes no value", given);
    else
        cli->exit = once_cli_usage(cli, "unknown or ambiguous option '%s'", given);
    return '?';
}

static const char *const seal_names[] = { "ONCE_SEAL_KEYS", "ONCE_SEAL_KEYS_COMMAND" };

/* Sets the environment, so that children get it too: the daemon of `once serve`, `once advance` in a command. The
 * value names a file or a command and contains no key. */
static bool set_seal(bool command, const char *value)
{
    char path[2 * PATH_MAX], here[PATH_MAX];
    unsetenv(seal_names[!command]);
    if (command || value[0] == '/')
        return setenv(seal_names[command], value, 1) == 0;
    if (getcwd(here, sizeof here) == NULL)
        return false;
    snprintf(path, sizeof path, "%s/%s", here, value);
    return setenv(seal_names[command], path, 1) == 0;
}

void once_cli_seal(const struct once_cli *cli, struct once_options *options)
{
    const char *file = getenv(seal_names[0]), *command = getenv(seal_names[1]);
    if (!cli->seal_given && strncmp(cli->url, "once:", 5) == 0)
        return;
    options->seal_keys = file != NULL && file[0] != '\0' ? file : NULL;
    options->seal_keys_command = command != NULL && command[0] != '\0' ? command : NULL;
}

int once_cli_next(struct once_cli *cli, int argc, char **argv, const char *flags, const struct option *options)
{
    char letters[32];
    snprintf(letters, sizeof letters, "%s:h%s", flags, cli->letters != NULL ? cli->letters : "");
    opterr = 0;
    for (;;) {
        int c = getopt_long(argc, argv, letters, options, NULL);
        switch (c) {
        case ONCE_CLI_HELP:
        case 'h':
            fputs(cli->help, stdout);
            cli->exit = once_cli_finish(cli, ONCE_EXIT_OK);
            return '?';
        case ONCE_CLI_STORE:
            cli->store = optarg;
            break;
        case ONCE_CLI_TENANT:
            cli->tenant = once_span_str(optarg);
            cli->tenant_given = true;
            break;
        case ONCE_CLI_JSON:
            cli->json = true;
            break;
        case ONCE_CLI_QUIET:
            cli->quiet = true;
            break;
        case ONCE_CLI_SEAL_KEYS:
        case ONCE_CLI_SEAL_COMMAND:
            cli->seal_given = true;
            if (!set_seal(c == ONCE_CLI_SEAL_COMMAND, optarg)) {
                cli->exit = once_cli_fail(cli, ONCE_EXIT_OS, "cannot set the environment for '%.60s': %s", optarg,
                                          strerror(errno));
                return '?';
            }
            break;
        case '?':
        case ':':
            return refuse_option(cli, c, argv);
        default:
            return c;
        }
    }
}

bool once_cli_duration(const struct once_cli *cli, const char *option, bool allow_never, int64_t *ms)
{
    struct once_error err;
    if (once_duration_parse(once_span_str(optarg), allow_never, ms, &err) == ONCE_OK)
        return true;
    once_cli_usage(cli, "%s: %s", option, err.text);
    return false;
}

bool once_cli_number(const struct once_cli *cli, const char *option, uint64_t min, uint64_t max, uint64_t *value)
{
    char *end = NULL;
    errno = 0;
    unsigned long long n = strtoull(optarg, &end, 10);
    /* strtoull takes "-1" and " 1". */
    if (optarg[0] >= '0' && optarg[0] <= '9' && *end == '\0' && errno == 0 && n >= min && n <= max) {
        *value = n;
        return true;
    }
    once_cli_usage(cli, "%s: '%.60s' is not a number from %llu to %llu", option, optarg, (unsigned long long)min,
                   (unsigned long long)max);
    return false;
}

/* Appends the whole file. 0 or an errno; EFBIG above the buffer's maximum. */
static int read_all(int fd, struct once_buf *out)
{
    for (;;) {
        uint8_t chunk[65536];
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : 0;
        once_buf_add(out, once_span_of(chunk, (size_t)n));
        if (out->result != ONCE_OK)
            return out->result == ONCE_LIMIT ? EFBIG : ENOMEM;
    }
}

static bool take_stdin(const struct once_cli *cli, const char *option)
{
    static const char *taken_by = NULL;
    if (taken_by != NULL)
        once_cli_usage(cli, "%s: %s reads standard input already", option, taken_by);
    bool ours = taken_by == NULL;
    taken_by = option;
    return ours;
}

bool once_cli_bytes(const struct once_cli *cli, const char *option, struct once_buf *out)
{
    bool is_stdin = strcmp(optarg, "-") == 0 || strcmp(optarg, "@-") == 0;
    int error = 0;
    if (is_stdin && !take_stdin(cli, option))
        return false;
    once_buf_init(out, VALUE_LEN_MAX);
    if (is_stdin) {
        error = read_all(STDIN_FILENO, out);
    } else if (optarg[0] == '@') {
        int fd = open(optarg + 1, O_RDONLY | O_CLOEXEC);
        error = fd < 0 ? errno : read_all(fd, out);
        if (fd >= 0)
            close(fd);
    } else {
        once_buf_add(out, once_span_str(optarg));
    }
    if (error == 0)
        return true;
    once_cli_usage(cli, "%s: cannot read '%s': %s", option, is_stdin ? "standard input" : optarg + 1, strerror(error));
    once_buf_release(out);
    return false;
}

bool once_cli_key_option(const struct once_cli *cli, once_span *key)
{
    const char *wrong = key->ptr != NULL ? "it was given already" : optarg[0] == '\0' ? "it is empty" : NULL;
    *key = once_span_str(optarg);
    if (wrong != NULL)
        once_cli_usage(cli, "--key: %s", wrong);
    return wrong == NULL;
}

bool once_cli_key_if_any(const struct once_cli *cli, int argc, char **argv, once_span *key)
{
    int allowed = key->ptr != NULL ? 0 : 1;
    if (argc - optind > allowed)
        once_cli_usage(cli, "unexpected argument '%s'", argv[optind + allowed]);
    else if (optind < argc && argv[optind][0] == '\0')
        once_cli_usage(cli, "KEY is empty");
    else if (optind < argc)
        *key = once_span_str(argv[optind]);
    return argc - optind <= allowed && (optind == argc || key->ptr != NULL);
}

bool once_cli_key(const struct once_cli *cli, int argc, char **argv, once_span *key)
{
    if (!once_cli_key_if_any(cli, argc, argv, key))
        return false;
    if (key->ptr == NULL)
        once_cli_usage(cli, "KEY is missing");
    return key->ptr != NULL;
}

/* Prints a warning of the store. */
static void warn(void *arg, const char *text)
{
    fprintf(stderr, "once %s: %s\n", (const char *)arg, text);
}

static int open_url(const struct once_cli *cli, enum once_cli_open how, struct once **once)
{
    struct once_error err;
    struct once_options options = {
        .shared = true,
        .no_migrate = how != ONCE_CLI_CREATE,
        .lock_wait_ms = cli->lock_wait_ms,
        .warn = strcmp(cli->verb, "check") == 0 && !cli->quiet ? warn : NULL,
        .warn_arg = (void *)(uintptr_t)cli->verb,
        .without_keys = how != ONCE_CLI_CREATE,
    };
    once_cli_seal(cli, &options);
    once_result r = once_open(cli->url, &options, once, &err);
    if (r == ONCE_INVALID) /* for example a file of another kind */
        err.result = ONCE_UNAVAILABLE;
    return r == ONCE_OK ? ONCE_EXIT_OK : once_cli_error(cli, &err, "open the store");
}

int once_cli_open(struct once_cli *cli, enum once_cli_open how, struct once **once)
{
    struct once_error err;
    if (once_store_url(cli->store, how == ONCE_CLI_CREATE, cli->url, &err) != ONCE_OK)
        return once_cli_error(cli, &err, "open the store");
    const char *missing = how != ONCE_CLI_CREATE ? once_store_default_missing(cli->store, cli->url) : NULL;
    if (missing == NULL)
        return open_url(cli, how, once);
    if (how == ONCE_CLI_EXISTING || !cli->quiet)
        once_cli_fail(cli, 0, "there is no store at '%s' yet; 'once migrate' or the first 'once run' creates it",
                      missing);
    return how == ONCE_CLI_EXISTING ? ONCE_EXIT_UNAVAILABLE : ONCE_EXIT_OK;
}

const char *once_cli_line_end(once_span printed)
{
    struct stat out, err;
    bool in_line = printed.len > 0 && printed.ptr[printed.len - 1] != '\n';
    bool together = in_line && fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
                    out.st_dev == err.st_dev && out.st_ino == err.st_ino;
    return together ? "\n" : "";
}

void once_cli_actor(char *out, size_t size)
{
    const struct passwd *user = getpwuid(getuid());
    if (user != NULL)
        snprintf(out, size, "%s", user->pw_name);
    else
        snprintf(out, size, "uid %ld", (long)getuid());
}

int once_cli_finish(const struct once_cli *cli, int exit)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit;
    once_cli_fail(cli, 0, "cannot write to standard output: %s", strerror(errno));
    return exit == ONCE_EXIT_OK ? ONCE_EXIT_IO : exit;
}

/* Adds the store's URL without the password of "scheme://user:password@host". */
static void add_url(struct once_buf *out, const char *url)
{
    struct once_buf shown;
    once_buf_init(&shown, ONCE_URL_LEN_MAX + 8);
    const char *begin = strstr(url, "://"), *end = begin != NULL ? begin + 3 + strcspn(begin + 3, "/?") : NULL;
    const char *at = NULL, *colon = NULL;
    for (const char *c = begin != NULL ? begin + 3 : end; c != end; c++) {
        if (*c == ':' && colon == NULL)
            colon = c;
        if (*c == '@')
            at = c;
    }
    if (at != NULL && colon != NULL && colon < at) {
        once_buf_add(&shown, once_span_of(url, (size_t)(colon + 1 - url)));
        once_buf_add(&shown, ONCE_LIT("***"));
        url = at;
    }
    once_buf_add(&shown, once_span_str(url));
    once_text_quote(out, once_buf_span(&shown));
    once_buf_release(&shown);
}

void once_cli_add_context(const struct once_cli *cli, struct once_buf *out)
{
    if (cli->store != NULL) {
        once_buf_addf(out, " --store ");
        add_url(out, cli->url);
    }
    if (cli->tenant_given) {
        once_buf_addf(out, " --tenant ");
        once_text_quote(out, cli->tenant);
    }
}

bool once_cli_quota(const struct once_cli *cli, struct quota_rules *rules, bool tenant)
{
    struct once_error err;
    once_span text = once_span_str(optarg);
    once_result r = tenant ? quota_rules_add(rules, text, &err) : quota_rules_set(rules, text, &err);
    if (r != ONCE_OK)
        once_cli_usage(cli, "--quota%s: %s", tenant ? "-tenant" : "", err.text);
    return r == ONCE_OK;
}
