/*
 * step.c - once.h, one line at a time: what a test steers that needs several clients.
 *
 * Reads commands, prints one line of answers for each. Operations with " ; " between them are
 * one batch: they are handed in together, while the writer is busy with a look-up before them.
 *
 *     open URL                                 close
 *     claim KEY [tenant=NAME] [takeover=NAME] [lease=MS] [retention=MS] [nonce=TEXT]
 *     finish KEY BODY [succeeded|failed|retryable|unknown] [again]
 *     advance KEY POINT CHECKPOINT             extend KEY MS
 *     release KEY                              lookup KEY
 *     resolve KEY done|not-done|release BODY   list
 *     stats
 *
 * Grants are remembered by key, from the answers to claims. An answer is
 * "OK execute fence=3 attempt=1 state=running ...", or "BUSY text". With ONCE_STEP_WHOLE it has all that there is of a
 * record.
 */
#include "engine/daemon_api.h"
#include "once.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_MAX = 64, WORDS_MAX = 8, GRANTS_MAX = 4096, LINE_MAX_LEN = 8192 };

static struct once *once;

static struct remembered {
    char key[64];
    struct once_grant grant;
} grants[GRANTS_MAX];

struct operation {
    struct once_request request;
    struct remembered *grant;
    const char *mistake; /* it cannot be handed in */
    bool again;          /* as a daemon's client says it */
    char answer[600];
};

static struct operation batch[BATCH_MAX];
static size_t batch_count;
static sem_t answered;

static once_span span_of(const char *text)
{
    return (once_span){ (const uint8_t *)text, strlen(text) };
}

static struct remembered *grant_of(const char *key)
{
    struct remembered *g = grants;
    while (g < grants + GRANTS_MAX - 1 && g->key[0] != '\0' && strcmp(g->key, key) != 0)
        g++;
    snprintf(g->key, sizeof g->key, "%s", key);
    return g;
}

/* ------------------------------------------------------------------ commands */

/* The value of "name=value". */
static const char *value_of(const char *word, const char *name)
{
    size_t len = strlen(name);
    return strncmp(word, name, len) == 0 && word[len] == '=' ? word + len + 1 : NULL;
}

static void read_claim(struct operation *o, char *const *words)
{
    o->request.verb = ONCE_VERB_CLAIM;
    o->request.claim.key = span_of(words[1]);
    for (int i = 2; words[i] != NULL; i++) {
        const char *value;
        if ((value = value_of(words[i], "lease")) != NULL)
            o->request.claim.lease_ms = strtoll(value, NULL, 10);
        else if ((value = value_of(words[i], "tenant")) != NULL)
            o->request.claim.tenant = span_of(value);
        else if ((value = value_of(words[i], "retention")) != NULL)
            o->request.claim.retention_ms = strtoll(value, NULL, 10);
        else if ((value = value_of(words[i], "nonce")) != NULL)
            memcpy(o->request.claim.nonce, value, strnlen(value, sizeof o->request.claim.nonce));
        else if ((value = value_of(words[i], "takeover")) != NULL)
            for (int t = ONCE_TAKEOVER_ESCALATE; t <= ONCE_TAKEOVER_COMPLETER; t++)
                if (strcmp(value, once_takeover_name((enum once_takeover)t)) == 0)
                    o->request.claim.takeover = (enum once_takeover)t;
    }
}

static struct once_outcome outcome_of(const char *body, const char *how)
{
    struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED, .status = 200, .body = span_of(body) };
    if (how != NULL && strcmp(how, "unknown") == 0)
        outcome = (struct once_outcome){ .state = ONCE_STATE_UNKNOWN };
    else if (how != NULL && strcmp(how, "succeeded") != 0)
        outcome.state = ONCE_STATE_FAILED;
    outcome.retryable = how != NULL && strcmp(how, "retryable") == 0;
    return outcome;
}

static void read_resolve(struct operation *o, char *const *words)
{
    o->request.verb = ONCE_VERB_RESOLVE;
    o->request.resolve = (struct once_resolve){ .key = span_of(words[1]), .reason = ONCE_LIT("a test") };
    o->request.resolve.verdict = strcmp(words[2], "done") == 0       ? ONCE_VERDICT_DONE
                                 : strcmp(words[2], "not-done") == 0 ? ONCE_VERDICT_NOT_DONE
                                                                     : ONCE_VERDICT_RELEASE;
    if (o->request.resolve.verdict == ONCE_VERDICT_DONE)
        o->request.resolve.outcome = outcome_of(words[3] != NULL ? words[3] : "", NULL);
}

static void read_operation(struct operation *o, char *text)
{
    char *words[WORDS_MAX + 1] = { NULL }, *save = NULL;
    int count = 0;
    for (char *w = strtok_r(text, " ", &save); w != NULL && count < WORDS_MAX; w = strtok_r(NULL, " ", &save))
        words[count++] = w;
    *o = (struct operation){ .mistake = NULL };
    if (count < 2) {
        o->mistake = "a verb and a key are needed";
        return;
    }
    o->grant = grant_of(words[1]);
    o->request.grant = o->grant->grant;
    if (strcmp(words[0], "claim") == 0) {
        read_claim(o, words);
    } else if (strcmp(words[0], "finish") == 0 && count > 2) {
        o->request.verb = ONCE_VERB_FINISH;
        o->request.outcome = outcome_of(words[2], words[3]);
        o->again = words[3] != NULL && words[4] != NULL && strcmp(words[4], "again") == 0;
    } else if (strcmp(words[0], "advance") == 0 && count > 3) {
        o->request.verb = ONCE_VERB_ADVANCE;
        o->request.advance.point = span_of(words[2]);
        o->request.advance.checkpoint = span_of(words[3]);
    } else if (strcmp(words[0], "extend") == 0 && count > 2) {
        o->request.verb = ONCE_VERB_EXTEND;
        o->request.extend.lease_ms = strtoll(words[2], NULL, 10);
    } else if (strcmp(words[0], "release") == 0) {
        o->request.verb = ONCE_VERB_RELEASE;
    } else if (strcmp(words[0], "lookup") == 0) {
        o->request.verb = ONCE_VERB_LOOKUP;
        o->request.lookup.key = span_of(words[1]);
    } else if (strcmp(words[0], "resolve") == 0 && count > 2) {
        read_resolve(o, words);
    } else {
        o->mistake = "no such command, or a word is missing";
    }
}

/* ------------------------------------------------------------------ answers */

static void add_bytes(char *line, size_t len, const char *name, once_span bytes)
{
    size_t used = strlen(line);
    if (bytes.len > 0)
        snprintf(line + used, len - used, " %s=%.*s", name, (int)bytes.len, (const char *)bytes.ptr);
}

/* All else that there is of a record: for who compares. */
static void add_rest(char *line, size_t len, const struct once_record *r)
{
    add_bytes(line, len, "tenant", r->tenant);
    add_bytes(line, len, "key", r->key);
    add_bytes(line, len, "headers", r->headers);
    add_bytes(line, len, "request", r->request);
    add_bytes(line, len, "route", r->route);
    size_t used = strlen(line);
    snprintf(line + used, len - used,
             " record=%02x%02x fingerprint=%02x%02x flags=%d%d%d%d%d status=%d takeover=%s kept=%lld/%lld"
             " at=%lld/%lld/%lld/%lld/%lld",
             r->grant.record[0], r->grant.record[15], r->fingerprint.bytes[0], r->fingerprint.bytes[31], r->retryable,
             r->body_dropped, r->body_expired, r->has_request, r->forgotten, r->status, once_takeover_name(r->takeover),
             (long long)r->retention_ms, (long long)r->body_retention_ms, (long long)r->created_at,
             (long long)r->claimed_at, (long long)r->lease_until, (long long)r->finished_at, (long long)r->expires_at);
}

static void tell(struct operation *o, once_result result, const struct once_reply *reply, const struct once_error *err)
{
    if (result != ONCE_OK) {
        snprintf(o->answer, sizeof o->answer, "%s %s", once_result_name(result), err->text);
        return;
    }
    const struct once_record *r = &reply->record;
    snprintf(o->answer, sizeof o->answer, "OK %s fence=%llu attempt=%u state=%s%s", once_arm_name(reply->arm),
             (unsigned long long)r->grant.fence, r->attempt,
             r->state == ONCE_STATE_NONE ? "none" : once_state_name(r->state), r->lease_live ? " live" : "");
    add_bytes(o->answer, sizeof o->answer, "point", r->recovery_point);
    add_bytes(o->answer, sizeof o->answer, "checkpoint", r->checkpoint);
    add_bytes(o->answer, sizeof o->answer, "body", r->body);
    if (getenv("ONCE_STEP_WHOLE") != NULL)
        add_rest(o->answer, sizeof o->answer, r);
    if (reply->arm == ONCE_ARM_EXECUTE || reply->arm == ONCE_ARM_PROBE)
        o->grant->grant = r->grant;
}

static void on_answer(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    tell(arg, result, reply, err);
    once_reply_release(reply);
    sem_post(&answered);
}

static void submit_all(void)
{
    for (size_t i = 0; i < batch_count; i++) {
        struct operation *o = &batch[i];
        struct once_error err = { .result = ONCE_OK };
        once_result r = ONCE_INVALID;
        if (o->mistake != NULL)
            snprintf(err.text, sizeof err.text, "%s", o->mistake);
        else
            r = once_submit_for(once, &o->request, NULL, o->again, on_answer, o, &err);
        if (r != ONCE_OK) {
            tell(o, r, NULL, &err);
            sem_post(&answered);
        }
    }
    once_kick(once);
}

/* On the writer's thread: what is handed in here is in its next batch, all of it. */
static void on_start(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    (void)arg, (void)result, (void)err;
    once_reply_release(reply);
    submit_all();
}

static void run_batch(char *line)
{
    batch_count = 0;
    for (char *next = line; next != NULL && batch_count < BATCH_MAX;) {
        char *end = strstr(next, " ; ");
        if (end != NULL)
            *end = '\0';
        read_operation(&batch[batch_count++], next);
        next = end != NULL ? end + 3 : NULL;
    }
    struct once_request look = { .verb = ONCE_VERB_LOOKUP, .lookup.key = ONCE_LIT("-") };
    if (batch_count == 1 || once_submit(once, &look, on_start, NULL, NULL) != ONCE_OK)
        submit_all();
    for (size_t i = 0; i < batch_count; i++)
        while (sem_wait(&answered) != 0)
            ; /* interrupted */
    for (size_t i = 0; i < batch_count; i++)
        printf("%s%s", i > 0 ? " ; " : "", batch[i].answer);
    printf("\n");
}

/* ------------------------------------------------------------------ the rest */

static void open_store(const char *url)
{
    struct once_error err;
    once_result r = once_open(url, NULL, &once, &err);
    printf("%s%s%s\n", once_result_name(r), r != ONCE_OK ? " " : "", r != ONCE_OK ? err.text : "");
}

static void tell_stats(void)
{
    struct once_stats s;
    struct once_error err;
    once_result r = once_stats(once, &s, &err);
    if (r == ONCE_OK)
        printf("OK settled=%llu\n", (unsigned long long)s.recovered);
    else
        printf("%s %s\n", once_result_name(r), err.text);
}

static void list_all(void)
{
    struct once_page page = { .count = 0 };
    struct once_error err;
    once_result r = once_list(once, &(struct once_filter){ .limit = 10 }, &page, &err);
    if (r == ONCE_OK)
        printf("OK count=%zu\n", page.count);
    else
        printf("%s %s\n", once_result_name(r), err.text);
    once_page_release(&page);
}

int main(void)
{
    static char line[LINE_MAX_LEN];
    sem_init(&answered, 0, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "open ", 5) == 0) {
            open_store(line + 5);
        } else if (once == NULL) {
            printf("INVALID open a store first\n");
        } else if (strcmp(line, "close") == 0) {
            once_close(once);
            once = NULL;
            printf("OK\n");
        } else if (strcmp(line, "stats") == 0) {
            tell_stats();
        } else if (strcmp(line, "list") == 0) {
            list_all();
        } else {
            run_batch(line);
        }
    }
    once_close(once);
    return 0;
}
