/* completer.c - see completer.h. */
#include "daemon/completer/completer.h"

#include "core/backoff.h"
#include "core/err.h"
#include "core/http/verdict.h"
#include "core/span.h"
#include "daemon/completer/probe.h"
#include "daemon/observers/decisions.h"
#include "engine/daemon_api.h"
#include "engine/lease_keeper.h"
#include "http/http_call.h"
#include "os/crash_point.h"
#include "os/os.h"
#include "os/stderr_log.h"
#include "os/thread.h"
#include "trace/tracer.h"

#include <fcntl.h>
#include <nettle/base64.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LOOK_MS = 1000,
    PAGE_LEN = 256,
    PAGES_MAX = 256,   /* of one look */
    QUEUE_MAX = 64,    /* seen, and not begun: what waits longer is seen again */
    BACKOFF_MS = 1000, /* longest before the second attempt; then doubled each time */
    BACKOFF_MS_MAX = 300000,
    STORE_TRIES = 20,
    STORE_PAUSE_MS = 250,
    CHECKPOINT_LEN_MAX = 4096, /* as the gateway hands on */
    IDENTITY_LEN_MAX = 16 << 10,
    MEMORY_LEN = 16384,   /* fences; one that has its place taken is forgotten */
    PROBE_MS_MAX = 10000, /* a question is short */
    DRAIN_MS = 8000,      /* what is under way when the daemon is to end has this long */
};

struct task {
    struct once_grant seen;
    enum once_takeover takeover;
    bool running;
};

struct completer {
    struct completer_options options;
    struct completer_counters counters;
    pthread_t finder, workers[COMPLETER_WORKERS];
    size_t started;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t work, tick;
    struct task queue[QUEUE_MAX];
    size_t first, count;
    struct once_grant busy[COMPLETER_WORKERS]; /* fence 0: idle */
    uint64_t left[MEMORY_LEN];                 /* not for this process, as they were seen (sight_of()) */
    bool unreadable[COMPLETER_UPSTREAMS_MAX];  /* identities, when it was last said */
    _Atomic bool stopping;
    _Atomic int64_t stop_by; /* monotonic ms */
};

/* ------------------------------------------------------------------ what is remembered */

static void remember(struct completer *c, uint64_t memory[MEMORY_LEN], uint64_t what)
{
    pthread_mutex_lock(&c->lock);
    memory[what % MEMORY_LEN] = what;
    pthread_mutex_unlock(&c->lock);
}

static bool is_remembered(struct completer *c, const uint64_t memory[MEMORY_LEN], uint64_t what)
{
    pthread_mutex_lock(&c->lock);
    bool is = memory[what % MEMORY_LEN] == what;
    pthread_mutex_unlock(&c->lock);
    return is;
}

/* An attempt, and what may still change about it. */
static uint64_t sight_of(const struct once_record *r)
{
    return r->grant.fence << 2 | (r->state == ONCE_STATE_RUNNING ? 2 : 0) | (r->recovery_point.len > 0 ? 1 : 0);
}

/* ------------------------------------------------------------------ one attempt */

/* What a worker has in hand. */
struct attempt {
    struct completer *c;
    struct once_reply reply; /* of the takeover */
    struct once_grant grant;
    once_time asked; /* when it was asked for */
    struct once_resend request;
    const struct completer_upstream *upstream;
    bool failed;                  /* what was taken over was no running attempt */
    bool verdict;                 /* an operator said that it is not done */
    bool lacks_identity;          /* of the client, and there is none in its place */
    bool adopting;                /* what is stored is the service's own word, not an answer to us */
    struct once_buf identity;     /* header lines; empty: none */
    struct kept_lease kept_lease; /* its lease, while it is worked on */
    struct tracer_span span;      /* of the trace that its client began, where that is stored */
    int32_t status;               /* of what was answered; 0: nothing */
};

static bool is_again(once_result r)
{
    return r == ONCE_BUSY || r == ONCE_UNAVAILABLE || r == ONCE_UNKNOWN || r == ONCE_NO_MEMORY;
}

static void note_decision(struct attempt *a, enum once_verb verb, uint64_t began_ns, once_result result,
                          const struct once_reply *reply)
{
    struct decision d = { .verb = verb, .by = "completer", .trace = a->span.on ? &a->span.own : NULL };
    if (a->c->options.log == NULL)
        return;
    d.duration_ns = once_os_monotonic_ns() - began_ns;
    d.fence = a->grant.fence;
    memcpy(d.record, a->grant.record, sizeof d.record);
    decision_take_reply(&d, result, reply);
    decisions_note(a->c->options.log, &d);
}

static void store(struct attempt *a, const struct once_outcome *said, const char *why)
{
    struct completer *c = a->c;
    struct once_outcome outcome = *said;
    outcome.undelivered = outcome.retryable && outcome.status != 0; /* COMPLETER-5; 0: left to its client */
    struct once_reply reply;
    once_result r = ONCE_BUSY;
    uint64_t began_ns = once_os_monotonic_ns();
    for (int i = 0; is_again(r) && i < STORE_TRIES; i++) {
        if (i > 0)
            usleep(STORE_PAUSE_MS * 1000);
        r = once_finish(c->options.once, a->grant, &outcome, &reply, NULL);
        if (r == ONCE_LIMIT || r == ONCE_INVALID) { /* that it was executed must be kept nevertheless */
            struct once_outcome bare = outcome;
            bare.headers = bare.body = once_span_of(NULL, 0);
            bare.body_dropped = true;
            r = once_finish(c->options.once, a->grant, &bare, &reply, NULL);
        }
        if (r == ONCE_OK)
            break;
    }
    note_decision(a, ONCE_VERB_FINISH, began_ns, r, &reply);
    if (r != ONCE_OK)
        return; /* its lease ends, and it is found again */
    if (reply.arm != ONCE_ARM_DONE) {
        atomic_fetch_add(&c->counters.lost, 1);
    } else if (outcome.state == ONCE_STATE_UNKNOWN) {
        atomic_fetch_add(&c->counters.escalated, 1);
        escalate_note(c->options.escalations, a->grant, why);
    } else {
        atomic_fetch_add(outcome.retryable ? &c->counters.retryable
                         : a->adopting     ? &c->counters.adopted
                                           : &c->counters.finished,
                         1);
    }
    once_reply_release(&reply);
    ONCE_CRASH_POINT("completer.finished");
}

static void escalate(struct attempt *a, const char *why)
{
    store(a, &(struct once_outcome){ .state = ONCE_STATE_UNKNOWN }, why);
}

/* Nothing was sent: the next one may. After a failure that is certain this is another one, and stays a completer's. */
static void give_back(struct attempt *a)
{
    struct once_reply reply;
    if (a->failed) {
        store(a, &(struct once_outcome){ .state = ONCE_STATE_FAILED, .retryable = true, .status = 502 }, "");
        return;
    }
    once_result r = ONCE_BUSY;
    for (int i = 0; is_again(r) && i < STORE_TRIES; i++) {
        if (i > 0)
            usleep(STORE_PAUSE_MS * 1000);
        r = once_release(a->c->options.once, a->grant, &reply, NULL);
    }
    if (r == ONCE_OK)
        once_reply_release(&reply);
    atomic_fetch_add(&a->c->counters.retryable, 1);
}

/* While the upstream works: go on? Its lease is renewed meanwhile (lease_keeper.h). */
static bool keep(void *arg)
{
    struct attempt *a = arg;
    if (atomic_load(&a->c->stopping) && once_os_monotonic_ms() >= atomic_load(&a->c->stop_by))
        return false;
    return lease_keeper_is_held(&a->kept_lease);
}

/* ------------------------------------------------------------------ what is sent */

static const struct completer_upstream *upstream_of(const struct completer_options *options, once_span name)
{
    for (size_t i = 0; i < options->count; i++)
        if (once_span_equal(once_span_str(options->upstreams[i].name), name))
            return &options->upstreams[i];
    return NULL;
}

once_span completer_lacks(const struct completer_options *options, once_span request)
{
    struct once_resend resend;
    bool lacks = once_resend_get(request, &resend, NULL) == ONCE_OK && upstream_of(options, resend.upstream) == NULL;
    return lacks ? resend.upstream : once_span_of(NULL, 0);
}

/* The operator's header lines, read anew each time: credentials are renewed under us. */
static bool read_identity(const char *path, struct once_buf *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    char text[IDENTITY_LEN_MAX + 1];
    size_t len = 0;
    ssize_t n;
    while (len < sizeof text && (n = read(fd, text + len, sizeof text - len)) > 0)
        len += (size_t)n;
    close(fd);
    once_span rest = once_span_of(text, len), line, name, value;
    bool good = len > 0 && len <= IDENTITY_LEN_MAX;
    while (good && rest.len > 0) {
        once_span_cut(rest, '\n', &line, &rest);
        if (line.len > 0 && line.ptr[line.len - 1] == '\r')
            line.len--;
        if (line.len == 0 || line.ptr[0] == '#')
            continue;
        good = once_span_cut(line, ':', &name, &value) && name.len > 0 && memchr(name.ptr, ' ', name.len) == NULL &&
               memchr(line.ptr, '\r', line.len) == NULL && memchr(line.ptr, '\0', line.len) == NULL;
        once_buf_add(out, line);
        once_buf_add(out, ONCE_LIT("\r\n"));
    }
    explicit_bzero(text, sizeof text);
    return good && out->result == ONCE_OK && out->len > 0;
}

/* As the gateway's once_forward. */
static void add_own_lines(const struct attempt *a, struct once_buf *lines)
{
    const struct once_record *r = &a->reply.record;
    char child[ONCE_CHILD_KEY_LEN + 1];
    once_child_key(a->c->options.once, &a->grant, ONCE_LIT("upstream"), child);
    once_buf_addf(lines, "Once-Key: %s\r\nOnce-Record: ", child);
    for (size_t i = 0; i < sizeof a->grant.record; i++)
        once_buf_addf(lines, "%02x", a->grant.record[i]);
    once_buf_addf(lines, "\r\nOnce-Fence: %llu\r\nOnce-Attempt: %u\r\n", (unsigned long long)a->grant.fence,
                  r->attempt);
    if (r->recovery_point.len == 0 || once_span_starts(r->recovery_point, ONCE_LIT("once:")))
        return;
    once_buf_addf(lines, "Once-Recovery-Point: %.*s\r\n", ONCE_SPAN_ARGS(r->recovery_point));
    if (r->checkpoint.len == 0 || r->checkpoint.len > CHECKPOINT_LEN_MAX)
        return;
    char coded[BASE64_ENCODE_RAW_LENGTH(CHECKPOINT_LEN_MAX)];
    base64_encode_raw(coded, r->checkpoint.len, r->checkpoint.ptr);
    once_buf_addf(lines, "Once-Checkpoint: :%.*s:\r\n", (int)BASE64_ENCODE_RAW_LENGTH(r->checkpoint.len), coded);
}

static void judge(struct attempt *a, const struct http_answer *answer)
{
    bool whole = answer->end == HTTP_ANSWERED;
    struct once_outcome outcome = { .status = whole ? answer->status : 502 };
    enum once_http_verdict verdict = once_http_verdict(
        whole ? answer->status : 0, once_resend_is_final(&a->request, answer->status), a->reply.record.takeover);
    if (verdict == ONCE_HTTP_DEFERRED) {
        /* It can be asked: when the lease is over, and with that what may still be on its way. */
        atomic_fetch_add(&a->c->counters.retryable, 1);
        return;
    }
    once_http_outcome(verdict, &outcome);
    if (whole) {
        outcome.body_dropped = answer->dropped;
        outcome.headers = once_buf_span(&answer->headers);
        outcome.body = once_buf_span(&answer->body);
    }
    store(a, &outcome, whole ? "the upstream's answer is no outcome" : "sent again, and no whole answer came");
}

static void send_request(struct attempt *a)
{
    struct once_buf own, traced;
    once_buf_init(&own, 16 << 10);
    once_buf_init(&traced, ONCE_HEADERS_LEN_MAX + 1024);
    add_own_lines(a, &own);
    if (a->span.on)
        once_trace_replace(a->request.headers, &a->span.own, &traced);
    struct http_answer answer = { .end = HTTP_NOT_SENT };
    if (own.result == ONCE_OK && traced.result == ONCE_OK) {
        struct http_call call = { .url = a->upstream->url,
                                  .method = a->request.method,
                                  .target = a->request.target,
                                  .lines = { a->span.on ? once_buf_span(&traced) : a->request.headers,
                                             once_buf_span(&own), once_buf_span(&a->identity) },
                                  .body = a->request.body,
                                  .kept = a->request.kept,
                                  .body_max = a->request.max_response,
                                  .timeout_ms = a->c->options.timeout_ms,
                                  .tick = keep,
                                  .arg = a };
        ONCE_CRASH_POINT("completer.sending");
        http_call(&call, &answer);
        ONCE_CRASH_POINT("completer.answered");
    }
    a->status = answer.end == HTTP_ANSWERED ? answer.status : 0;
    if (answer.end == HTTP_NOT_SENT)
        give_back(a);
    else
        judge(a, &answer);
    http_answer_release(&answer);
    once_buf_release(&own);
    once_buf_release(&traced);
}

/* ------------------------------------------------------------------ whether it is sent */

/* Attempts that somebody had to take over: their holders died, or were thought dead. */
static uint32_t crashes_of(struct completer *c, const struct once_grant *grant)
{
    struct once_history history;
    uint32_t crashes = 0;
    if (once_history_of(c->options.once, grant->record, &history, NULL) != ONCE_OK)
        return 0;
    for (size_t i = 0; i < history.count; i++)
        crashes += strcmp(history.events[i].what, "superseded") == 0;
    once_history_release(&history);
    return crashes;
}

/* That it will be sent is stored before it is: then a crash in between costs nothing. */
static bool mark(struct attempt *a)
{
    struct once_reply reply;
    once_result r =
        once_advance(a->c->options.once, a->grant, ONCE_LIT(ONCE_POINT_SENDING), ONCE_LIT(""), &reply, NULL);
    bool done = r == ONCE_OK && reply.arm == ONCE_ARM_DONE;
    if (r == ONCE_OK)
        once_reply_release(&reply);
    return done;
}

/* It did not happen, says the service; is it to be sent? Who cannot send it tells its client that it may. */
static void send_after_all(struct attempt *a)
{
    struct once_outcome not_done = { .state = ONCE_STATE_FAILED, .retryable = true };
    if (a->request.partial || a->lacks_identity)
        store(a, &not_done, "");
    else
        send_request(a);
}

/* COMPLETER-7 */
static void ask(struct attempt *a)
{
    struct completer *c = a->c;
    struct once_buf own;
    struct probe_answer answer;
    once_buf_init(&own, 16 << 10);
    add_own_lines(a, &own);
    struct probe_question question = { .url = a->upstream->url,
                                       .request = &a->request,
                                       .own = once_buf_span(&own),
                                       .identity = once_buf_span(&a->identity),
                                       .timeout_ms =
                                           c->options.timeout_ms < PROBE_MS_MAX ? c->options.timeout_ms : PROBE_MS_MAX,
                                       .tick = keep,
                                       .arg = a };
    bool last = a->reply.record.attempt >= c->options.attempts_max;
    ONCE_CRASH_POINT("completer.probing");
    probe_ask(&question, &answer);
    ONCE_CRASH_POINT("completer.probed");
    if (answer.says == PROBE_HAPPENED) {
        a->adopting = true;
        store(a, &answer.outcome, "");
    } else if (answer.says == PROBE_DID_NOT_HAPPEN && own.result == ONCE_OK && keep(a)) { /* FAULT-38 */
        send_after_all(a);
    } else if (answer.says == PROBE_NOT_KNOWN && last && !atomic_load(&c->stopping)) {
        escalate(a, answer.why);
    } else {
        give_back(a);
    }
    probe_answer_release(&answer);
    once_buf_release(&own);
}

static void execute(struct attempt *a)
{
    struct completer *c = a->c;
    const struct once_record *record = &a->reply.record;
    bool unsent = record->takeover != ONCE_TAKEOVER_RERUN && record->recovery_point.len == 0;
    /* An operator's word is good for one attempt, however many there were. */
    if (!a->verdict && record->attempt > c->options.attempts_max) {
        escalate(a, "too many attempts");
    } else if (!a->verdict && record->attempt > c->options.crashes_max &&
               crashes_of(c, &a->grant) > c->options.crashes_max) {
        escalate(a, "too many attempts that nobody ended");
    } else if (a->reply.arm == ONCE_ARM_PROBE) {
        ask(a);
    } else if (a->lacks_identity && !unsent && !a->request.partial) {
        escalate(a, "it needs credentials, and there is no identity for it here");
    } else if (a->lacks_identity || a->request.partial || (unsent && !mark(a))) {
        give_back(a);
    } else {
        send_request(a);
    }
}

static void hold_and_execute(struct attempt *a)
{
    struct once *once = a->c->options.once;
    if (lease_keeper_add(once, &a->kept_lease, a->grant, a->c->options.lease_ms, a->asked, NULL) != ONCE_OK) {
        give_back(a);
        return;
    }
    execute(a);
    lease_keeper_remove(once, &a->kept_lease);
}

static void end_span(struct attempt *a)
{
    struct otlp_span told = { .fence = a->grant.fence, .attempt = a->reply.record.attempt };
    if (!a->span.on)
        return;
    memcpy(told.record, a->grant.record, sizeof told.record);
    told.span.name = ONCE_TRACE_COMPLETE;
    told.span.arm = a->reply.arm;
    told.span.status = a->status;
    told.span.failed = a->status == 0 || a->status >= 500;
    tracer_end(a->c->options.tracer, &a->span, &told);
}

static void take_over(struct attempt *a, const struct task *task)
{
    struct completer *c = a->c;
    struct once_take_over take_over = { .seen = task->seen,
                                        .lease_ms = c->options.lease_ms,
                                        .intent = task->takeover != ONCE_TAKEOVER_RERUN };
    a->asked = once_os_lease_ms();
    a->grant = task->seen;
    tracer_begin(c->options.tracer, a->request.headers, &a->span);
    uint64_t began_ns = once_os_monotonic_ns();
    once_result r = once_take_over(c->options.once, &take_over, &a->reply, NULL);
    note_decision(a, ONCE_VERB_TAKE_OVER, began_ns, r, &a->reply);
    if (r != ONCE_OK)
        return; /* seen again, later */
    a->grant = a->reply.record.grant;
    ONCE_CRASH_POINT("completer.taken");
    switch (a->reply.arm) {
    case ONCE_ARM_EXECUTE:
        atomic_fetch_add(&c->counters.taken, 1);
        hold_and_execute(a);
        break;
    case ONCE_ARM_PROBE:
        atomic_fetch_add(&c->counters.taken, 1);
        if (a->request.probe.len > 0)
            hold_and_execute(a);
        else
            escalate(a, "it must be asked whether it happened, and nobody knows where");
        break;
    case ONCE_ARM_UNKNOWN:
        atomic_fetch_add(&c->counters.escalated, 1);
        escalate_note(c->options.escalations, a->grant, "its holder is gone, something may have been sent");
        break;
    default:
        atomic_fetch_add(&c->counters.lost, 1);
    }
    end_span(a);
    once_reply_release(&a->reply);
}

/* ------------------------------------------------------------------ whether it is for us */

enum whose { OURS, NOT_NOW, NOT_OURS };

/* Did an operator leave it as it is? */
static enum whose whose_verdict(struct attempt *a, const struct once_grant *seen)
{
    struct once_history history;
    if (once_history_of(a->c->options.once, seen->record, &history, NULL) != ONCE_OK)
        return NOT_NOW;
    for (size_t i = 0; i < history.count; i++)
        if (history.events[i].fence == seen->fence && strcmp(history.events[i].what, "resolved not done") == 0)
            a->verdict = true;
    once_history_release(&history);
    return a->verdict ? OURS : NOT_OURS;
}

/* The identity that goes with it, if its route lets it have one (COMPLETER-2). */
static enum whose whose_identity(struct attempt *a, bool running)
{
    struct completer *c = a->c;
    const char *path = a->request.identity ? a->upstream->identity : NULL;
    if (path == NULL) {
        a->lacks_identity = a->request.needs_identity;
        return a->lacks_identity && !running ? NOT_OURS : OURS;
    }
    bool good = read_identity(path, &a->identity);
    bool *said = &c->unreadable[a->upstream - c->options.upstreams];
    pthread_mutex_lock(&c->lock);
    bool say = !good && !*said;
    *said = !good;
    pthread_mutex_unlock(&c->lock);
    if (say)
        once_os_log("once daemon", "'%s' cannot be read, or has no header lines: what needs it waits", path);
    return good ? OURS : NOT_NOW;
}

/* Nothing is touched before this is known: what another can still send, or its client, stays as it is. */
static enum whose whose_is(struct attempt *a, const struct task *task, const struct once_reply *found)
{
    const struct once_record *r = &found->record;
    bool running = r->state == ONCE_STATE_RUNNING;
    if (found->arm != ONCE_ARM_FOUND || r->grant.fence != task->seen.fence || running != task->running)
        return NOT_NOW;
    if (once_resend_get(r->request, &a->request, NULL) != ONCE_OK)
        return NOT_OURS;
    a->upstream = upstream_of(&a->c->options, a->request.upstream);
    if (a->upstream == NULL || (a->request.partial && !running))
        return NOT_OURS;
    a->failed = !running;
    enum whose whose = running || r->undelivered ? OURS : whose_verdict(a, &r->grant);
    return whose == OURS ? whose_identity(a, running) : whose;
}

static void complete(struct completer *c, const struct task *task)
{
    struct attempt a = { .c = c };
    struct once_reply found;
    if (once_lookup_request_of(c->options.once, task->seen.record, &found, NULL) != ONCE_OK)
        return; /* seen again, later */
    once_buf_init(&a.identity, IDENTITY_LEN_MAX + 1024);
    enum whose whose = whose_is(&a, task, &found);
    if (whose == OURS)
        take_over(&a, task);
    else if (whose == NOT_OURS)
        remember(c, c->left, sight_of(&found.record));
    if (a.identity.ptr != NULL)
        explicit_bzero(a.identity.ptr, a.identity.len);
    once_buf_release(&a.identity);
    once_reply_release(&found);
}

/* ------------------------------------------------------------------ finding */

/* Full jitter, the same whenever it is asked: nobody has to remember it. */
static bool is_due(const struct once_record *r, once_time now)
{
    uint64_t seed = r->grant.fence * 0x9e3779b97f4a7c15u;
    seed ^= seed >> 29;
    int64_t pause = once_backoff_ms((struct once_backoff){ BACKOFF_MS, BACKOFF_MS_MAX, ONCE_JITTER_FULL },
                                    r->attempt - 1, (uint32_t)(seed >> 32));
    once_time since = r->state == ONCE_STATE_RUNNING ? r->lease_until : r->finished_at;
    int64_t waited = now - since;
    return waited < 0 || waited >= pause; /* < 0: clocks differ; do not wait for ever */
}

/* COMPLETER-5, as far as it costs nothing to know: a failure that a client was told has a status, a verdict and a
 * release have none. */
static bool may_be_ours(struct completer *c, const struct once_record *r)
{
    bool may = r->state == ONCE_STATE_RUNNING || r->undelivered || r->status == 0;
    return may && !is_remembered(c, c->left, sight_of(r));
}

static bool is_in_hand(const struct completer *c, uint64_t fence)
{
    for (size_t i = 0; i < COMPLETER_WORKERS; i++)
        if (c->busy[i].fence == fence)
            return true;
    for (size_t i = 0; i < c->count; i++)
        if (c->queue[(c->first + i) % QUEUE_MAX].seen.fence == fence)
            return true;
    return false;
}

/* False: there is no room. */
static bool offer(struct completer *c, const struct once_record *r)
{
    pthread_mutex_lock(&c->lock);
    bool room = c->count < QUEUE_MAX;
    if (room && !is_in_hand(c, r->grant.fence)) {
        c->queue[(c->first + c->count++) % QUEUE_MAX] =
            (struct task){ r->grant, r->takeover, r->state == ONCE_STATE_RUNNING };
        pthread_cond_signal(&c->work);
    }
    pthread_mutex_unlock(&c->lock);
    return room;
}

static void look(struct completer *c)
{
    struct once_filter filter = { .abandoned = true, .with_request = true, .limit = PAGE_LEN };
    bool room = true;
    for (int i = 0; room && i < PAGES_MAX && !atomic_load(&c->stopping); i++) {
        struct once_page page;
        if (once_list(c->options.once, &filter, &page, NULL) != ONCE_OK)
            return;
        once_time now = once_os_clock.wall(NULL);
        for (size_t n = 0; room && n < page.count; n++)
            if (is_due(&page.records[n], now) && may_be_ours(c, &page.records[n]))
                room = offer(c, &page.records[n]);
        filter.before = page.next;
        once_page_release(&page);
        if (filter.before == 0)
            return;
    }
}

static void *find(void *arg)
{
    struct completer *c = arg;
    pthread_setname_np(pthread_self(), "once-finder");
    while (!atomic_load(&c->stopping)) {
        look(c);
        once_time until = once_os_monotonic_ms() + LOOK_MS;
        struct timespec at = { .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };
        pthread_mutex_lock(&c->lock);
        /* Or as soon as the workers are through: there may be more than fitted. */
        while (!atomic_load(&c->stopping) && pthread_cond_timedwait(&c->tick, &c->lock, &at) == 0 && c->count > 0)
            ;
        pthread_mutex_unlock(&c->lock);
    }
    return NULL;
}

struct worker {
    struct completer *c;
    size_t number;
};

static bool take(struct completer *c, size_t number, struct task *task)
{
    pthread_mutex_lock(&c->lock);
    c->busy[number].fence = 0;
    while (c->count == 0 && !atomic_load(&c->stopping))
        pthread_cond_wait(&c->work, &c->lock);
    bool taken = !atomic_load(&c->stopping);
    if (taken) {
        *task = c->queue[c->first];
        c->first = (c->first + 1) % QUEUE_MAX;
        if (--c->count == 0)
            pthread_cond_signal(&c->tick);
        c->busy[number] = task->seen;
    }
    pthread_mutex_unlock(&c->lock);
    return taken;
}

static void *work(void *arg)
{
    struct worker w = *(struct worker *)arg;
    free(arg);
    pthread_setname_np(pthread_self(), "once-completer");
    for (struct task task; take(w.c, w.number, &task);)
        complete(w.c, &task);
    return NULL;
}

/* ------------------------------------------------------------------ start, stop */

static once_result check_upstreams(const struct completer_options *options, struct once_error *err)
{
    once_result r = ONCE_OK;
    for (size_t i = 0; r == ONCE_OK && i < options->count; i++) {
        const struct completer_upstream *u = &options->upstreams[i];
        struct stat st;
        r = http_url_check(u->url, err);
        if (r != ONCE_OK || u->identity == NULL)
            continue;
        struct once_buf lines;
        once_buf_init(&lines, IDENTITY_LEN_MAX + 1024);
        if (stat(u->identity, &st) != 0 || !read_identity(u->identity, &lines))
            r = once_fail(err, ONCE_INVALID, "'%.200s' cannot be read, or is no file of header lines up to %d bytes",
                          u->identity, IDENTITY_LEN_MAX);
        else if ((st.st_mode & 0007) != 0)
            r = once_fail(err, ONCE_INVALID, "'%.200s' has credentials in it, and everybody may read or write it",
                          u->identity);
        if (lines.ptr != NULL)
            explicit_bzero(lines.ptr, lines.len);
        once_buf_release(&lines);
    }
    return r;
}

static bool start_worker(struct completer *c, size_t number)
{
    struct worker *w = malloc(sizeof *w);
    if (w == NULL)
        return false;
    *w = (struct worker){ c, number };
    if (once_thread_start(&c->workers[number], work, w) == 0)
        return true;
    free(w);
    return false;
}

once_result completer_start(const struct completer_options *options, struct completer **out, struct once_error *err)
{
    once_result r = check_upstreams(options, err);
    if (r != ONCE_OK)
        return r;
    struct completer *c = calloc(1, sizeof *c);
    if (c == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the completer");
    c->options = *options;
    pthread_mutex_init(&c->lock, NULL);
    once_cond_init(&c->work);
    once_cond_init(&c->tick);
    bool finding = once_thread_start(&c->finder, find, c) == 0;
    while (finding && c->started < COMPLETER_WORKERS && start_worker(c, c->started))
        c->started++;
    if (!finding) {
        free(c);
        return once_fail(err, ONCE_UNAVAILABLE, "cannot start a thread");
    }
    *out = c;
    if (c->started > 0)
        return ONCE_OK;
    completer_stop(c);
    return once_fail(err, ONCE_UNAVAILABLE, "cannot start a thread");
}

void completer_stop(struct completer *c)
{
    if (c == NULL)
        return;
    atomic_store(&c->stop_by, once_os_monotonic_ms() + DRAIN_MS);
    atomic_store(&c->stopping, true);
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->work);
    pthread_cond_broadcast(&c->tick);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->finder, NULL);
    for (size_t i = 0; i < c->started; i++)
        pthread_join(c->workers[i], NULL);
    pthread_cond_destroy(&c->tick);
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

const struct completer_counters *completer_counters(const struct completer *c)
{
    return &c->counters;
}
