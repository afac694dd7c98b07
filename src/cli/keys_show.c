/* keys_show.c - `once keys show`: one record and its history. */
#include "cli/verbs.h"
#include "core/duration.h"
#include "core/json/record_json.h"
#include "core/record.h"
#include "core/span.h"
#include "engine/daemon_api.h"
#include "program/cli.h"
#include "program/record_out.h"
#include "program/text.h"
#include "run/frames.h"

#include <inttypes.h>
#include <stdarg.h>

/* clang-format off */
static const char help[] =
    "usage: once keys show KEY [OPTIONS]\n"
    "       once keys show --record ID [OPTIONS]\n"
    "\n"
    "Shows a record: its state, times (local and UTC), recovery point, outcome, and its\n"
    "history with the decisions of operators.\n"
    "\n"
    ONCE_CLI_HELP_KEY
    ONCE_CLI_HELP_TENANT
    "  --record ID        by record id instead of KEY: the key_hash of logs and traces, 32\n"
    "                     hexadecimal digits; also as in the daemon's log, once-ID-FENCE\n"
    "  --raw[=WHICH]      print only the stored bytes: the 'body' (default), the 'stdout' or\n"
    "                     'stderr' of a 'once run' outcome, or the 'checkpoint'\n"
    "  --full             show all of a long body; default: its first 4096 bytes\n"
    "  --json             one JSON object; bytes that are not UTF-8 appear as \"body\" with\n"
    "                     replacements and \"body_hex\"\n"
    ONCE_CLI_HELP_STORE
    ONCE_CLI_HELP_SEAL
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0; 1 no such key; 64 usage; 69 store unavailable; 70 store damaged; 75 busy\n"
    "\n"
    "example: once keys show order-17\n";
/* clang-format on */

enum { OPTION_RAW = ONCE_CLI_OWN, OPTION_FULL, OPTION_RECORD, OPTION_KEY };

enum { SHOWN_LEN = 4096 };

static const struct option options[] = {
    ONCE_CLI_OPTION_HELP,
    ONCE_CLI_OPTION_STORE,
    ONCE_CLI_OPTION_SEAL,
    ONCE_CLI_OPTION_TENANT,
    ONCE_CLI_OPTION_JSON,
    { "raw", optional_argument, NULL, OPTION_RAW },
    { "full", no_argument, NULL, OPTION_FULL },
    { "record", required_argument, NULL, OPTION_RECORD },
    { "key", required_argument, NULL, OPTION_KEY },
    { 0 },
};

struct show {
    struct once_cli cli;
    once_span key;      /* as given; by_record: as stored, or empty */
    bool by_record;     /* --record was given instead of a key */
    uint8_t record[16]; /* its value */
    bool full;
    const char *raw; /* "body", "stdout", "stderr", "checkpoint"; NULL: not raw */
    once_time now;
    struct once_reply reply;
    struct once_history history;
};

/* ---------------------------------------------------------------- for a person */

static void print_line(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void print_line(const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%-15s", name);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

static void print_bytes_line(const char *name, once_span bytes, const char *if_empty)
{
    struct once_buf text;
    once_buf_init(&text, 4 * ONCE_BODY_LEN_MAX + 4);
    once_text_escape(&text, bytes);
    print_line(name, "%.*s", ONCE_SPAN_ARGS(bytes.len > 0 ? once_buf_span(&text) : once_span_str(if_empty)));
    once_buf_release(&text);
}

static void print_hex_line(const char *name, once_span bytes)
{
    struct once_buf text;
    once_buf_init(&text, 2 * bytes.len + 1);
    once_text_hex(&text, bytes);
    print_line(name, "%.*s", ONCE_SPAN_ARGS(once_buf_span(&text)));
    once_buf_release(&text);
}

static void print_time(const struct show *show, const char *name, once_time time)
{
    char local[ONCE_TEXT_TIME_LEN], utc[ONCE_TEXT_TIME_LEN], distance[ONCE_TEXT_TIME_LEN];
    if (time == 0)
        return;
    if (time == ONCE_NEVER) {
        print_line(name, "never");
        return;
    }
    once_text_local(time, local);
    once_text_utc(time, utc);
    once_text_about(time > show->now ? time - show->now : show->now - time, distance);
    print_line(name, "%s   %s   (%s%s%s)", local, utc, time > show->now ? "in " : "", distance,
               time > show->now ? "" : " ago");
}

/* Text line by line, as "    prefix| line"; other bytes as a hex dump. */
static void print_block(const char *prefix, once_span bytes)
{
    struct once_buf text;
    once_buf_init(&text, 4 * ONCE_BODY_LEN_MAX + 4);
    while (bytes.len > 0) {
        once_span line;
        bool ended = once_span_cut(bytes, '\n', &line, &bytes);
        once_buf_clear(&text);
        once_text_escape(&text, line);
        printf("    %s| %.*s%s\n", prefix, ONCE_SPAN_ARGS(once_buf_span(&text)), ended ? "" : "\\c");
    }
    once_buf_release(&text);
}

static once_span shown_part(const struct show *show, once_span bytes, size_t *left)
{
    size_t len = show->full || bytes.len <= *left ? bytes.len : *left;
    *left -= len < *left ? len : *left;
    return once_span_of(bytes.ptr, len);
}

static void print_output(const struct show *show, once_span body)
{
    size_t left = SHOWN_LEN, hidden = 0;
    uint8_t stream;
    for (once_span bytes; once_frames_next(&body, &stream, &bytes);) {
        once_span part = shown_part(show, bytes, &left);
        print_block(stream == ONCE_STREAM_OUT ? "stdout" : "stderr", part);
        hidden += bytes.len - part.len;
    }
    if (hidden > 0)
        printf("    (%zu more bytes: --full, or --raw=stdout)\n", hidden);
}

/* An unknown record had a body, too, which does not prove that it was executed. */
static void print_no_body(const struct once_record *record)
{
    const char *end = record->state == ONCE_STATE_UNKNOWN ? "there was a body" : "executed";
    print_line("body", "%s%s", end,
               record->forgotten      ? ", but the body was forgotten"
               : record->body_expired ? ", but the body has expired"
               : record->body_sealed  ? ", but the body is sealed, and its key is not available (--seal-keys)"
                                      : ", but the body was not stored");
}

static void print_body(const struct show *show, const struct once_record *record)
{
    once_span body = record->body;
    if (record->body_dropped) {
        print_no_body(record);
        return;
    }
    if (once_frames_named(record->headers) && once_frames_valid(body)) {
        print_line("output", "%s", body.len > 0 ? "" : "none");
        print_output(show, body);
        return;
    }
    print_line("body", "%zu bytes", body.len);
    size_t left = SHOWN_LEN;
    once_span part = shown_part(show, body, &left);
    print_block("", part);
    if (part.len < body.len)
        printf("    (%zu more bytes: --full, or --raw)\n", body.len - part.len);
}

static void print_outcome(const struct show *show, const struct once_record *record)
{
    if (record->state == ONCE_STATE_RUNNING)
        return;
    /* An unknown record may have an answer that does not decide its outcome: a service's 500, or the output of a
     * command until it was killed. It helps the operator to find out. */
    bool known = record->state != ONCE_STATE_UNKNOWN;
    if (known || record->status != 0)
        print_line("status", "%" PRId32 "%s", record->status,
                   record->undelivered ? ", undelivered: no client was told" : "");
    if (record->headers.len > 0) {
        puts("headers");
        for (once_span rest = record->headers, line; rest.len > 0;) {
            once_span_cut(rest, '\n', &line, &rest);
            if (line.len > 0 && line.ptr[line.len - 1] == '\r')
                line.len--;
            print_bytes_line("   ", line, "");
        }
    }
    if (known || record->body.len > 0 || record->body_dropped)
        print_body(show, record);
}

static void print_event(const struct once_event *event)
{
    char local[ONCE_TEXT_TIME_LEN];
    once_text_local(event->at, local);
    struct once_buf text;
    once_buf_init(&text, 64 << 10);
    once_buf_addf(&text, "%s  fence %" PRIu64, local, event->fence);
    if (event->attempt > 0)
        once_buf_addf(&text, "  attempt %" PRIu32, event->attempt);
    once_buf_addf(&text, "  %s", event->what);
    if (event->state == ONCE_STATE_SUCCEEDED || event->state == ONCE_STATE_FAILED)
        once_buf_addf(&text, "  %s, status %" PRId32, once_state_name(event->state), event->status);
    else if (event->state == ONCE_STATE_UNKNOWN)
        once_buf_addf(&text, "  unknown");
    if (event->actor.len > 0) {
        once_buf_addf(&text, "  by ");
        once_text_escape(&text, event->actor);
    }
    if (event->reason.len > 0) {
        once_buf_addf(&text, ": ");
        once_text_escape(&text, event->reason);
    }
    printf("    %.*s\n", ONCE_SPAN_ARGS(once_buf_span(&text)));
    once_buf_release(&text);
}

static void print_history(const struct once_history *history)
{
    if (history->count == 0)
        return;
    puts("history");
    for (size_t i = 0; i < history->count; i++)
        print_event(&history->events[i]);
}

static void print_record(const struct show *show)
{
    const struct once_record *record = &show->reply.record;
    char retention[ONCE_DURATION_TEXT_LEN];
    once_duration_format(record->retention_ms, retention);
    print_bytes_line("key", show->key, "-");
    print_bytes_line("tenant", record->tenant, "-");
    print_line("state", "%s", once_record_state_text(record));
    print_line("attempt", "%" PRIu32, record->attempt);
    print_line("fence", "%" PRIu64, record->grant.fence);
    print_hex_line("record", once_span_of(record->grant.record, sizeof record->grant.record));
    print_hex_line("fingerprint", once_span_of(record->fingerprint.bytes, sizeof record->fingerprint.bytes));
    print_line("takeover", "%s", once_takeover_name(record->takeover));
    if (record->route.len > 0)
        print_line("route", "%.*s", ONCE_SPAN_ARGS(record->route));
    print_line("retention", "%s", retention);
    if (record->body_retention_ms != 0) {
        once_duration_format(record->body_retention_ms, retention);
        print_line("body retention", "%s", retention);
    }
    print_time(show, "created", record->created_at);
    print_time(show, "claimed", record->claimed_at);
    print_time(show, "lease until", record->lease_until);
    print_time(show, "finished", record->finished_at);
    print_time(show, "expires", record->expires_at);
    if (record->recovery_point.len > 0)
        print_bytes_line("recovery point", record->recovery_point, "");
    if (record->checkpoint.len > 0) {
        print_line("checkpoint", "%zu bytes", record->checkpoint.len);
        size_t left = SHOWN_LEN;
        print_block("", shown_part(show, record->checkpoint, &left));
    }
    print_outcome(show, record);
}

/* ---------------------------------------------------------------- for a program */

static void put_output(struct once_json *json, once_span body)
{
    uint8_t stream;
    once_json_open(json, "output", '[');
    for (once_span bytes; once_frames_next(&body, &stream, &bytes);) {
        once_json_open(json, NULL, '{');
        once_json_text(json, "stream", stream == ONCE_STREAM_OUT ? "stdout" : "stderr");
        once_json_bytes(json, "text", bytes);
        once_json_close(json);
    }
    once_json_close(json);
}

static void print_json(const struct show *show)
{
    struct once_record record = show->reply.record;
    record.key = show->key; /* even if the store does not keep it */
    struct once_json json = { .file = stdout };
    once_json_open(&json, NULL, '{');
    if (show->reply.arm == ONCE_ARM_FOUND) {
        once_record_listed_json(&json, &record, show->now);
        once_record_details_json(&json, &record);
        once_json_bytes(&json, "checkpoint", record.checkpoint);
        once_json_bytes(&json, "headers", record.headers);
        if (once_frames_named(record.headers) && once_frames_valid(record.body))
            put_output(&json, record.body);
        else
            once_json_bytes(&json, "body", record.body);
    } else {
        if (show->by_record)
            once_json_hex(&json, "record", once_span_of(show->record, sizeof show->record));
        else
            once_json_bytes(&json, "key", show->key);
        once_json_null(&json, "state");
    }
    once_history_json(&json, &show->history);
    once_json_close(&json);
}

/* ---------------------------------------------------------------- */

static int print_raw(const struct show *show)
{
    const struct once_record *record = &show->reply.record;
    if (strcmp(show->raw, "checkpoint") == 0) {
        fwrite(record->checkpoint.ptr, 1, record->checkpoint.len, stdout);
        return ONCE_EXIT_OK;
    }
    if (record->body_dropped)
        return once_cli_fail(&show->cli, ONCE_EXIT_FOUND,
                             record->body_expired  ? "its body has expired"
                             : record->body_sealed ? "its body is sealed, and its key is not available (--seal-keys)"
                                                   : "its body was not stored");
    once_span body = record->body, bytes;
    if (strcmp(show->raw, "body") == 0) {
        fwrite(body.ptr, 1, body.len, stdout);
        return ONCE_EXIT_OK;
    }
    if (!once_frames_named(record->headers) || !once_frames_valid(body))
        return once_cli_fail(&show->cli, ONCE_EXIT_FOUND, "its outcome was not stored by 'once run'");
    uint8_t wanted = strcmp(show->raw, "stdout") == 0 ? ONCE_STREAM_OUT : ONCE_STREAM_ERR;
    for (uint8_t stream; once_frames_next(&body, &stream, &bytes);)
        if (stream == wanted)
            fwrite(bytes.ptr, 1, bytes.len, stdout);
    return ONCE_EXIT_OK;
}

static bool parse_raw(struct show *show)
{
    static const char *const names[] = { "body", "stdout", "stderr", "checkpoint" };
    const char *name = optarg != NULL ? optarg : names[0];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            show->raw = names[i];
    if (show->raw == NULL)
        once_cli_usage(&show->cli, "--raw: '%.60s' is not body, stdout, stderr or checkpoint", name);
    return show->raw != NULL;
}

static int print_found(const struct show *show)
{
    bool found = show->reply.arm == ONCE_ARM_FOUND;
    if (show->cli.json)
        print_json(show);
    else if (found && show->raw != NULL)
        return print_raw(show);
    else if (found)
        print_record(show);
    if (!show->cli.json && show->raw == NULL)
        print_history(&show->history);
    if (found)
        return ONCE_EXIT_OK;
    /* The audit trail, printed above, outlives its record. */
    return once_cli_fail(&show->cli, ONCE_EXIT_FOUND, "no such %s, or past its retention",
                         show->by_record ? "record" : "key");
}

static once_result look_up(struct show *show, struct once *once, struct once_error *err)
{
    once_span tenant = show->cli.tenant;
    once_result r = show->by_record ? once_lookup_record(once, show->record, &show->reply, err)
                                    : once_lookup(once, tenant, show->key, &show->reply, err);
    if (r != ONCE_OK)
        return r;
    if (show->by_record)
        show->key = show->reply.record.key;
    return show->by_record ? once_history_of(once, show->record, &show->history, err)
                           : once_history(once, tenant, show->key, &show->history, err);
}

static int show_one(struct show *show, struct once *once)
{
    struct once_error err;
    if (look_up(show, once, &err) != ONCE_OK)
        return once_cli_error(&show->cli, &err, show->by_record ? "look up the record" : "look up the key");
    int exit = once_record_now(&show->cli, once, &show->now);
    return exit == ONCE_EXIT_OK ? print_found(show) : exit;
}

static bool parse_record(struct show *show)
{
    show->by_record = once_record_id_read(once_span_str(optarg), show->record);
    if (!show->by_record)
        once_cli_usage(&show->cli, "--record: '%.60s' is not a record id of 32 hexadecimal digits", optarg);
    return show->by_record;
}

static bool parse_option(struct show *show, int option)
{
    switch (option) {
    case OPTION_FULL:
        show->full = true;
        return true;
    case OPTION_RAW:
        return parse_raw(show);
    case OPTION_KEY:
        return once_cli_key_option(&show->cli, &show->key);
    default:
        return parse_record(show);
    }
}

/* Either a key or a record id is given; a record id needs no tenant. */
static bool check_name(struct show *show, int argc, char **argv)
{
    if (!show->by_record)
        return once_cli_key(&show->cli, argc, argv, &show->key);
    bool has_key = optind < argc || show->key.ptr != NULL;
    if (has_key)
        once_cli_usage(&show->cli, "give either KEY or --record; unexpected '%s'",
                       show->key.ptr != NULL ? "--key" : argv[optind]);
    else if (show->cli.tenant_given)
        once_cli_usage(&show->cli, "--tenant needs a KEY");
    return !has_key && !show->cli.tenant_given;
}

int once_cli_keys_show(int argc, char **argv)
{
    struct show show = { .cli = { .verb = "keys show", .help = help } };
    for (int c; (c = once_cli_next(&show.cli, argc, argv, "", options)) != -1;) {
        if (c == '?')
            return show.cli.exit;
        if (!parse_option(&show, c))
            return ONCE_EXIT_USAGE;
    }
    if (!check_name(&show, argc, argv))
        return ONCE_EXIT_USAGE;
    struct once *once = NULL;
    int exit = once_cli_open(&show.cli, ONCE_CLI_EXISTING, &once);
    if (exit == ONCE_EXIT_OK)
        exit = show_one(&show, once);
    once_reply_release(&show.reply);
    once_history_release(&show.history);
    once_close(once);
    return once_cli_finish(&show.cli, exit);
}
