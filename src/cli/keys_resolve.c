/* keys_resolve.c - `once keys resolve` and `release`: an operator's decision on a record. */
#include "cli/verbs.h"
#include "core/span.h"
#include "program/cli.h"
#include "program/text.h"
#include "run/frames.h"

#include <inttypes.h>

/* clang-format off */
static const char help_resolve[] =
    "usage: once keys resolve KEY --done --status N [--failed] [--body VALUE [--type MIME]]\n"
    "                         --reason TEXT\n"
    "       once keys resolve KEY --not-done --reason TEXT\n"
    "\n"
    "Decides on the outcome of a record that is unknown, or running with its lease over. Find\n"
    "out first. The reason, the time and your user name are kept in the audit trail ('once\n"
    "keys show').\n"
    "\n"
    "  --done             it happened: every retry replays this outcome\n"
    "  --status N         its exit status or HTTP status: 0 to 599\n"
    "  --failed           its outcome is a final failure\n"
    "  --body VALUE       its output or answer: a text, '@FILE', or '-' for standard input;\n"
    "                     default: none\n"
    "  --type MIME        its Content-Type, for the replays of a gateway, e.g. application/json\n"
    "  --not-done         it did not happen, or not completely: the next attempt executes,\n"
    "                     from its recovery point\n"
    "  --reason TEXT      how you know, up to 1000 bytes; required\n"
    "  --fence N          only if the record still has this fence, which 'once keys show'\n"
    "                     prints\n"
    ONCE_CLI_HELP_KEY
    ONCE_CLI_HELP_TENANT
    ONCE_CLI_HELP_STORE
    ONCE_CLI_HELP_QUIET
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0; 1 no such key, or its outcome is final already; 64 usage; 69 store\n"
    "      unavailable; 70 it may have been resolved: look; 75 its lease is not over;\n"
    "      77 it has another fence now\n"
    "\n"
    "example: once keys resolve order-17 --done --status 0 --reason 'bank statement of 3 May'\n";
/* clang-format on */

/* clang-format off */
static const char help_release[] =
    "usage: once keys release KEY --reason TEXT\n"
    "\n"
    "Removes a record that is unknown, or running with its lease over, and whose operation had\n"
    "no effect at all: the next attempt begins anew. If it may have had an effect, use\n"
    "'once keys resolve' instead.\n"
    "\n"
    "  --reason TEXT      how you know, up to 1000 bytes; required, kept in the audit trail\n"
    "  --fence N          only if the record still has this fence\n"
    ONCE_CLI_HELP_KEY
    ONCE_CLI_HELP_TENANT
    ONCE_CLI_HELP_STORE
    ONCE_CLI_HELP_QUIET
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0; 1 no such key, or its outcome is final; 64 usage; 69 store unavailable;\n"
    "      70 it may have been released: look; 75 its lease is not over; 77 it has another\n"
    "      fence now\n"
    "\n"
    "example: once keys release order-17 --reason 'typo in the key'\n";
/* clang-format on */

enum {
    OPTION_KEY = ONCE_CLI_OWN,
    OPTION_DONE,
    OPTION_NOT_DONE,
    OPTION_STATUS,
    OPTION_FAILED,
    OPTION_BODY,
    OPTION_TYPE,
    OPTION_REASON,
    OPTION_FENCE,
};

#define OPTIONS_OF_BOTH                                                                                                \
    ONCE_CLI_OPTION_HELP, ONCE_CLI_OPTION_STORE, ONCE_CLI_OPTION_TENANT, ONCE_CLI_OPTION_QUIET,                        \
        { "key", required_argument, NULL, OPTION_KEY }, { "reason", required_argument, NULL, OPTION_REASON },          \
    {                                                                                                                  \
        "fence", required_argument, NULL, OPTION_FENCE                                                                 \
    }

static const struct option options_resolve[] = {
    OPTIONS_OF_BOTH,
    { "done", no_argument, NULL, OPTION_DONE },
    { "not-done", no_argument, NULL, OPTION_NOT_DONE },
    { "status", required_argument, NULL, OPTION_STATUS },
    { "failed", no_argument, NULL, OPTION_FAILED },
    { "body", required_argument, NULL, OPTION_BODY },
    { "type", required_argument, NULL, OPTION_TYPE },
    { 0 },
};

static const struct option options_release[] = { OPTIONS_OF_BOTH, { 0 } };

enum {
    STATUS_MAX = 599,  /* of HTTP; exit statuses are smaller */
    TYPE_LEN_MAX = 255 /* RFC 6838 allows 127 for each half; parameters are short */
};

struct resolve {
    struct once_cli cli;
    struct once_resolve word;
    bool done, not_done, status_given, failed, body_given, type_given;
    char headers[sizeof "Content-Type: \r\n" + TYPE_LEN_MAX];
    struct once_buf body;
    char actor[ONCE_ACTOR_LEN_MAX + 1];
};

/* Makes one header line; refuses characters that could begin another. */
static bool parse_type(struct resolve *resolve)
{
    size_t len = strlen(optarg);
    bool good = len > 0 && len <= TYPE_LEN_MAX && strchr(optarg, '/') != NULL;
    for (size_t i = 0; good && i < len; i++)
        good = optarg[i] >= ' ' && optarg[i] <= '~';
    if (!good) {
        once_cli_usage(&resolve->cli, "--type takes a MIME type of up to %d visible characters, such as text/plain",
                       TYPE_LEN_MAX);
        return false;
    }
    snprintf(resolve->headers, sizeof resolve->headers, "Content-Type: %s\r\n", optarg);
    resolve->type_given = true;
    if (once_frames_named(once_span_str(resolve->headers)))
        once_cli_usage(&resolve->cli, "--type: this type is reserved for the output of 'once run'");
    return !once_frames_named(once_span_str(resolve->headers));
}

static bool parse_option(struct resolve *resolve, int option)
{
    const struct once_cli *cli = &resolve->cli;
    uint64_t status;
    switch (option) {
    case OPTION_KEY:
        return once_cli_key_option(cli, &resolve->word.key);
    case OPTION_DONE:
        resolve->done = true;
        return true;
    case OPTION_NOT_DONE:
        resolve->not_done = true;
        return true;
    case OPTION_FAILED:
        resolve->failed = true;
        return true;
    case OPTION_STATUS:
        resolve->status_given = true;
        if (!once_cli_number(cli, "--status", 0, STATUS_MAX, &status))
            return false;
        resolve->word.outcome.status = (int32_t)status;
        return true;
    case OPTION_BODY:
        resolve->body_given = true;
        once_buf_release(&resolve->body);
        return once_cli_bytes(cli, "--body", &resolve->body);
    case OPTION_TYPE:
        return parse_type(resolve);
    case OPTION_REASON:
        resolve->word.reason = once_span_str(optarg);
        return true;
    default:
        return once_cli_number(cli, "--fence", 1, UINT64_MAX, &resolve->word.fence);
    }
}

/* True if the options are complete and consistent. */
static bool check(struct resolve *resolve)
{
    const struct once_cli *cli = &resolve->cli;
    bool about_outcome = resolve->status_given || resolve->failed || resolve->body_given || resolve->type_given;
    const char *wrong = NULL;
    if (resolve->word.verdict == 0 && resolve->done == resolve->not_done)
        wrong = "give one of --done and --not-done";
    else if (resolve->done && !resolve->status_given)
        wrong = "--done needs --status N, the status that retries get";
    else if (!resolve->done && about_outcome)
        wrong = "--status, --failed, --body and --type need --done";
    else if (resolve->type_given && !resolve->body_given)
        wrong = "--type needs --body";
    else if (resolve->word.reason.len == 0)
        wrong = "--reason TEXT is missing";
    if (wrong != NULL)
        once_cli_usage(cli, "%s", wrong);
    return wrong == NULL;
}

static int print_answer(const struct resolve *resolve, const struct once_reply *reply)
{
    static const char *const said[] = { [ONCE_VERDICT_DONE] = "retries replay this outcome",
                                        [ONCE_VERDICT_NOT_DONE] = "the next attempt executes",
                                        [ONCE_VERDICT_RELEASE] = "removed: the next attempt begins anew" };
    const struct once_cli *cli = &resolve->cli;
    const struct once_record *record = &reply->record;
    char until[ONCE_TEXT_TIME_LEN];
    switch (reply->arm) {
    case ONCE_ARM_DONE:
        if (!cli->quiet)
            printf("%s\n", said[resolve->word.verdict]);
        return ONCE_EXIT_OK;
    case ONCE_ARM_ABSENT:
        return once_cli_fail(cli, ONCE_EXIT_FOUND, "no such key, or past its retention");
    case ONCE_ARM_REPLAY:
        return once_cli_fail(cli, ONCE_EXIT_FOUND, "nothing to decide: it %s with status %" PRId32 "%s",
                             once_state_name(record->state), record->status,
                             record->retryable ? ", and the next attempt executes again" : ", and that is final");
    case ONCE_ARM_IN_PROGRESS:
        once_text_local(record->lease_until, until);
        return once_cli_fail(cli, ONCE_EXIT_BUSY,
                             "its lease is not over: it ends at %s, or later if its holder renews it", until);
    default:
        return once_cli_fail(cli, ONCE_EXIT_FENCED, "it changed: its fence is %" PRIu64 " now; look again",
                             record->grant.fence);
    }
}

static int resolve_key(struct resolve *resolve)
{
    struct once *once = NULL;
    int exit = once_cli_open(&resolve->cli, ONCE_CLI_EXISTING, &once);
    if (exit != ONCE_EXIT_OK)
        return exit;
    struct once_reply reply = { 0 };
    struct once_error err;
    if (once_resolve(once, &resolve->word, &reply, &err) == ONCE_OK)
        exit = print_answer(resolve, &reply);
    else
        exit = once_cli_error(&resolve->cli, &err, "resolve the key");
    once_reply_release(&reply);
    once_close(once);
    return once_cli_finish(&resolve->cli, exit);
}

static int run(struct resolve *resolve, int argc, char **argv, const struct option *options)
{
    for (int c; (c = once_cli_next(&resolve->cli, argc, argv, "", options)) != -1;) {
        if (c == '?')
            return resolve->cli.exit;
        if (!parse_option(resolve, c))
            return ONCE_EXIT_USAGE;
    }
    struct once_resolve *word = &resolve->word;
    if (!once_cli_key(&resolve->cli, argc, argv, &word->key) || !check(resolve))
        return ONCE_EXIT_USAGE;
    word->tenant = resolve->cli.tenant;
    if (word->verdict == 0)
        word->verdict = resolve->done ? ONCE_VERDICT_DONE : ONCE_VERDICT_NOT_DONE;
    if (resolve->done) {
        word->outcome.state = resolve->failed ? ONCE_STATE_FAILED : ONCE_STATE_SUCCEEDED;
        word->outcome.body = once_buf_span(&resolve->body);
        word->outcome.headers = once_span_str(resolve->headers);
    }
    once_cli_actor(resolve->actor, sizeof resolve->actor);
    word->actor = once_span_str(resolve->actor);
    return resolve_key(resolve);
}

int once_cli_keys_resolve(int argc, char **argv)
{
    struct resolve resolve = { .cli = { .verb = "keys resolve", .help = help_resolve } };
    int exit = run(&resolve, argc, argv, options_resolve);
    once_buf_release(&resolve.body);
    return exit;
}

int once_cli_keys_release(int argc, char **argv)
{
    struct resolve resolve = { .cli = { .verb = "keys release", .help = help_release },
                               .word.verdict = ONCE_VERDICT_RELEASE };
    return run(&resolve, argc, argv, options_release);
}
