/* reconcile.c - `once reconcile`: compares the records with the data of another service. */
#include "reconcile/reconcile.h"

#include "cli/verbs.h"
#include "core/duration.h"
#include "core/span.h"
#include "os/os.h"
#include "reconcile/when.h"

#include <unistd.h>

/* clang-format off */
static const char help[] =
    "usage: once reconcile --from FILE --key NAME [OPTIONS]\n"
    "       once reconcile --exec 'COMMAND' | --url 'https://HOST/...{key}...' [OPTIONS]\n"
    "\n"
    "Compares the records with the data of the other side, for instance a payment provider:\n"
    "with an export of its charges, or by asking about each key. Prints the differences:\n"
    "\n"
    "  charged-twice   done more than once there under one key\n"
    "  no-record       done there, no record here\n"
    "  outcome         done on one side, not done on the other\n"
    "  no-charge       done here, not known there\n"
    "  value           done on both sides, but a value of --compare differs\n"
    "  listed-twice    on several lines of the export, done on one of them at most\n"
    "  unknown         unknown here; printed with the other side's answer\n"
    "\n"
    "Only counted: records that are running, abandoned (running, lease over) or too young, and\n"
    "charges that the other side has not decided on (pending).\n"
    "\n"
    "the other side\n"
    "  --from FILE        its export; - for standard input. All of it is read first\n"
    "  --format F         'csv' or 'jsonl' (JSON lines); default: by the name of FILE\n"
    "  --separator C      the separator of a CSV: one character, or 'tab'; default: ,\n"
    "  --no-header        the CSV has no line of column names: columns are numbers, from 1\n"
    "  --exec COMMAND     run for each key, the key as its last argument. It prints 'done',\n"
    "                     'not-done', 'undecided' or 'absent', or a JSON object, and exits 0\n"
    "  --url URL          GET for each key, which replaces {key}: 2xx it is known, 404 not\n"
    "  --header LINE      sent with --url; '@FILE' for the lines of a file, for secrets;\n"
    "                     '-' for those of standard input\n"
    "  --jobs N           ask about N keys at once, 1 to 64; default 4\n"
    "  --timeout DUR      how long one answer may take; default 30s\n"
    "\n"
    "its data: NAME is a column, a member, or a JSON Pointer (/charge/id)\n"
    "  --key NAME         the key of a charge. It may be empty: see --skip-no-key\n"
    "  --call CALL        its keys are child keys, derived for the call CALL: 'upstream' for\n"
    "                     the gateway, 'run' for $ONCE_KEY of 'once run', or your own\n"
    "  --outcome NAME     its outcome; default: every charge is done\n"
    "  --done W[,W...]    values of --outcome that mean done; * for all others\n"
    "  --not-done W,...   values that mean not done\n"
    "  --undecided W,...  values that mean not decided yet\n"
    "  --time NAME        its time; --since and --until then apply to no-record, too\n"
    "  --compare NAME=X   also compare this value if both sides are done: X is 'status', or a\n"
    "                     JSON Pointer into our stored answer; up to 8 times\n"
    "  --skip-no-key      ignore lines without a key; default: no-record\n"
    "\n"
    "which records\n"
    "  --since TIME       created then or later; TIME is 2026-08-01T12:00:00Z, 2026-08-01, or\n"
    "                     36h for 36 hours ago\n"
    "  --until TIME       created before TIME\n"
    "  --grace DUR        records that changed less than DUR ago are too young; default 5m\n"
    "  --tenant T         of this tenant; default: the single tenant; with --call: all\n"
    ONCE_CLI_HELP_STORE
    "\n"
    "what to do\n"
    "  --resolve R[,R]    resolve unknown records: 'done' those that were done there,\n"
    "                     'not-done' those that certainly were not; needs --apply\n"
    "  --apply            do so. Each decision is kept in the audit trail; a record that\n"
    "                     changed meanwhile is skipped\n"
    "  --dry-run          only print the decisions; the default\n"
    "  --complete-until TIME  the export has all charges up to TIME: without this a missing\n"
    "                     charge proves nothing. Not needed by --exec and --url\n"
    "  --status N         the status that retries get after 'done'\n"
    "  --answer NAME      their body, from this column or member; '*': the whole JSON text\n"
    "  --reason TEXT      added to the reason in the audit trail\n"
    "  --all              also print records that are not comparable yet\n"
    "  --json             one JSON object per line, the last has \"kind\":\"summary\"\n"
    "  --quiet            no summary and no progress\n"
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0 no differences; 1 differences; 64 usage; 66 no differences were found, but the\n"
    "      other side could not be read, or not asked about every key; 69 store\n"
    "      unavailable; 70 store damaged, or a record may have been resolved;\n"
    "      71 no memory, process or temporary file; 75 busy\n"
    "\n"
    "example: once reconcile --from charges.csv --key idempotency_key --call upstream\n"
    "         --outcome status --done succeeded --not-done failed --since 36h\n";
/* clang-format on */

enum {
    OPTION_FROM = ONCE_CLI_OWN,
    OPTION_FORMAT,
    OPTION_SEPARATOR,
    OPTION_NO_HEADER,
    OPTION_EXEC,
    OPTION_URL,
    OPTION_HEADER,
    OPTION_JOBS,
    OPTION_TIMEOUT,
    OPTION_KEY,
    OPTION_CALL,
    OPTION_OUTCOME,
    OPTION_DONE,
    OPTION_NOT_DONE,
    OPTION_UNDECIDED,
    OPTION_TIME,
    OPTION_COMPARE,
    OPTION_SKIP_NO_KEY,
    OPTION_SINCE,
    OPTION_UNTIL,
    OPTION_GRACE,
    OPTION_RESOLVE,
    OPTION_APPLY,
    OPTION_DRY_RUN,
    OPTION_COMPLETE_UNTIL,
    OPTION_STATUS,
    OPTION_ANSWER,
    OPTION_REASON,
    OPTION_ALL,
    OPTION_END,
};

static const struct option options[] = {
    ONCE_CLI_OPTION_HELP,
    ONCE_CLI_OPTION_STORE,
    ONCE_CLI_OPTION_TENANT,
    ONCE_CLI_OPTION_JSON,
    ONCE_CLI_OPTION_QUIET,
    { "from", required_argument, NULL, OPTION_FROM },
    { "format", required_argument, NULL, OPTION_FORMAT },
    { "separator", required_argument, NULL, OPTION_SEPARATOR },
    { "no-header", no_argument, NULL, OPTION_NO_HEADER },
    { "exec", required_argument, NULL, OPTION_EXEC },
    { "url", required_argument, NULL, OPTION_URL },
    { "header", required_argument, NULL, OPTION_HEADER },
    { "jobs", required_argument, NULL, OPTION_JOBS },
    { "timeout", required_argument, NULL, OPTION_TIMEOUT },
    { "key", required_argument, NULL, OPTION_KEY },
    { "call", required_argument, NULL, OPTION_CALL },
    { "outcome", required_argument, NULL, OPTION_OUTCOME },
    { "done", required_argument, NULL, OPTION_DONE },
    { "not-done", required_argument, NULL, OPTION_NOT_DONE },
    { "undecided", required_argument, NULL, OPTION_UNDECIDED },
    { "time", required_argument, NULL, OPTION_TIME },
    { "compare", required_argument, NULL, OPTION_COMPARE },
    { "skip-no-key", no_argument, NULL, OPTION_SKIP_NO_KEY },
    { "since", required_argument, NULL, OPTION_SINCE },
    { "until", required_argument, NULL, OPTION_UNTIL },
    { "grace", required_argument, NULL, OPTION_GRACE },
    { "resolve", required_argument, NULL, OPTION_RESOLVE },
    { "apply", no_argument, NULL, OPTION_APPLY },
    { "dry-run", no_argument, NULL, OPTION_DRY_RUN },
    { "complete-until", required_argument, NULL, OPTION_COMPLETE_UNTIL },
    { "status", required_argument, NULL, OPTION_STATUS },
    { "answer", required_argument, NULL, OPTION_ANSWER },
    { "reason", required_argument, NULL, OPTION_REASON },
    { "all", no_argument, NULL, OPTION_ALL },
    { 0 },
};

/* ---------------------------------------------------------------- option values */

static bool refuse(const struct reconcile *r, const char *text)
{
    once_cli_usage(&r->cli, "%s", text);
    return false;
}

/* A time, or a duration that means so long ago. */
static bool parse_time(const struct reconcile *r, const char *option, once_time *time)
{
    int64_t ago;
    once_time now = once_os_clock.wall(NULL);
    if (once_when_parse(once_span_str(optarg), time))
        return true;
    if (once_duration_parse(once_span_str(optarg), false, &ago, NULL) == ONCE_OK && ago <= now) {
        *time = now - ago;
        return true;
    }
    once_cli_usage(&r->cli, "%s: '%.60s' is not a time: 2026-08-01T12:00:00Z, 2026-08-01, or 36h for 36 hours ago",
                   option, optarg);
    return false;
}

static bool parse_separator(struct reconcile *r)
{
    bool is_tab = strcmp(optarg, "tab") == 0;
    if (!is_tab && (strlen(optarg) != 1 || strchr("\"\r\n", optarg[0]) != NULL))
        return refuse(r, "--separator takes one character except a quote, or 'tab'");
    r->separator = is_tab ? '\t' : (uint8_t)optarg[0];
    return true;
}

static bool parse_format(struct reconcile *r)
{
    bool is_csv = strcmp(optarg, "csv") == 0;
    if (!is_csv && strcmp(optarg, "jsonl") != 0)
        return refuse(r, "--format takes 'csv' or 'jsonl'");
    r->format = is_csv ? RECONCILE_CSV : RECONCILE_JSONL;
    return true;
}

static bool add_header(struct reconcile *r, once_span line)
{
    while (line.len > 0 && (line.ptr[line.len - 1] == '\r' || line.ptr[line.len - 1] == '\n'))
        line.len--;
    if (line.len == 0)
        return true;
    for (size_t i = 0; i < line.len; i++)
        if (line.ptr[i] < 0x20 || line.ptr[i] == 0x7f)
            return refuse(r, "--header: a line contains control characters");
    const uint8_t *colon = memchr(line.ptr, ':', line.len);
    if (colon == NULL || colon == line.ptr)
        return refuse(r, "--header: a line is not 'Name: value'");
    if (r->header_count == RECONCILE_HEADER_COUNT_MAX)
        return refuse(r, "--header: too many lines");
    r->headers[r->header_count] = strndup((const char *)line.ptr, line.len);
    return r->headers[r->header_count++] != NULL;
}

static bool parse_header(struct reconcile *r)
{
    struct once_buf text;
    if (!once_cli_bytes(&r->cli, "--header", &text))
        return false;
    once_span rest = once_buf_span(&text), line;
    bool ok = true;
    for (bool more = true; more && ok;) {
        more = once_span_cut(rest, '\n', &line, &rest);
        ok = add_header(r, line);
    }
    once_buf_release(&text);
    return ok;
}

static bool parse_resolve(struct reconcile *r)
{
    once_span rest = once_span_str(optarg), rule;
    r->resolve = true;
    for (bool more = true; more;) {
        more = once_span_cut(rest, ',', &rule, &rest);
        if (once_span_equal(rule, ONCE_LIT("done")))
            r->rules.resolve_done = true;
        else if (once_span_equal(rule, ONCE_LIT("not-done")))
            r->rules.resolve_not_done = true;
        else
            return refuse(r, "--resolve takes 'done', 'not-done', or both with a comma");
    }
    return true;
}

static bool parse_name(struct reconcile *r, const char *option, int field)
{
    once_span name = once_span_str(optarg);
    if (!reconcile_json_is_name(name)) {
        once_cli_usage(&r->cli, "%s: '%.60s' is not the name of a column or member", option, optarg);
        return false;
    }
    r->terms.names[field] = name;
    return true;
}

static bool parse_number(struct reconcile *r, int option)
{
    uint64_t number = 0;
    if (option == OPTION_JOBS)
        return once_cli_number(&r->cli, "--jobs", 1, RECONCILE_JOBS_MAX, &r->jobs);
    if (!once_cli_number(&r->cli, "--status", 0, INT32_MAX, &number))
        return false;
    r->status = (int32_t)number;
    r->status_given = true;
    return true;
}

static bool parse_timeout(struct reconcile *r)
{
    if (!once_cli_duration(&r->cli, "--timeout", false, &r->timeout_ms))
        return false;
    return (r->timeout_ms > 0 && r->timeout_ms <= RECONCILE_TIMEOUT_MS_MAX) ||
           refuse(r, "--timeout must be greater than zero and at most 10m");
}

/* The options about the other side's data. */
static bool parse_term(struct reconcile *r, int option)
{
    switch (option) {
    case OPTION_KEY:
        return parse_name(r, "--key", RECONCILE_FIELD_KEY);
    case OPTION_OUTCOME:
        return parse_name(r, "--outcome", RECONCILE_FIELD_OUTCOME);
    case OPTION_TIME:
        return parse_name(r, "--time", RECONCILE_FIELD_TIME);
    case OPTION_ANSWER:
        r->terms.answer_whole = strcmp(optarg, "*") == 0;
        return r->terms.answer_whole || parse_name(r, "--answer", RECONCILE_FIELD_ANSWER);
    case OPTION_COMPARE:
        return reconcile_terms_add_value(&r->terms, once_span_str(optarg)) ||
               refuse(r, "--compare takes NAME=status or NAME=/json/pointer, at most 8 times");
    case OPTION_DONE:
        r->terms.words[RECONCILE_DONE] = once_span_str(optarg);
        return true;
    case OPTION_NOT_DONE:
        r->terms.words[RECONCILE_NOT_DONE] = once_span_str(optarg);
        return true;
    default: /* OPTION_UNDECIDED */
        r->terms.words[RECONCILE_UNDECIDED] = once_span_str(optarg);
        return true;
    }
}

static bool parse_option(struct reconcile *r, int option)
{
    switch (option) {
    case OPTION_FROM:
        r->from = optarg;
        return true;
    case OPTION_FORMAT:
        return parse_format(r);
    case OPTION_SEPARATOR:
        return parse_separator(r);
    case OPTION_NO_HEADER:
        return r->no_header = true;
    case OPTION_EXEC:
        r->command = optarg;
        return true;
    case OPTION_URL:
        r->url = optarg;
        return true;
    case OPTION_HEADER:
        return parse_header(r);
    case OPTION_TIMEOUT:
        return parse_timeout(r);
    case OPTION_CALL:
        r->call = once_span_str(optarg);
        return r->call.len > 0 || refuse(r, "--call must not be empty");
    case OPTION_SKIP_NO_KEY:
        return r->skip_no_key = true;
    case OPTION_SINCE:
        return parse_time(r, "--since", &r->since);
    case OPTION_UNTIL:
        return parse_time(r, "--until", &r->until);
    case OPTION_GRACE:
        return once_cli_duration(&r->cli, "--grace", false, &r->rules.grace_ms);
    case OPTION_RESOLVE:
        return parse_resolve(r);
    case OPTION_APPLY:
        return r->apply = true;
    case OPTION_DRY_RUN:
        return r->dry_run = true;
    case OPTION_COMPLETE_UNTIL:
        return parse_time(r, "--complete-until", &r->complete_until);
    case OPTION_JOBS:
    case OPTION_STATUS:
        return parse_number(r, option);
    case OPTION_REASON:
        r->reason = once_span_str(optarg);
        return r->reason.len <= 500 || refuse(r, "--reason: at most 500 bytes");
    case OPTION_ALL:
        return r->all = true;
    default:
        return parse_term(r, option);
    }
}

/* ---------------------------------------------------------------- consistency of the options */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static const char *check_export(struct reconcile *r)
{
    if (r->format == RECONCILE_BY_NAME && ends_with(r->from, ".csv"))
        r->format = RECONCILE_CSV;
    if (r->format == RECONCILE_BY_NAME && (ends_with(r->from, ".jsonl") || ends_with(r->from, ".ndjson")))
        r->format = RECONCILE_JSONL;
    if (r->format == RECONCILE_BY_NAME)
        return "--format csv or jsonl is missing: the name of FILE has no known ending";
    if (r->terms.names[RECONCILE_FIELD_KEY].len == 0)
        return "--key NAME is missing: the column or member with the key";
    if (r->format == RECONCILE_CSV && r->terms.answer_whole)
        return "--answer '*' needs JSON, not CSV";
    if (r->format == RECONCILE_JSONL && (r->separator != ',' || r->no_header))
        return "--separator and --no-header need CSV";
    if (r->header_count > 0 || r->jobs != RECONCILE_JOBS_DEFAULT || r->timeout_ms != RECONCILE_TIMEOUT_MS_DEFAULT)
        return "--header, --jobs and --timeout need --exec or --url";
    if (r->rules.resolve_not_done && r->complete_until == 0)
        return "--resolve not-done needs --complete-until TIME: without it, a missing charge proves nothing";
    return NULL;
}

static const char *check_asking(const struct reconcile *r)
{
    if (r->terms.names[RECONCILE_FIELD_KEY].len > 0 || r->format != RECONCILE_BY_NAME || r->separator != ',' ||
        r->no_header || r->skip_no_key || r->complete_until != 0 || r->terms.names[RECONCILE_FIELD_TIME].len > 0)
        return "--key, --format, --separator, --no-header, --skip-no-key, --time and --complete-until need --from";
    if (r->command != NULL && r->header_count > 0)
        return "--header needs --url";
    if (r->command != NULL && (r->command[0] == '\0' || strlen(r->command) > 4000))
        return "--exec takes a command of 1 to 4000 bytes";
    return NULL;
}

static const char *check_terms(const struct reconcile *r)
{
    const once_span *words = r->terms.words;
    int rest = 0;
    bool any = false;
    for (enum reconcile_theirs t = RECONCILE_DONE; t <= RECONCILE_UNDECIDED; t++) {
        any |= words[t].len > 0;
        rest += once_span_equal(words[t], ONCE_LIT("*"));
    }
    if (r->terms.names[RECONCILE_FIELD_OUTCOME].len == 0 && any)
        return "--done, --not-done and --undecided need --outcome NAME";
    if (r->terms.names[RECONCILE_FIELD_OUTCOME].len > 0 && words[RECONCILE_DONE].len == 0)
        return "--outcome needs --done W[,W...], the values that mean done";
    return rest > 1 ? "'*' may be given to only one of --done, --not-done, --undecided" : NULL;
}

static const char *check_resolve(const struct reconcile *r)
{
    bool answer = r->terms.answer_whole || r->terms.names[RECONCILE_FIELD_ANSWER].len > 0;
    if (!r->resolve && (r->apply || r->dry_run || r->reason.len > 0))
        return "--apply, --dry-run and --reason need --resolve";
    if (r->apply && r->dry_run)
        return "--apply and --dry-run exclude each other";
    if (!r->rules.resolve_done && (r->status_given || answer))
        return "--status and --answer need --resolve done";
    if (r->rules.resolve_done && !r->status_given)
        return "--resolve done needs --status N, the status that retries get";
    if (r->complete_until > once_os_clock.wall(NULL))
        return "--complete-until must not be in the future";
    return NULL;
}

static bool check(struct reconcile *r)
{
    const char *wrong = NULL;
    if ((r->from != NULL) + (r->command != NULL) + (r->url != NULL) != 1)
        wrong = "give one of --from FILE, --exec COMMAND and --url URL";
    if (wrong == NULL)
        wrong = r->from != NULL ? check_export(r) : check_asking(r);
    if (wrong == NULL && r->url != NULL && reconcile_url_fault(r->url) != NULL) {
        once_cli_usage(&r->cli, "--url: %s", reconcile_url_fault(r->url));
        return false;
    }
    if (wrong == NULL)
        wrong = check_terms(r);
    if (wrong == NULL)
        wrong = check_resolve(r);
    if (wrong == NULL && r->since >= r->until)
        wrong = "--since must be before --until";
    return wrong == NULL || refuse(r, wrong);
}

static int parse_and_run(struct reconcile *r, int argc, char **argv)
{
    for (int c; (c = once_cli_next(&r->cli, argc, argv, "", options)) != -1;) {
        if (c == '?')
            return r->cli.exit;
        if (!parse_option(r, c))
            return ONCE_EXIT_USAGE;
    }
    if (optind < argc)
        return once_cli_usage(&r->cli, "unexpected argument '%s'", argv[optind]);
    if (!check(r))
        return ONCE_EXIT_USAGE;
    if (r->call.len == 0)
        r->cli.tenant_given = true; /* a key without --call names a record only together with its tenant */
    r->terminal = !r->cli.quiet && isatty(STDERR_FILENO);
    r->shown_at = once_os_monotonic_ms(); /* a short run shows nothing */
    return reconcile_run(r);
}

int once_cli_reconcile(int argc, char **argv)
{
    struct reconcile r = {
        .cli = { .verb = "reconcile", .help = help },
        .separator = ',',
        .jobs = RECONCILE_JOBS_DEFAULT,
        .timeout_ms = RECONCILE_TIMEOUT_MS_DEFAULT,
        .rules.grace_ms = RECONCILE_GRACE_MS_DEFAULT,
        .until = INT64_MAX,
        .signals.fd = -1,
    };
    int exit = parse_and_run(&r, argc, argv);
    for (size_t i = 0; i < r.header_count; i++)
        free(r.headers[i]);
    return exit;
}
