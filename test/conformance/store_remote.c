/*
 * store_remote.c - a store behind a daemon, once:PATH, under test.
 *
 * "once", with wrappers before it ("trace+once"), or with "-fault" behind it: the daemon's own
 * store loses answers. Each store is a SQLite file, served by a daemon: the code of
 * src/daemon/ in a process of its own, on the suite's clock, which lies in shared memory.
 *
 * A daemon here gives no space back by itself. Its reaper comes every few seconds of the machine's clock: on a slow one
 * into the middle of a case, where what is counted, or a release that is repeated, tells. test/daemon shows the reaper
 * at work.
 *
 * The daemons are children of one process, the keeper, that was forked before the suite had a
 * thread. It starts and ends them as it is told, and ends when the suite does.
 */
#include "suite.h"

#include "daemon/socket/server.h"
#include "wire/wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

struct store_under_test sut;

enum { STORES_MAX = 64 };

static char wrappers[32]; /* "trace+fault+" */
static bool store_loses_answers;
static char directory[80]; /* a socket's path is short */
static int made;           /* stores in the directory */
static int keeper = -1;    /* how the suite speaks to it */

static _Noreturn void bail(const char *what)
{
    printf("Bail out! %s: %m\n", what);
    exit(2);
}

static void path_of(const char *kind, int number, char *path, size_t len)
{
    snprintf(path, len, "%s/%s-%d", directory, kind, number);
}

/* ------------------------------------------------------------------ a daemon */

/* Serves a store until SIGTERM; says so through `ready` when it does. */
static _Noreturn void be_daemon(int number, bool real_clock, int ready)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    char socket_path[120], store_path[120], url[160];
    path_of("socket", number, socket_path, sizeof socket_path);
    path_of("store", number, store_path, sizeof store_path);
    snprintf(url, sizeof url, "%ssqlite:%s", store_loses_answers ? "fault+" : "", store_path);
    struct once_options options = { .poll = true,
                                    .clock = real_clock ? NULL : &suite_clock,
                                    .seal_keys = suite_seal_keys() };
    struct server_options serving = { .socket_path = socket_path,
                                      .signals = signalfd(-1, &term, SFD_CLOEXEC),
                                      .manual_expiry = true };
    struct server *server = NULL;
    struct once_error err;
    if (once_open(url, &options, &serving.once, &err) != ONCE_OK || server_open(&serving, &server, &err) != ONCE_OK) {
        printf("# the daemon: %s\n", err.text);
        exit(2);
    }
    if (write(ready, "r", 1) != 1)
        exit(2);
    close(ready);
    int ended_by = server_run(server);
    server_close(server);
    close(serving.signals);
    exit(ended_by == SIGTERM ? 0 : 3);
}

/* ------------------------------------------------------------------ the keeper */

struct order {
    enum { START, END, KILL } what;
    int number;
    bool real_clock;
    char directory[sizeof directory];
};

static pid_t daemons[STORES_MAX]; /* the keeper's: 0 where there is none */

/* 0, or what it ended with. */
static int end_daemon(int number, int signal)
{
    int status = 0;
    if (daemons[number] == 0)
        return 0;
    kill(daemons[number], signal);
    while (waitpid(daemons[number], &status, 0) < 0 && errno == EINTR)
        ;
    daemons[number] = 0;
    return signal == SIGKILL ? 0 : status;
}

static int start_daemon(const struct order *order, int suite_end)
{
    int ready[2];
    char byte;
    if (pipe2(ready, O_CLOEXEC) != 0)
        return 1;
    pid_t pid = fork();
    if (pid == 0) {
        close(suite_end);
        close(ready[0]);
        be_daemon(order->number, order->real_clock, ready[1]);
    }
    daemons[order->number] = pid;
    close(ready[1]);
    ssize_t n = read(ready[0], &byte, 1); /* nothing: it ended */
    close(ready[0]);
    return n == 1 ? 0 : 1;
}

static _Noreturn void be_keeper(int suite_end)
{
    struct order order;
    while (recv(suite_end, &order, sizeof order, 0) == (ssize_t)sizeof order) {
        memcpy(directory, order.directory, sizeof directory);
        int result = order.what == START ? start_daemon(&order, suite_end)
                                         : end_daemon(order.number, order.what == KILL ? SIGKILL : SIGTERM);
        if (send(suite_end, &result, sizeof result, MSG_NOSIGNAL) != (ssize_t)sizeof result)
            break;
    }
    for (int i = 0; i < STORES_MAX; i++)
        end_daemon(i, SIGKILL);
    _exit(0);
}

static void start_keeper(void)
{
    int ends[2];
    fflush(stdout);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        bail("socketpair");
    pid_t pid = fork();
    if (pid < 0)
        bail("fork");
    if (pid == 0) {
        close(ends[0]);
        be_keeper(ends[1]);
    }
    close(ends[1]);
    keeper = ends[0];
}

/* What a daemon ended with, if it was told to. */
static int tell_keeper(int what, int number)
{
    struct order order = { .what = what, .number = number, .real_clock = suite.options.clock == NULL };
    memcpy(order.directory, directory, sizeof directory);
    int result = -1;
    if (send(keeper, &order, sizeof order, MSG_NOSIGNAL) != (ssize_t)sizeof order ||
        recv(keeper, &result, sizeof result, 0) != (ssize_t)sizeof result)
        bail("the keeper of the daemons is gone");
    return result;
}

static void start(int number)
{
    if (tell_keeper(START, number) != 0)
        bail("a daemon did not start");
}

/* ------------------------------------------------------------------ the suite's side */

bool sut_choose(const char *name)
{
    static const char kind[] = "once", fault[] = "-fault";
    size_t len = strlen(name);
    store_loses_answers = len > sizeof fault - 1 && strcmp(name + len - (sizeof fault - 1), fault) == 0;
    if (store_loses_answers)
        len -= sizeof fault - 1;
    if (len < sizeof kind - 1 || memcmp(name + len - (sizeof kind - 1), kind, sizeof kind - 1) != 0 ||
        len - (sizeof kind - 1) >= sizeof wrappers)
        return false;
    memcpy(wrappers, name, len - (sizeof kind - 1));
    wrappers[len - (sizeof kind - 1)] = '\0';
    sut = (struct store_under_test){ .shared = true,
                                     .loses_answers = store_loses_answers || strstr(wrappers, "fault+") != NULL,
                                     .reopens = true,
                                     .served = true };
    unsetenv("ONCE_FAULT"); /* the default plan */
    start_keeper();
    return true;
}

static void make_directory(void)
{
    const char *tmp = getenv("TMPDIR");
    if (directory[0] != '\0')
        return;
    snprintf(directory, sizeof directory, "%s/once-remote-XXXXXX", tmp != NULL && strlen(tmp) < 50 ? tmp : "/tmp");
    if (mkdtemp(directory) == NULL)
        bail("cannot make a directory");
    char trace[120];
    path_of("trace", 0, trace, sizeof trace);
    setenv("ONCE_TRACE", trace, 1);
}

void sut_empty(char *url, size_t len)
{
    make_directory();
    if (made == STORES_MAX)
        bail("too many stores in one case");
    snprintf(url, len, "%sonce:%s/socket-%d", wrappers, directory, made++);
}

void sut_fresh(char *url, size_t len)
{
    sut_empty(url, len);
    start(made - 1);
}

void sut_tidy(void)
{
}

void sut_restart(void)
{
    EXPECT(tell_keeper(END, 0) == 0); /* the store of the case is the first */
    start(0);
}

void sut_discard(void)
{
    for (int i = 0; i < made; i++)
        EXPECT(tell_keeper(END, i) == 0);
    DIR *dir = opendir(directory);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(dir), entry->d_name, entry->d_type == DT_DIR ? AT_REMOVEDIR : 0);
    if (dir != NULL)
        closedir(dir);
    rmdir(directory);
    directory[0] = '\0';
    made = 0;
}

/* ------------------------------------------------------------------ ends and beginnings */

static void kill_daemon(void)
{
    tell_keeper(KILL, 0);
}

static void forget(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    (void)result, (void)err;
    if (arg != NULL)
        *(once_result *)arg = result;
    once_reply_release(reply);
}

static void K4__what_was_acknowledged_outlives_a_killed_daemon(void)
{
    for (int i = 0; i < 5; i++) {
        struct once_grant grant = granted(.key = numbered("k", i));
        kill_daemon();
        start(0);
        EXPECT(do_claim(.key = numbered("k", i))->arm == ONCE_ARM_IN_PROGRESS);
        succeed(grant, numbered("body", i)); /* by the handle that was open all the time */
        kill_daemon();
        start(0);
        EXPECT(span_equal(do_claim(.key = numbered("k", i))->record.body, numbered("body", i)));
    }
}

static void K10__without_a_daemon_nothing_is_said_and_nothing_is_changed(void)
{
    struct once_grant grant = granted(.key = ONCE_LIT("a"));
    kill_daemon();
    struct once_claim claim = { .key = ONCE_LIT("b") };
    struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED };
    struct once_reply reply;
    struct once_error err = { .result = ONCE_OK };
    once_result r = once_claim(suite.once, &claim, &reply, &err);
    EXPECT((r == ONCE_UNAVAILABLE || r == ONCE_UNKNOWN) && err.result == r);
    EXPECT(strstr(err.text, "daemon") != NULL);
    once_reply_release(&reply);
    r = once_finish(suite.once, grant, &outcome, &reply, &err);
    EXPECT(r == ONCE_UNAVAILABLE || r == ONCE_UNKNOWN);
    once_reply_release(&reply);
    start(0);
    EXPECT(do_lookup(ONCE_LIT("b"))->arm == ONCE_ARM_ABSENT);
    EXPECT(do_lookup(ONCE_LIT("a"))->record.state == ONCE_STATE_RUNNING);
    succeed(grant, ONCE_LIT("x"));
}

/* What was handed in before the daemon is told to end is answered, not lost. */
static void drain__answers_what_is_under_way(void)
{
    enum { CALLS = 200 };
    static once_result results[CALLS];
    for (int i = 0; i < CALLS; i++) {
        struct once_request request = { .verb = ONCE_VERB_CLAIM, .claim = { .key = numbered("k", i) } };
        results[i] = ONCE_CORRUPT;
        CHECK(once_submit(suite.once, &request, forget, &results[i], NULL) == ONCE_OK);
    }
    EXPECT(tell_keeper(END, 0) == 0);
    start(0);
    once_close(suite.once); /* waits for all answers */
    suite.once = NULL;
    reopen();
    for (int i = 0; i < CALLS; i++) {
        EXPECT(results[i] != ONCE_CORRUPT);
        if (results[i] == ONCE_OK)
            EXPECT(do_lookup(numbered("k", i))->arm == ONCE_ARM_FOUND);
    }
}

static void socket__only_one_daemon_has_it_and_it_goes_with_him(void)
{
    char path[120];
    path_of("socket", 0, path, sizeof path);
    struct stat st;
    EXPECT(stat(path, &st) == 0 && S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0600);
    kill_daemon();
    EXPECT(stat(path, &st) == 0); /* left behind: the next one replaces it */
    start(0);
    granted(.key = ONCE_LIT("a"));
    once_close(suite.once);
    suite.once = NULL;
    EXPECT(tell_keeper(END, 0) == 0);
    EXPECT(stat(path, &st) != 0);
    struct once_error err = { .result = ONCE_OK };
    struct once *once = NULL;
    EXPECT(once_open(suite.url, NULL, &once, &err) == ONCE_UNAVAILABLE && once == NULL);
    EXPECT(strstr(err.text, path) != NULL);
    start(0);
}

static void socket__paths_that_cannot_be_are_refused(void)
{
    char url[300] = "once:/";
    memset(url + 6, 'x', 120);
    struct once *once = NULL;
    struct once_error err = { .result = ONCE_OK };
    EXPECT(once_open("once:", NULL, &once, &err) == ONCE_INVALID && strstr(err.text, "107") != NULL);
    EXPECT(once_open(url, NULL, &once, &err) == ONCE_INVALID && strstr(err.text, "107") != NULL);
    EXPECT(once == NULL);
}

/* ------------------------------------------------------------------ many clients */

/* Ends the leases of a client that goes away, where the claim said rerun; nothing else. */
static void lease__of_a_client_that_is_gone_ends_early_where_it_may(void)
{
    struct once *second = NULL;
    struct once_reply reply;
    CHECK(once_open(suite.url, NULL, &second, NULL) == ONCE_OK);
    static const struct {
        const char *key;
        enum once_takeover takeover;
    } rows[] = { { "default", ONCE_TAKEOVER_DEFAULT },
                 { "escalate", ONCE_TAKEOVER_ESCALATE },
                 { "probe", ONCE_TAKEOVER_PROBE },
                 { "completer", ONCE_TAKEOVER_COMPLETER },
                 { "rerun", ONCE_TAKEOVER_RERUN } };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct once_claim claim = { .key = span_str(rows[i].key), .takeover = rows[i].takeover };
        CHECK(once_claim(second, &claim, &reply, NULL) == ONCE_OK && reply.arm == ONCE_ARM_EXECUTE);
        once_reply_release(&reply);
    }
    once_close(second);
    once_time now = do_stats().now;
    bool early = false;
    for (int i = 0; !early && i < 12000; i++) { /* when it hears of that is the daemon's business */
        early = do_lookup(ONCE_LIT("rerun"))->record.lease_until <= now + 1;
        if (!early)
            usleep(10000);
    }
    EXPECT(early);
    for (size_t i = 0; i < LENGTH(rows) - 1; i++)
        EXPECT_ROW(rows[i].key, do_lookup(span_str(rows[i].key))->record.lease_until == now + ONCE_LEASE_MS_DEFAULT);
    clock_advance(1);
    EXPECT(granted(.key = ONCE_LIT("rerun"), .takeover = ONCE_TAKEOVER_RERUN).fence > 0);
    EXPECT(do_claim(.key = ONCE_LIT("escalate"), .takeover = ONCE_TAKEOVER_RERUN)->arm == ONCE_ARM_IN_PROGRESS);
}

/* ------------------------------------------------------------------ strangers */

static int connect_raw(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    path_of("socket", 0, address.sun_path, sizeof address.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    struct timeval patience = { .tv_sec = 120 };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

/* Reads until the daemon closes the connection; then there must be one frame, FAILED, with this text. */
static void expect_refused(const char *row, int fd, const char *said)
{
    static uint8_t bytes[4096];
    size_t len = 0;
    ssize_t n;
    while (len < sizeof bytes && (n = recv(fd, bytes + len, sizeof bytes - len, 0)) > 0)
        len += (size_t)n;
    EXPECT_ROW(row, n == 0);
    close(fd);
    struct wire_frame frame = { .id = 0 };
    size_t used = 0;
    struct once_error err = { .result = ONCE_OK };
    EXPECT_ROW(row, wire_next((once_span){ bytes, len }, &frame, &used, NULL) == ONCE_OK && used == len && used > 0);
    EXPECT_ROW(row, frame.type == WIRE_FAILED && wire_get_failed(frame.payload, &err) == ONCE_INVALID);
    EXPECT_ROW(row, strstr(err.text, said) != NULL);
}

static void send_raw(int fd, const void *bytes, size_t len)
{
    CHECK(send(fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len);
}

static void stranger__is_told_what_is_wrong_and_nothing_else(void)
{
    struct once_buf buf;
    once_buf_init(&buf, 1 << 20);
    int fd = connect_raw();
    send_raw(fd, "GET / HTTP/1.1\r\n\r\n", 18);
    expect_refused("http", fd, "bytes");

    fd = connect_raw();
    wire_put_hello(&buf, 1, &(struct wire_hello){ WIRE_VERSION + 1, ONCE_LIT("future") });
    send_raw(fd, buf.ptr, buf.len);
    expect_refused("version", fd, "version");

    fd = connect_raw();
    once_buf_clear(&buf);
    wire_put_number(&buf, 1, WIRE_STATS, 0);
    send_raw(fd, buf.ptr, buf.len);
    expect_refused("no hello", fd, "hello");
    once_buf_release(&buf);
    granted(.key = ONCE_LIT("a")); /* and the others are served */
}

static void stranger__that_goes_in_the_middle_of_a_frame_leaves_nothing(void)
{
    struct once_buf buf;
    once_buf_init(&buf, 1 << 20);
    struct wire_call call = { .request = { .verb = ONCE_VERB_CLAIM, .claim = { .key = ONCE_LIT("half") } } };
    wire_put_hello(&buf, 1, &(struct wire_hello){ WIRE_VERSION, ONCE_LIT("half") });
    size_t hello_len = buf.len;
    wire_put_call(&buf, 2, &call);
    for (size_t len = 1; len < buf.len; len += 7) {
        int fd = connect_raw();
        send_raw(fd, buf.ptr, len);
        close(fd);
    }
    int fd = connect_raw(); /* byte by byte it is the same frame */
    for (size_t i = 0; i < hello_len; i++)
        send_raw(fd, buf.ptr + i, 1);
    uint8_t welcome[64];
    EXPECT(recv(fd, welcome, sizeof welcome, 0) > 0 && welcome[8] == WIRE_WELCOME);
    close(fd);
    once_buf_release(&buf);
    EXPECT(do_lookup(ONCE_LIT("half"))->arm == ONCE_ARM_ABSENT);
}

/* The next frame of a raw connection; ends the case if none comes. */
static struct wire_frame receive_frame(int fd, struct once_buf *in)
{
    struct wire_frame frame;
    size_t used = 0;
    once_buf_clear(in);
    while (used == 0) {
        uint8_t *at = once_buf_reserve(in, 1);
        CHECK(at != NULL && recv(fd, at, 1, 0) == 1); /* one by one: the next frame stays where it is */
        in->len++;
        CHECK(wire_next(once_buf_span(in), &frame, &used, NULL) == ONCE_OK);
    }
    return frame;
}

/* A frame that is wrong is refused by itself; those before and after it are answered. */
static void frame__that_is_wrong_is_refused_by_itself(void)
{
    struct once_buf buf, in;
    once_buf_init(&buf, 1 << 20);
    once_buf_init(&in, 1 << 20);
    wire_put_hello(&buf, 1, &(struct wire_hello){ WIRE_VERSION, ONCE_LIT("raw") });
    wire_put_hello(&buf, 2, &(struct wire_hello){ WIRE_VERSION, ONCE_LIT("again") });
    size_t begin = wire_begin(&buf, 3, WIRE_CALL);
    once_buf_add(&buf, ONCE_LIT("no call"));
    CHECK(wire_end(&buf, begin, NULL) == ONCE_OK);
    begin = wire_begin(&buf, 4, (enum wire_type)200);
    CHECK(wire_end(&buf, begin, NULL) == ONCE_OK);
    wire_put_number(&buf, 5, WIRE_EXPIRE, UINT64_MAX);
    struct wire_call call = { .request = { .verb = ONCE_VERB_CLAIM, .claim = { .key = ONCE_LIT("") } } };
    wire_put_call(&buf, 6, &call); /* what the library refuses */
    call.request.claim.key = ONCE_LIT("a");
    wire_put_call(&buf, 7, &call);
    wire_put_number(&buf, 8, WIRE_STATS, 0);
    int fd = connect_raw();
    send_raw(fd, buf.ptr, buf.len);
    unsigned seen = 0;
    for (int i = 1; i <= 8; i++) {
        struct wire_frame frame = receive_frame(fd, &in);
        struct once_error err = { .result = ONCE_OK };
        CHECK(frame.id >= 1 && frame.id <= 8 && (seen & 1u << frame.id) == 0);
        seen |= 1u << frame.id;
        static const uint8_t answers[] = {
            [1] = WIRE_WELCOME, [2] = WIRE_FAILED, [3] = WIRE_FAILED, [4] = WIRE_FAILED,
            [5] = WIRE_FAILED,  [6] = WIRE_FAILED, [7] = WIRE_REPLY,  [8] = WIRE_COUNTS
        };
        EXPECT(frame.type == answers[frame.id]);
        if (frame.type == WIRE_FAILED)
            EXPECT(wire_get_failed(frame.payload, &err) == ONCE_INVALID && err.text[0] != '\0');
    }
    close(fd);
    once_buf_release(&buf);
    once_buf_release(&in);
    EXPECT(do_lookup(ONCE_LIT("a"))->arm == ONCE_ARM_FOUND);
}

/* ------------------------------------------------------------------ asked again */

/* Makes a call on a connection of its own; what was answered, or the result of a refusal. */
static enum once_arm call_raw(struct wire_call call, bool again, once_result *result, struct once_grant *grant)
{
    struct once_buf buf;
    once_buf_init(&buf, 1 << 20);
    call.again = again;
    wire_put_hello(&buf, 1, &(struct wire_hello){ WIRE_VERSION, ONCE_LIT("raw") });
    wire_put_call(&buf, 2, &call);
    int fd = connect_raw();
    send_raw(fd, buf.ptr, buf.len);
    receive_frame(fd, &buf); /* welcome */
    struct wire_frame frame = receive_frame(fd, &buf);
    close(fd);
    enum once_arm arm = ONCE_ARM_NONE;
    int64_t after;
    struct once_record record;
    *result = frame.type == WIRE_REPLY ? wire_get_reply(frame.payload, &arm, &after, &record, NULL)
                                       : wire_get_failed(frame.payload, NULL);
    if (*result == ONCE_OK && grant != NULL)
        *grant = record.grant;
    once_buf_release(&buf);
    return *result == ONCE_OK ? arm : ONCE_ARM_NONE;
}

/* K10: on another connection, with its nonce, an operation recognises what it did. */
static void K10__operations_repeated_on_another_connection_recognise_themselves(void)
{
    once_result r;
    struct once_grant first, second;
    struct wire_call claim = { .request = { .verb = ONCE_VERB_CLAIM, .claim = { .key = ONCE_LIT("a") } } };
    memset(claim.request.claim.nonce, 7, sizeof claim.request.claim.nonce);
    EXPECT(call_raw(claim, false, &r, &first) == ONCE_ARM_EXECUTE);
    EXPECT(call_raw(claim, true, &r, &second) == ONCE_ARM_EXECUTE && same_grant(first, second));
    EXPECT(do_claim(.key = ONCE_LIT("a"))->arm == ONCE_ARM_IN_PROGRESS);

    struct wire_call p1 = { .nonce = { 1 }, .request = { .verb = ONCE_VERB_ADVANCE, .grant = first } }, p2 = p1;
    p1.request.advance.point = ONCE_LIT("p1");
    p2.request.advance.point = ONCE_LIT("p2");
    p2.nonce[0] = 2;
    EXPECT(call_raw(p1, false, &r, NULL) == ONCE_ARM_DONE);
    EXPECT(call_raw(p2, false, &r, NULL) == ONCE_ARM_DONE);
    EXPECT(call_raw(p1, true, &r, NULL) == ONCE_ARM_DONE); /* it was made */
    p1.nonce[0] = 3;
    EXPECT(call_raw(p1, false, &r, NULL) == ONCE_ARM_NONE && r == ONCE_INVALID); /* K11: another that goes back */
    EXPECT(span_equal(do_lookup(ONCE_LIT("a"))->record.recovery_point, ONCE_LIT("p2")));

    struct wire_call finish = { .request = { .verb = ONCE_VERB_FINISH, .grant = first } };
    finish.request.outcome.state = ONCE_STATE_UNKNOWN;
    EXPECT(call_raw(finish, false, &r, NULL) == ONCE_ARM_DONE);
    EXPECT(call_raw(finish, true, &r, NULL) == ONCE_ARM_DONE);

    struct wire_call verdict = { .nonce = { 4 }, .request = { .verb = ONCE_VERB_RESOLVE } };
    verdict.request.resolve = (struct once_resolve){ .key = ONCE_LIT("a"),
                                                     .verdict = ONCE_VERDICT_DONE,
                                                     .outcome = { .state = ONCE_STATE_SUCCEEDED },
                                                     .reason = ONCE_LIT("r") };
    EXPECT(call_raw(verdict, false, &r, NULL) == ONCE_ARM_DONE);
    size_t told = do_history(ONCE_LIT("a"))->count;
    EXPECT(call_raw(verdict, true, &r, NULL) == ONCE_ARM_DONE);
    EXPECT(do_history(ONCE_LIT("a"))->count == told);
    verdict.nonce[0] = 5;
    EXPECT(call_raw(verdict, false, &r, NULL) == ONCE_ARM_REPLAY); /* somebody else's word comes too late */
}

const struct suite_case sut_cases[] = {
    CASE(K4__what_was_acknowledged_outlives_a_killed_daemon),
    CASE(K10__without_a_daemon_nothing_is_said_and_nothing_is_changed),
    CASE(drain__answers_what_is_under_way),
    CASE(socket__only_one_daemon_has_it_and_it_goes_with_him),
    CASE(socket__paths_that_cannot_be_are_refused),
    CASE(lease__of_a_client_that_is_gone_ends_early_where_it_may),
    CASE(stranger__is_told_what_is_wrong_and_nothing_else),
    CASE(stranger__that_goes_in_the_middle_of_a_frame_leaves_nothing),
    CASE(frame__that_is_wrong_is_refused_by_itself),
    CASE(K10__operations_repeated_on_another_connection_recognise_themselves),
    { NULL, NULL },
};
