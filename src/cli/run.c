/*
 * run.c - `once run`: a command that is executed once per key.
 *
 * Model: once_run() around a callback that executes the command (command.c). While
 *        another process is at it, --wait asks again in slices, so that a signal ends
 *        the waiting: nothing is held then. A signal that arrives between the claim and
 *        the command's start releases the key. From the start on signals belong to the
 *        command, and `once` stays to record how it ended. An exit status is the command's
 *        own word; one that a signal killed did not say how far it got, and that is unknown
 *        (K10), unless it may be interrupted anywhere or any end is final.
 *
 * Not here: what the command finds in its environment (run/env.c), how its processes
 *        are kept together (guard.c), the format of its kept output (frames.c).
 */
#include "cli/verbs.h"
#include "core/duration.h"
#include "core/record.h"
#include "core/span.h"
#include "os/crash_point.h"
#include "os/os.h"
#include "os/signals.h"
#include "program/cli.h"
#include "program/text.h"
#include "run/command.h"
#include "run/env.h"
#include "run/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <unistd.h>

enum {
    WAIT_SLICE_MS = 500,
    LOOK_EVERY_MS = 100,
    LOCK_WAIT_MS_MAX = 60000, /* with --wait; a signal is not seen meanwhile */
    OUTPUT_LEN_DEFAULT = 1 << 20,
    OUTPUT_LEN_MAX = ONCE_BODY_LEN_MAX - (64 << 10), /* room for 13,000 changes of the stream */
};

/* clang-format off */
static const char help[] =
    "usage: once run --key KEY [OPTIONS] [--] COMMAND [ARGUMENT...]\n"
    "\n"
    "Runs COMMAND once per KEY. Run again with the same KEY, it prints what the command\n"
    "printed, to the same streams, and exits the same, without executing it.\n"
    "\n"
    "  --key KEY          names the operation, 1 to 255 bytes (see also 'once key')\n"
    "  --tenant T         whose key it is; default: the single tenant, ''\n"
    ONCE_CLI_HELP_STORE
    ONCE_CLI_HELP_SEAL
    "  --lease DUR        how long after `once` died others believe it alive;\n"
    "                     renewed while the command runs; default 60s\n"
    "  --retention DUR    how long the outcome is kept, from its end, or 'never' to keep it\n"
    "                     for ever; default 24h\n"
    "  --body-retention DUR\n"
    "                     how long its output is kept, if not as long as that: a replay then\n"
    "                     only exits the same\n"
    "  --key-time         a KEY that is a UUIDv7 older than the retention is not executed as\n"
    "                     a new one, exit 70\n"
    "  --takeover HOW     what this run does when it finds that an earlier one died, and what\n"
    "                     becomes of its own command if a signal kills that: 'escalate' (the\n"
    "                     default) leaves it to a person, exit 70; 'rerun' executes again: for\n"
    "                     commands that may be interrupted anywhere and run again. A rerun\n"
    "                     command that lost its place to another attempt gets SIGTERM\n"
    "  --wait DUR         while another process is at it, wait this long; default 0s\n"
    "  --final WHICH      outcomes that are final: 'success' (the default: after a failure\n"
    "                     the next run executes again) or 'any'\n"
    "  --max-output SIZE  output to keep at most; longer output is shown, but not kept;\n"
    "                     default 1M, up to 16320K\n"
    "  --quiet            do not remark on replays, unless their output is not there\n"
    ONCE_CLI_HELP_HELP
    "\n"
    "The KEY belongs to COMMAND and its ARGUMENTs: with others it is refused, exit 65. The\n"
    "directory, the environment and standard input do not count. Standard input is the\n"
    "command's; its output goes through pipes. It has ended when nobody holds them open any\n"
    "more, as in $(...).\n"
    "Its environment has ONCE_KEY (a key to send along to a service it calls: the same on\n"
    "every attempt), ONCE_FENCE, ONCE_ATTEMPT, ONCE_RECOVERY_POINT, ONCE_CHECKPOINT_FILE\n"
    "(see 'once help advance'), ONCE_STORE and ONCE_RECORD. If `once` is killed, the\n"
    "command and all its descendants are killed.\n"
    "\n"
    "exit: as the command did, 128+N if signal N killed it, and\n"
    "  64   usage                            71   no process or no memory for it\n"
    "  65   the key is another command's     74   outcome stored, but not all could be\n"
    "  69   store unavailable; not executed       written: see 'once keys show'\n"
    "  70   it may have been executed:       75   in progress elsewhere: try later\n"
    "       see the message                  126, 127  not executable, not found: the\n"
    "                                             key was released\n"
    "\n"
    "example: once run --key invoice-2026-08 -- ./send-invoices --month 2026-08\n";
/* clang-format on */

enum {
    OPTION_KEY = ONCE_CLI_OWN,
    OPTION_LEASE,
    OPTION_RETENTION,
    OPTION_BODY_RETENTION,
    OPTION_KEY_TIME,
    OPTION_TAKEOVER,
    OPTION_WAIT,
    OPTION_FINAL,
    OPTION_MAX_OUTPUT,
    OPTION_LIST_POINTS,
};

static const struct option options[] = {
    ONCE_CLI_OPTION_HELP,
    ONCE_CLI_OPTION_STORE,
    ONCE_CLI_OPTION_SEAL,
    ONCE_CLI_OPTION_TENANT,
    ONCE_CLI_OPTION_QUIET,
    { "key", required_argument, NULL, OPTION_KEY },
    { "lease", required_argument, NULL, OPTION_LEASE },
    { "retention", required_argument, NULL, OPTION_RETENTION },
    { "body-retention", required_argument, NULL, OPTION_BODY_RETENTION },
    { "key-time", no_argument, NULL, OPTION_KEY_TIME },
    { "takeover", required_argument, NULL, OPTION_TAKEOVER },
    { "wait", required_argument, NULL, OPTION_WAIT },
    { "final", required_argument, NULL, OPTION_FINAL },
    { "max-output", required_argument, NULL, OPTION_MAX_OUTPUT },
    { "list-points", no_argument, NULL, OPTION_LIST_POINTS }, /* for tests; not in the help */
    { 0 },
};

struct run {
    struct once_cli cli;
    struct once_claim claim;
    int64_t wait_ms;
    bool final_any;
    size_t output_len_max;
    char **argv;
    struct once_signals signals;
    struct once *once;
    once_time deadline; /* of --wait, on the monotonic clock */
    /* what the execution in this process left behind */
    bool executed;
    uint64_t fence;
    uint32_t attempt;
    int interrupted; /* by this signal, before the start */
    struct once_command_end end;
    struct once_frames frames;
};

/* ---------------------------------------------------------------- the command line */

static bool parse_word(const struct once_cli *cli, const char *option, const char *const words[2], int *which)
{
    for (*which = 0; *which < 2; ++*which)
        if (strcmp(optarg, words[*which]) == 0)
            return true;
    once_cli_usage(cli, "%s: '%.60s' is neither '%s' nor '%s'", option, optarg, words[0], words[1]);
    return false;
}

/* At least a millisecond: to the library, 0 means its default. */
static bool parse_span_of_time(const struct once_cli *cli, const char *option, bool allow_never, int64_t *ms)
{
    if (!once_cli_duration(cli, option, allow_never, ms))
        return false;
    if (*ms != 0)
        return true;
    once_cli_usage(cli, "%s: '%.60s' is no time at all", option, optarg);
    return false;
}

static bool parse_size(const struct once_cli *cli, const char *option, size_t *size)
{
    struct once_error err;
    uint64_t bytes;
    if (once_size_parse(once_span_str(optarg), &bytes, &err) != ONCE_OK) {
        once_cli_usage(cli, "%s: %s", option, err.text);
        return false;
    }
    if (bytes > OUTPUT_LEN_MAX) {
        once_cli_usage(cli, "%s: %s is more than the limit of %dK", option, optarg, OUTPUT_LEN_MAX >> 10);
        return false;
    }
    *size = (size_t)bytes;
    return true;
}

static bool parse_option(struct run *run, int option)
{
    static const char *const takeovers[2] = { "escalate", "rerun" };
    static const char *const finals[2] = { "success", "any" };
    const struct once_cli *cli = &run->cli;
    int which;
    switch (option) {
    case OPTION_KEY:
        return once_cli_key_option(cli, &run->claim.key);
    case OPTION_LEASE:
        return parse_span_of_time(cli, "--lease", false, &run->claim.lease_ms);
    case OPTION_RETENTION:
        return parse_span_of_time(cli, "--retention", true, &run->claim.retention_ms);
    case OPTION_BODY_RETENTION:
        return parse_span_of_time(cli, "--body-retention", true, &run->claim.body_retention_ms);
    case OPTION_KEY_TIME:
        run->claim.key_time = true;
        return true;
    case OPTION_TAKEOVER:
        if (!parse_word(cli, "--takeover", takeovers, &which))
            return false;
        run->claim.takeover = which == 0 ? ONCE_TAKEOVER_ESCALATE : ONCE_TAKEOVER_RERUN;
        return true;
    case OPTION_WAIT:
        return once_cli_duration(cli, "--wait", false, &run->wait_ms);
    case OPTION_FINAL:
        if (!parse_word(cli, "--final", finals, &which))
            return false;
        run->final_any = which == 1;
        return true;
    default:
        return parse_size(cli, "--max-output", &run->output_len_max);
    }
}

static int list_points(void)
{
    for (const char *const *name = once_crash_point_names(); *name != NULL; name++)
        puts(*name);
    return ONCE_EXIT_OK;
}

/* False: return run->cli.exit. */
static bool parse(struct run *run, int argc, char **argv)
{
    struct once_cli *cli = &run->cli;
    for (int c; (c = once_cli_next(cli, argc, argv, "+", options)) != -1;) {
        if (c == '?')
            return false;
        if (c == OPTION_LIST_POINTS) {
            cli->exit = list_points();
            return false;
        }
        if (!parse_option(run, c)) {
            cli->exit = ONCE_EXIT_USAGE;
            return false;
        }
    }
    run->claim.tenant = cli->tenant;
    run->argv = argv + optind;
    /* Who may wait may also wait for his turn at a store that hundreds want to use. */
    if (run->wait_ms > ONCE_LOCK_WAIT_MS_DEFAULT)
        cli->lock_wait_ms = run->wait_ms < LOCK_WAIT_MS_MAX ? (uint32_t)run->wait_ms : LOCK_WAIT_MS_MAX;
    if (run->claim.key.len == 0)
        cli->exit = once_cli_usage(cli, "--key KEY is missing; 'once key' makes a new one");
    else if (optind == argc)
        cli->exit = once_cli_usage(cli, "which COMMAND?");
    else if (run->wait_ms > ONCE_WAIT_MS_MAX)
        cli->exit = once_cli_usage(cli, "--wait: more than the limit of %lldh", ONCE_WAIT_MS_MAX / 3600000);
    return cli->exit == ONCE_EXIT_OK;
}

/* ---------------------------------------------------------------- the execution */

static bool is_held(void *attempt)
{
    return once_attempt_is_held(attempt);
}

/* The command was killed, did not say how far it got, and must not be executed again on a guess. */
static bool is_blind(const struct run *run)
{
    return run->end.signal != 0 && run->claim.takeover != ONCE_TAKEOVER_RERUN && !run->final_any;
}

static enum once_work describe(struct run *run, struct once_outcome *outcome)
{
    if (run->end.how == ONCE_COMMAND_NOT_STARTED)
        return ONCE_WORK_NOT_STARTED;
    if (run->end.how == ONCE_COMMAND_LOST)
        return ONCE_WORK_UNKNOWN;
    bool failed = run->end.status != 0, unknown = is_blind(run);
    *outcome = (struct once_outcome){
        .state = unknown  ? ONCE_STATE_UNKNOWN
                 : failed ? ONCE_STATE_FAILED
                          : ONCE_STATE_SUCCEEDED,
        .retryable = failed && !unknown && !run->final_any,
        .body_dropped = run->frames.dropped,
        .status = run->end.status,
        .headers = ONCE_LIT(ONCE_FRAMES_HEADERS),
        .body = once_buf_span(&run->frames.body),
    };
    return ONCE_WORK_ENDED;
}

static enum once_work execute(struct once_attempt *attempt, void *arg, struct once_outcome *outcome)
{
    struct run *run = arg;
    const struct once_record *record = once_attempt_record(attempt);
    run->executed = true;
    run->fence = record->grant.fence;
    run->attempt = record->attempt;
    ONCE_CRASH_POINT("run.claimed");
    run->end.how = ONCE_COMMAND_NOT_STARTED;
    run->interrupted = once_signals_take(&run->signals);
    if (run->interrupted != 0)
        return ONCE_WORK_NOT_STARTED;
    struct once_run_env env;
    run->end.error = once_run_env_init(&env, attempt, run->cli.url);
    if (run->end.error == 0) {
        struct once_command command = {
            .command = { run->argv, env.envp, run->signals.mask, 0, false },
            .signals = run->signals.fd,
            /* `rerun` promises that it may be interrupted, not that two may run at a time.
             * Under `escalate` nobody else runs: let it come to its end. */
            .is_wanted = run->claim.takeover == ONCE_TAKEOVER_RERUN ? is_held : NULL,
            .arg = attempt,
        };
        run->end = once_command_run(&command, &run->frames);
    }
    once_run_env_release(&env);
    enum once_work work = describe(run, outcome);
    ONCE_CRASH_POINT("run.captured");
    return work;
}

/* ---------------------------------------------------------------- answers */

static bool was_started(const struct run *run)
{
    return run->executed && run->end.how != ONCE_COMMAND_NOT_STARTED;
}

/* A word for messages; lives until the next call. */
static const char *quoted(once_span bytes)
{
    static struct once_buf word = { .max = 4096 };
    once_buf_clear(&word);
    once_text_quote(&word, bytes);
    once_buf_add_byte(&word, 0);
    return word.result == ONCE_OK ? (const char *)word.ptr : "?";
}

static int report_write_errors(const struct run *run, const int write_error[3], int status)
{
    static const char *const names[3] = { "", "standard output", "standard error" };
    for (int stream = 1; stream <= 2; stream++) {
        if (write_error[stream] == 0)
            continue;
        once_cli_fail(&run->cli, 0, "cannot write to %s: %s; the outcome is stored, see 'once keys show'",
                      names[stream], strerror(write_error[stream]));
        if (status == ONCE_EXIT_OK)
            status = ONCE_EXIT_IO;
    }
    return status;
}

static int answer_own(const struct run *run, const struct once_record *record)
{
    if (record->body_dropped && !run->cli.quiet)
        fprintf(stderr, "once: the output was too large to keep: a replay will not show it (see --max-output)\n");
    return report_write_errors(run, run->end.write_error, once_replay_status(record));
}

/* NULL: it is there. */
static const char *why_no_output(const struct once_record *record)
{
    return record->forgotten      ? "its output was forgotten"
           : record->body_expired ? "its output is no longer kept"
           : record->body_sealed  ? "the key that its output is sealed with is gone"
           : record->body_dropped ? "its output is not kept"
                                  : NULL;
}

static int answer_replay(const struct run *run, const struct once_record *record)
{
    int write_error[3] = { 0 };
    once_signals_restore(&run->signals);
    if (!once_replay_print(record, write_error))
        return once_cli_fail(&run->cli, ONCE_EXIT_UNKNOWN, "cannot replay %s: its stored output is damaged",
                             quoted(run->claim.key));
    char finished[ONCE_TEXT_TIME_LEN];
    once_text_local(record->finished_at, finished);
    const char *missing = why_no_output(record);
    /* Who reads nothing where there was something has to be told, whatever else he does not want to hear. */
    if (!run->cli.quiet || missing != NULL)
        fprintf(stderr, "%sonce: replay of attempt %" PRIu32 ", finished %s%s%s\n", once_cli_line_end(record->body),
                record->attempt, finished, missing != NULL ? "; " : "", missing != NULL ? missing : "");
    return report_write_errors(run, write_error, once_replay_status(record));
}

static void say_taken_over(const struct run *run, const struct once_record *record)
{
    if (run->end.how == ONCE_COMMAND_ENDED)
        once_cli_fail(&run->cli, 0,
                      "attempt %" PRIu32 " of %s ended with status %d after its lease was over; "
                      "attempt %" PRIu32 " took over, and what it says counts",
                      run->attempt, quoted(run->claim.key), run->end.status, record->attempt);
    else
        once_cli_fail(&run->cli, 0, "attempt %" PRIu32 " of %s took over", record->attempt, quoted(run->claim.key));
}

static void add_resolve(const struct run *run, const struct once_record *record, const char *verdict,
                        struct once_buf *text)
{
    once_buf_addf(text, "  once keys resolve %s --fence %" PRIu64, verdict, record->grant.fence);
    once_cli_add_context(&run->cli, text);
    once_buf_addf(text, " --reason 'WHY' %s", run->claim.key.ptr[0] == '-' ? "-- " : "");
    once_text_quote(text, run->claim.key);
}

/* By its signal, if that was seen: other unknown outcomes have no status. */
static int signal_of(const struct once_record *record)
{
    return record->status > ONCE_EXIT_SIGNAL ? record->status - ONCE_EXIT_SIGNAL : 0;
}

static void add_end(const struct run *run, const struct once_record *record, bool own, struct once_buf *text)
{
    const char *key = quoted(run->claim.key);
    if (signal_of(record) != 0) {
        once_buf_addf(text, "attempt %" PRIu32 " of %s was killed by signal %d: nobody knows how far it got\n",
                      own ? run->attempt : record->attempt, key, signal_of(record));
        return;
    }
    once_buf_addf(text, "cannot tell whether %s was executed: attempt %" PRIu32 " began and nobody saw its end\n", key,
                  record->attempt);
    if (run->executed && run->end.how == ONCE_COMMAND_ENDED)
        once_buf_addf(text, "it ended here, with status %d, after its lease was over\n", run->end.status);
}

/* Of our own command's death we tell as a shell does; whoever asks after that is told 70. */
static int answer_unknown(const struct run *run, const struct once_record *record)
{
    bool own = run->executed && run->fence == record->grant.fence && signal_of(record) != 0;
    struct once_buf text;
    once_buf_init(&text, 64 << 10);
    add_end(run, record, own, &text);
    once_buf_addf(&text, "find out, then say so with one of\n");
    add_resolve(run, record, "--done --status 0", &text);
    once_buf_addf(&text, "    # it happened: further runs replay that\n");
    add_resolve(run, record, "--not-done", &text);
    once_buf_addf(&text, "    # it did not: the next run executes it");
    int exit = once_cli_fail(&run->cli, ONCE_EXIT_UNKNOWN, "%.*s", ONCE_SPAN_ARGS(once_buf_span(&text)));
    once_buf_release(&text);
    return own ? report_write_errors(run, run->end.write_error, run->end.status) : exit;
}

static int answer_in_progress(const struct run *run, const struct once_record *record)
{
    return once_cli_fail(&run->cli, ONCE_EXIT_BUSY,
                         "%s is in progress: attempt %" PRIu32 " is at it, its lease renewed while it runs; try again "
                         "later%s",
                         quoted(run->claim.key), record->attempt, run->wait_ms == 0 ? ", or use --wait" : "");
}

static int answer_not_started(const struct run *run)
{
    int error = run->end.error;
    int exit = error == ENOENT ? ONCE_EXIT_NOT_FOUND : ONCE_EXIT_NOT_EXECUTABLE;
    if (error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE)
        exit = ONCE_EXIT_OS;
    return once_cli_fail(&run->cli, exit, "cannot execute %s: %s; %s", quoted(once_span_str(run->argv[0])),
                         strerror(error),
                         run->attempt <= 1 ? "the key is free again" : "the same command may be tried again");
}

static int answer_error(const struct run *run, const struct once_error *err)
{
    /* Not its own exit code: that says whether to ask again, and asking again is not safe. */
    if (was_started(run))
        return once_cli_fail(&run->cli, ONCE_EXIT_UNKNOWN,
                             "the command of %s was executed (status %d), but that could not be stored: %s",
                             quoted(run->claim.key), run->end.status, err->text);
    /* Nor is it "nobody knows" where only the claim's answer was lost: whether it was executed is known. */
    if (err->result == ONCE_UNKNOWN && !run->executed)
        return once_cli_fail(
            &run->cli, ONCE_EXIT_UNAVAILABLE,
            "the command of %s was not executed by this call: nobody knows whether its claim was stored (%s); if it "
            "was, the key is held until its lease ends",
            quoted(run->claim.key), err->text);
    return once_cli_error(&run->cli, err, "run the command");
}

static int answer(struct run *run, const struct once_reply *reply)
{
    const struct once_record *record = &reply->record;
    bool taken_over = run->executed && record->state != ONCE_STATE_NONE && record->grant.fence != run->fence;
    enum once_arm arm = reply->arm;
    if (taken_over)
        say_taken_over(run, record);
    /* So late that the key had a life after ours, for something else (K6). */
    if (taken_over && memcmp(&record->fingerprint, &run->claim.fingerprint, sizeof record->fingerprint) != 0)
        arm = ONCE_ARM_MISMATCH;
    switch (arm) {
    case ONCE_ARM_DONE:
        return answer_not_started(run);
    case ONCE_ARM_REPLAY:
        return run->executed && !taken_over ? answer_own(run, record) : answer_replay(run, record);
    case ONCE_ARM_MISMATCH:
        return once_cli_fail(&run->cli, ONCE_EXIT_MISMATCH,
                             "%s was used for another command; take another key, or run the same command",
                             quoted(run->claim.key));
    case ONCE_ARM_IN_PROGRESS:
        return answer_in_progress(run, record);
    case ONCE_ARM_UNKNOWN:
        return answer_unknown(run, record);
    case ONCE_ARM_EXPIRED:
        return once_cli_fail(&run->cli, ONCE_EXIT_UNKNOWN,
                             "%s is a UUIDv7 whose time is outside the retention: it may have been executed, and "
                             "nobody knows; not executed now. Find out before you take another key",
                             quoted(run->claim.key));
    default:
        return once_cli_fail(&run->cli, ONCE_EXIT_UNKNOWN,
                             "another attempt at %s took over, and its record is gone; this one ended with status %d",
                             quoted(run->claim.key), run->end.status);
    }
}

/* ---------------------------------------------------------------- waiting */

static int64_t time_left(const struct run *run)
{
    int64_t left = run->deadline - once_os_monotonic_ms();
    return left > 0 ? left : 0;
}

/* Asks until there is an answer, the time is up or a signal came (run->interrupted). */
static once_result ask(struct run *run, struct once_reply *reply, struct once_error *err)
{
    struct once_run_options none = { 0 };
    for (;;) {
        int64_t left = time_left(run);
        run->claim.wait_ms = left < WAIT_SLICE_MS ? left : WAIT_SLICE_MS;
        once_result r = once_run(run->once, &run->claim, &none, execute, run, NULL, reply, err);
        bool again = r == ONCE_BUSY || (r == ONCE_OK && reply->arm == ONCE_ARM_IN_PROGRESS);
        if (run->executed || !again || left == 0)
            return r;
        run->interrupted = once_signals_take(&run->signals);
        if (run->interrupted != 0)
            return r;
        if (r == ONCE_BUSY)
            poll(NULL, 0, LOOK_EVERY_MS);
        once_reply_release(reply);
    }
}

static enum once_arm arm_of(const struct once_reply *reply)
{
    return reply->arm != ONCE_ARM_FOUND ? reply->arm : once_arm_of_state(reply->record.state);
}

/* Another attempt took over from ours and is at it: look on, without ever executing
 * a second time. */
static once_result look_on(struct run *run, struct once_reply *reply, struct once_error *err)
{
    while (reply->arm == ONCE_ARM_IN_PROGRESS && time_left(run) > 0) {
        struct pollfd signals = { .fd = run->signals.fd, .events = POLLIN };
        poll(&signals, 1, LOOK_EVERY_MS);
        run->interrupted = once_signals_take(&run->signals);
        if (run->interrupted != 0)
            return ONCE_OK;
        once_reply_release(reply);
        once_result r = once_lookup(run->once, run->claim.tenant, run->claim.key, reply, err);
        if (r != ONCE_OK)
            return r;
        reply->arm = arm_of(reply);
    }
    return ONCE_OK;
}

static int run_and_answer(struct run *run)
{
    struct once_reply reply = { 0 };
    struct once_error err;
    run->deadline = once_os_monotonic_ms() + run->wait_ms;
    once_result r = ask(run, &reply, &err);
    ONCE_CRASH_POINT("run.answered");
    if (r == ONCE_OK && run->executed && reply.arm == ONCE_ARM_IN_PROGRESS)
        r = look_on(run, &reply, &err);
    int exit;
    if (r != ONCE_OK)
        exit = answer_error(run, &err);
    else if (run->interrupted != 0 && !was_started(run))
        exit = ONCE_EXIT_SIGNAL + run->interrupted;
    else
        exit = answer(run, &reply);
    ONCE_CRASH_POINT("run.printed");
    once_reply_release(&reply);
    return exit;
}

static int fingerprint(struct run *run)
{
    size_t count = 0;
    while (run->argv[count] != NULL)
        count++;
    once_span *parts = calloc(count, sizeof *parts);
    if (parts == NULL)
        return once_cli_fail(&run->cli, ONCE_EXIT_OS, "out of memory");
    for (size_t i = 0; i < count; i++)
        parts[i] = once_span_str(run->argv[i]);
    once_fingerprint_list(run->once, run->claim.tenant, parts, count, &run->claim.fingerprint);
    free(parts);
    return ONCE_EXIT_OK;
}

int once_cli_run(int argc, char **argv)
{
    struct run run = { .cli = { .verb = "run", .help = help }, .output_len_max = OUTPUT_LEN_DEFAULT };
    if (!parse(&run, argc, argv))
        return run.cli.exit;
    ONCE_CRASH_POINT("run.start");
    once_frames_init(&run.frames, run.output_len_max);
    int exit = once_cli_open(&run.cli, ONCE_CLI_CREATE, &run.once);
    if (exit != ONCE_EXIT_OK)
        return exit;
    int error = once_signals_init(&run.signals);
    if (error != 0)
        exit = once_cli_fail(&run.cli, ONCE_EXIT_OS, "cannot watch for signals: %s", strerror(error));
    if (exit == ONCE_EXIT_OK)
        exit = fingerprint(&run);
    if (exit == ONCE_EXIT_OK)
        exit = run_and_answer(&run);
    once_close(run.once);
    once_frames_release(&run.frames);
    if (run.interrupted != 0)
        once_signals_die(&run.signals, run.interrupted);
    once_signals_release(&run.signals);
    return exit;
}
