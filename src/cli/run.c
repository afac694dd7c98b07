/*
 * run.c - `once run`: executes a command once per key.
 *
 * Model: once_run() around a callback that executes the command (command.c). While
 *        another process executes the key, --wait claims again in slices, so that a signal
 *        can end the wait, in which nothing is held. A signal between the claim and the
 *        command's start releases the key. After the start, signals go to the command, and
 *        `once` stays to store its outcome. A command that a signal killed has the outcome
 *        unknown (K10), unless --takeover rerun or --final any was given.
 *
 * Not here: the command's environment (run/env.c), its process group (guard.c), the
 *        format of its stored output (frames.c).
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
    POLL_EVERY_MS = 100,
    LOCK_WAIT_MS_MAX = 60000, /* with --wait; a signal is not seen meanwhile */
    OUTPUT_LEN_DEFAULT = 1 << 20,
    OUTPUT_LEN_MAX = ONCE_BODY_LEN_MAX - (64 << 10), /* room for 13,000 changes of the stream */
};

/* clang-format off */
static const char help[] =
    "usage: once run --key KEY [OPTIONS] [--] COMMAND [ARGUMENT...]\n"
    "\n"
    "Runs COMMAND once per KEY. A further run with the same KEY prints the stored output to\n"
    "the same streams and exits with the same status, without executing COMMAND.\n"
    "\n"
    "  --key KEY          names the operation, 1 to 255 bytes (see also 'once key')\n"
    "  --tenant T         the tenant of the key; default: the single tenant, ''\n"
    ONCE_CLI_HELP_STORE
    ONCE_CLI_HELP_SEAL
    "  --lease DUR        how long the key stays protected from takeover if `once` dies;\n"
    "                     renewed while the command runs; default 60s\n"
    "  --retention DUR    how long the outcome is kept, from its end, or 'never' to keep it\n"
    "                     for ever; default 24h\n"
    "  --body-retention DUR\n"
    "                     how long its output is kept, if shorter: after that a replay has\n"
    "                     only the exit status\n"
    "  --key-time         do not execute a new KEY that is a UUIDv7 older than the retention,\n"
    "                     exit 70\n"
    "  --takeover HOW     if an earlier run died, or a signal kills the command of this one:\n"
    "                     'escalate' (the default) leaves it to an operator, exit 70; 'rerun'\n"
    "                     executes again: for commands that may be interrupted anywhere and\n"
    "                     run again. With 'rerun', a command whose key another attempt took\n"
    "                     over gets SIGTERM\n"
    "  --wait DUR         how long to wait while another process executes it; default 0s\n"
    "  --final WHICH      outcomes that are final: 'success' (the default: after a failure\n"
    "                     the next run executes again) or 'any'\n"
    "  --max-output SIZE  output to store at most; longer output is printed, but not stored;\n"
    "                     default 1M, up to 16320K\n"
    "  --quiet            print no message for replays, unless their output is missing\n"
    ONCE_CLI_HELP_HELP
    "\n"
    "The KEY belongs to COMMAND and its ARGUMENTs: with others it is refused, exit 65. The\n"
    "directory, the environment and standard input may differ. The command reads standard\n"
    "input itself; its output goes through pipes. It has ended when no process holds them\n"
    "open any more, as in $(...).\n"
    "Its environment has ONCE_KEY (a child key to send to a service: the same on every\n"
    "attempt), ONCE_FENCE, ONCE_ATTEMPT, ONCE_RECOVERY_POINT, ONCE_CHECKPOINT_FILE\n"
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
    /* results of the execution in this process */
    bool executed;
    uint64_t fence;
    uint32_t attempt;
    int interrupted; /* the signal that came before the start; 0: none */
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

/* At least a millisecond: for the library, 0 means its default. */
static bool parse_duration(const struct once_cli *cli, const char *option, bool allow_never, int64_t *ms)
{
    if (!once_cli_duration(cli, option, allow_never, ms))
        return false;
    if (*ms != 0)
        return true;
    once_cli_usage(cli, "%s: '%.60s' must be greater than zero", option, optarg);
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
        return parse_duration(cli, "--lease", false, &run->claim.lease_ms);
    case OPTION_RETENTION:
        return parse_duration(cli, "--retention", true, &run->claim.retention_ms);
    case OPTION_BODY_RETENTION:
        return parse_duration(cli, "--body-retention", true, &run->claim.body_retention_ms);
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
    /* With --wait, also wait longer for the lock of a busy store. */
    if (run->wait_ms > ONCE_LOCK_WAIT_MS_DEFAULT)
        cli->lock_wait_ms = run->wait_ms < LOCK_WAIT_MS_MAX ? (uint32_t)run->wait_ms : LOCK_WAIT_MS_MAX;
    if (run->claim.key.len == 0)
        cli->exit = once_cli_usage(cli, "--key KEY is missing; 'once key' makes a new one");
    else if (optind == argc)
        cli->exit = once_cli_usage(cli, "COMMAND is missing");
    else if (run->wait_ms > ONCE_WAIT_MS_MAX)
        cli->exit = once_cli_usage(cli, "--wait: more than the limit of %lldh", ONCE_WAIT_MS_MAX / 3600000);
    return cli->exit == ONCE_EXIT_OK;
}

/* ---------------------------------------------------------------- the execution */

static bool is_held(void *attempt)
{
    return once_attempt_is_held(attempt);
}

/* True if a signal killed the command and it must not be executed again without a decision. */
static bool is_in_doubt(const struct run *run)
{
    return run->end.signal != 0 && run->claim.takeover != ONCE_TAKEOVER_RERUN && !run->final_any;
}

static enum once_work describe(struct run *run, struct once_outcome *outcome)
{
    if (run->end.how == ONCE_COMMAND_NOT_STARTED)
        return ONCE_WORK_NOT_STARTED;
    if (run->end.how == ONCE_COMMAND_LOST)
        return ONCE_WORK_UNKNOWN;
    bool failed = run->end.status != 0, unknown = is_in_doubt(run);
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
            /* `rerun` allows interruption, but not two commands at a time. Under `escalate` no
             * other attempt runs, so the command may finish. */
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

/* `bytes` as a shell word for messages; valid until the next call. */
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
        fprintf(stderr, "once: the output is too large to store: a replay will not print it (see --max-output)\n");
    return report_write_errors(run, run->end.write_error, once_replay_status(record));
}

/* Why a replay cannot print the output; NULL: it can. */
static const char *why_no_output(const struct once_record *record)
{
    return record->forgotten      ? "its output was forgotten"
           : record->body_expired ? "its output has expired"
           : record->body_sealed  ? "the key that sealed its output is not available"
           : record->body_dropped ? "its output was not stored"
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
    /* Missing output is reported even with --quiet. */
    if (!run->cli.quiet || missing != NULL)
        fprintf(stderr, "%sonce: replay of attempt %" PRIu32 ", finished %s%s%s\n", once_cli_line_end(record->body),
                record->attempt, finished, missing != NULL ? "; " : "", missing != NULL ? missing : "");
    return report_write_errors(run, write_error, once_replay_status(record));
}

static void report_takeover(const struct run *run, const struct once_record *record)
{
    if (run->end.how == ONCE_COMMAND_ENDED)
        once_cli_fail(&run->cli, 0,
                      "attempt %" PRIu32 " of %s ended with status %d after its lease was over; "
                      "attempt %" PRIu32 " took over, and its outcome counts",
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

/* The signal that killed the command, or 0: other unknown outcomes have no status. */
static int signal_of(const struct once_record *record)
{
    return record->status > ONCE_EXIT_SIGNAL ? record->status - ONCE_EXIT_SIGNAL : 0;
}

static void add_end(const struct run *run, const struct once_record *record, bool own, struct once_buf *text)
{
    const char *key = quoted(run->claim.key);
    if (signal_of(record) != 0) {
        once_buf_addf(text, "attempt %" PRIu32 " of %s was killed by signal %d: how far it got is unknown\n",
                      own ? run->attempt : record->attempt, key, signal_of(record));
        return;
    }
    once_buf_addf(text, "cannot tell whether %s was executed: attempt %" PRIu32 " began and did not report its end\n",
                  key, record->attempt);
    if (run->executed && run->end.how == ONCE_COMMAND_ENDED)
        once_buf_addf(text, "it ended in this run with status %d, after its lease was over\n", run->end.status);
}

/* The run whose command was killed exits with 128+N, as a shell does; later runs exit with 70. */
static int answer_unknown(const struct run *run, const struct once_record *record)
{
    bool own = run->executed && run->fence == record->grant.fence && signal_of(record) != 0;
    struct once_buf text;
    once_buf_init(&text, 64 << 10);
    add_end(run, record, own, &text);
    once_buf_addf(&text, "find out, then run one of\n");
    add_resolve(run, record, "--done --status 0", &text);
    once_buf_addf(&text, "    # it happened: further runs replay this outcome\n");
    add_resolve(run, record, "--not-done", &text);
    once_buf_addf(&text, "    # it did not: the next run executes it");
    int exit = once_cli_fail(&run->cli, ONCE_EXIT_UNKNOWN, "%.*s", ONCE_SPAN_ARGS(once_buf_span(&text)));
    once_buf_release(&text);
    return own ? report_write_errors(run, run->end.write_error, run->end.status) : exit;
}

static int answer_in_progress(const struct run *run, const struct once_record *record)
{
    return once_cli_fail(&run->cli, ONCE_EXIT_BUSY,
                         "%s is in progress: attempt %" PRIu32 " is running and renews its lease; try again "
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
                         run->attempt <= 1 ? "the key was released" : "the same command may be tried again");
}

static int answer_error(const struct run *run, const struct once_error *err)
{
    /* Not the exit code of err: it would suggest a retry, which is not safe here. */
    if (was_started(run))
        return once_cli_fail(&run->cli, ONCE_EXIT_UNKNOWN,
                             "the command of %s was executed (status %d), but that could not be stored: %s",
                             quoted(run->claim.key), run->end.status, err->text);
    /* Only the claim's answer was lost: it is certain that this call did not execute the command. */
    if (err->result == ONCE_UNKNOWN && !run->executed)
        return once_cli_fail(&run->cli, ONCE_EXIT_UNAVAILABLE,
                             "this call did not execute the command of %s: its claim may have been stored (%s); if it "
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
        report_takeover(run, record);
    /* The key has begun a new life since, for another command (K6). */
    if (taken_over && memcmp(&record->fingerprint, &run->claim.fingerprint, sizeof record->fingerprint) != 0)
        arm = ONCE_ARM_MISMATCH;
    switch (arm) {
    case ONCE_ARM_DONE:
        return answer_not_started(run);
    case ONCE_ARM_REPLAY:
        return run->executed && !taken_over ? answer_own(run, record) : answer_replay(run, record);
    case ONCE_ARM_MISMATCH:
        return once_cli_fail(&run->cli, ONCE_EXIT_MISMATCH,
                             "%s was used for another command; use another key, or run the same command",
                             quoted(run->claim.key));
    case ONCE_ARM_IN_PROGRESS:
        return answer_in_progress(run, record);
    case ONCE_ARM_UNKNOWN:
        return answer_unknown(run, record);
    case ONCE_ARM_EXPIRED:
        return once_cli_fail(&run->cli, ONCE_EXIT_UNKNOWN,
                             "%s is a UUIDv7 whose time is outside the retention: it may have been executed "
                             "before; not executed now. Find out before you use another key",
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

/* Claims until there is an answer, the time is up or a signal came (run->interrupted). */
static once_result claim_until_answered(struct run *run, struct once_reply *reply, struct once_error *err)
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
            poll(NULL, 0, POLL_EVERY_MS);
        once_reply_release(reply);
    }
}

static enum once_arm arm_of(const struct once_reply *reply)
{
    return reply->arm != ONCE_ARM_FOUND ? reply->arm : once_arm_of_state(reply->record.state);
}

/* Another attempt took over from ours and is running: wait for its outcome, and never
 * execute a second time. */
static once_result wait_for_takeover(struct run *run, struct once_reply *reply, struct once_error *err)
{
    while (reply->arm == ONCE_ARM_IN_PROGRESS && time_left(run) > 0) {
        struct pollfd signals = { .fd = run->signals.fd, .events = POLLIN };
        poll(&signals, 1, POLL_EVERY_MS);
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
    once_result r = claim_until_answered(run, &reply, &err);
    ONCE_CRASH_POINT("run.answered");
    if (r == ONCE_OK && run->executed && reply.arm == ONCE_ARM_IN_PROGRESS)
        r = wait_for_takeover(run, &reply, &err);
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
