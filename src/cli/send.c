/*
 * send.c - `once send`: sends an HTTP request under a key until there is a final answer.
 *
 * Model:      once_client_*() with a folder of pending requests (send/folder.h). The request is saved in the folder
 * before the first byte is sent, and removed after a final answer was printed. If the program dies in between,
 *             `--resume` sends the same bytes under the same key.
 * Invariants: SEND-1 only a final, complete answer is written to standard output or --output.
 *             SEND-2 a request is removed only after its answer was written.
 *             SEND-3 another request under the key of a pending one is refused before anything is sent.
 *             SEND-4 a request older than the server's memory of keys is not resumed: it might be executed again.
 */
#include "send/send.h"
#include "cli/verbs.h"
#include "client/saved.h"
#include "core/duration.h"
#include "core/http/header.h"
#include "core/span.h"
#include "os/crash_point.h"
#include "os/os.h"
#include "program/text.h"
#include "send/out.h"

#include <errno.h>
#include <strings.h>

/* ------------------------------------------------------------------ what is said */

static void on_try(void *arg, const struct once_client_try *attempt)
{
    const struct send *s = arg;
    char wait[ONCE_DURATION_TEXT_LEN];
    if (s->cli.quiet)
        return;
    once_duration_format(attempt->wait_ms, wait);
    fprintf(stderr, "once: try %u: %s; again in %s\n", attempt->number, attempt->reason, wait);
}

/* Prints the command that resumes, with the headers that have to be given again. */
static void show_resume(const struct send *s)
{
    struct once_buf text;
    once_buf_init(&text, 64 << 10);
    once_buf_addf(&text, "to continue: once send --resume %s", s->pending.id);
    if (s->state != NULL) {
        once_buf_addf(&text, " --state ");
        once_text_quote(&text, once_span_str(s->state));
    }
    for (size_t i = 0; i < s->header_count; i++) {
        once_span name, value;
        once_span_cut(s->headers[i], ':', &name, &value);
        if (client_is_secret(name) && !s->options.save_secrets)
            once_buf_addf(&text, " -H '%.*s: ...'", ONCE_SPAN_ARGS(name));
    }
    once_buf_add_byte(&text, '\n');
    fwrite(text.ptr, 1, text.len, stderr);
    once_buf_release(&text);
}

static bool is_success(int status)
{
    return (status >= 200 && status <= 299) || status == 303 || status == 304;
}

/* An authentication error comes before the key is looked up: it says nothing about an earlier try. */
static bool is_authentication_error(const struct send *s, const struct once_client_answer *a)
{
    return (s->resumed || a->tries > 1) && (a->status == 401 || a->status == 403 || a->status == 407);
}

/* Answers of Once, Stripe and Adyen to a request with a key have such a header. */
static bool mentions_key(const struct once_client_answer *a)
{
    once_span left = a->head, line;
    while (left.len > 0) {
        once_span_cut(left, '\n', &line, &left);
        if (line.len >= 9 && strncasecmp((const char *)line.ptr, "idempoten", 9) == 0)
            return true;
    }
    return false;
}

static void print_notes(const struct send *s, const struct once_client_answer *a)
{
    if (s->cli.quiet)
        return;
    once_span expires = once_client_answer_header(a, "Idempotency-Expires");
    once_span location = once_client_answer_header(a, "Location");
    struct once_buf text;
    once_buf_init(&text, 64 << 10);
    once_buf_addf(&text, "%s", s->output == NULL ? once_cli_line_end(a->body) : "");
    size_t empty = text.len;
    if (a->replayed) {
        once_buf_addf(&text, "once: replay: this is the answer of an earlier try");
        if (expires.len > 0) {
            once_buf_addf(&text, "; the server keeps its key until ");
            once_text_escape(&text, expires);
        }
        once_buf_add_byte(&text, '\n');
    }
    if ((a->lost || s->resumed) && a->end == ONCE_CLIENT_ANSWERED && is_success(a->status) && !mentions_key(a))
        once_buf_addf(&text, "once: nothing in this answer says that the server honours the key: if it does not, an "
                             "earlier try may have taken effect as well\n");
    if (!a->end_marked)
        once_buf_addf(&text, "once: the end of this answer is not marked: it may be cut off\n");
    if (a->status >= 300 && a->status <= 399 && location.len > 0) {
        once_buf_addf(&text, "once: the redirect (HTTP %d) is not followed: ", a->status);
        once_text_escape(&text, location);
        once_buf_add_byte(&text, '\n');
    }
    if (text.len > empty)
        fwrite(text.ptr, 1, text.len, stderr);
    once_buf_release(&text);
}

/* SEND-1, SEND-2. */
static int print_final(struct send *s, const struct once_client_answer *a, int exit)
{
    struct once_error err;
    once_signals_restore(
        &s->signals); /* a signal may end us now: the server can repeat the answer, and our reader may be slow */
    int written = send_out(&s->cli, a, s->output, s->include);
    if (written != ONCE_EXIT_OK) {
        show_resume(s);
        return written;
    }
    print_notes(s, a);
    ONCE_CRASH_POINT("send.printed");
    if (is_authentication_error(s, a)) {
        once_cli_fail(&s->cli, 0, "HTTP %d says nothing about earlier tries: the request stays pending", a->status);
        show_resume(s);
        return exit;
    }
    if (send_folder_forget(&s->folder, &s->pending, &err) != ONCE_OK)
        return once_cli_fail(&s->cli, ONCE_EXIT_IO, "the answer was printed, but %s", err.text);
    ONCE_CRASH_POINT("send.forgotten");
    send_trace_end(s, a);
    return exit;
}

static int keep(const struct send *s, int exit)
{
    show_resume(s);
    return exit;
}

static const char *tries(const struct once_client_answer *a)
{
    return a->tries == 1 ? "try" : "tries";
}

static int answer_with(struct send *s, const struct once_client_answer *a)
{
    const struct once_cli *cli = &s->cli;
    switch (a->end) {
    case ONCE_CLIENT_ANSWERED:
        return print_final(s, a, is_success(a->status) ? ONCE_EXIT_OK : ONCE_EXIT_STATUS);
    case ONCE_CLIENT_MISMATCH:
        once_cli_fail(cli, 0, "key '%s' was used for another request; use another key, or send the same request",
                      a->key);
        return print_final(s, a, ONCE_EXIT_MISMATCH);
    case ONCE_CLIENT_UNKNOWN:
        return keep(s,
                    once_cli_fail(cli, ONCE_EXIT_UNKNOWN,
                                  "the server does not know whether it executed this request (%s), which is not sent "
                                  "again; when key '%s' is resolved there,",
                                  a->reason, a->key));
    case ONCE_CLIENT_TOO_LARGE:
        return keep(
            s, once_cli_fail(cli, ONCE_EXIT_TOO_LARGE, "HTTP %d, with an answer larger than --max-answer", a->status));
    case ONCE_CLIENT_UNTRUSTED:
        return keep(s, once_cli_fail(cli, ONCE_EXIT_UNTRUSTED, "nothing was sent: %s", a->reason));
    case ONCE_CLIENT_IN_PROGRESS:
        return keep(
            s, once_cli_fail(cli, ONCE_EXIT_BUSY, "still in progress after %u %s: %s", a->tries, tries(a), a->reason));
    case ONCE_CLIENT_NOT_REACHED:
        return keep(s, once_cli_fail(cli, s->resumed ? ONCE_EXIT_BUSY : ONCE_EXIT_UNAVAILABLE,
                                     "gave up after %u %s: %s; nothing was sent%s", a->tries, tries(a), a->reason,
                                     s->resumed ? " this time" : ""));
    case ONCE_CLIENT_STOPPED:
        return keep(s, once_cli_fail(cli, ONCE_EXIT_BUSY, "stopped; the request may have taken effect"));
    case ONCE_CLIENT_GAVE_UP:
    case ONCE_CLIENT_END_NONE:
        break;
    }
    return keep(s, once_cli_fail(cli, ONCE_EXIT_BUSY, "gave up after %u %s: %s; the request may have taken effect",
                                 a->tries, tries(a), a->reason));
}

/* ------------------------------------------------------------------ sending */

static once_result save(void *arg, once_span key, once_span saved, struct once_error *err)
{
    struct send *s = arg;
    char id[SEND_ID_LEN_MAX + 1];
    (void)key;
    snprintf(id, sizeof id, "%s", s->pending.id);
    /* Created only now: an invalid request leaves no folder behind. */
    once_result r = s->folder.fd < 0 ? send_folder_open(s->state, true, &s->folder, err) : ONCE_OK;
    return r == ONCE_OK ? send_folder_save(&s->folder, id, saved, &s->pending, err) : r;
}

static int open_client(struct send *s)
{
    struct once_error err;
    int error = once_signals_init(&s->signals);
    if (error != 0)
        return once_cli_fail(&s->cli, ONCE_EXIT_OS, "cannot watch for signals: %s", strerror(error));
    s->options.stop_fd = s->signals.fd;
    s->options.save = save;
    s->options.save_arg = s;
    s->options.on_try = on_try;
    s->options.on_try_arg = s;
    if (once_client_open(&s->options, &s->client, &err) == ONCE_OK)
        return ONCE_EXIT_OK;
    return err.result == ONCE_INVALID ? once_cli_usage(&s->cli, "%s", err.text)
                                      : once_cli_error(&s->cli, &err, "begin");
}

static int conclude(struct send *s, once_result r, struct once_client_answer *answer, const struct once_error *err)
{
    int exit = r == ONCE_OK ? answer_with(s, answer) : send_cannot(s, err);
    int stopped = r == ONCE_OK && answer->end == ONCE_CLIENT_STOPPED ? once_signals_take(&s->signals) : 0;
    once_client_answer_release(answer);
    if (stopped != 0)
        once_signals_die(&s->signals, stopped);
    return exit;
}

/* Resumes the held request. */
static int resume(struct send *s)
{
    struct once_client_answer answer;
    struct once_error err;
    int64_t age = once_os_clock.wall(once_os_clock.arg) - s->pending.saved.created_at;
    char text[ONCE_TEXT_TIME_LEN];
    if (s->max_age_ms != ONCE_NEVER && age > s->max_age_ms) {
        once_text_about(age, text);
        return once_cli_fail(&s->cli, ONCE_EXIT_UNKNOWN,
                             "the request was begun %s ago: the server may have forgotten its key '%.*s' and would "
                             "execute it again; find out whether it took effect, then --forget %s, or say how long the "
                             "server keeps keys: --max-age",
                             text, ONCE_SPAN_ARGS(s->pending.saved.key), s->pending.id);
    }
    s->resumed = true;
    once_result r = once_client_resume(s->client, once_buf_span(&s->pending.bytes), s->request.headers,
                                       s->request.header_count, &answer, &err);
    return conclude(s, r, &answer, &err);
}

/* The command line repeats a pending request: resume it, with its withheld headers from the command line. */
static int resume_same(struct send *s)
{
    send_trace_adopt(s);
    if (!once_client_saved_is(&s->pending.saved, s->client, &s->request))
        return once_cli_fail(&s->cli, ONCE_EXIT_MISMATCH,
                             "another request with key '%.*s' is pending: --resume %s, or --forget it, or use another "
                             "key",
                             ONCE_SPAN_ARGS(s->request.key), s->pending.id);
    size_t count = 0;
    for (size_t i = 0; i < s->header_count; i++) {
        once_span name, value;
        once_span_cut(s->headers[i], ':', &name, &value);
        if (once_header_is_listed(name, s->pending.saved.withheld))
            s->headers[count++] = s->headers[i];
    }
    s->header_count = s->request.header_count = count;
    return resume(s);
}

/* Sets the id of the request, and makes a key if none was given. */
static int name_request(struct send *s, char fresh[ONCE_UUID_LEN + 1])
{
    struct once_error err;
    struct once_buf origin;
    once_buf_init(&origin, 2 * ONCE_CLIENT_URL_LEN_MAX);
    once_result r = client_method_check(s->request.method, &err);
    if (r == ONCE_OK)
        r = client_url_check(s->request.url, &origin, &err);
    if (r == ONCE_OK && s->request.key.len > 0) {
        send_id_of(once_buf_span(&origin), s->request.key, s->pending.id);
    } else if (r == ONCE_OK) {
        once_key_new(fresh);
        snprintf(s->pending.id, sizeof s->pending.id, "%s", fresh);
        s->request.key = once_span_str(fresh);
    }
    once_buf_release(&origin);
    return r == ONCE_OK ? ONCE_EXIT_OK : send_cannot(s, &err);
}

static int send_request(struct send *s)
{
    char fresh[ONCE_UUID_LEN + 1], id[SEND_ID_LEN_MAX + 1];
    struct once_client_answer answer;
    struct once_error err;
    int exit = name_request(s, fresh);
    if (exit != ONCE_EXIT_OK)
        return exit;
    if (send_folder_open(s->state, false, &s->folder, &err) != ONCE_OK)
        return once_cli_fail(&s->cli, ONCE_EXIT_UNAVAILABLE, "%s", err.text);
    snprintf(id, sizeof id, "%s", s->pending.id);
    once_result r = send_folder_lock(&s->folder, id, &s->pending, &err);
    if (r == ONCE_OK)
        return resume_same(s);
    if (r != ONCE_INVALID)
        return send_cannot(s, &err);
    r = once_client_send(s->client, &s->request, &answer, &err);
    return conclude(s, r, &answer, &err);
}

static int resume_kept(struct send *s)
{
    char id[SEND_ID_LEN_MAX + 1];
    struct once_error err;
    int exit = send_find(s, id);
    if (exit != ONCE_EXIT_OK)
        return exit;
    once_result r = send_folder_lock(&s->folder, id, &s->pending, &err);
    if (r == ONCE_INVALID)
        return send_no_such(s, id);
    if (r != ONCE_OK)
        return send_cannot(s, &err);
    send_trace_adopt(s);
    return resume(s);
}

static int run(struct send *s)
{
    if (s->mode == SEND_LIST)
        return send_list(s);
    if (s->mode == SEND_FORGET)
        return send_forget(s);
    int exit = otlp_setup_start(&s->otlp);
    if (exit == ONCE_EXIT_OK)
        exit = open_client(s);
    if (exit != ONCE_EXIT_OK)
        return exit;
    return s->mode == SEND_NEW ? send_request(s) : resume_kept(s);
}

int once_cli_send(int argc, char **argv)
{
    struct send s = {
        .cli = { .verb = "send" },
        .max_age_ms = 24LL * 3600 * 1000,
        .folder = { .fd = -1 },
        .pending = { .fd = -1 },
        .signals = { .fd = -1 },
    };
    once_buf_init(&s.header_text, ONCE_CLIENT_HEADERS_LEN_MAX);
    once_buf_init(&s.body, 0);
    once_buf_init(&s.pending.bytes, 0);
    otlp_setup_init(&s.otlp, &s.cli, "once-send");
    int exit = send_parse(&s, argc, argv) ? run(&s) : s.cli.exit;
    otlp_setup_stop(&s.otlp);
    once_client_close(s.client);
    send_pending_release(&s.pending);
    send_folder_close(&s.folder);
    once_signals_release(&s.signals);
    once_buf_release(&s.header_text);
    once_buf_release(&s.body);
    return exit;
}
