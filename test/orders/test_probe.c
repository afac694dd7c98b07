/*
 * test_probe.c - a flow's probe by URL: what each answer of the other side is taken for, however bad it is.
 *
 * The other side is a thread that reads a request and answers with the bytes of the case.
 */
#include "once_flow.h"

#include "../test.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HUGE_LEN = 200000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the next three: the thread reads, and writes, them */
static const char *script;  /* what is answered; NULL: nothing, the caller has to give up */
static bool huge;           /* and that many bytes more */
static char question[2000]; /* the last one */
static atomic_int questions;
static int listener, port;
static int calls;
static char adopted[100], last_key[ONCE_CHILD_KEY_LEN + 1];
static char url[100];
static once_span extra_headers;
static int64_t timeout_ms;
enum { PATIENCE_MS = 100000 }; /* for an answer that will come */

/* ------------------------------------------------------------------ the other side */

static void send_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        bytes += n;
        len -= (size_t)n;
    }
}

static void *serve(void *arg)
{
    (void)arg;
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; close(fd)) {
        char text[sizeof question] = "";
        size_t len = 0;
        for (ssize_t n; len < sizeof text - 1 && (n = recv(fd, text + len, sizeof text - 1 - len, 0)) > 0;) {
            len += (size_t)n;
            text[len] = '\0';
            if (strstr(text, "\r\n\r\n") != NULL)
                break;
        }
        pthread_mutex_lock(&lock);
        memcpy(question, text, sizeof question);
        const char *answer = script;
        bool more = huge;
        pthread_mutex_unlock(&lock);
        atomic_fetch_add(&questions, 1);
        if (answer == NULL) {
            char byte;
            while (recv(fd, &byte, 1, 0) > 0)
                ;
            continue;
        }
        send_all(fd, answer, strlen(answer));
        for (int i = 0; more && i < HUGE_LEN; i += 1000) {
            char bytes[1000];
            memset(bytes, 'x', sizeof bytes);
            send_all(fd, bytes, sizeof bytes);
        }
    }
    return NULL;
}

static bool listen_somewhere(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof at;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 10) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &len) != 0)
        return false;
    port = ntohs(at.sin_port);
    return true;
}

static void answer_with(const char *bytes, bool and_more)
{
    pthread_mutex_lock(&lock);
    script = bytes;
    huge = and_more;
    pthread_mutex_unlock(&lock);
}

/* ------------------------------------------------------------------ the flow */

static once_step_end charge(struct once_call *call, void *arg)
{
    (void)arg;
    snprintf(last_key, sizeof last_key, "%s", call->key);
    return calls++ == 0 ? once_call_lost(call, "no answer") : once_call_answered(call, ONCE_LIT("called"));
}

static once_step_end ask(struct once_call *call, void *arg)
{
    (void)arg;
    return once_call_probe_http(
        call, &(struct once_probe_http){ .url = url, .headers = extra_headers, .timeout_ms = timeout_ms });
}

static once_step_end judge(struct once_local *local, void *arg)
{
    (void)arg;
    snprintf(adopted, sizeof adopted, "%.*s", (int)local->answer.len, (const char *)local->answer.ptr);
    return once_local_finish(local, &(struct once_outcome){ .state = ONCE_STATE_SUCCEEDED, .status = 201 });
}

enum means { ADOPTED, CALLED, NOT_KNOWN };

static const struct row {
    const char *name;
    enum means means;
    const char *answer;
    bool huge;
} rows[] = {
    { "a whole answer", ADOPTED, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\npaid!", false },
    { "in chunks", ADOPTED, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\npai\r\n2\r\nd!\r\n0\r\n\r\n",
      false },
    { "not there", CALLED, "HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno\n", false },
    { "not there, and no words", CALLED, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", false },
    { "half of not there", NOT_KNOWN, "HTTP/1.1 404 Not Found\r\nContent-Length: 30\r\n\r\nno\n", false },
    { "no body", NOT_KNOWN, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false },
    { "no content", NOT_KNOWN, "HTTP/1.1 204 No Content\r\n\r\n", false },
    { "accepted", NOT_KNOWN, "HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok", false },
    { "broken off", NOT_KNOWN, "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\npaid!", false },
    { "broken off in a chunk", NOT_KNOWN, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n30\r\npaid!", false },
    { "broken off in its headers", NOT_KNOWN, "HTTP/1.1 200 OK\r\nContent-Le", false },
    { "without a certain end", NOT_KNOWN, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\npaid!", false },
    { "two lengths", NOT_KNOWN, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\npaid!", false },
    { "too large", NOT_KNOWN, "HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n", true },
    { "a redirect", NOT_KNOWN, "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", false },
    { "an error", NOT_KNOWN, "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\noh", false },
    { "nobody is let in", NOT_KNOWN, "HTTP/1.1 401 Who\r\nContent-Length: 0\r\n\r\n", false },
    { "no HTTP", NOT_KNOWN, "what?\r\n\r\n", false },
    { "nothing at all", NOT_KNOWN, "", false },
    { "silence", NOT_KNOWN, NULL, false },
};

static enum once_arm run(const struct once_flow *flow, struct once_flow_db *flows, struct once_flow_report *report)
{
    struct once_flow_input input = { .key = ONCE_LIT("k"), .request = ONCE_LIT("r") };
    struct once_reply reply;
    struct once_error err;
    CHECK(once_flow_run(flow, flows, &input, NULL, report, &reply, &err) == ONCE_OK);
    enum once_arm arm = reply.arm;
    once_reply_release(&reply);
    return arm;
}

/* Lost, then asked about: `function` or the table's own URL. */
static void check_row(const struct row *row, bool by_table)
{
    struct once_flow flow = {
        .name = "test",
        .steps = { ONCE_CALL("charge", charge, .callee = ONCE_CALLEE_PROBEABLE, .probe = by_table ? NULL : ask,
                             .probe_url = by_table ? url : NULL),
                   ONCE_LOCAL("end", judge) },
        .backoff_ms = 1,
        .backoff_ms_max = 1,
    };
    sqlite3 *db = NULL;
    struct once_flow_db *flows = NULL;
    struct once_flow_report report;
    CHECK(sqlite3_open(":memory:", &db) == SQLITE_OK && once_flow_open_sqlite(db, &flows, NULL) == ONCE_OK);
    calls = 0;
    adopted[0] = '\0';
    answer_with(row->answer, row->huge);
    bool silent = row->answer == NULL;
    timeout_ms = silent ? 200 : PATIENCE_MS;
    atomic_store(&questions, 0);
    EXPECT_ROW(row->name, run(&flow, flows, &report) == ONCE_ARM_IN_PROGRESS && atomic_load(&questions) == 0);
    enum once_arm arm = ONCE_ARM_NONE;
    for (int i = 0; i < 1000 && atomic_load(&questions) == 0; i++) { /* its pause of a millisecond */
        arm = run(&flow, flows, &report);
        usleep(1000);
    }
    /* One, also after a redirect. Who gives up early may do so before the other side has heard the first. */
    EXPECT_ROW(row->name, atomic_load(&questions) == 1 || (silent && atomic_load(&questions) > 1));
    EXPECT_ROW(row->name, arm == (row->means == NOT_KNOWN ? ONCE_ARM_IN_PROGRESS : ONCE_ARM_REPLAY));
    EXPECT_ROW(row->name, calls == (row->means == CALLED ? 2 : 1));
    EXPECT_ROW(row->name, strcmp(adopted, row->means == ADOPTED ? "paid!" : row->means == CALLED ? "called" : "") == 0);
    EXPECT_ROW(row->name, (report.reason[0] != '\0') == (row->means == NOT_KNOWN));
    if (row->means == NOT_KNOWN) { /* and as soon as it is known, that is it */
        answer_with("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\npaid!", false);
        timeout_ms = PATIENCE_MS;
        for (int i = 0; i < 1000 && arm != ONCE_ARM_REPLAY; i++) {
            usleep(1000);
            arm = run(&flow, flows, &report);
        }
        EXPECT_ROW(row->name, arm == ONCE_ARM_REPLAY && calls == 1 && strcmp(adopted, "paid!") == 0);
    }
    once_flow_close(flows);
    sqlite3_close(db);
}

static void probe__each_answer_is_taken_for_what_it_is(void)
{
    snprintf(url, sizeof url, "http://127.0.0.1:%d/charges/{key}?again={key}", port);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row(&rows[i], false);
}

static void probe__is_asked_as_it_should_be(void)
{
    snprintf(url, sizeof url, "http://127.0.0.1:%d/charges/{key}?again={key}", port);
    extra_headers = ONCE_LIT("Authorization: Bearer x\r\nAccept: text/plain\r\n");
    check_row(&rows[0], false);
    char line[300];
    pthread_mutex_lock(&lock);
    snprintf(line, sizeof line, "GET /charges/%s?again=%s HTTP/1.1\r\n", last_key, last_key);
    EXPECT(strncmp(question, line, strlen(line)) == 0);
    snprintf(line, sizeof line, "\r\nOnce-Key: %s\r\nOnce-Fence: ", last_key);
    EXPECT(strstr(question, line) != NULL && strstr(question, "\r\nAuthorization: Bearer x\r\n") != NULL);
    EXPECT(strstr(question, "Content-Length") == NULL && strstr(question, "Idempotency-Key") == NULL);
    pthread_mutex_unlock(&lock);
    extra_headers = ONCE_LIT("");
}

static void probe__may_be_a_url_in_the_table(void)
{
    snprintf(url, sizeof url, "http://127.0.0.1:%d/charges/{key}", port);
    check_row(&rows[0], true);
    check_row(&rows[2], true);
    check_row(&rows[8], true);
}

static void table__urls_are_checked(void)
{
    static const struct {
        const char *url;
        bool good;
    } urls[] = { { "http://a/{key}", true },       { "https://a.example:8443/x?k={key}", true },
                 { "http://a/", false },           { "ftp://a/{key}", false },
                 { "/charges/{key}", false },      { "http://unix:/run/x/{key}", false },
                 { "http://a/{key} b", false },    { "http://a/{key}#b", false },
                 { "http://a/{key}\r\nX:", false } };
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        struct once_flow flow = { .name = "f",
                                  .steps = {
                                      ONCE_CALL("a", charge, .callee = ONCE_CALLEE_PROBEABLE, .probe_url = urls[i].url),
                                      ONCE_LOCAL("b", judge) } };
        struct once_error err;
        EXPECT_ROW(urls[i].url, (once_flow_check(&flow, &err) == ONCE_OK) == urls[i].good);
        flow.steps[0].probe = ask;
        EXPECT_ROW(urls[i].url, once_flow_check(&flow, &err) == ONCE_INVALID);
        flow.steps[0].probe = NULL;
        flow.steps[0].callee = ONCE_CALLEE_IDEMPOTENT;
        EXPECT_ROW(urls[i].url, once_flow_check(&flow, &err) == ONCE_INVALID);
    }
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (!listen_somewhere() || pthread_create(&thread, NULL, serve, NULL) != 0)
        return 1;
    static const struct test tests[] = {
        TEST(probe__each_answer_is_taken_for_what_it_is),
        TEST(probe__is_asked_as_it_should_be),
        TEST(probe__may_be_a_url_in_the_table),
        TEST(table__urls_are_checked),
    };
    int failed = test_main(argc, argv, tests, sizeof tests / sizeof *tests);
    shutdown(listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(listener);
    return failed;
}
