/*
 * forget.c - `once forget`: erases the personal data of records, for a request of erasure.
 *
 * It erases one record by its key, or all records of a tenant: page by page, with one or a few commits per page, so
 * that other processes go on meanwhile and it can be stopped and restarted at any time. A forgotten record has no
 * tenant any more, so a second run finds only the rest. once_forget() keeps enough to refuse a second execution (K5).
 */
#include "cli/verbs.h"
#include "core/span.h"
#include "os/signals.h"
#include "program/cli.h"
#include "program/text.h"

#include <inttypes.h>
#include <pthread.h>
#include <unistd.h>

/* clang-format off */
static const char help[] =
    "usage: once forget [KEY] --tenant T --reason TEXT [--drop] [--dry-run] [--yes]\n"
    "\n"
    "For a request of erasure: erases the names, answers, header lines, stored requests and\n"
    "checkpoints of one record, or of all records of a tenant. The rest (the record id, the\n"
    "fingerprint, state, status, times) stays until its retention ends: a retry is not\n"
    "executed again, but answered that it was done and that the answer is no longer stored.\n"
    "\n"
    "Records that are running, unknown, or retryable with a recovery point are not erased but\n"
    "counted. Resolve them first ('once keys resolve').\n"
    "\n"
    "  --tenant T         the tenant; '' is the single tenant\n"
    "  --key KEY          only this record; the same as the argument KEY\n"
    "  --reason TEXT      why, up to 1000 bytes; required. It is kept in the audit trail with\n"
    "                     the time and your user name: write no personal data into it\n"
    "  --drop             remove the records completely, also unknown and abandoned ones. THEIR\n"
    "                     KEYS ARE LIKE NEW AFTER THAT: A RETRY EXECUTES AGAIN\n"
    "  --dry-run          change nothing, print what would be done\n"
    "  --yes              do not ask; required for a whole tenant, and for --drop, if standard\n"
    "                     input is not a terminal\n"
    "  --step N           records per step, up to 1000; default 200\n"
    "  --progress         show how far it got, also if stderr is not a terminal\n"
    ONCE_CLI_HELP_STORE
    ONCE_CLI_HELP_QUIET
    ONCE_CLI_HELP_HELP
    "\n"
    "Not covered: messages of the outbox and the inbox ('once outbox drop', 'once inbox\n"
    "drop'), earlier reasons in the audit trail, copies and backups; docs/sealing.md lists\n"
    "where bytes may remain.\n"
    "\n"
    "exit: 0; 1 no such key, or a record has no decided outcome; 64 usage; 69 store\n"
    "      unavailable; 70 it may have been forgotten: run it again; 75 a record is in progress\n"
    "      or changed meanwhile: run it again; 128+N stopped by signal N between two steps\n"
    "\n"
    "example: once forget --tenant acme --reason 'erasure request 4711'\n";
/* clang-format on */

enum { OPTION_KEY = ONCE_CLI_OWN, OPTION_REASON, OPTION_DROP, OPTION_DRY, OPTION_YES, OPTION_STEP, OPTION_PROGRESS };

struct forget {
    struct once_cli cli;
    struct once_signals signals;
    struct once_forget word;
    char actor[ONCE_ACTOR_LEN_MAX + 1];
    bool dry, yes, progress, terminal;
    uint64_t step;
    int interrupted;

    pthread_mutex_t lock; /* guards the rest: answers come on the library's thread */
    pthread_cond_t all;
    size_t waiting;
    uint64_t forgotten, live, undecided, changed;
    once_result failed;
    struct once_error err;
};

/* ------------------------------------------------------------------ results */

static void count_arm(struct forget *f, enum once_arm arm)
{
    f->forgotten += arm == ONCE_ARM_DONE;
    f->live += arm == ONCE_ARM_IN_PROGRESS;
    f->undecided += arm == ONCE_ARM_UNKNOWN;
    f->changed += arm == ONCE_ARM_FENCED;
}

static void on_done(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    struct forget *f = arg;
    pthread_mutex_lock(&f->lock);
    if (result == ONCE_OK) {
        count_arm(f, reply->arm);
    } else if (f->failed == ONCE_OK) {
        f->failed = result;
        f->err = *err;
    }
    if (--f->waiting == 0)
        pthread_cond_signal(&f->all);
    pthread_mutex_unlock(&f->lock);
    once_reply_release(reply);
}

/* The answer that once_forget() would give for a listed record. Some listings do not show recovery points; such a
 * record counts as forgotten. */
static enum once_arm arm_of(const struct forget *f, const struct once_record *r)
{
    if (r->state == ONCE_STATE_RUNNING && r->lease_live)
        return ONCE_ARM_IN_PROGRESS;
    bool finished = r->state == ONCE_STATE_SUCCEEDED || r->state == ONCE_STATE_FAILED;
    bool goes_on = r->retryable && r->recovery_point.len > 0;
    return f->word.drop || (finished && !goes_on) ? ONCE_ARM_DONE : ONCE_ARM_UNKNOWN;
}

static int exit_of(const struct forget *f)
{
    return f->live > 0 || f->changed > 0 ? ONCE_EXIT_BUSY : f->undecided > 0 ? ONCE_EXIT_FOUND : ONCE_EXIT_OK;
}

static void print_counts(const struct forget *f)
{
    const char *did = f->word.drop ? "dropped" : "forgotten";
    printf("%s%" PRIu64 " %s\n", f->dry ? "would be: " : "", f->forgotten, did);
    if (f->live > 0)
        once_cli_fail(&f->cli, 0, "%" PRIu64 " are in progress and were skipped: run it again when they have ended",
                      f->live);
    if (f->changed > 0)
        once_cli_fail(&f->cli, 0, "%" PRIu64 " changed meanwhile and were skipped: run it again", f->changed);
    if (f->undecided > 0)
        once_cli_fail(&f->cli, 0,
                      "%" PRIu64
                      " have no decided outcome and were skipped: 'once keys list' shows them, 'once keys resolve' "
                      "decides; --drop removes them, and a retry executes again",
                      f->undecided);
}

/* ------------------------------------------------------------------ one record */

static int print_one(const struct forget *f, enum once_arm arm)
{
    const struct once_cli *cli = &f->cli;
    switch (arm) {
    case ONCE_ARM_DONE:
        if (!cli->quiet)
            printf("%s%s\n", f->dry ? "would be " : "",
                   f->word.drop ? "dropped: a retry executes again"
                                : "forgotten: a retry is answered that it was done");
        return ONCE_EXIT_OK;
    case ONCE_ARM_ABSENT:
        return once_cli_fail(cli, ONCE_EXIT_FOUND, "no such key");
    case ONCE_ARM_IN_PROGRESS:
        return once_cli_fail(cli, ONCE_EXIT_BUSY, "it is in progress: forget it when it has ended");
    case ONCE_ARM_UNKNOWN:
        return once_cli_fail(cli, ONCE_EXIT_FOUND,
                             "its outcome is not decided: resolve it first ('once keys resolve'), or --drop it, and "
                             "a retry executes again");
    default:
        return once_cli_fail(cli, ONCE_EXIT_BUSY, "it changed meanwhile: run it again");
    }
}

static int forget_one(struct forget *f, struct once *once)
{
    struct once_reply reply = { 0 };
    struct once_error err;
    once_result r = f->dry ? once_lookup(once, f->word.tenant, f->word.key, &reply, &err)
                           : once_forget(once, &f->word, &reply, &err);
    enum once_arm arm = r == ONCE_OK && reply.arm == ONCE_ARM_FOUND ? arm_of(f, &reply.record) : reply.arm;
    once_reply_release(&reply);
    return r == ONCE_OK ? print_one(f, arm) : once_cli_error(&f->cli, &err, "forget it");
}

/* ------------------------------------------------------------------ a tenant */

static void show_progress(const struct forget *f, bool last)
{
    if (!f->progress)
        return;
    fprintf(stderr, "%sonce forget: %" PRIu64 " %s%s", f->terminal ? "\r" : "", f->forgotten,
            f->dry ? "found" : "erased", last ? ", done" : "");
    if (last || !f->terminal)
        fputc('\n', stderr);
    fflush(stderr);
}

static void submit_one(struct forget *f, struct once *once, const struct once_record *record)
{
    struct once_request request = { .verb = ONCE_VERB_FORGET, .forget = f->word };
    request.forget.tenant = request.forget.key = once_span_of(NULL, 0);
    request.forget.seen = record->grant;
    struct once_error err;
    pthread_mutex_lock(&f->lock);
    f->waiting++;
    pthread_mutex_unlock(&f->lock);
    once_result r = once_submit(once, &request, on_done, f, &err);
    if (r != ONCE_OK) { /* on_done() is not called for it */
        struct once_reply none = { 0 };
        on_done(f, r, &none, &err);
    }
}

static once_result forget_page(struct forget *f, struct once *once, const struct once_page *page)
{
    for (size_t i = 0; i < page->count; i++) {
        const struct once_record *record = &page->records[i];
        if (record->forgotten) /* its tenant was erased, so it is listed for the single tenant */
            continue;
        if (f->dry)
            count_arm(f, arm_of(f, record));
        else
            submit_one(f, once, record);
    }
    pthread_mutex_lock(&f->lock);
    while (f->waiting > 0)
        pthread_cond_wait(&f->all, &f->lock);
    once_result r = f->failed;
    pthread_mutex_unlock(&f->lock);
    return r;
}

/* Records past their retention are not listed any more, but their bytes may still be stored. */
static once_result expire_first(struct forget *f, struct once *once, struct once_error *err)
{
    bool more = !f->dry;
    once_result r = ONCE_OK;
    for (uint64_t removed; r == ONCE_OK && more && f->interrupted == 0;) {
        r = once_expire(once, 0, &removed, &more, err);
        f->interrupted = once_signals_take(&f->signals);
    }
    return r;
}

static int forget_tenant(struct forget *f, struct once *once)
{
    struct once_error err;
    struct once_filter filter = { .tenant = &f->word.tenant, .limit = (uint32_t)f->step };
    once_result r = expire_first(f, once, &err);
    for (bool more = true; r == ONCE_OK && more && f->interrupted == 0;) {
        struct once_page page;
        r = once_list(once, &filter, &page, &err);
        if (r == ONCE_OK) {
            r = forget_page(f, once, &page);
            filter.before = page.next;
            more = page.next != 0;
            if (r != ONCE_OK)
                err = f->err;
        }
        once_page_release(&page);
        f->interrupted = more ? once_signals_take(&f->signals) : 0;
        show_progress(f, r == ONCE_OK && !more);
    }
    if (r != ONCE_OK) {
        once_cli_fail(&f->cli, 0, "%" PRIu64 " were erased before it failed; run it again to continue", f->forgotten);
        return once_cli_error(&f->cli, &err, "forget more");
    }
    if (f->interrupted != 0)
        return once_cli_fail(&f->cli, ONCE_EXIT_SIGNAL + f->interrupted,
                             "stopped after %" PRIu64 "; run it again to continue", f->forgotten);
    if (!f->cli.quiet)
        print_counts(f);
    return exit_of(f);
}

/* ------------------------------------------------------------------ options */

/* Erasing cannot be undone: at a terminal the user is asked, otherwise --yes is required. */
static bool is_confirmed(const struct forget *f)
{
    bool careful = f->word.key.len == 0 || f->word.drop;
    if (f->dry || f->yes || !careful)
        return true;
    if (!isatty(STDIN_FILENO)) {
        once_cli_usage(&f->cli, "%s cannot be undone: add --yes, or try --dry-run first",
                       f->word.drop ? "dropping" : "forgetting a whole tenant");
        return false;
    }
    fprintf(stderr, "%s%s of tenant '%.*s'? This cannot be undone%s. Type yes: ", f->word.drop ? "Drop " : "Forget ",
            f->word.key.len > 0 ? "this record" : "everything", ONCE_SPAN_ARGS(f->word.tenant),
            f->word.drop ? ", AND RETRIES EXECUTE AGAIN" : "");
    fflush(stderr);
    char line[16];
    if (fgets(line, sizeof line, stdin) != NULL && strcmp(line, "yes\n") == 0)
        return true;
    once_cli_fail(&f->cli, 0, "nothing was done");
    return false;
}

static bool parse_option(struct forget *f, int option)
{
    switch (option) {
    case OPTION_KEY:
        return once_cli_key_option(&f->cli, &f->word.key);
    case OPTION_REASON:
        f->word.reason = once_span_str(optarg);
        return true;
    case OPTION_DROP:
        f->word.drop = true;
        return true;
    case OPTION_DRY:
        f->dry = true;
        return true;
    case OPTION_YES:
        f->yes = true;
        return true;
    case OPTION_STEP:
        return once_cli_number(&f->cli, "--step", 1, ONCE_LIST_LIMIT_MAX, &f->step);
    default:
        f->progress = true;
        return true;
    }
}

static bool is_complete(struct forget *f, int argc, char **argv)
{
    const struct once_cli *cli = &f->cli;
    if (!once_cli_key_if_any(cli, argc, argv, &f->word.key))
        return false;
    if (!cli->tenant_given)
        once_cli_usage(cli, "--tenant T is missing; --tenant '' is the single tenant");
    else if (f->word.reason.len == 0 && !f->dry)
        once_cli_usage(cli, "--reason TEXT is missing: it is kept in the audit trail");
    else
        return true;
    return false;
}

static int work(struct forget *f)
{
    struct once *once = NULL;
    int exit = once_cli_open(&f->cli, ONCE_CLI_EXISTING, &once);
    if (exit != ONCE_EXIT_OK)
        return exit;
    int error = once_signals_init(&f->signals);
    if (error != 0)
        exit = once_cli_fail(&f->cli, ONCE_EXIT_OS, "cannot watch for signals: %s", strerror(error));
    else
        exit = f->word.key.len > 0 ? forget_one(f, once) : forget_tenant(f, once);
    once_close(once);
    once_signals_release(&f->signals);
    return once_cli_finish(&f->cli, exit);
}

int once_cli_forget(int argc, char **argv)
{
    static const struct option options[] = {
        ONCE_CLI_OPTION_HELP,
        ONCE_CLI_OPTION_STORE,
        ONCE_CLI_OPTION_TENANT,
        ONCE_CLI_OPTION_QUIET,
        { "key", required_argument, NULL, OPTION_KEY },
        { "reason", required_argument, NULL, OPTION_REASON },
        { "drop", no_argument, NULL, OPTION_DROP },
        { "dry-run", no_argument, NULL, OPTION_DRY },
        { "yes", no_argument, NULL, OPTION_YES },
        { "step", required_argument, NULL, OPTION_STEP },
        { "progress", no_argument, NULL, OPTION_PROGRESS },
        { 0 },
    };
    struct forget f = { .cli = { .verb = "forget", .help = help },
                        .step = 200,
                        .lock = PTHREAD_MUTEX_INITIALIZER,
                        .all = PTHREAD_COND_INITIALIZER };
    for (int c; (c = once_cli_next(&f.cli, argc, argv, "", options)) != -1;) {
        if (c == '?')
            return f.cli.exit;
        if (!parse_option(&f, c))
            return ONCE_EXIT_USAGE;
    }
    f.word.tenant = f.cli.tenant;
    if (!is_complete(&f, argc, argv) || !is_confirmed(&f))
        return ONCE_EXIT_USAGE;
    once_cli_actor(f.actor, sizeof f.actor);
    f.word.actor = once_span_str(f.actor);
    f.terminal = isatty(STDERR_FILENO);
    f.progress = f.progress || (f.terminal && !f.cli.quiet && f.word.key.len == 0);
    return work(&f);
}
