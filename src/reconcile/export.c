/*
 * export.c - reads a whole export into the join.
 *
 * A line that cannot be parsed could be any charge, and its record would be reported as one
 * without a charge. So bad lines are reported, up to RECONCILE_BAD_LINES_MAX of them, and then
 * nothing is compared.
 */
#include "reconcile/reconcile.h"

#include "core/span.h"
#include "program/text.h"
#include "reconcile/csv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <unistd.h>

enum { SAID_LEN_MAX = 100 }; /* bytes of the other side's outcome that are kept for the report */

struct export
{
    struct reconcile *r;
    const char *name; /* for messages */
    struct once_buf memory, values;
    int columns[RECONCILE_FIELD_COUNT]; /* CSV: the column of each field, or -1 */
    size_t column_count;                /* CSV: 0 before the first row */
    uint64_t bad;
    int exit; /* of an error other than a bad line */
};

static bool refuse_line(struct export *e, uint64_t line, const char *wrong)
{
    reconcile_show(e->r, NULL, 0); /* clear the progress line first */
    if (++e->bad <= RECONCILE_BAD_LINES_MAX)
        once_cli_fail(&e->r->cli, 0, "%s: line %" PRIu64 ": %s", e->name, line, wrong);
    return e->bad < RECONCILE_BAD_LINES_MAX;
}

static bool fail(struct export *e, const struct once_error *err)
{
    e->exit = once_cli_error(&e->r->cli, err, "store the export");
    return false;
}

/* ---------------------------------------------------------------- a line */

static bool add_without_key(struct export *e, uint64_t line, const struct reconcile_charge *charge)
{
    struct once_error err;
    if (e->r->skip_no_key || charge->theirs != RECONCILE_DONE) {
        e->r->counts.no_key++;
        return true;
    }
    const struct reconcile_finding finding = { .kind = RECONCILE_NO_RECORD, .line = line, .said = charge->said };
    return reconcile_join_report(e->r->join, &finding, &err) == ONCE_OK || fail(e, &err);
}

static bool add_line(struct export *e, uint64_t line, const struct reconcile_fields *fields)
{
    struct once_error err;
    struct reconcile_charge charge;
    once_buf_clear(&e->values);
    once_result result = reconcile_terms_read(&e->r->terms, fields, &charge, &e->values, &err);
    if (result == ONCE_NO_MEMORY)
        return fail(e, &err);
    if (result != ONCE_OK)
        return refuse_line(e, line, err.text);
    charge.line = line;
    if (charge.said.len > SAID_LEN_MAX)
        charge.said.len = SAID_LEN_MAX;
    if (++e->r->counts.lines % 256 == 0)
        reconcile_show(e->r, "lines read", e->r->counts.lines);
    once_span key = fields->value[RECONCILE_FIELD_KEY];
    if (!fields->there[RECONCILE_FIELD_KEY] || key.len == 0)
        return add_without_key(e, line, &charge);
    return reconcile_join_add(e->r->join, key, &charge, &err) == ONCE_OK || fail(e, &err);
}

static bool take_json(struct export *e, uint64_t line, once_span text)
{
    struct once_error err;
    struct reconcile_fields fields;
    once_buf_clear(&e->memory);
    once_result result = reconcile_terms_pick(&e->r->terms, text, &fields, &e->memory, &err);
    if (result == ONCE_NO_MEMORY)
        return fail(e, &err);
    return result == ONCE_OK ? add_line(e, line, &fields) : refuse_line(e, line, err.text);
}

/* ---------------------------------------------------------------- CSV */

/* The column of the field `name`, or -1 after a message. */
static int find_column(struct export *e, const struct reconcile_csv *csv, once_span name)
{
    int found = -1;
    if (e->r->no_header) {
        for (size_t i = 0; i < name.len && found < ONCE_RECONCILE_FIELD_COUNT_MAX; i++)
            found = name.ptr[i] >= '0' && name.ptr[i] <= '9' ? (found < 0 ? 0 : found * 10) + name.ptr[i] - '0' : 9999;
        if (found >= 1 && (size_t)found <= csv->count)
            return found - 1;
        e->exit = once_cli_usage(&e->r->cli, "column '%.*s': with --no-header, columns are numbers from 1 to %zu",
                                 ONCE_SPAN_ARGS(name), csv->count);
        return -1;
    }
    for (size_t i = 0; i < csv->count; i++)
        if (once_span_equal(reconcile_csv_field(csv, i), name)) {
            if (found >= 0) {
                e->exit = once_cli_fail(&e->r->cli, ONCE_EXIT_INPUT, "%s: two columns are named '%.*s'", e->name,
                                        ONCE_SPAN_ARGS(name));
                return -1;
            }
            found = (int)i;
        }
    if (found < 0)
        e->exit = once_cli_fail(&e->r->cli, ONCE_EXIT_INPUT, "%s: its first line has no column '%.*s'", e->name,
                                ONCE_SPAN_ARGS(name));
    return found;
}

static bool take_header(struct export *e, const struct reconcile_csv *csv)
{
    e->column_count = csv->count;
    for (int i = 0; i < RECONCILE_FIELD_COUNT; i++) {
        e->columns[i] = -1;
        if (e->r->terms.names[i].len > 0 && (e->columns[i] = find_column(e, csv, e->r->terms.names[i])) < 0)
            return false;
    }
    return true;
}

static bool take_row(struct export *e, const struct reconcile_csv *csv)
{
    if (e->column_count == 0) {
        if (!take_header(e, csv))
            return false;
        if (!e->r->no_header)
            return true;
    }
    if (csv->count != e->column_count) {
        char wrong[80];
        snprintf(wrong, sizeof wrong, "it has %zu fields, the first line has %zu", csv->count, e->column_count);
        return refuse_line(e, csv->line, wrong);
    }
    struct reconcile_fields fields = { 0 };
    for (int i = 0; i < RECONCILE_FIELD_COUNT; i++)
        if (e->columns[i] >= 0) {
            fields.there[i] = true;
            fields.value[i] = reconcile_csv_field(csv, (size_t)e->columns[i]);
        }
    return add_line(e, csv->line, &fields);
}

/* ---------------------------------------------------------------- bytes */

/* Parses the bytes that were read; empty: the end of the input. False: stop. */
typedef bool take_fn(struct export *e, void *parser, once_span bytes);

static bool take_csv(struct export *e, void *parser, once_span bytes)
{
    struct reconcile_csv *csv = parser;
    bool ended = bytes.len == 0;
    for (;;) {
        enum reconcile_csv_got got = ended ? reconcile_csv_end(csv) : reconcile_csv_next(csv, &bytes);
        if (got == RECONCILE_CSV_MORE)
            return true;
        if (got == RECONCILE_CSV_ROW ? !take_row(e, csv) : !refuse_line(e, csv->line, csv->wrong))
            return false;
        if (ended)
            return true;
    }
}

struct lines {
    struct once_buf text;
    uint64_t number;
    bool skip; /* the current line is too long */
};

static bool end_line(struct export *e, struct lines *lines)
{
    once_span text = once_buf_span(&lines->text);
    lines->number++;
    if (lines->number == 1 && once_span_starts(text, ONCE_LIT("\xef\xbb\xbf")))
        text = once_span_skip(text, 3);
    while (text.len > 0 && strchr(" \t\r", text.ptr[text.len - 1]) != NULL && text.ptr[text.len - 1] != 0)
        text.len--;
    bool go_on = lines->skip    ? refuse_line(e, lines->number, "it is longer than 1 MiB")
                 : text.len > 0 ? take_json(e, lines->number, text)
                                : true;
    lines->skip = false;
    once_buf_clear(&lines->text);
    return go_on;
}

static bool take_lines(struct export *e, void *parser, once_span bytes)
{
    struct lines *lines = parser;
    if (bytes.len == 0)
        return lines->text.len > 0 || lines->skip ? end_line(e, lines) : true;
    for (bool more = true; more;) {
        once_span line;
        more = once_span_cut(bytes, '\n', &line, &bytes);
        if (!lines->skip)
            once_buf_add(&lines->text, line);
        if (lines->text.result == ONCE_NO_MEMORY) {
            e->exit = once_cli_fail(&e->r->cli, ONCE_EXIT_OS, "out of memory");
            return false;
        }
        lines->skip |= lines->text.result != ONCE_OK;
        if (more && !end_line(e, lines))
            return false;
    }
    return true;
}

/* Waits for bytes or a signal: a pipe may have no data for long. */
static ssize_t read_some(struct reconcile *r, int fd, uint8_t *chunk, size_t size)
{
    for (;;) {
        struct pollfd fds[] = { { .fd = fd, .events = POLLIN }, { .fd = r->signals.fd, .events = POLLIN } };
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return -1;
        if (reconcile_is_interrupted(r))
            return 0;
        if (fds[0].revents == 0)
            continue;
        ssize_t n = read(fd, chunk, size);
        if (n >= 0 || (errno != EINTR && errno != EAGAIN))
            return n;
    }
}

static int read_all(struct export *e, int fd, take_fn *take, void *parser)
{
    struct reconcile *r = e->r;
    static uint8_t chunk[256 << 10];
    for (;;) {
        ssize_t n = read_some(r, fd, chunk, sizeof chunk);
        if (r->interrupted != 0)
            return ONCE_EXIT_OK;
        if (n < 0)
            return once_cli_fail(&r->cli, ONCE_EXIT_INPUT, "cannot read '%s': %s", e->name, strerror(errno));
        if (!take(e, parser, once_span_of(chunk, (size_t)n)) || n == 0)
            break;
    }
    if (e->exit != ONCE_EXIT_OK)
        return e->exit;
    if (e->bad > 0)
        return once_cli_fail(
            &r->cli, ONCE_EXIT_INPUT,
            "%s: %" PRIu64 "%s bad line%s: nothing was compared, because they could belong to any record", e->name,
            e->bad, e->bad == RECONCILE_BAD_LINES_MAX ? " or more" : "", e->bad == 1 ? "" : "s");
    if (e->column_count == 0 && r->format == RECONCILE_CSV && !r->no_header)
        return once_cli_fail(&r->cli, ONCE_EXIT_INPUT, "%s is empty: it has no line of column names", e->name);
    return ONCE_EXIT_OK;
}

static int read_as(struct export *e, int fd)
{
    int exit;
    if (e->r->format == RECONCILE_CSV) {
        static struct reconcile_csv csv;
        reconcile_csv_init(&csv, e->r->separator);
        exit = read_all(e, fd, take_csv, &csv);
        reconcile_csv_release(&csv);
    } else {
        struct lines lines = { .number = 0 };
        once_buf_init(&lines.text, ONCE_RECONCILE_ROW_LEN_MAX);
        exit = read_all(e, fd, take_lines, &lines);
        once_buf_release(&lines.text);
    }
    return exit;
}

int reconcile_export_read(struct reconcile *r)
{
    bool is_stdin = strcmp(r->from, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(r->from, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return once_cli_fail(&r->cli, ONCE_EXIT_INPUT, "cannot read '%s': %s", r->from, strerror(errno));
    struct export e = { .r = r, .name = is_stdin ? "standard input" : r->from };
    once_buf_init(&e.memory, ONCE_RECONCILE_ROW_LEN_MAX * 2);
    once_buf_init(&e.values, ONCE_RECONCILE_ROW_LEN_MAX * 2);
    int exit = read_as(&e, fd);
    once_buf_release(&e.memory);
    once_buf_release(&e.values);
    if (!is_stdin)
        close(fd);
    return exit;
}
