/*
 * worker.c - load for a store: callers that want keys executed and do not give up.
 *
 * N threads on one handle; each goes through the same K keys in an order of its own, round by
 * round, and asks for each until it has its final answer. What it does it writes down, in files
 * that all workers append to and check.py reads:
 *   effects   key fence attempt process         the work itself, synced before it is finished
 *   acks      key state status headers body     every final answer, synced; bytes in hex
 *             how process
 *   notes     key fence what process [text]     grants, fencings, and calls that did not work
 * The outcome is derived from key and fence, so that it tells which execution made it. One key
 * in eight fails at its first attempt, without an effect, and may be tried again; with --slow N
 * one in N takes longer for it than its lease.
 *
 * Discipline (once.h): a claim that ended UNKNOWN is repeated with its nonce until it is
 * answered. BUSY and UNAVAILABLE mean that nothing was changed: then the next try is another
 * call, with a nonce of its own, and a store that lied leaves a grant that nobody holds. A
 * finish is repeated until it is answered. FENCED is answered from the record (K3).
 *
 * Checked here, because only the caller knows the order: HISTORY-4, what was acknowledged to a thread
 * is what it is told when it asks again.
 *
 * usage: worker --store URL --folder DIR --name PROCESS [--prefix P] [--threads N] [--keys N]
 *               [--rounds N] [--lease MS] [--slow N] [--takeover escalate|rerun] [--seed N]
 * With --rounds 0 it goes on until its standard input ends. Exits 1 if something is broken.
 */
#include "once.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 256, KEYS_MAX = 100000, RECENT_LEN = 16, KEY_LEN = 100, BYTES_LEN = 200, LINE_LEN = 1400 };

static struct {
    const char *url, *folder, *name, *prefix;
    uint64_t threads, keys, rounds, slow, seed;
    int64_t lease_ms;
    enum once_takeover takeover;
} config = { .prefix = "k", .threads = 4, .keys = 20, .rounds = 1, .seed = 1, .takeover = ONCE_TAKEOVER_ESCALATE };

static struct once *once;
static int effects, acks, notes;
static atomic_bool stopping, broken;

/* A final answer. */
struct answer {
    enum once_state state;
    int32_t status;
    char headers[BYTES_LEN], body[BYTES_LEN];
};

struct caller {
    pthread_t thread;
    uint64_t random;
    char key[KEY_LEN];
    uint8_t nonce[16];
    bool in_doubt; /* a claim with this nonce ended UNKNOWN */
    int pause_ms;
    struct recent {
        char key[KEY_LEN];
        struct answer answer;
    } recent[RECENT_LEN];
    size_t recent_count;
    uint32_t *order; /* of the round's keys */
};

/* ------------------------------------------------------------------ small things */

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t next_random(struct caller *c)
{
    return c->random = mix(c->random);
}

static uint64_t hash_of(const char *text)
{
    uint64_t h = 1;
    for (; *text != '\0'; text++)
        h = mix(h ^ (uint8_t)*text);
    return h;
}

static void pause_ms(int ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };
    nanosleep(&t, NULL);
}

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "worker %s: %s: %s\n", config.name, what, why);
    exit(1);
}

/* One line, whole or not at all. */
__attribute__((format(printf, 3, 4))) static void append(int fd, bool sync, const char *format, ...)
{
    char line[LINE_LEN];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (len < 0 || (size_t)len >= sizeof line)
        die("a line is too long", line);
    if (write(fd, line, (size_t)len) != len || (sync && fdatasync(fd) != 0))
        die("cannot write", strerror(errno));
}

static void note(const struct caller *c, uint64_t fence, const char *what, const char *text)
{
    append(notes, false, "%s\t%" PRIu64 "\t%s\t%s\t%s\n", c->key, fence, what, config.name, text);
}

static void note_broken(const struct caller *c, const char *what, const char *text)
{
    note(c, 0, what, text);
    fprintf(stderr, "worker %s: %s: %s: %s\n", config.name, c->key, what, text);
    broken = true;
}

/* ------------------------------------------------------------------ answers */

static void copy_text(char to[BYTES_LEN], once_span from)
{
    if (from.len >= BYTES_LEN)
        die("an outcome is none of ours", "too long");
    memcpy(to, from.ptr != NULL ? (const char *)from.ptr : "", from.len);
    to[from.len] = '\0';
}

static struct answer answer_of(const struct once_record *record)
{
    struct answer a = { .state = record->state, .status = record->status };
    copy_text(a.headers, record->headers);
    copy_text(a.body, record->body);
    return a;
}

/* What the execution under this fence answers. */
static struct answer outcome_of(const char *key, uint64_t fence)
{
    uint64_t h = mix(hash_of(key) ^ fence);
    struct answer a = { .state = ONCE_STATE_SUCCEEDED, .status = (int32_t)(200 + h % 100) };
    snprintf(a.headers, sizeof a.headers, "Fence: %" PRIu64 "\r\n", fence);
    int len = snprintf(a.body, sizeof a.body, "%" PRIu64 " ", fence);
    for (uint64_t i = 0; i < h % 64; i++)
        a.body[(size_t)len++] = (char)('a' + (h >> (i % 48)) % 26);
    a.body[len] = '\0';
    return a;
}

static void hex_of(const char *text, char out[2 * BYTES_LEN])
{
    size_t at = 0;
    for (; *text != '\0'; text++)
        at += (size_t)snprintf(out + at, 3, "%02x", (unsigned)(uint8_t)*text);
    out[at] = '\0';
}

static bool answer_equal(const struct answer *a, const struct answer *b)
{
    return a->state == b->state && a->status == b->status && strcmp(a->headers, b->headers) == 0 &&
           strcmp(a->body, b->body) == 0;
}

/* The caller was told: from here on it counts. */
static void acknowledge(struct caller *c, const struct answer *a, const char *how)
{
    char headers[2 * BYTES_LEN], body[2 * BYTES_LEN];
    hex_of(a->headers, headers);
    hex_of(a->body, body);
    append(acks, true, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", c->key, once_state_name(a->state), a->status, headers, body, how,
           config.name);
    struct recent *r = &c->recent[c->recent_count++ % RECENT_LEN];
    memcpy(r->key, c->key, sizeof r->key);
    r->answer = *a;
}

/* ------------------------------------------------------------------ calls that are repeated */

static void new_nonce(struct caller *c)
{
    for (int i = 0; i < 2; i++) {
        uint64_t word = next_random(c);
        memcpy(c->nonce + 8 * i, &word, sizeof word);
    }
    c->in_doubt = false;
    c->pause_ms = 1;
}

/* After a call that did not work. */
static void back_off(struct caller *c, const char *verb, once_result r, const struct once_error *err)
{
    char what[40];
    snprintf(what, sizeof what, "%s %s", verb, once_result_name(r));
    note(c, 0, what, err->text);
    if (r != ONCE_UNKNOWN && r != ONCE_UNAVAILABLE && r != ONCE_BUSY)
        die(what, err->text);
    pause_ms(c->pause_ms);
    c->pause_ms = c->pause_ms < 32 ? c->pause_ms * 2 : 50;
}

static void claim(struct caller *c, int64_t wait_ms, struct once_reply *reply)
{
    struct once_claim claim = { .key = { (const uint8_t *)c->key, strlen(c->key) },
                                .lease_ms = config.lease_ms,
                                .wait_ms = wait_ms,
                                .takeover = config.takeover };
    struct once_error err;
    once_result r;
    for (;;) {
        memcpy(claim.nonce, c->nonce, sizeof claim.nonce);
        r = once_claim(once, &claim, reply, &err);
        if (r == ONCE_OK)
            return;
        once_reply_release(reply);
        back_off(c, "claim", r, &err);
        c->in_doubt = c->in_doubt || r == ONCE_UNKNOWN;
        if (!c->in_doubt)
            new_nonce(c);
    }
}

static void finish(struct caller *c, struct once_grant grant, const struct once_outcome *outcome,
                   struct once_reply *reply)
{
    struct once_error err;
    once_result r;
    c->pause_ms = 1;
    while ((r = once_finish(once, grant, outcome, reply, &err)) != ONCE_OK) {
        once_reply_release(reply);
        back_off(c, "finish", r, &err);
    }
}

/* ------------------------------------------------------------------ one key */

static bool is_flaky(const char *key, uint32_t attempt)
{
    return hash_of(key) % 8 == 0 && attempt == 1;
}

static bool is_slow(const char *key, uint32_t attempt)
{
    return config.slow != 0 && hash_of(key) / 8 % config.slow == 0 && attempt == 1;
}

/* The record that stands, where it is not ours to say. True: that is final. */
static bool answer_from(struct caller *c, const struct once_record *record, const char *how)
{
    bool final = record->state == ONCE_STATE_SUCCEEDED || record->state == ONCE_STATE_UNKNOWN ||
                 (record->state == ONCE_STATE_FAILED && !record->retryable);
    if (!final)
        return false;
    struct answer a = answer_of(record);
    acknowledge(c, &a, how);
    return true;
}

/* We hold it: do the work, store the outcome, answer. True: there is a final answer. */
static bool execute(struct caller *c, const struct once_record *held)
{
    struct once_grant grant = held->grant;
    struct answer a = outcome_of(c->key, grant.fence);
    bool flaky = is_flaky(c->key, held->attempt);
    note(c, grant.fence, "granted", "");
    if (flaky)
        a.state = ONCE_STATE_FAILED;
    else
        append(effects, true, "%s\t%" PRIu64 "\t%" PRIu32 "\t%s\n", c->key, grant.fence, held->attempt, config.name);
    if (is_slow(c->key, held->attempt))
        pause_ms(2 * (int)config.lease_ms);
    struct once_outcome outcome = { .state = a.state,
                                    .retryable = flaky,
                                    .status = a.status,
                                    .headers = { (const uint8_t *)a.headers, strlen(a.headers) },
                                    .body = { (const uint8_t *)a.body, strlen(a.body) } };
    struct once_reply reply;
    bool final = !flaky;
    finish(c, grant, &outcome, &reply);
    if (reply.arm == ONCE_ARM_DONE && final) {
        acknowledge(c, &a, "done");
    } else if (reply.arm == ONCE_ARM_FENCED) {
        note(c, grant.fence, "fenced", once_state_name(reply.record.state));
        final = answer_from(c, &reply.record, "fenced");
    } else if (reply.arm != ONCE_ARM_DONE) {
        note_broken(c, "HISTORY-4", once_arm_name(reply.arm));
    }
    once_reply_release(&reply);
    return final;
}

/* Asks until there is a final answer. */
static void want(struct caller *c)
{
    for (bool final = false; !final;) {
        struct once_reply reply;
        new_nonce(c);
        claim(c, (int64_t)(next_random(c) % 2) * 100, &reply);
        switch (reply.arm) {
        case ONCE_ARM_EXECUTE:
            final = execute(c, &reply.record);
            break;
        case ONCE_ARM_REPLAY:
        case ONCE_ARM_UNKNOWN:
            final = answer_from(c, &reply.record, once_arm_name(reply.arm));
            break;
        case ONCE_ARM_IN_PROGRESS:
            pause_ms(1 + (int)(next_random(c) % 5));
            break;
        default:
            note_broken(c, "arm", once_arm_name(reply.arm));
            final = true;
        }
        once_reply_release(&reply);
    }
}

/* HISTORY-4: ask for something again that was answered before. */
static void ask_again(struct caller *c)
{
    size_t known = c->recent_count < RECENT_LEN ? c->recent_count : RECENT_LEN;
    if (known == 0)
        return;
    struct recent *r = &c->recent[next_random(c) % known];
    memcpy(c->key, r->key, sizeof c->key);
    struct once_reply reply;
    new_nonce(c);
    claim(c, 0, &reply);
    struct answer a = answer_of(&reply.record);
    bool same = (reply.arm == ONCE_ARM_REPLAY || reply.arm == ONCE_ARM_UNKNOWN) && answer_equal(&a, &r->answer);
    if (!same)
        note_broken(c, "HISTORY-4", once_arm_name(reply.arm));
    once_reply_release(&reply);
}

/* ------------------------------------------------------------------ callers */

static void shuffle(struct caller *c)
{
    for (uint32_t i = 0; i < config.keys; i++)
        c->order[i] = i;
    for (uint32_t i = (uint32_t)config.keys - 1; i > 0; i--) {
        uint32_t j = (uint32_t)(next_random(c) % (i + 1)), kept = c->order[i];
        c->order[i] = c->order[j];
        c->order[j] = kept;
    }
}

static void *call(void *arg)
{
    struct caller *c = arg;
    for (uint64_t round = 0; !stopping && (config.rounds == 0 || round < config.rounds); round++) {
        shuffle(c);
        for (uint32_t i = 0; i < config.keys && !stopping; i++) {
            snprintf(c->key, sizeof c->key, "%s-%" PRIu64 "-%" PRIu32, config.prefix, round, c->order[i]);
            want(c);
            if (next_random(c) % 8 == 0)
                ask_again(c);
        }
    }
    return NULL;
}

static void open_store(void)
{
    struct once_error err;
    once_result r;
    while ((r = once_open(config.url, NULL, &once, &err)) != ONCE_OK) {
        if (r != ONCE_UNAVAILABLE)
            die("cannot open the store", err.text);
        pause_ms(10);
    }
}

static void run_callers(void)
{
    struct caller *callers = calloc(config.threads, sizeof *callers);
    if (callers == NULL)
        die("callers", "no memory");
    for (uint64_t i = 0; i < config.threads; i++) {
        callers[i].random = mix(mix(config.seed) ^ hash_of(config.name) ^ i << 32);
        callers[i].order = calloc(config.keys, sizeof *callers[i].order);
        if (callers[i].order == NULL || pthread_create(&callers[i].thread, NULL, call, &callers[i]) != 0)
            die("callers", "no memory, or no thread");
    }
    char byte;
    while (config.rounds == 0 && read(STDIN_FILENO, &byte, 1) != 0)
        ;
    stopping = config.rounds == 0;
    for (uint64_t i = 0; i < config.threads; i++) {
        pthread_join(callers[i].thread, NULL);
        free(callers[i].order);
    }
    free(callers);
}

static int open_file(const char *name)
{
    char path[500];
    snprintf(path, sizeof path, "%s/%s", config.folder, name);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        die(path, strerror(errno));
    return fd;
}

static uint64_t number(const char *text, uint64_t least, uint64_t most)
{
    char *end = NULL;
    uint64_t value = strtoull(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < least || value > most)
        die("not a number that will do", text);
    return value;
}

static void parse(int argc, char **argv)
{
    static const struct option options[] = {
        { "store", 1, NULL, 'u' },  { "folder", 1, NULL, 'd' },  { "name", 1, NULL, 'n' },
        { "prefix", 1, NULL, 'p' }, { "threads", 1, NULL, 't' }, { "keys", 1, NULL, 'k' },
        { "rounds", 1, NULL, 'r' }, { "lease", 1, NULL, 'l' },   { "takeover", 1, NULL, 'o' },
        { "slow", 1, NULL, 'w' },   { "seed", 1, NULL, 's' },    { 0 },
    };
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (o) {
        case 'u':
            config.url = optarg;
            break;
        case 'd':
            config.folder = optarg;
            break;
        case 'n':
            config.name = optarg;
            break;
        case 'p':
            config.prefix = optarg;
            break;
        case 't':
            config.threads = number(optarg, 1, THREADS_MAX);
            break;
        case 'k':
            config.keys = number(optarg, 1, KEYS_MAX);
            break;
        case 'r':
            config.rounds = number(optarg, 0, UINT32_MAX);
            break;
        case 'l':
            config.lease_ms = (int64_t)number(optarg, 1, ONCE_LEASE_MS_MAX);
            break;
        case 'w':
            config.slow = number(optarg, 0, 1000);
            break;
        case 'o':
            config.takeover = strcmp(optarg, "rerun") == 0 ? ONCE_TAKEOVER_RERUN : ONCE_TAKEOVER_ESCALATE;
            break;
        case 's':
            config.seed = number(optarg, 0, UINT64_MAX);
            break;
        default:
            exit(64);
        }
    }
    if (config.url == NULL || config.folder == NULL || config.name == NULL || optind != argc)
        die("usage", "see the beginning of worker.c");
}

int main(int argc, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* callers that do not give up must not be left behind */
    parse(argc, argv);
    effects = open_file("effects");
    acks = open_file("acks");
    notes = open_file("notes");
    open_store();
    run_callers();
    struct once_stats stats;
    if (once_stats(once, &stats, NULL) == ONCE_OK)
        printf("%s: operations %" PRIu64 " batches %" PRIu64 " settled %" PRIu64 " fenced %" PRIu64 "\n", config.name,
               stats.operations, stats.batches, stats.recovered, stats.fenced);
    once_close(once);
    return broken;
}
