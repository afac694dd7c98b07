/* keys_list.c - `once keys list`. */
#include "cli/verbs.h"
#include "core/span.h"
#include "program/cli.h"
#include "program/record_out.h"
#include "program/text.h"

#include <inttypes.h>

/* clang-format off */
static const char help[] =
    "usage: once keys list [OPTIONS]\n"
    "\n"
    "Lists records, newest first.\n"
    "\n"
    "  --state S[,S...]   running, succeeded, failed, unknown; default: all\n"
    "  --abandoned        only abandoned records: running with the lease over, or failed and\n"
    "                     retryable; oldest first\n"
    "  --tenant T         of this tenant only; '' is the single tenant; default: all\n"
    "  --prefix P         keys that begin with P\n"
    "  --route R          of this route only: a label that claims carry, such as 'orders'\n"
    "  --older DUR        created at least this long ago\n"
    "  --limit N          records to print at most; default 100\n"
    "  --all              all of them, page by page\n"
    "  --before CURSOR    continue an earlier listing, which printed CURSOR on stderr\n"
    "  --json             one JSON object per line; bytes that are not UTF-8 appear as\n"
    "                     \"key\" with replacements and \"key_hex\"; times are UTC\n"
    ONCE_CLI_HELP_STORE
    "  --quiet            do not print the CURSOR\n"
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0, also if there are none; 64 usage; 69 store unavailable; 70 store damaged;\n"
    "      75 busy\n"
    "\n"
    "example: once keys list --state running,unknown --older 1h\n";
/* clang-format on */

enum {
    OPTION_STATE = ONCE_CLI_OWN,
    OPTION_ABANDONED,
    OPTION_PREFIX,
    OPTION_ROUTE,
    OPTION_OLDER,
    OPTION_LIMIT,
    OPTION_ALL,
    OPTION_BEFORE,
};

static const struct option options[] = {
    ONCE_CLI_OPTION_HELP,
    ONCE_CLI_OPTION_STORE,
    ONCE_CLI_OPTION_TENANT,
    ONCE_CLI_OPTION_JSON,
    ONCE_CLI_OPTION_QUIET,
    { "state", required_argument, NULL, OPTION_STATE },
    { "abandoned", no_argument, NULL, OPTION_ABANDONED },
    { "prefix", required_argument, NULL, OPTION_PREFIX },
    { "route", required_argument, NULL, OPTION_ROUTE },
    { "older", required_argument, NULL, OPTION_OLDER },
    { "limit", required_argument, NULL, OPTION_LIMIT },
    { "all", no_argument, NULL, OPTION_ALL },
    { "before", required_argument, NULL, OPTION_BEFORE },
    { 0 },
};

struct list {
    struct once_cli cli;
    struct once_filter filter;
    uint64_t limit; /* records to print; UINT64_MAX: all */
    once_time now;
    bool headed; /* the line of column names was printed */
};

static bool parse_states(struct list *list)
{
    once_span rest = once_span_str(optarg), word;
    bool more;
    do {
        more = once_span_cut(rest, ',', &word, &rest);
        unsigned bit = 0;
        for (enum once_state state = ONCE_STATE_RUNNING; state <= ONCE_STATE_UNKNOWN; state++)
            if (once_span_equal(word, once_span_str(once_state_name(state))))
                bit = 1u << state;
        if (bit == 0) {
            once_cli_usage(&list->cli, "--state: '%.*s' is not running, succeeded, failed or unknown",
                           ONCE_SPAN_ARGS(word));
            return false;
        }
        list->filter.states |= bit;
    } while (more);
    return true;
}

static bool parse_option(struct list *list, int option)
{
    const struct once_cli *cli = &list->cli;
    switch (option) {
    case OPTION_STATE:
        return parse_states(list);
    case OPTION_ABANDONED:
        list->filter.abandoned = true;
        return true;
    case OPTION_PREFIX:
        list->filter.key_prefix = once_span_str(optarg);
        return true;
    case OPTION_ROUTE:
        list->filter.route = once_span_str(optarg);
        return true;
    case OPTION_OLDER:
        return once_cli_duration(cli, "--older", false, &list->filter.age_ms_min);
    case OPTION_LIMIT:
        return once_cli_number(cli, "--limit", 1, UINT32_MAX, &list->limit);
    case OPTION_BEFORE:
        return once_cli_number(cli, "--before", 1, UINT64_MAX, &list->filter.before);
    default:
        list->limit = UINT64_MAX;
        return true;
    }
}

/* ---------------------------------------------------------------- the table */

enum { COLUMN_COUNT = 6 };

struct row {
    struct once_buf text[COLUMN_COUNT];
    size_t width[COLUMN_COUNT];
};

static void put(struct row *row, int column, once_span bytes)
{
    row->width[column] = once_text_escape(&row->text[column], bytes);
}

static void row_fill(struct row *row, const struct once_record *record, once_time now)
{
    for (int i = 0; i < COLUMN_COUNT; i++)
        once_buf_init(&row->text[i], 4096);
    char text[ONCE_TEXT_TIME_LEN];
    /* A store that does not keep the keys' texts shows the record id instead. */
    if (record->key.len > 0) {
        put(row, 0, record->key);
    } else {
        once_text_hex(&row->text[0], once_span_of(record->grant.record, sizeof record->grant.record));
        row->width[0] = 2 * sizeof record->grant.record;
    }
    put(row, 1, once_span_str(once_record_state_text(record)));
    put(row, 2, record->tenant.len > 0 ? record->tenant : ONCE_LIT("-"));
    once_text_about(now - record->created_at, text);
    put(row, 3, once_span_str(text));
    snprintf(text, sizeof text, "%" PRIu32, record->attempt);
    put(row, 4, once_span_str(text));
    if (record->expires_at == 0)
        snprintf(text, sizeof text, "-");
    else if (record->expires_at == ONCE_NEVER)
        snprintf(text, sizeof text, "never");
    else
        once_text_about(record->expires_at - now, text);
    put(row, 5, once_span_str(text));
}

static void row_print(struct row *row, const size_t widths[COLUMN_COUNT])
{
    for (int i = 0; i < COLUMN_COUNT; i++) {
        int pad = i + 1 < COLUMN_COUNT ? (int)(widths[i] - row->width[i]) + 2 : 0;
        printf("%.*s%*s", ONCE_SPAN_ARGS(once_buf_span(&row->text[i])), pad, "");
        once_buf_release(&row->text[i]);
    }
    putchar('\n');
}

static int print_table(struct list *list, const struct once_page *page)
{
    static const char *const heads[COLUMN_COUNT] = { "KEY", "STATE", "TENANT", "AGE", "ATTEMPTS", "EXPIRES" };
    struct row *rows = calloc(page->count, sizeof *rows);
    if (rows == NULL)
        return once_cli_fail(&list->cli, ONCE_EXIT_OS, "out of memory");
    size_t widths[COLUMN_COUNT];
    for (int i = 0; i < COLUMN_COUNT; i++)
        widths[i] = strlen(heads[i]);
    for (size_t r = 0; r < page->count; r++) {
        row_fill(&rows[r], &page->records[r], list->now);
        for (int i = 0; i < COLUMN_COUNT; i++)
            widths[i] = rows[r].width[i] > widths[i] ? rows[r].width[i] : widths[i];
    }
    for (int i = 0; i < COLUMN_COUNT && !list->headed; i++)
        printf("%-*s%s", i + 1 < COLUMN_COUNT ? (int)widths[i] : 0, heads[i], i + 1 < COLUMN_COUNT ? "  " : "\n");
    list->headed = true;
    for (size_t r = 0; r < page->count; r++)
        row_print(&rows[r], widths);
    free(rows);
    return ONCE_EXIT_OK;
}

/* ---------------------------------------------------------------- pages */

static int print_page(struct list *list, const struct once_page *page)
{
    if (!list->cli.json)
        return page->count > 0 ? print_table(list, page) : ONCE_EXIT_OK;
    for (size_t i = 0; i < page->count; i++) {
        struct once_json json = { .file = stdout };
        once_json_open(&json, NULL, '{');
        once_record_listed_json(&json, &page->records[i], list->now);
        once_json_close(&json);
    }
    return ONCE_EXIT_OK;
}

static int list_all(struct list *list, struct once *once)
{
    int exit = once_record_now(&list->cli, once, &list->now);
    uint64_t printed = 0;
    while (exit == ONCE_EXIT_OK && printed < list->limit) {
        uint64_t left = list->limit - printed;
        struct once_page page = { 0 };
        struct once_error err;
        list->filter.limit = (uint32_t)(left < ONCE_LIST_LIMIT_MAX ? left : ONCE_LIST_LIMIT_MAX);
        if (once_list(once, &list->filter, &page, &err) != ONCE_OK)
            return once_cli_error(&list->cli, &err, "list the records");
        exit = print_page(list, &page);
        printed += page.count;
        list->filter.before = page.next;
        once_page_release(&page);
        if (list->filter.before == 0)
            return exit;
    }
    if (exit == ONCE_EXIT_OK && !list->cli.quiet)
        fprintf(stderr, "there may be more: --before %" PRIu64 "\n", list->filter.before);
    return exit;
}

int once_cli_keys_list(int argc, char **argv)
{
    struct list list = { .cli = { .verb = "keys list", .help = help }, .limit = ONCE_LIST_LIMIT_DEFAULT };
    for (int c; (c = once_cli_next(&list.cli, argc, argv, "", options)) != -1;) {
        if (c == '?')
            return list.cli.exit;
        if (!parse_option(&list, c))
            return ONCE_EXIT_USAGE;
    }
    if (optind < argc)
        return once_cli_usage(&list.cli, "unexpected argument '%s'; --prefix lists keys that begin with it",
                              argv[optind]);
    if (list.cli.tenant_given)
        list.filter.tenant = &list.cli.tenant;
    struct once *once = NULL;
    int exit = once_cli_open(&list.cli, ONCE_CLI_EXISTING, &once);
    if (exit == ONCE_EXIT_OK)
        exit = list_all(&list, once);
    once_close(once);
    return once_cli_finish(&list.cli, exit);
}
