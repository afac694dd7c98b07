/*
 * status.c - `once status`: how a running daemon is.
 *
 * Asks over the daemon's socket, with a frame that it answers at once (daemon/observers/status.h): whether it is ready,
 * and what it counted since it was started. Does not open the store.
 */
#include "cli/verbs.h"
#include "core/err.h"
#include "core/json/out.h"
#include "core/span.h"
#include "program/cli.h"
#include "program/text.h"
#include "wire/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* clang-format off */
static const char help[] =
    "usage: once status [--socket PATH] [--json]\n"
    "\n"
    "Asks a running daemon how it is: whether it is ready (the store answers, the queue has\n"
    "room, it was not told to end), and what it counted since it was started. It answers at\n"
    "once, also where its store does not.\n"
    "\n"
    "  --socket PATH      the daemon's socket; default that of $ONCE_STORE, if it is once:PATH,\n"
    "                     else once.sock in $XDG_RUNTIME_DIR, as root /run/once/once.sock\n"
    "  --json             one JSON object\n"
    "  --quiet            print nothing: the exit status tells\n"
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0 ready; 64 usage; 69 not ready, or there is no daemon\n"
    "\n"
    "example: once status --socket /run/once/once.sock --json\n";
/* clang-format on */

enum { OPTION_SOCKET = ONCE_CLI_OWN };
enum { ANSWER_S = 5 };

static bool choose_socket(const struct once_cli *cli, const char *given, struct sockaddr_un *address)
{
    const char *store = getenv("ONCE_STORE"), *runtime = getenv("XDG_RUNTIME_DIR");
    int len = -1;
    size_t size = sizeof address->sun_path;
    if (given != NULL)
        len = snprintf(address->sun_path, size, "%s", given);
    else if (store != NULL && strncmp(store, "once:", 5) == 0)
        len = snprintf(address->sun_path, size, "%s", store + 5);
    else if (geteuid() == 0)
        len = snprintf(address->sun_path, size, "/run/once/once.sock");
    else if (runtime != NULL && runtime[0] == '/')
        len = snprintf(address->sun_path, size, "%s/once.sock", runtime);
    if (len < 1 || (size_t)len >= size) {
        once_cli_usage(cli, len < 0 ? "which daemon? XDG_RUNTIME_DIR is not set: give --socket"
                                    : "--socket takes the path of a unix socket");
        return false;
    }
    address->sun_family = AF_UNIX;
    return true;
}

/* ---------------------------------------------------------------- asking */

/* One that does not listen any more may have said why: that is to be read, as is that it closed the connection. */
static once_result send_all(int fd, once_span bytes, struct once_error *err)
{
    while (bytes.len > 0) {
        ssize_t n = send(fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
            return ONCE_OK;
        if (n <= 0)
            return once_fail(err, ONCE_UNAVAILABLE, "cannot ask: %s", strerror(errno));
        bytes = once_span_skip(bytes, (size_t)n);
    }
    return ONCE_OK;
}

/* The next frame; `in` holds it until the next call. */
static once_result receive(int fd, struct once_buf *in, struct wire_frame *frame, struct once_error *err)
{
    once_buf_clear(in);
    for (size_t used = 0;;) {
        once_result r = wire_next(once_buf_span(in), frame, &used, err);
        if (r != ONCE_OK || used > 0)
            return r;
        uint8_t *at = once_buf_reserve(in, 4096);
        if (at == NULL)
            return once_fail(err, ONCE_NO_MEMORY, "no memory for an answer");
        ssize_t n = recv(fd, at, 4096, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return once_fail(err, ONCE_UNAVAILABLE, "it has not answered for %d s", ANSWER_S);
        if (n <= 0)
            return once_fail(err, ONCE_UNAVAILABLE, "it closed the connection%s%s", n < 0 ? ": " : "",
                             n < 0 ? strerror(errno) : "");
        in->len += (size_t)n;
    }
}

/* One question, one answer of the expected type. */
static once_result exchange(int fd, struct once_buf *out, struct once_buf *in, enum wire_type expected,
                            struct wire_frame *frame, struct once_error *err)
{
    once_result r = send_all(fd, once_buf_span(out), err);
    once_buf_clear(out);
    if (r == ONCE_OK)
        r = receive(fd, in, frame, err);
    if (r == ONCE_OK && frame->type == WIRE_FAILED)
        return wire_get_failed(frame->payload, err);
    if (r == ONCE_OK && frame->type != expected)
        return once_fail(err, ONCE_INVALID, "it answered with a frame of type %u", frame->type);
    return r;
}

static once_result ask(const struct sockaddr_un *address, struct once_buf *in, struct wire_frame *frame,
                       struct once_error *err)
{
    struct timeval patience = { .tv_sec = ANSWER_S };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0 ||
        connect(fd, (const struct sockaddr *)address, sizeof *address) != 0) {
        once_fail(err, ONCE_UNAVAILABLE, "no daemon at '%s': %s", address->sun_path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return ONCE_UNAVAILABLE;
    }
    struct once_buf out;
    once_buf_init(&out, 4096);
    wire_put_hello(&out, 0, &(struct wire_hello){ WIRE_VERSION, ONCE_LIT("once status") });
    once_result r = exchange(fd, &out, in, WIRE_WELCOME, frame, err);
    if (r == ONCE_OK) {
        wire_put_number(&out, 1, WIRE_STATUS, 0);
        r = exchange(fd, &out, in, WIRE_STATE, frame, err);
    }
    once_buf_release(&out);
    close(fd);
    return r;
}

/* ---------------------------------------------------------------- telling */

/* Names end with their unit; a person is told times as such. */
static bool is_time(once_span name)
{
    return name.len > 3 && memcmp(name.ptr + name.len - 3, "_ms", 3) == 0;
}

static void print_number(const struct wire_number *n)
{
    once_span name = n->name;
    char about[ONCE_TEXT_TIME_LEN];
    if (is_time(name)) {
        name.len -= 3;
        once_text_about(n->value, about);
        printf("%-16.*s %s\n", ONCE_SPAN_ARGS(name), about);
    } else {
        printf("%-16.*s %" PRId64 "\n", ONCE_SPAN_ARGS(name), n->value);
    }
}

static void print_text(const char *name, once_span text)
{
    struct once_buf shown;
    once_buf_init(&shown, 64 << 10);
    once_text_escape(&shown, text);
    printf("%-16s %.*s\n", name, ONCE_SPAN_ARGS(once_buf_span(&shown)));
    once_buf_release(&shown);
}

static void put_json_number(struct once_json *json, const struct wire_number *n)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", ONCE_SPAN_ARGS(n->name));
    once_json_int(json, name, n->value);
}

static once_result tell(const struct once_cli *cli, once_span payload, bool *ready, struct once_error *err)
{
    struct wire_reader reader;
    struct wire_state state;
    once_result r = wire_read_state(payload, &reader, &state, err);
    if (r != ONCE_OK)
        return r;
    *ready = state.ready;
    if (cli->quiet)
        return ONCE_OK;
    struct once_json json = { .file = stdout };
    if (cli->json) {
        once_json_open(&json, NULL, '{');
        once_json_bool(&json, "ready", state.ready);
        once_json_bytes(&json, "reason", state.reason);
        once_json_bytes(&json, "version", state.version);
        once_json_bytes(&json, "store", state.store);
    } else {
        print_text("state", state.ready ? ONCE_LIT("ready") : ONCE_LIT("not ready"));
        if (state.reason.len > 0)
            print_text("reason", state.reason);
        print_text("version", state.version);
        print_text("store", state.store);
    }
    struct wire_number number;
    for (bool more = true; r == ONCE_OK && more;) {
        r = wire_read_number(&reader, &number, &more, err);
        if (r == ONCE_OK && more)
            cli->json ? put_json_number(&json, &number) : print_number(&number);
    }
    if (cli->json)
        once_json_close(&json);
    return r;
}

int once_cli_status(int argc, char **argv)
{
    static const struct option options[] = { ONCE_CLI_OPTION_HELP,
                                             ONCE_CLI_OPTION_JSON,
                                             ONCE_CLI_OPTION_QUIET,
                                             { "socket", required_argument, NULL, OPTION_SOCKET },
                                             { 0 } };
    struct once_cli cli = { .verb = "status", .help = help };
    const char *socket_path = NULL;
    for (int c; (c = once_cli_next(&cli, argc, argv, "", options)) != -1;) {
        if (c != OPTION_SOCKET)
            return cli.exit;
        socket_path = strncmp(optarg, "once:", 5) == 0 ? optarg + 5 : optarg;
    }
    if (optind < argc)
        return once_cli_usage(&cli, "'%s' is too much", argv[optind]);
    struct sockaddr_un address = { 0 };
    if (!choose_socket(&cli, socket_path, &address))
        return ONCE_EXIT_USAGE;
    struct once_error err;
    struct once_buf in;
    struct wire_frame frame;
    bool ready = false;
    once_buf_init(&in, 1 << 20);
    once_result r = ask(&address, &in, &frame, &err);
    if (r == ONCE_OK)
        r = tell(&cli, frame.payload, &ready, &err);
    once_buf_release(&in);
    if (r != ONCE_OK)
        return once_cli_fail(&cli, ONCE_EXIT_UNAVAILABLE, "%s", err.text);
    return once_cli_finish(&cli, ready ? ONCE_EXIT_OK : ONCE_EXIT_UNAVAILABLE);
}
