/*
 * maker.c - records in a given state, and the keys that the other side would know.
 *
 * usage: maker URL PREFIX COUNT CALL
 * Claims and finishes PREFIX1 to PREFIXn, as succeeded with status 201 and an answer
 * {"eur":i}, and prints a line "KEY,CHILD KEY of CALL,i" for each.
 *
 * usage: maker URL CALL
 * Reads lines "STATE KEY [BODY]", key and body in hexadecimal, makes each such record, and
 * prints its child key. STATE is succeeded, failed, retryable, unknown, or abandoned: claimed
 * for a millisecond.
 */
#include "core/span.h"
#include "once.h"

#include <pthread.h>
#include <stdlib.h>

enum { AT_ONCE = 1000 };

struct one {
    struct once_grant grant;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static size_t pending;

static void answered(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    struct one *one = arg;
    if (result != ONCE_OK || (reply->arm != ONCE_ARM_EXECUTE && reply->arm != ONCE_ARM_DONE)) {
        fprintf(stderr, "maker: %s\n", result != ONCE_OK ? err->text : once_arm_name(reply->arm));
        exit(1);
    }
    if (reply->arm == ONCE_ARM_EXECUTE)
        one->grant = reply->record.grant;
    once_reply_release(reply);
    pthread_mutex_lock(&lock);
    pending--;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static void submit(struct once *once, const struct once_request *request, struct one *one)
{
    struct once_error err;
    pthread_mutex_lock(&lock);
    pending++;
    pthread_mutex_unlock(&lock);
    if (once_submit(once, request, answered, one, &err) != ONCE_OK) {
        fprintf(stderr, "maker: %s\n", err.text);
        exit(1);
    }
}

static void wait_for_all(void)
{
    pthread_mutex_lock(&lock);
    while (pending > 0)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void make_many(struct once *once, const char *prefix, long count, once_span call)
{
    static struct one all[AT_ONCE];
    for (long from = 1; from <= count; from += AT_ONCE) {
        long to = from + AT_ONCE - 1 < count ? from + AT_ONCE - 1 : count;
        char text[300], child[ONCE_CHILD_KEY_LEN + 1];
        for (long i = from; i <= to; i++) {
            snprintf(text, sizeof text, "%s%ld", prefix, i);
            const struct once_request request = { .verb = ONCE_VERB_CLAIM, .claim = { .key = once_span_str(text) } };
            submit(once, &request, &all[i - from]);
        }
        wait_for_all();
        for (long i = from; i <= to; i++) {
            struct one *one = &all[i - from];
            snprintf(text, sizeof text, "{\"eur\":%ld}", i);
            const struct once_request request = {
                .verb = ONCE_VERB_FINISH,
                .grant = one->grant,
                .outcome = { .state = ONCE_STATE_SUCCEEDED, .status = 201, .body = once_span_str(text) },
            };
            submit(once, &request, one);
            once_child_key(once, &one->grant, call, child);
            printf("%s%ld,%s,%ld\n", prefix, i, child, i);
        }
        wait_for_all();
    }
}

/* In place. */
static once_span unhex(char *text)
{
    size_t len = strlen(text) / 2;
    for (size_t i = 0; i < len; i++) {
        char digits[3] = { text[2 * i], text[2 * i + 1], '\0' };
        text[i] = (char)strtol(digits, NULL, 16);
    }
    return once_span_of(text, len);
}

static void make_one(struct once *once, const char *state, once_span key, once_span body, once_span call)
{
    static const struct {
        const char *name;
        struct once_outcome outcome;
    } states[] = {
        { "succeeded", { .state = ONCE_STATE_SUCCEEDED, .status = 201 } },
        { "failed", { .state = ONCE_STATE_FAILED, .status = 402 } },
        { "retryable", { .state = ONCE_STATE_FAILED, .retryable = true, .status = 503 } },
        { "unknown", { .state = ONCE_STATE_UNKNOWN } },
        { "abandoned", { .state = ONCE_STATE_NONE } },
    };
    struct once_reply reply;
    struct once_error err;
    char child[ONCE_CHILD_KEY_LEN + 1];
    size_t i = 0;
    while (strcmp(states[i].name, state) != 0)
        i++;
    const struct once_claim claim = { .key = key, .lease_ms = states[i].outcome.state == ONCE_STATE_NONE ? 1 : 0 };
    if (once_claim(once, &claim, &reply, &err) != ONCE_OK || reply.arm != ONCE_ARM_EXECUTE)
        exit(1);
    struct once_grant grant = reply.record.grant;
    once_reply_release(&reply);
    struct once_outcome outcome = states[i].outcome;
    outcome.body = body;
    if (outcome.state != ONCE_STATE_NONE) {
        if (once_finish(once, grant, &outcome, &reply, &err) != ONCE_OK || reply.arm != ONCE_ARM_DONE)
            exit(1);
        once_reply_release(&reply);
    }
    once_child_key(once, &grant, call, child);
    printf("%s\n", child);
}

int main(int argc, char **argv)
{
    struct once *once = NULL;
    struct once_error err = { .text = "usage: maker URL [PREFIX COUNT] CALL" };
    if ((argc != 3 && argc != 5) || once_open(argv[1], NULL, &once, &err) != ONCE_OK)
        return fprintf(stderr, "maker: %s\n", err.text), 1;
    if (argc == 5)
        make_many(once, argv[2], strtol(argv[3], NULL, 10), once_span_str(argv[4]));
    char state[20], key[600], body[600];
    for (char line[1300]; argc == 3 && fgets(line, sizeof line, stdin) != NULL;) {
        body[0] = '\0';
        if (sscanf(line, "%19s %599s %599s", state, key, body) >= 2)
            make_one(once, state, unhex(key), unhex(body), once_span_str(argv[2]));
    }
    once_close(once);
    return 0;
}
