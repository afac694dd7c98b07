/* test_decisions.c - what is told of the work: lines of decisions, spans as OTLP has them. */
#include "core/span.h"
#include "daemon/observers/decisions.h"
#include "http/http_call.h"
#include "os/stderr_log.h"
#include "trace/exporter.h"

#include "../test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct once_trace trace = { .trace = { 0xab }, .span = { 1 }, .sampled = true };

static struct decision claim(void)
{
    struct decision d = { .verb = ONCE_VERB_CLAIM,
                          .by = "socket",
                          .arm = ONCE_ARM_IN_PROGRESS,
                          .record = { 0xc0, 0xff },
                          .fence = 12,
                          .attempt = 2,
                          .has_tenant = true,
                          .tenant = ONCE_LIT("acme"),
                          .trace = &trace,
                          .route = ONCE_LIT("/payments"),
                          .duration_ns = 1234567 };
    return d;
}

static void expect_line(const char *row, enum decisions_format format, const struct decision *d, const char *want)
{
    char line[DECISION_LINE_LEN];
    size_t len = decision_format(format, 1767225600000000000u, d, line);
    if (len != strlen(want) || strcmp(line, want) != 0) {
        printf("# wanted: %s# got:    %s", want, line);
        test_failed(__FILE__, __LINE__, row, "the line differs");
    }
}

static void line__has_all_that_is_known(void)
{
    struct decision d = claim();
    expect_line("json", DECISIONS_JSON, &d,
                "{\"time\":\"2026-01-01T00:00:00.000Z\",\"op\":\"claim\",\"tenant\":\"acme\","
                "\"key_hash\":\"c0ff0000000000000000000000000000\",\"fence\":12,\"attempt\":2,\"arm\":\"in progress\","
                "\"route\":\"/payments\",\"duration_ms\":1.234,\"by\":\"socket\","
                "\"trace_id\":\"ab000000000000000000000000000000\"}\n");
    expect_line("logfmt", DECISIONS_LOGFMT, &d,
                "time=2026-01-01T00:00:00.000Z op=claim tenant=acme key_hash=c0ff0000000000000000000000000000 fence=12 "
                "attempt=2 arm=\"in progress\" route=/payments duration_ms=1.234 by=socket "
                "trace_id=ab000000000000000000000000000000\n");
}

static void line__leaves_out_what_is_not(void)
{
    struct decision d = { .verb = ONCE_VERB_FINISH, .by = "http", .result = ONCE_BUSY };
    expect_line("json", DECISIONS_JSON, &d,
                "{\"time\":\"2026-01-01T00:00:00.000Z\",\"op\":\"finish\",\"arm\":\"none\",\"error\":\"BUSY\","
                "\"duration_ms\":0.000,\"by\":\"http\"}\n");
}

/* A tenant is what a client says it is. */
static void line__cannot_be_forged(void)
{
    struct decision d = claim();
    d.trace = NULL;
    d.route = once_span_of(NULL, 0);
    d.tenant = ONCE_LIT("x\",\"arm\":\"execute\"}\n{\"a\":\"");
    expect_line("json", DECISIONS_JSON, &d,
                "{\"time\":\"2026-01-01T00:00:00.000Z\",\"op\":\"claim\","
                "\"tenant\":\"x\\\\x22,\\\\x22arm\\\\x22:\\\\x22execute\\\\x22}\\\\x0a{\\\\x22a\\\\x22:\\\\x22\","
                "\"key_hash\":\"c0ff0000000000000000000000000000\",\"fence\":12,\"attempt\":2,\"arm\":\"in progress\","
                "\"duration_ms\":1.234,\"by\":\"socket\"}\n");
    d.tenant = ONCE_LIT("x arm=execute");
    expect_line("logfmt", DECISIONS_LOGFMT, &d,
                "time=2026-01-01T00:00:00.000Z op=claim tenant=\"x arm=execute\" "
                "key_hash=c0ff0000000000000000000000000000 fence=12 attempt=2 arm=\"in progress\" duration_ms=1.234 "
                "by=socket\n");
    uint8_t bytes[ONCE_TENANT_LEN_MAX];
    char line[DECISION_LINE_LEN];
    for (int c = 0; c < 256; c++) {
        memset(bytes, c, sizeof bytes);
        d.tenant = d.route = once_span_of(bytes, sizeof bytes);
        for (enum decisions_format f = DECISIONS_JSON; f <= DECISIONS_LOGFMT; f++) {
            size_t len = decision_format(f, 0, &d, line);
            CHECK(len < sizeof line && strlen(line) == len && strchr(line, '\n') == line + len - 1);
            CHECK(strstr(line, "by=socket\n") != NULL || strstr(line, "\"by\":\"socket\"}\n") != NULL);
        }
    }
}

static size_t lines_in(const char *path)
{
    FILE *file = fopen(path, "r");
    size_t count = 0;
    for (int c; file != NULL && (c = getc(file)) != EOF;)
        count += c == '\n';
    if (file != NULL)
        fclose(file);
    return count;
}

static uint64_t metric(const struct decisions *log, const char *name)
{
    char *text = NULL, wanted[100];
    size_t len = 0;
    FILE *file = open_memstream(&text, &len);
    decisions_put(log, file);
    fclose(file);
    snprintf(wanted, sizeof wanted, "\n%s ", name);
    const char *at = strstr(text, wanted);
    uint64_t value = at != NULL ? strtoull(at + strlen(wanted), NULL, 10) : UINT64_MAX;
    free(text);
    return value;
}

static void log__writes_all_of_it_and_ends(void)
{
    char path[] = "/tmp/once-decisions-XXXXXX";
    struct decisions *log = NULL;
    struct decision d = claim();
    close(mkstemp(path));
    CHECK(decisions_start(DECISIONS_JSON, path, &log, NULL) == ONCE_OK);
    for (int i = 0; i < 1000; i++)
        decisions_note(log, &d);
    decisions_stop(log);
    EXPECT(lines_in(path) == 1000);
    unlink(path);
}

/* Nobody reads: what does not fit is dropped and counted, whoever notes goes on, and the end comes. */
static void log__that_is_not_read_drops_and_counts(void)
{
    char path[64];
    int ends[2];
    struct decisions *log = NULL;
    struct decision d = claim();
    CHECK(pipe(ends) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
    CHECK(decisions_start(DECISIONS_JSON, path, &log, NULL) == ONCE_OK);
    for (int i = 0; i < 20000; i++) /* 5 MB; the buffers have 2, the pipe 64 kB */
        decisions_note(log, &d);
    EXPECT(metric(log, "once_decision_lines_dropped_total") > 5000);
    decisions_stop(log);
    close(ends[0]);
    close(ends[1]);
}

/* As on a full disk: a line may break off in the middle, and the one after it is whole. */
static void log__that_was_full_goes_on_with_a_new_line(void)
{
    char path[] = "/tmp/once-decisions-XXXXXX", line[DECISION_LINE_LEN];
    struct decisions *log = NULL;
    struct decision d = claim();
    struct rlimit before, small;
    close(mkstemp(path));
    signal(SIGXFSZ, SIG_IGN);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    small = (struct rlimit){ .rlim_cur = (64 << 10) + 1, .rlim_max = before.rlim_max };
    CHECK(decisions_start(DECISIONS_JSON, path, &log, NULL) == ONCE_OK);
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    for (int i = 0; i < 1000; i++)
        decisions_note(log, &d);
    while (metric(log, "once_decision_lines_total") + metric(log, "once_decision_lines_dropped_total") < 1000)
        sched_yield();
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    EXPECT(metric(log, "once_decision_lines_dropped_total") > 0);
    decisions_note(log, &d);
    decisions_stop(log);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    size_t torn = 0, glued = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        torn += strcmp(line + strlen(line) - 2, "}\n") != 0;
        glued += strstr(line + 1, "{\"time\"") != NULL;
    }
    fclose(file);
    EXPECT(torn == 1 && glued == 0);
    unlink(path);
}

/* It would be waited for, and no signal ends a program that has not begun. */
static void log__of_a_fifo_that_nobody_reads_is_refused(void)
{
    char folder[] = "/tmp/once-decisions-XXXXXX", path[64];
    struct decisions *log = NULL;
    struct once_error err;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/fifo", folder);
    CHECK(mkfifo(path, 0600) == 0);
    EXPECT(decisions_start(DECISIONS_JSON, path, &log, &err) == ONCE_UNAVAILABLE);
    unlink(path);
    rmdir(folder);
}

static void log__of_no_file_is_refused(void)
{
    struct decisions *log = NULL;
    struct once_error err;
    EXPECT(decisions_start(DECISIONS_JSON, "/nonexistent/log", &log, &err) == ONCE_UNAVAILABLE);
    EXPECT(strstr(err.text, "/nonexistent/log") != NULL);
}

static void otlp__is_json_as_the_protocol_has_it(void)
{
    struct otlp_span span = { .trace = { 0xab }, .record = { 0xc0 }, .fence = 12, .attempt = 2, .tenant = "acme" };
    char *text = NULL;
    size_t len = 0;
    span.span = (struct once_trace_span){ .name = ONCE_TRACE_CLAIM,
                                          .id = { 2 },
                                          .parent = { 1 },
                                          .start_ns = 1767225600000000001u,
                                          .end_ns = 1767225600000000000u, /* a clock that was set back */
                                          .arm = ONCE_ARM_REPLAY };
    FILE *file = open_memstream(&text, &len);
    otlp_write(file, &(struct otlp_resource){ .service = "once", .pid = 7 }, &span, 1);
    fclose(file);
    static const char *const parts[] = {
        "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"service.name\",\"value\":{\"stringValue\":"
        "\"once\"}}",
        "\"scopeSpans\":[{\"scope\":{\"name\":\"once\",",
        "\"spans\":[{\"traceId\":\"ab000000000000000000000000000000\",\"spanId\":\"0200000000000000\","
        "\"parentSpanId\":\"0100000000000000\",\"flags\":1,\"name\":\"once.claim\",\"kind\":1,"
        "\"startTimeUnixNano\":\"1767225600000000001\",\"endTimeUnixNano\":\"1767225600000000001\",",
        "{\"key\":\"once.key_hash\",\"value\":{\"stringValue\":\"c0000000000000000000000000000000\"}}",
        "{\"key\":\"once.fence\",\"value\":{\"intValue\":\"12\"}}",
        "{\"key\":\"once.arm\",\"value\":{\"stringValue\":\"replay\"}}",
        "\"status\":{}}]}]}]}\n",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        EXPECT_ROW(parts[i], strstr(text, parts[i]) != NULL);
    if (test_failures > 0)
        printf("# %s", text);
    free(text);
}

struct adder {
    pthread_t thread;
    struct exporter *exporter;
};

static void *add_many(void *arg)
{
    struct otlp_span span = { .trace = { 1 } };
    span.span = (struct once_trace_span){ .name = ONCE_TRACE_CLAIM, .id = { 2 } };
    for (int i = 0; i < 5000; i++)
        exporter_add(((struct adder *)arg)->exporter, &span);
    return NULL;
}

/* Whoever adds goes on; what cannot be kept is counted; the end comes. */
static void exporter__without_a_collector_drops_and_counts(void)
{
    struct adder adders[4];
    struct exporter *e = NULL;
    struct exporter_options options = { .url = "http://127.0.0.1:9", .service = "once" }; /* discard: nobody listens */
    CHECK(http_call_init(NULL) == ONCE_OK);
    CHECK(exporter_start(&options, &e, NULL) == ONCE_OK);
    for (size_t i = 0; i < 4; i++) {
        adders[i].exporter = e;
        CHECK(pthread_create(&adders[i].thread, NULL, add_many, &adders[i]) == 0);
    }
    for (size_t i = 0; i < 4; i++)
        pthread_join(adders[i].thread, NULL);
    EXPECT(atomic_load(&exporter_counters(e)->dropped) >= 20000 - 8192 - 4 * 512);
    EXPECT(atomic_load(&exporter_counters(e)->exported) == 0);
    exporter_lost(e, 7);
    exporter_stop(e);
    exporter_add(NULL, &(struct otlp_span){ 0 });
    exporter_stop(NULL);
}

static void exporter__refuses_what_it_cannot_use(void)
{
    static const struct {
        const char *name, *url, *header;
    } rows[] = { { "no URL", "collector:4318", NULL },
                 { "credentials", "http://u:p@collector:4318", NULL },
                 { "no header", "http://c:4318", "nonsense" },
                 { "two lines", "http://c:4318", "a: b\r\nc: d" },
                 { "no such file", "http://c:4318", "@/nonexistent" },
                 { "a file that everybody reads", "http://c:4318", "@/etc/passwd" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct exporter *e = NULL;
        struct exporter_options options = { .url = rows[i].url, .headers = { rows[i].header } };
        struct once_error err = { .text = "" };
        options.header_count = rows[i].header != NULL;
        EXPECT_ROW(rows[i].name,
                   exporter_start(&options, &e, &err) == ONCE_INVALID && err.text[0] != '\0' && e == NULL);
    }
}

static void remark__has_a_time_unless_it_is_there_already(void)
{
    EXPECT(stderr_log_has_time(NULL, 9, 1234, false));
    EXPECT(!stderr_log_has_time("9:1234", 9, 1234, false)); /* the journal */
    EXPECT(stderr_log_has_time("9:1235", 9, 1234, false));  /* somebody else's, inherited */
    EXPECT(stderr_log_has_time("9:123", 9, 1234, false));
    EXPECT(!stderr_log_has_time(NULL, 9, 1234, true)); /* a terminal */
}

/* As it is written: one line, whole or cut, however long. */
static void remark__is_one_line(void)
{
    char text[2 * STDERR_LOG_LEN_MAX], line[2 * STDERR_LOG_LEN_MAX + 1];
    int ends[2], before = dup(STDERR_FILENO);
    memset(text, 'x', sizeof text);
    EXPECT(pipe(ends) == 0 && before >= 0);
    dup2(ends[1], STDERR_FILENO);
    once_os_log("once daemon", "%s %d", "short", 1);
    once_os_log("once daemon", "%.*s", (int)sizeof text, text);
    dup2(before, STDERR_FILENO);
    close(ends[1]);
    size_t len = 0;
    for (ssize_t n; (n = read(ends[0], line + len, sizeof line - 1 - len)) > 0;)
        len += (size_t)n;
    close(ends[0]);
    close(before);
    line[len] = '\0';
    const char *second = strchr(line, '\n');
    EXPECT(second != NULL && strncmp(line + 24, " once daemon: short 1\n", 22) == 0 && line[23] == 'Z');
    EXPECT(second != NULL && strlen(second + 1) == STDERR_LOG_LEN_MAX - 1 && line[len - 1] == '\n');
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(line__has_all_that_is_known),
        TEST(line__leaves_out_what_is_not),
        TEST(line__cannot_be_forged),
        TEST(log__writes_all_of_it_and_ends),
        TEST(log__that_is_not_read_drops_and_counts),
        TEST(log__that_was_full_goes_on_with_a_new_line),
        TEST(log__of_a_fifo_that_nobody_reads_is_refused),
        TEST(log__of_no_file_is_refused),
        TEST(otlp__is_json_as_the_protocol_has_it),
        TEST(exporter__without_a_collector_drops_and_counts),
        TEST(exporter__refuses_what_it_cannot_use),
        TEST(remark__has_a_time_unless_it_is_there_already),
        TEST(remark__is_one_line),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
