/* check.c - `once check`: verifies the invariants of a store. */
#include "cli/verbs.h"
#include "core/json/out.h"
#include "core/span.h"
#include "program/cli.h"
#include "program/text.h"

#include <inttypes.h>

/* clang-format off */
static const char help[] =
    "usage: once check [--store URL] [--json] [--quiet]\n"
    "\n"
    "Verifies the invariants that can be read from the store's rows, and prints each row that\n"
    "violates one: the invariant, the row's fence, the problem. For the best-effort tier\n"
    "(Redis) it also lists the invariants that this tier does not promise.\n"
    "\n"
    ONCE_CLI_HELP_STORE
    "  --json             one JSON object: records, attempts, problems[], tier,\n"
    "                     not_promised[]\n"
    "  --quiet            print problems only\n"
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0 no problems, or the default store does not exist yet; 1 problems were found;\n"
    "      64 usage; 69 store unavailable; 70 it cannot be read; 75 busy\n"
    "\n"
    "example: once check --store sqlite:/var/lib/shop/once.db\n";
/* clang-format on */

static void print_problem(void *arg, const struct once_problem *problem)
{
    (void)arg;
    struct once_buf text;
    once_buf_init(&text, 64 << 10);
    once_text_escape(&text, once_span_str(problem->text));
    if (problem->fence != 0)
        printf("%s: row with fence %" PRIu64 ": %.*s\n", problem->invariant, problem->fence,
               ONCE_SPAN_ARGS(once_buf_span(&text)));
    else
        printf("%s: %.*s\n", problem->invariant, ONCE_SPAN_ARGS(once_buf_span(&text)));
    once_buf_release(&text);
}

static void print_problem_json(void *arg, const struct once_problem *problem)
{
    struct once_json *json = arg;
    once_json_open(json, NULL, '{');
    once_json_text(json, "invariant", problem->invariant);
    once_json_uint(json, "fence", problem->fence);
    once_json_bytes(json, "text", once_span_str(problem->text));
    once_json_close(json);
}

/* The invariants that the store's tier does not promise. */
static void print_gaps(const struct once *once)
{
    size_t count;
    const struct once_gap *gaps = once_gaps(once, &count);
    if (count > 0)
        printf("tier %s, which does not promise:\n", once_tier(once));
    for (size_t i = 0; i < count; i++)
        printf("  %s: %s\n", gaps[i].invariant, gaps[i].text);
}

static void print_gaps_json(struct once_json *json, const struct once *once)
{
    size_t count;
    const struct once_gap *gaps = once_gaps(once, &count);
    once_json_text(json, "tier", once_tier(once));
    once_json_open(json, "not_promised", '[');
    for (size_t i = 0; i < count; i++) {
        once_json_open(json, NULL, '{');
        once_json_text(json, "invariant", gaps[i].invariant);
        once_json_text(json, "text", gaps[i].text);
        once_json_close(json);
    }
    once_json_close(json);
}

static int check(const struct once_cli *cli, struct once *once)
{
    struct once_json json = { .file = stdout };
    struct once_check_report report = { 0 };
    struct once_error err;
    if (cli->json) {
        once_json_open(&json, NULL, '{');
        once_json_open(&json, "problems", '[');
    }
    once_result r = once_check(once, cli->json ? print_problem_json : print_problem, &json, &report, &err);
    if (cli->json) {
        once_json_close(&json);
        once_json_uint(&json, "records", report.records);
        once_json_uint(&json, "attempts", report.attempts);
        once_json_bool(&json, "complete", r == ONCE_OK);
        print_gaps_json(&json, once);
        once_json_close(&json);
    }
    if (r != ONCE_OK)
        return once_cli_error(cli, &err, "check the store");
    if (!cli->json && !cli->quiet)
        printf("%" PRIu64 " records, %" PRIu64 " attempts, %" PRIu64 " problems\n", report.records, report.attempts,
               report.problems);
    if (!cli->json && !cli->quiet)
        print_gaps(once);
    return report.problems > 0 ? ONCE_EXIT_FOUND : ONCE_EXIT_OK;
}

static void print_none_json(void)
{
    struct once_json json = { .file = stdout };
    once_json_open(&json, NULL, '{');
    once_json_open(&json, "problems", '[');
    once_json_close(&json);
    once_json_uint(&json, "records", 0);
    once_json_uint(&json, "attempts", 0);
    once_json_bool(&json, "complete", true);
    once_json_text(&json, "tier", NULL);
    once_json_open(&json, "not_promised", '[');
    once_json_close(&json);
    once_json_close(&json);
}

int once_cli_check(int argc, char **argv)
{
    static const struct option options[] = {
        ONCE_CLI_OPTION_HELP, ONCE_CLI_OPTION_STORE, ONCE_CLI_OPTION_JSON, ONCE_CLI_OPTION_QUIET, { 0 }
    };
    struct once_cli cli = { .verb = "check", .help = help };
    for (int c; (c = once_cli_next(&cli, argc, argv, "", options)) != -1;)
        return cli.exit;
    if (optind < argc)
        return once_cli_usage(&cli, "unexpected argument '%s'", argv[optind]);
    struct once *once = NULL;
    int exit = once_cli_open(&cli, ONCE_CLI_IF_ANY, &once); /* a timer may run before the first store exists */
    if (once != NULL)
        exit = check(&cli, once);
    else if (exit == ONCE_EXIT_OK && cli.json)
        print_none_json();
    once_close(once);
    return once_cli_finish(&cli, exit);
}
