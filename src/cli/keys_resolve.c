/* keys_resolve.c - `once keys resolve` and `release`: an operator's word on a record. */
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
    "Says how an operation ended that nobody saw end: one that is unknown, or running with\n"
    "its lease over. Find out first. The reason, the time and your user name are kept in\n"
    "the audit trail ('once keys show').\n"
    "\n"
    "  --done             it happened: every further try replays this outcome\n"
    "  --status N         its exit status, or HTTP status, as the case may be: 0 to 599\n"
    "  --failed           it ended as a failure, finally\n"
    "  --body VALUE       its output or answer: a text, '@FILE', or '-' for standard input;\n"
    "                     default: none\n"
    "  --type MIME        its Content-Type, for the replays of a gateway, e.g. application/json\n"
    "  --not-done         it did not happen, or not completely: the next try executes,\n"
    "                     from its recovery point\n"
    "  --reason TEXT      how you know, up to 1000 bytes; required\n"
    "  --fence N          only if the record is still the one you looked at ('once keys\n"
    "                     show' tells its fence)\n"
    ONCE_CLI_HELP_KEY
    ONCE_CLI_HELP_TENANT
    ONCE_CLI_HELP_STORE
    ONCE_CLI_HELP_QUIET
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0; 1 no such key, or its outcome is final already; 64 usage; 69 store\n"
    "      unavailable; 70 it may have been resolved: look; 75 its holder is alive;\n"
    "      77 it changed since you looked\n"
    "\n"
    "example: once keys resolve order-17 --done --status 0 --reason 'bank statement of 3 May'\n";
/* clang-format on */

/* clang-format off */
static const char help_release[] =
    "usage: once keys release KEY --reason TEXT\n"
    "\n"
    "Forgets a record that is unknown, or running with its lease over, and of which nothing\n"
    "at all happened: the next try begins anew. If something may have happened, use\n"
    "'once keys resolve' instead.\n"
    "\n"
    "  --reason TEXT      how you know, up to 1000 bytes; required, kept in the audit trail\n"
    "  --fence N          only if the record is still the one you looked at\n"
    ONCE_CLI_HELP_KEY
    ONCE_CLI_HELP_TENANT
    ONCE_CLI_HELP_STORE
    ONCE_CLI_HELP_QUIET
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0; 1 no such key, or its outcome is final; 64 usage; 69 store unavailable;\n"
    "      70 it may have been released: look; 75 its holder is alive; 77 it changed since\n"
    "      you looked\n"
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
    STATUS_MAX = 599,  /* of HTTP; an exit status is less */
    TYPE_LEN_MAX = 255 /* RFC 6838 has 127 for each half; parameters are short */
};

struct resolve {
    struct once_cli cli;
    struct once_resolve word;
    bool done, not_done, status_given, failed, body_given, type_given;
    char headers[sizeof "Content-Type: \r\n" + TYPE_LEN_MAX];
    struct once_buf body;
    char actor[ONCE_ACTOR_LEN_MAX + 1];
};

/* One header line, and nothing that could begin another. */
static bool parse_type(struct resolve *resolve)
{
    size_t len = strlen(optarg);
    bool good = len > 0 && len <= TYPE_LEN_MAX && strchr(optarg, '/') != NULL;
    for (size_t i = 0; good && i < len; i++)
        good = optarg[i] >= ' ' && optarg[i] <= '~';
    if (!good) {
        once_cli_usage(&resolve->cli, "--type: a MIME type of up to %d visible characters, please, such as text/plain",
                       TYPE_LEN_MAX);
        return false;
    }
    snprintf(resolve->headers, sizeof resolve->headers, "Content-Type: %s\r\n", optarg);
    resolve->type_given = true;
    if (once_frames_named(once_span_str(resolve->headers)))
        once_cli_usage(&resolve->cli, "--type: that one is once's own, for the output of commands");
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

/* What was asked for is complete and consistent. */
static bool check(struct resolve *resolve)
{
    const struct once_cli *cli = &resolve->cli;
    bool about_outcome = resolve->status_given || resolve->failed || resolve->body_given || resolve->type_given;
    const char *wrong = NULL;
    if (resolve->word.verdict == 0 && resolve->done == resolve->not_done)
        wrong = "one of --done and --not-done, please";
    else if (resolve->done && !resolve->status_given)
        wrong = "--done needs --status N, which further tries will exit with";
    else if (!resolve->done && about_outcome)
        wrong = "--status, --failed, --body and --type tell how it ended: they go with --done";
    else if (resolve->type_given && !resolve->body_given)
        wrong = "--type is the type of a body: it goes with --body";
    else if (resolve->word.reason.len == 0)
        wrong = "--reason TEXT is missing: how do you know?";
    if (wrong != NULL)
        once_cli_usage(cli, "%s", wrong);
    return wrong == NULL;
}

static int print_answer(const struct resolve *resolve, const struct once_reply *reply)
{
    static const char *const said[] = { [ONCE_VERDICT_DONE] = "further tries replay this outcome",
                                        [ONCE_VERDICT_NOT_DONE] = "the next try executes",
                                        [ONCE_VERDICT_RELEASE] = "forgotten: the next try begins anew" };
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
                             record->retryable ? ", and the next try executes again" : ", and that is final");
    case ONCE_ARM_IN_PROGRESS:
        once_text_local(record->lease_until, until);
        return once_cli_fail(cli, ONCE_EXIT_BUSY, "its holder is alive: its lease is good until %s, or longer", until);
    default:
        return once_cli_fail(cli, ONCE_EXIT_FENCED,
                             "it changed since you looked: its fence is %" PRIu64 " now; look again",
                             record->grant.fence);
    }
}

static int tell(struct resolve *resolve)
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
    return tell(resolve);
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
