/*
 * report.c - reads the record of every finding again, resolves it if the rules allow, prints it.
 *
 * Since the listing a record may have ended, been resolved, or expired: it is read and judged
 * again, so that the report is current. A resolution is a compare-and-set on the fence that was
 * just read (RECONCILE-3 in reconcile/judge.h): a change in between wins and is reported.
 */
#include "reconcile/reconcile.h"

#include "core/span.h"
#include "os/crash_point.h"
#include "program/record_out.h"
#include "program/text.h"

#include <inttypes.h>
#include <libgen.h>
#include <stdarg.h>

enum { COLUMN_COUNT = 5, ROWS_MAX = 256 };

/* One line of the report. */
struct line {
    enum reconcile_kind kind;
    const struct once_record *record; /* NULL: none */
    once_span match;
    const struct reconcile_charge *charge;
    const char *remark; /* may be "" */
    const char *action; /* of --resolve; NULL: none */
    const char *why;    /* the reason for no action; may be NULL */
    bool settled;       /* it was resolved, and does not count as a difference */
};

struct row {
    struct once_buf text[COLUMN_COUNT];
    size_t width[COLUMN_COUNT];
};

struct report {
    struct reconcile *r;
    char actor[ONCE_ACTOR_LEN_MAX + 1];
    struct row rows[ROWS_MAX];
    size_t count;
    bool headed;
};

/* ---------------------------------------------------------------- the table */

static void flush_rows(struct report *report)
{
    static const char *const heads[COLUMN_COUNT] = { "KIND", "KEY", "HERE", "THERE", "REMARK" };
    size_t widths[COLUMN_COUNT];
    for (int i = 0; i < COLUMN_COUNT; i++) {
        widths[i] = strlen(heads[i]);
        for (size_t r = 0; r < report->count; r++)
            widths[i] = report->rows[r].width[i] > widths[i] ? report->rows[r].width[i] : widths[i];
    }
    for (int i = 0; i < COLUMN_COUNT && !report->headed && report->count > 0; i++)
        printf("%-*s%s", i + 1 < COLUMN_COUNT ? (int)widths[i] : 0, heads[i], i + 1 < COLUMN_COUNT ? "  " : "\n");
    report->headed |= report->count > 0;
    for (size_t r = 0; r < report->count; r++)
        for (int i = 0; i < COLUMN_COUNT; i++) {
            struct row *row = &report->rows[r];
            bool last = i + 1 == COLUMN_COUNT || (i + 2 == COLUMN_COUNT && row->width[i + 1] == 0);
            int pad = last ? 0 : (int)(widths[i] - row->width[i]) + 2;
            printf("%.*s%*s", ONCE_SPAN_ARGS(once_buf_span(&row->text[i])), pad, "");
            if (i + 1 == COLUMN_COUNT)
                putchar('\n');
            once_buf_release(&row->text[i]);
        }
    report->count = 0;
    fflush(stdout);
}

/* Adds to a cell; pieces are separated by "; ". */
static void put(struct row *row, int column, once_span text)
{
    if (text.len == 0)
        return;
    if (row->text[column].len > 0) {
        once_buf_addf(&row->text[column], "; ");
        row->width[column] += 2;
    }
    row->width[column] += once_text_escape(&row->text[column], text);
}

__attribute__((format(printf, 3, 4))) static void putf(struct row *row, int column, const char *format, ...)
{
    char text[RECONCILE_TEXT_LEN];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put(row, column, once_span_str(text));
}

static void put_here(struct row *row, const struct once_record *record)
{
    if (record == NULL)
        put(row, 2, ONCE_LIT("-"));
    else if (record->finished_at != 0 && record->state != ONCE_STATE_UNKNOWN)
        putf(row, 2, "%s %" PRId32, once_record_state_text(record), record->status);
    else
        put(row, 2, once_span_str(once_record_state_text(record)));
}

static void put_there(struct row *row, const struct line *line)
{
    if (line->kind == RECONCILE_NOT_ASKED && line->charge->theirs == RECONCILE_ABSENT)
        put(row, 3, ONCE_LIT("?"));
    else if (line->charge->said.len > 0)
        putf(row, 3, "%s (%.*s)", reconcile_theirs_name(line->charge->theirs), ONCE_SPAN_ARGS(line->charge->said));
    else
        put(row, 3, once_span_str(reconcile_theirs_name(line->charge->theirs)));
}

static void print_row(struct report *report, const struct line *line)
{
    if (report->count == ROWS_MAX)
        flush_rows(report);
    struct row *row = &report->rows[report->count++];
    *row = (struct row){ .width = { 0 } };
    for (int i = 0; i < COLUMN_COUNT; i++)
        once_buf_init(&row->text[i], 16 << 10);
    put(row, 0, once_span_str(reconcile_kind_name(line->kind)));
    if (line->record != NULL && line->record->key.len > 0)
        put(row, 1, line->record->key);
    else
        put(row, 1, line->match.len > 0 ? line->match : ONCE_LIT("-"));
    put_here(row, line->record);
    put_there(row, line);
    if (line->record != NULL && line->record->tenant.len > 0 && !report->r->cli.tenant_given)
        putf(row, 4, "tenant %.*s", ONCE_SPAN_ARGS(line->record->tenant));
    if (line->charge->lines > 1)
        putf(row, 4, "%" PRIu32 " lines, the first is %" PRIu64, line->charge->lines, line->charge->line);
    else if (line->charge->line > 0)
        putf(row, 4, "line %" PRIu64, line->charge->line);
    put(row, 4, once_span_str(line->remark));
    put(row, 4, once_span_str(line->action));
    put(row, 4, once_span_str(line->why));
}

/* ---------------------------------------------------------------- JSON */

static void print_json(const struct line *line)
{
    struct once_json json = { .file = stdout };
    const struct once_record *record = line->record;
    once_json_open(&json, NULL, '{');
    once_json_text(&json, "kind", reconcile_kind_name(line->kind));
    once_json_bool(&json, "difference", reconcile_is_difference(line->kind) && !line->settled);
    if (record != NULL) {
        once_json_bytes(&json, "tenant", record->tenant);
        once_json_bytes(&json, "key", record->key);
        once_json_text(&json, "state", once_record_state_text(record));
        once_json_int(&json, "status", record->status);
        once_json_uint(&json, "fence", record->grant.fence);
        once_json_uint(&json, "attempt", record->attempt);
        once_json_time(&json, "created_at", record->created_at);
        once_json_time(&json, "finished_at", record->finished_at);
    } else {
        once_json_text(&json, "state", NULL);
    }
    if (line->match.len > 0)
        once_json_bytes(&json, "their_key", line->match);
    bool asked = line->kind != RECONCILE_NOT_ASKED || line->charge->theirs != RECONCILE_ABSENT;
    once_json_text(&json, "theirs", asked ? reconcile_theirs_name(line->charge->theirs) : NULL);
    if (line->charge->said.len > 0)
        once_json_bytes(&json, "said", line->charge->said);
    if (line->charge->line > 0)
        once_json_uint(&json, "line", line->charge->line);
    if (line->charge->lines > 1)
        once_json_uint(&json, "lines", line->charge->lines);
    if (line->remark[0] != '\0')
        once_json_bytes(&json, "remark", once_span_str(line->remark));
    if (line->action != NULL)
        once_json_text(&json, "action", line->action);
    if (line->why != NULL)
        once_json_text(&json, "why_not", line->why);
    once_json_close(&json);
}

static void print_line(struct report *report, const struct line *line)
{
    if (report->r->cli.json)
        print_json(line);
    else
        print_row(report, line);
}

/* ---------------------------------------------------------------- resolving */

/* The evidence, for the audit trail. */
static void add_reason(const struct reconcile *r, const struct reconcile_charge *charge, struct once_buf *reason)
{
    char path[ONCE_URL_LEN_MAX + 1];
    once_buf_addf(reason, "once reconcile: ");
    if (r->from != NULL) {
        snprintf(path, sizeof path, "%s", r->from);
        once_buf_addf(reason, "%.200s", strcmp(path, "-") == 0 ? "standard input" : basename(path));
    } else {
        once_buf_addf(reason, "asked by --%s", r->command != NULL ? "exec" : "url");
    }
    if (charge->line > 0)
        once_buf_addf(reason, ", line %" PRIu64, charge->line);
    once_buf_addf(reason, ": %s", reconcile_theirs_name(charge->theirs));
    if (charge->said.len > 0) {
        once_buf_addf(reason, " (");
        once_text_escape(reason, charge->said);
        once_buf_addf(reason, ")");
    }
    if (charge->theirs == RECONCILE_ABSENT && r->complete_until != 0) {
        char until[ONCE_TEXT_TIME_LEN];
        once_text_utc(r->complete_until, until);
        once_buf_addf(reason, ", complete until %s", until);
    }
    if (r->reason.len > 0) {
        once_buf_addf(reason, "; ");
        once_buf_add(reason, r->reason);
    }
}

/* Why the store refused to resolve, for the report. */
static const char *why_refused(enum once_arm arm)
{
    switch (arm) {
    case ONCE_ARM_FENCED:
        return "not resolved: it changed meanwhile";
    case ONCE_ARM_IN_PROGRESS:
        return "not resolved: it is running again";
    case ONCE_ARM_REPLAY:
        return "not resolved: it was resolved meanwhile";
    default:
        return "not resolved: it was removed";
    }
}

static int apply(struct report *report, struct line *line, enum once_verdict verdict)
{
    struct reconcile *r = report->r;
    struct once_buf reason;
    struct once_reply reply;
    struct once_error err;
    once_buf_init(&reason, ONCE_REASON_LEN_MAX);
    add_reason(r, line->charge, &reason);
    struct once_resolve word = {
        .tenant = line->record->tenant,
        .key = line->record->key,
        .fence = line->record->grant.fence,
        .verdict = verdict,
        .actor = once_span_str(report->actor),
        .reason = once_buf_span(&reason),
    };
    if (verdict == ONCE_VERDICT_DONE)
        word.outcome =
            (struct once_outcome){ .state = ONCE_STATE_SUCCEEDED, .status = r->status, .body = line->charge->answer };
    ONCE_CRASH_POINT("reconcile.looked");
    once_result result = once_resolve(r->once, &word, &reply, &err);
    ONCE_CRASH_POINT("reconcile.resolved");
    once_buf_release(&reason);
    int exit = ONCE_EXIT_OK;
    if (result == ONCE_UNKNOWN) {
        r->doubtful = true;
        line->why = "it may have been resolved: run this again";
    } else if (result != ONCE_OK) {
        exit = once_cli_error(&r->cli, &err, "resolve a record");
        line->why = "not resolved";
    } else if (reply.arm == ONCE_ARM_DONE) {
        r->counts.resolved++;
        line->settled = true;
        line->action = verdict == ONCE_VERDICT_DONE ? "resolved done" : "resolved not done";
    } else {
        r->counts.missed++;
        line->why = why_refused(reply.arm);
    }
    once_reply_release(&reply);
    return exit;
}

static int resolve(struct report *report, struct line *line)
{
    struct reconcile *r = report->r;
    enum once_verdict verdict = reconcile_plan(&r->rules, line->record, line->charge, r->counts.known > 0, &line->why);
    if (verdict == 0)
        return ONCE_EXIT_OK;
    if (line->record->key.len == 0) {
        line->why = "the store does not keep its key, which is needed to resolve it";
        return ONCE_EXIT_OK;
    }
    if (r->apply)
        return apply(report, line, verdict);
    r->counts.planned++;
    line->action = verdict == ONCE_VERDICT_DONE ? "would be resolved done" : "would be resolved not done";
    return ONCE_EXIT_OK;
}

/* ---------------------------------------------------------------- findings */

/* Judges the record as it is now, and prints it if it still differs. */
static int report_one(struct report *report, const struct reconcile_finding *finding, const struct once_record *record,
                      const struct reconcile_charge *charge)
{
    struct reconcile *r = report->r;
    char text[RECONCILE_TEXT_LEN] = "";
    struct line line = {
        .kind = finding->kind, .record = record, .match = finding->match, .charge = charge, .remark = text
    };
    bool was_asked = finding->kind != RECONCILE_NOT_ASKED || charge->theirs != RECONCILE_ABSENT;
    if (record != NULL && was_asked)
        line.kind = reconcile_judge_all(r, record, charge, text);
    else if (finding->kind == RECONCILE_NOT_ASKED)
        snprintf(text, sizeof text, "%.*s", ONCE_SPAN_ARGS(finding->said));
    else if (finding->match.len == 0)
        snprintf(text, sizeof text, "it has no key");
    int exit = ONCE_EXIT_OK;
    if (line.kind == RECONCILE_UNKNOWN && r->resolve)
        exit = resolve(report, &line);
    if (!line.settled)
        r->counts.of[line.kind]++;
    if (line.kind <= RECONCILE_NOT_ASKED || (r->all && line.kind != RECONCILE_EQUAL))
        print_line(report, &line);
    return exit;
}

static int look_at(struct report *report, const struct reconcile_finding *finding)
{
    struct reconcile *r = report->r;
    struct reconcile_charge charge = { .theirs = RECONCILE_DONE, .line = finding->line, .said = finding->said };
    struct once_error err;
    if (finding->match.len > 0 && reconcile_join_find(r->join, finding->match, &charge, NULL, &err) != ONCE_OK)
        return once_cli_error(&r->cli, &err, "compare");
    if (finding->record.state == ONCE_STATE_NONE)
        return report_one(report, finding, NULL, &charge);
    if (finding->record.key.len == 0) /* no key to read it by */
        return report_one(report, finding, &finding->record, &charge);
    struct once_reply reply;
    if (once_lookup(r->once, finding->record.tenant, finding->record.key, &reply, &err) != ONCE_OK)
        return once_cli_error(&r->cli, &err, "read a record");
    int exit = ONCE_EXIT_OK;
    if (reply.arm == ONCE_ARM_FOUND)
        exit = report_one(report, finding, &reply.record, &charge);
    else
        r->counts.of[RECONCILE_YOUNG]++; /* it just expired, or was released */
    once_reply_release(&reply);
    return exit;
}

/* ---------------------------------------------------------------- the summary */

static uint64_t differences(const struct reconcile_counts *counts)
{
    uint64_t sum = 0;
    for (enum reconcile_kind kind = RECONCILE_CHARGED_TWICE; kind < RECONCILE_KIND_COUNT; kind++)
        sum += reconcile_is_difference(kind) ? counts->of[kind] : 0;
    return sum;
}

static void print_summary_json(const struct reconcile *r)
{
    const struct reconcile_counts *counts = &r->counts;
    struct once_json json = { .file = stdout };
    once_json_open(&json, NULL, '{');
    once_json_text(&json, "kind", "summary");
    once_json_uint(&json, r->from != NULL ? "lines" : "asked", counts->lines);
    once_json_uint(&json, "records", counts->records);
    once_json_uint(&json, "differences", differences(counts));
    once_json_open(&json, "by_kind", '{');
    for (enum reconcile_kind kind = RECONCILE_CHARGED_TWICE; kind < RECONCILE_KIND_COUNT; kind++)
        once_json_uint(&json, reconcile_kind_name(kind), counts->of[kind]);
    once_json_close(&json);
    once_json_uint(&json, "outside", counts->outside);
    once_json_uint(&json, "without_key", counts->no_key);
    once_json_uint(&json, "would_resolve", counts->planned);
    once_json_uint(&json, "resolved", counts->resolved);
    once_json_close(&json);
}

/* ", 3 x (1 a, 2 b)" of the kinds from..to; nothing if there are none. */
static void print_some(const struct reconcile_counts *counts, const char *what, enum reconcile_kind from,
                       enum reconcile_kind to)
{
    uint64_t sum = 0;
    for (enum reconcile_kind kind = from; kind <= to; kind++)
        sum += counts->of[kind];
    if (sum == 0)
        return;
    printf(", %" PRIu64 " %s", sum, what);
    const char *before = " (";
    for (enum reconcile_kind kind = from; kind <= to && from != to; kind++)
        if (counts->of[kind] > 0) {
            printf("%s%" PRIu64 " %s", before, counts->of[kind], reconcile_kind_name(kind));
            before = ", ";
        }
    if (from != to)
        printf(")");
}

static void print_summary(const struct reconcile *r)
{
    const struct reconcile_counts *counts = &r->counts;
    printf("%" PRIu64 " %s, %" PRIu64 " records: %" PRIu64 " equal", counts->lines, r->from != NULL ? "lines" : "asked",
           counts->records, counts->of[RECONCILE_EQUAL]);
    print_some(counts, "different", RECONCILE_CHARGED_TWICE, RECONCILE_UNKNOWN);
    print_some(counts, "could not be compared", RECONCILE_NOT_ASKED, RECONCILE_NOT_ASKED);
    print_some(counts, "not comparable yet", RECONCILE_PENDING, RECONCILE_YOUNG);
    if (counts->resolved > 0)
        printf(", %" PRIu64 " resolved", counts->resolved);
    if (counts->outside > 0)
        printf(", %" PRIu64 " outside of --since and --until", counts->outside);
    if (counts->no_key > 0)
        printf(", %" PRIu64 " without a key skipped", counts->no_key);
    printf("\n");
    /* The most likely reason is that the wrong keys were compared. */
    bool knows_none = counts->records > 1 && counts->lines > 0 && counts->known == 0;
    if (knows_none && differences(counts) > 0 && counts->of[RECONCILE_NOT_ASKED] == 0)
        printf("the other side knew none of these keys: check %s\n", r->from != NULL ? "--key and --call" : "--call");
    if (counts->planned > 0)
        printf("nothing was changed: --apply resolves %" PRIu64 "\n", counts->planned);
}

int reconcile_report(struct reconcile *r)
{
    struct report *report = calloc(1, sizeof *report);
    struct reconcile_finding finding = { .kind = RECONCILE_NONE };
    if (report == NULL)
        return once_cli_fail(&r->cli, ONCE_EXIT_OS, "out of memory");
    report->r = r;
    once_cli_actor(report->actor, sizeof report->actor);
    int exit = ONCE_EXIT_OK;
    /* If the report cannot be printed any more, nothing more is resolved. */
    for (bool there = true; exit == ONCE_EXIT_OK && !reconcile_is_interrupted(r) && !ferror(stdout);) {
        struct once_error err;
        if (reconcile_join_next(r->join, &finding, &there, &err) != ONCE_OK)
            exit = once_cli_error(&r->cli, &err, "compare");
        if (exit != ONCE_EXIT_OK || !there)
            break;
        exit = look_at(report, &finding);
    }
    flush_rows(report);
    free(report);
    if (exit != ONCE_EXIT_OK || r->interrupted != 0 || ferror(stdout))
        return exit;
    if (r->cli.json)
        print_summary_json(r);
    else if (!r->cli.quiet)
        print_summary(r);
    if (r->doubtful)
        return ONCE_EXIT_UNKNOWN;
    if (differences(&r->counts) > 0)
        return ONCE_EXIT_FOUND;
    return r->counts.of[RECONCILE_NOT_ASKED] > 0 ? ONCE_EXIT_INPUT : ONCE_EXIT_OK;
}
