/*
 * test_sweep.c - fail the n-th call, n = 1, 2, 3 ... until the story ends before it.
 *
 * After each run: every answer given is explained by the model, the store opens again and
 * backs all of them, once_check finds nothing, no memory and no descriptor is left.
 *
 *     test_sweep [SWEEP...]      sweeps whose name contains one of the words
 *     SIZE=N                     runs per sweep at most; without it none is left out
 *
 * A sweep that reached nothing, and a whole in which one of the ways to fail never came
 * up, prove nothing: they fail.
 */
#include "inject.h"
#include "story.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FAILURES_MAX = 5 }; /* of one sweep, before it is given up */

static const struct sweep {
    const char *name;
    struct inject_plan plan; /* without nth */
    const char *fault;       /* or this, as ONCE_FAULT=FAULT:N, */
    bool every;              /* or as FAULT:N+ */
} sweeps[] = {
    { "alloc", { .kind = INJECT_ALLOC, .span = INJECT_ONE, .error = ENOMEM }, NULL, false },
    { "alloc to the end of the step", { .kind = INJECT_ALLOC, .span = INJECT_STEP, .error = ENOMEM }, NULL, false },
    { "alloc for ever", { .kind = INJECT_ALLOC, .span = INJECT_REST, .error = ENOMEM }, NULL, false },
    { "write EIO", { .kind = INJECT_WRITE, .span = INJECT_ONE, .error = EIO }, NULL, false },
    { "write EIO to the end of the step", { .kind = INJECT_WRITE, .span = INJECT_STEP, .error = EIO }, NULL, false },
    { "write EIO for ever", { .kind = INJECT_WRITE, .span = INJECT_REST, .error = EIO }, NULL, false },
    { "write ENOSPC", { .kind = INJECT_WRITE, .span = INJECT_ONE, .error = ENOSPC }, NULL, false },
    { "write ENOSPC to the end of the step", { .kind = INJECT_WRITE, .span = INJECT_STEP, .error = ENOSPC }, NULL, false },
    { "write ENOSPC for ever", { .kind = INJECT_WRITE, .span = INJECT_REST, .error = ENOSPC }, NULL, false },
    { "write short", { .kind = INJECT_WRITE, .span = INJECT_ONE, .error = INJECT_SHORT }, NULL, false },
    { "write short to the end of the step", { .kind = INJECT_WRITE, .span = INJECT_STEP, .error = INJECT_SHORT }, NULL, false },
    { "sync EIO", { .kind = INJECT_SYNC, .span = INJECT_ONE, .error = EIO }, NULL, false },
    { "sync EIO to the end of the step", { .kind = INJECT_SYNC, .span = INJECT_STEP, .error = EIO }, NULL, false },
    { "sync EIO for ever", { .kind = INJECT_SYNC, .span = INJECT_REST, .error = EIO }, NULL, false },
    { "size ENOSPC", { .kind = INJECT_SIZE, .span = INJECT_ONE, .error = ENOSPC }, NULL, false },
    { "size ENOSPC for ever", { .kind = INJECT_SIZE, .span = INJECT_REST, .error = ENOSPC }, NULL, false },
    { "open EMFILE", { .kind = INJECT_OPEN, .span = INJECT_ONE, .error = EMFILE }, NULL, false },
    { "open EMFILE for ever", { .kind = INJECT_OPEN, .span = INJECT_REST, .error = EMFILE }, NULL, false },
    { "store refuse", { .nth = 0 }, "refuse", false },
    { "store refuse every", { .nth = 0 }, "refuse", true },
    { "store lose-before", { .nth = 0 }, "lose-before", false },
    { "store lose-before every", { .nth = 0 }, "lose-before", true },
    { "store lose-after", { .nth = 0 }, "lose-after", false },
    { "store lose-after every", { .nth = 0 }, "lose-after", true },
};

enum { SWEEPS = sizeof sweeps / sizeof *sweeps };

static char folder[256], base_folder[300], run_folder[300];

/* How often a whole run saw each: the reason for the sweeps. */
static struct {
    unsigned long settled, unknown, unavailable, no_memory;
} sometimes;

struct end {
    bool reached;
    char fault[1100]; /* "": none */
};

static void note(const struct story *s)
{
    sometimes.settled += s->settled > 0 && s->results[ONCE_UNKNOWN] == 0;
    sometimes.unknown += s->results[ONCE_UNKNOWN] > 0;
    sometimes.unavailable += s->results[ONCE_UNAVAILABLE] > 0;
    sometimes.no_memory += s->results[ONCE_NO_MEMORY] > 0;
}

static struct end run_once(const struct sweep *sweep, unsigned long n, bool shared, bool old)
{
    static struct story s;
    struct end end = { .reached = false };
    struct inject_plan plan = sweep->plan;
    plan.nth = sweep->fault != NULL ? 0 : n;
    if (sweep->fault != NULL) {
        char text[64];
        snprintf(text, sizeof text, "%s:%lu%s", sweep->fault, n, sweep->every ? "+" : "");
        setenv("ONCE_FAULT", text, 1);
    }
    story_reset(run_folder, old ? base_folder : NULL);
    story_init(&s, run_folder, sweep->fault != NULL ? "fault+" : "", shared, old);
    long blocks = inject_live_blocks();
    int files = inject_open_files();
    inject_arm(&plan);
    story_tell(&s);
    end.reached = inject_disarm();
    if (sweep->fault != NULL)
        end.reached = s.settled > 0 || s.results[ONCE_UNAVAILABLE] > 0 || s.results[ONCE_UNKNOWN] > 0;
    note(&s);
    unsetenv("ONCE_FAULT");
    snprintf(s.url, sizeof s.url, "sqlite:%s/once.db?reserve=64K", run_folder);
    if (s.lie[0] == '\0')
        story_verify(&s, n % 2 == 0);
    if (s.lie[0] != '\0')
        snprintf(end.fault, sizeof end.fault, "%s", s.lie);
    else if (inject_live_blocks() != blocks)
        snprintf(end.fault, sizeof end.fault, "%ld blocks of memory are left", inject_live_blocks() - blocks);
    else if (inject_open_files() != files)
        snprintf(end.fault, sizeof end.fault, "%d descriptors are left", inject_open_files() - files);
    return end;
}

static unsigned long size_max(void)
{
    const char *size = getenv("SIZE");
    return size != NULL && *size != '\0' ? strtoul(size, NULL, 10) : 0;
}

/* True: it holds. */
static bool run_sweep(const struct sweep *sweep, bool shared, bool old, int number)
{
    unsigned long n = 1, max = size_max();
    int failures = 0;
    bool complete = false;
    for (; !complete && failures < FAILURES_MAX && (max == 0 || n <= max); n++) {
        struct end end = run_once(sweep, n, shared, old);
        if (end.fault[0] != '\0') {
            failures++;
            printf("# n = %lu: %s\n", n, end.fault);
        }
        complete = !end.reached;
    }
    bool ok = failures == 0 && (n > 2 || !complete);
    printf("%sok %d - %s, %s, %s: %lu runs%s\n", ok ? "" : "not ", number, sweep->name, shared ? "shared" : "owner",
           old ? "existing store" : "new store", n - 1, complete ? "" : failures > 0 ? ", given up" : ", cut by SIZE");
    return ok;
}

static bool is_wanted(const struct sweep *sweep, int argc, char **argv)
{
    bool wanted = argc <= 1;
    for (int i = 1; i < argc; i++)
        wanted = wanted || strstr(sweep->name, argv[i]) != NULL;
    return wanted;
}

/* What a first run leaves for good (a thread's stack, SQLite's own) is no leak. */
static void warm_up(void)
{
    story_found(base_folder);
    for (int i = 0; i < 4; i++) {
        static const struct sweep nothing = { "nothing", { .nth = 0 }, NULL, false };
        struct end end = run_once(&nothing, 0, i % 2 == 0, i / 2 == 0);
        if (i >= 2 && end.fault[0] != '\0') {
            printf("Bail out! with nothing failing: %s\n", end.fault);
            exit(1);
        }
    }
}

static bool report(int number)
{
    printf("# runs that ended: all answers known after settling %lu, with UNKNOWN %lu, UNAVAILABLE %lu, "
           "NO_MEMORY %lu\n",
           sometimes.settled, sometimes.unknown, sometimes.unavailable, sometimes.no_memory);
    bool ok = sometimes.settled > 0 && sometimes.unknown > 0 && sometimes.unavailable > 0 && sometimes.no_memory > 0;
    printf("%sok %d - every way to fail came up\n", ok ? "" : "not ", number);
    return ok;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    inject_init();
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/once-fault.XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(folder) == NULL)
        abort();
    snprintf(base_folder, sizeof base_folder, "%s/base", folder);
    snprintf(run_folder, sizeof run_folder, "%s/run", folder);
    if (mkdir(base_folder, 0700) != 0 || mkdir(run_folder, 0700) != 0)
        abort();
    warm_up();
    int number = 0;
    bool ok = true;
    for (size_t i = 0; i < SWEEPS; i++)
        for (int way = 0; way < 4 && is_wanted(&sweeps[i], argc, argv); way++)
            ok = run_sweep(&sweeps[i], way % 2 == 1, way / 2 == 1, ++number) && ok;
    if (argc <= 1)
        ok = report(++number) && ok;
    printf("1..%d\n", number);
    story_reset(base_folder, NULL);
    story_reset(run_folder, NULL);
    rmdir(base_folder);
    rmdir(run_folder);
    rmdir(folder);
    return !ok;
}
