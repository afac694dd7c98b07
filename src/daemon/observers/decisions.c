/* decisions.c - see decisions.h. */
#include "daemon/observers/decisions.h"

#include "core/buf.h"
#include "core/err.h"
#include "core/span.h"
#include "core/utc.h"
#include "os/os.h"
#include "os/stderr_log.h"
#include "os/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BUFFER_LEN_MAX = 1 << 20, /* of lines that wait; as much again is being written */
    LOOK_MS = 200,            /* for a file to be reopened, for a pipe to be read */
    END_MS = 2000,
    PIPE_LEN = 4096, /* a write of that much to a pipe that is ready does not block */
};

struct decisions {
    enum decisions_format format;
    const char *path; /* NULL: standard error */
    int fd;
    bool regular;
    bool torn; /* the thread's own: the last line broke off */
    _Atomic uint64_t lines, dropped;
    _Atomic bool reopen;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t work;
    struct once_buf filling;
    uint64_t filled; /* lines in it */
    bool stopping;
    once_time stop_by; /* monotonic */
};

/* ------------------------------------------------------------------ a line */

static const char *verb_name(enum once_verb verb)
{
    static const char *const names[] = {
        [ONCE_VERB_CLAIM] = "claim",     [ONCE_VERB_FINISH] = "finish",       [ONCE_VERB_RELEASE] = "release",
        [ONCE_VERB_RESOLVE] = "resolve", [ONCE_VERB_TAKE_OVER] = "take over",
    };
    return (size_t)verb < sizeof names / sizeof *names && names[verb] != NULL ? names[verb] : "other";
}

bool decisions_cover(enum once_verb verb)
{
    return verb == ONCE_VERB_CLAIM || verb == ONCE_VERB_FINISH || verb == ONCE_VERB_RELEASE ||
           verb == ONCE_VERB_RESOLVE || verb == ONCE_VERB_TAKE_OVER;
}

/* A line under way. What does not fit is left out: the bound is larger than all fields together. */
struct line {
    char *out;
    size_t len;
    bool json;
};

__attribute__((format(printf, 2, 3))) static void add(struct line *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->out + l->len, DECISION_LINE_LEN - l->len, format, args);
    va_end(args);
    if (n > 0 && (size_t)n < DECISION_LINE_LEN - l->len)
        l->len += (size_t)n;
    l->out[l->len] = '\0';
}

/* `value` has no quotes, and backslashes only as \xNN. */
static void add_text(struct line *l, const char *name, const char *value)
{
    char doubled[2 * ONCE_TRACE_TEXT_LEN];
    size_t n = 0;
    for (const char *c = value; *c != '\0' && n < sizeof doubled - 2; c++) {
        if (*c == '\\')
            doubled[n++] = '\\';
        doubled[n++] = *c;
    }
    doubled[n] = '\0';
    bool bare = !l->json && value[0] != '\0' && strpbrk(value, " =\\") == NULL;
    const char *comma = l->len > 1 ? (l->json ? "," : " ") : "";
    if (l->json)
        add(l, "%s\"%s\":\"%s\"", comma, name, doubled);
    else
        add(l, bare ? "%s%s=%s" : "%s%s=\"%s\"", comma, name, doubled);
}

static void add_number(struct line *l, const char *name, uint64_t value)
{
    add(l, l->json ? ",\"%s\":%" PRIu64 : " %s=%" PRIu64, name, value);
}

static void add_hex(struct line *l, const char *name, const uint8_t *bytes, size_t len)
{
    char hex[2 * 16 + 1];
    once_trace_hex(bytes, len, hex);
    add_text(l, name, hex);
}

static bool is_zero(const uint8_t bytes[16])
{
    static const uint8_t zeros[16];
    return memcmp(bytes, zeros, 16) == 0;
}

size_t decision_format(enum decisions_format format, uint64_t now_ns, const struct decision *d,
                       char out[DECISION_LINE_LEN])
{
    struct line l = { .out = out, .json = format == DECISIONS_JSON };
    char time[ONCE_TEXT_TIME_LEN], text[ONCE_TRACE_TEXT_LEN];
    once_text_utc((once_time)(now_ns / 1000000), time);
    add(&l, "%s", l.json ? "{" : "");
    add_text(&l, "time", time);
    add_text(&l, "op", verb_name(d->verb));
    if (d->has_tenant) {
        once_trace_text(d->tenant, text);
        add_text(&l, "tenant", text);
    }
    if (!is_zero(d->record))
        add_hex(&l, "key_hash", d->record, 16);
    if (d->fence > 0)
        add_number(&l, "fence", d->fence);
    if (d->attempt > 0)
        add_number(&l, "attempt", d->attempt);
    add_text(&l, "arm", d->result == ONCE_OK ? once_arm_name(d->arm) : "none");
    if (d->result != ONCE_OK)
        add_text(&l, "error", once_result_name(d->result));
    if (d->state != ONCE_STATE_NONE)
        add_text(&l, "state", once_state_name(d->state));
    if (d->route.len > 0) {
        once_trace_text(d->route, text);
        add_text(&l, "route", text);
    }
    add(&l, l.json ? ",\"duration_ms\":%" PRIu64 ".%03u" : " duration_ms=%" PRIu64 ".%03u", d->duration_ns / 1000000,
        (unsigned)(d->duration_ns / 1000 % 1000));
    add_text(&l, "by", d->by);
    if (d->trace != NULL)
        add_hex(&l, "trace_id", d->trace->trace, 16);
    add(&l, l.json ? "}\n" : "\n");
    return l.len;
}

void decision_take_reply(struct decision *d, once_result result, const struct once_reply *reply)
{
    d->result = result;
    if (result != ONCE_OK)
        return;
    d->arm = reply->arm;
    if (reply->record.grant.fence == 0)
        return; /* MISMATCH learns nothing (K6); what was asked about stays */
    memcpy(d->record, reply->record.grant.record, sizeof d->record);
    d->fence = reply->record.grant.fence;
    d->attempt = reply->record.attempt;
    if (d->verb == ONCE_VERB_FINISH || d->verb == ONCE_VERB_RESOLVE)
        d->state = reply->record.state;
}

/* ------------------------------------------------------------------ noting */

static void put_line(struct decisions *log, const char *line, size_t len)
{
    pthread_mutex_lock(&log->lock);
    bool room = log->filling.len + len <= BUFFER_LEN_MAX;
    if (room) {
        bool idle = log->filling.len == 0;
        once_buf_add(&log->filling, once_span_of(line, len));
        log->filled++;
        if (idle)
            pthread_cond_signal(&log->work);
    }
    pthread_mutex_unlock(&log->lock);
    if (!room)
        atomic_fetch_add(&log->dropped, 1);
}

void decisions_note(struct decisions *log, const struct decision *d)
{
    char line[DECISION_LINE_LEN];
    if (log == NULL)
        return;
    size_t len = decision_format(log->format, once_os_wall_ns(), d, line);
    put_line(log, line, len);
}

void decisions_reopen(struct decisions *log)
{
    atomic_store(&log->reopen, true);
}

/* ------------------------------------------------------------------ writing */

/* A FIFO that nobody reads is refused, not waited for. */
static int open_file(const char *path)
{
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
}

static bool is_regular(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static void look_for_reopen(struct decisions *log)
{
    if (log->path == NULL || !atomic_exchange(&log->reopen, false))
        return;
    int fd = open_file(log->path);
    if (fd < 0) {
        once_os_log("once daemon", "cannot reopen '%s', the old one goes on: %s", log->path, strerror(errno));
        return;
    }
    close(log->fd);
    log->fd = fd;
    log->regular = is_regular(fd);
    log->torn = false;
}

static bool is_over(struct decisions *log)
{
    pthread_mutex_lock(&log->lock);
    bool over = log->stopping && once_os_monotonic_ms() >= log->stop_by;
    pthread_mutex_unlock(&log->lock);
    return over;
}

/* As much as there is room for, if there still is: a remark may have taken it (os/stderr_log.h). */
static ssize_t write_some(struct decisions *log, once_span bytes)
{
    if (log->regular)
        return write(log->fd, bytes.ptr, bytes.len);
    struct pollfd ready = { .fd = log->fd, .events = POLLOUT };
    once_os_stderr_lock();
    ssize_t n = 0;
    if (poll(&ready, 1, 0) > 0)
        n = write(log->fd, bytes.ptr, bytes.len < PIPE_LEN ? bytes.len : PIPE_LEN);
    once_os_stderr_unlock();
    return n;
}

/* False: not all of it, and the rest never will be. */
static bool write_all(struct decisions *log, once_span bytes)
{
    while (bytes.len > 0) {
        struct pollfd ready = { .fd = log->fd, .events = POLLOUT };
        if (!log->regular && poll(&ready, 1, LOOK_MS) <= 0) {
            if (is_over(log))
                return false;
            continue;
        }
        ssize_t n = write_some(log, bytes);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return false;
        if (n > 0) {
            log->torn = bytes.ptr[n - 1] != '\n';
            bytes = once_span_skip(bytes, (size_t)n);
        }
    }
    return true;
}

/* The same. After one that broke off, where a disk was full say, a new line begins. */
static bool write_out(struct decisions *log, once_span bytes)
{
    return (!log->torn || write_all(log, ONCE_LIT("\n"))) && write_all(log, bytes);
}

/* Where lines are missing it says so. */
static void tell_dropped(struct decisions *log, uint64_t count)
{
    char line[200], time[ONCE_TEXT_TIME_LEN];
    once_text_utc((once_time)(once_os_wall_ns() / 1000000), time);
    int n = snprintf(line, sizeof line,
                     log->format == DECISIONS_JSON ? "{\"time\":\"%s\",\"op\":\"dropped\",\"lines\":%" PRIu64 "}\n"
                                                   : "time=%s op=dropped lines=%" PRIu64 "\n",
                     time, count);
    write_out(log, once_span_of(line, (size_t)n));
}

static bool take(struct decisions *log, struct once_buf *out, uint64_t *lines)
{
    pthread_mutex_lock(&log->lock);
    while (log->filling.len == 0 && !log->stopping && !atomic_load(&log->reopen)) {
        once_time until = once_os_monotonic_ms() + LOOK_MS;
        struct timespec at = { .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };
        if (log->path != NULL)
            pthread_cond_timedwait(&log->work, &log->lock, &at);
        else
            pthread_cond_wait(&log->work, &log->lock);
    }
    struct once_buf taken = log->filling;
    log->filling = *out;
    *out = taken;
    *lines = log->filled;
    log->filled = 0;
    bool more = out->len > 0 || !log->stopping;
    pthread_mutex_unlock(&log->lock);
    return more;
}

static void *work(void *arg)
{
    struct decisions *log = arg;
    struct once_buf out;
    uint64_t lines = 0, told = 0;
    pthread_setname_np(pthread_self(), "once-decisions");
    once_buf_init(&out, BUFFER_LEN_MAX);
    while (take(log, &out, &lines)) {
        look_for_reopen(log);
        bool written = write_out(log, once_buf_span(&out));
        atomic_fetch_add(written ? &log->lines : &log->dropped, lines);
        once_buf_clear(&out);
        uint64_t dropped = atomic_load(&log->dropped);
        if (dropped > told && written) {
            tell_dropped(log, dropped - told);
            told = dropped;
        }
    }
    once_buf_release(&out);
    return NULL;
}

/* ------------------------------------------------------------------ start, stop */

static void release(struct decisions *log)
{
    if (log->path != NULL && log->fd >= 0)
        close(log->fd);
    once_buf_release(&log->filling);
    free(log);
}

once_result decisions_start(enum decisions_format format, const char *path, struct decisions **out,
                            struct once_error *err)
{
    struct decisions *log = calloc(1, sizeof *log);
    if (log == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a log");
    log->format = format;
    log->path = path;
    log->fd = path != NULL ? open_file(path) : STDERR_FILENO;
    once_buf_init(&log->filling, BUFFER_LEN_MAX);
    if (log->fd < 0) {
        once_fail(err, ONCE_UNAVAILABLE, "cannot open '%.200s': %s", path, strerror(errno));
        release(log);
        return ONCE_UNAVAILABLE;
    }
    log->regular = is_regular(log->fd);
    pthread_mutex_init(&log->lock, NULL);
    once_cond_init(&log->work);
    if (once_thread_start(&log->thread, work, log) != 0) {
        pthread_cond_destroy(&log->work);
        pthread_mutex_destroy(&log->lock);
        release(log);
        return once_fail(err, ONCE_UNAVAILABLE, "cannot start a thread");
    }
    *out = log;
    return ONCE_OK;
}

void decisions_stop(struct decisions *log)
{
    if (log == NULL)
        return;
    pthread_mutex_lock(&log->lock);
    log->stopping = true;
    log->stop_by = once_os_monotonic_ms() + END_MS;
    pthread_cond_signal(&log->work);
    pthread_mutex_unlock(&log->lock);
    pthread_join(log->thread, NULL);
    pthread_cond_destroy(&log->work);
    pthread_mutex_destroy(&log->lock);
    release(log);
}

static void put(FILE *file, const char *name, uint64_t value, const char *help)
{
    fprintf(file, "# HELP %s %s\n# TYPE %s counter\n%s %" PRIu64 "\n", name, help, name, name, value);
}

void decisions_put(const struct decisions *log, FILE *file)
{
    if (log == NULL)
        return;
    put(file, "once_decision_lines_total", atomic_load(&log->lines), "Decisions that were logged.");
    put(file, "once_decision_lines_dropped_total", atomic_load(&log->dropped),
        "Decisions that were not logged: no room, or the log could not be written.");
}
