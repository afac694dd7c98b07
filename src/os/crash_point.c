/* crash_point.c - see crash_point.h. */
#include "os/crash_point.h"

#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#if ONCE_CRASH_POINTS

static const char *const names[] = {
    /* once run */
    "run.start",
    "run.claimed",
    "run.forked",
    "run.spawned",
    "run.output",
    "run.exited",
    "run.captured",
    "run.answered",
    "run.printed",
    /* the SQLite store's step */
    "sqlite.locked",
    "sqlite.begun",
    "sqlite.applied",
    "sqlite.committed",
    "sqlite.unlocked",
    /* the engine */
    "engine.taken",
    "engine.durable",
    "engine.answered",
    /* once migrate, on PostgreSQL */
    "migrate.statement",
    "migrate.committed",
    /* a flow: its transactions, phases and calls */
    "flow.begun",
    "flow.worked",
    "flow.written",
    "flow.committed",
    "flow.calling",
    "flow.called",
    /* once daemon */
    "daemon.answer",
    "completer.taken",
    "completer.probing",
    "completer.probed",
    "completer.sending",
    "completer.answered",
    "completer.finished",
    /* once reconcile */
    "reconcile.page",
    "reconcile.looked",
    "reconcile.resolved",
    /* once relay: R1 to R5 of the fault catalogue */
    "relay.taken",
    "relay.sent",
    "relay.confirmed",
    "relay.marked",
    "relay.settled",
    /* once consume: I1 to I4 */
    "consume.received",
    "consume.delivering",
    "consume.delivered",
    "consume.finished",
    "consume.dead_lettered",
    "consume.acknowledged",
    /* once_client_*, once send */
    "client.saved",
    "client.sending",
    "client.answered",
    "send.written",
    "send.printed",
    "send.forgotten",
    NULL,
};

static struct {
    char name[64];
    long at; /* act at this passing; 0: never */
    int signal;
    const char *log;
    atomic_long passed;
} plan;

static void plan_read(void)
{
    plan.log = getenv("ONCE_CRASH_LOG");
    const char *text = getenv("ONCE_CRASH");
    if (text == NULL)
        return;
    const char *colon = strchr(text, ':');
    size_t len = colon != NULL ? (size_t)(colon - text) : strlen(text);
    if (len >= sizeof plan.name)
        return;
    memcpy(plan.name, text, len);
    char *end = NULL;
    plan.at = colon != NULL ? strtol(colon + 1, &end, 10) : 1;
    plan.signal = SIGKILL;
    if (end != NULL && strcmp(end, ":stop") == 0)
        plan.signal = SIGSTOP;
    else if (end != NULL && strcmp(end, ":exit") == 0)
        plan.signal = 0;
}

static void log_passed(const char *name)
{
    int fd = open(plan.log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    char line[80];
    int n = snprintf(line, sizeof line, "%s\n", name);
    if (write(fd, line, (size_t)n) != n)
        abort(); /* without its log the test would prove nothing */
    close(fd);
}

static bool is_listed(const char *name)
{
    for (size_t i = 0; names[i] != NULL; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

void once_crash_point_pass(const char *name)
{
    static pthread_once_t read_once = PTHREAD_ONCE_INIT;
    pthread_once(&read_once, plan_read);
    if (plan.log == NULL && plan.at == 0)
        return;
    assert(is_listed(name));
    if (plan.log != NULL)
        log_passed(name);
    if (plan.at == 0 || strcmp(name, plan.name) != 0)
        return;
    if (atomic_fetch_add(&plan.passed, 1) + 1 != plan.at)
        return;
    if (plan.signal == 0)
        _exit(99);
    raise(plan.signal); /* to this thread: with kill() another thread may stop first, while this one continues */
}

const char *const *once_crash_point_names(void)
{
    return names;
}

#else

void once_crash_point_pass(const char *name)
{
    (void)name;
}

const char *const *once_crash_point_names(void)
{
    static const char *const none[] = { NULL };
    return none;
}

#endif
