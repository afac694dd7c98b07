/*
 * ask.c - a caller on a string: one call per line of its standard input, one line for its answer.
 *
 * For tests that have to know in which moment a call is still waiting. The process keeps its
 * handle, and so its connection, between calls.
 *
 *     claim KEY            -> OK execute 5 running - -
 *     finish KEY BODY      -> OK done 5 succeeded 200 BODY
 *     lookup KEY           -> OK found 5 succeeded 200 BODY     or: UNKNOWN the answer was lost
 * A claim that ended UNKNOWN is repeated with its nonce if it is asked for again (once.h).
 * First it says `open`, or why it could not.
 *
 * usage: ask URL
 */
#include "once.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/prctl.h>

enum { KEYS_MAX = 64 };

/* What the caller remembers of a key. */
static struct key {
    char name[64];
    struct once_grant grant;
    uint8_t nonce[16];
    bool in_doubt;
} keys[KEYS_MAX];
static uint8_t nonces;

static struct key *key_of(const char *name)
{
    size_t i = 0;
    while (i < KEYS_MAX - 1 && keys[i].name[0] != '\0' && strcmp(keys[i].name, name) != 0)
        i++;
    snprintf(keys[i].name, sizeof keys[i].name, "%s", name);
    return &keys[i];
}

static void tell(once_result r, const struct once_reply *reply, const struct once_error *err)
{
    const struct once_record *record = &reply->record;
    if (r != ONCE_OK)
        printf("%s %s\n", once_result_name(r), err->text);
    else if (record->state == ONCE_STATE_SUCCEEDED)
        printf("OK %s %" PRIu64 " succeeded %d %.*s\n", once_arm_name(reply->arm), record->grant.fence, record->status,
               (int)record->body.len, (const char *)record->body.ptr);
    else
        printf("OK %s %" PRIu64 " %s - -\n", once_arm_name(reply->arm), record->grant.fence,
               record->state != ONCE_STATE_NONE ? once_state_name(record->state) : "-");
}

static once_result claim(struct once *once, struct key *k, struct once_reply *reply, struct once_error *err)
{
    struct once_claim claim = { .key = { (const uint8_t *)k->name, strlen(k->name) }, .lease_ms = ONCE_LEASE_MS_MAX };
    if (!k->in_doubt) {
        char fresh[ONCE_UUID_LEN + 1];
        once_key_new(fresh);
        memcpy(k->nonce, fresh + ONCE_UUID_LEN - sizeof k->nonce, sizeof k->nonce);
        k->nonce[0] = ++nonces;
    }
    memcpy(claim.nonce, k->nonce, sizeof claim.nonce);
    once_result r = once_claim(once, &claim, reply, err);
    k->in_doubt = r == ONCE_UNKNOWN || (k->in_doubt && r != ONCE_OK);
    if (r == ONCE_OK && reply->arm == ONCE_ARM_EXECUTE)
        k->grant = reply->record.grant;
    return r;
}

static void obey(struct once *once, char *line)
{
    char verb[16] = "", name[64] = "", body[64] = "";
    if (sscanf(line, "%15s %63s %63s", verb, name, body) < 2) {
        printf("what?\n");
        return;
    }
    struct key *k = key_of(name);
    once_span span = { (const uint8_t *)k->name, strlen(k->name) };
    struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED,
                                    .status = 200,
                                    .body = { (const uint8_t *)body, strlen(body) } };
    struct once_reply reply = { .arm = ONCE_ARM_NONE };
    struct once_error err = { .result = ONCE_OK };
    once_result r;
    if (strcmp(verb, "claim") == 0)
        r = claim(once, k, &reply, &err);
    else if (strcmp(verb, "finish") == 0)
        r = once_finish(once, k->grant, &outcome, &reply, &err);
    else
        r = once_lookup(once, (once_span){ NULL, 0 }, span, &reply, &err);
    tell(r, &reply, &err);
    once_reply_release(&reply);
}

int main(int argc, char **argv)
{
    struct once *once = NULL;
    struct once_error err;
    char line[300];
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* one that waits for a standby must not be left behind */
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 2 || once_open(argv[1], NULL, &once, &err) != ONCE_OK) {
        printf("%s\n", argc == 2 ? err.text : "usage: ask URL");
        return 1;
    }
    printf("open\n");
    while (fgets(line, sizeof line, stdin) != NULL)
        obey(once, line);
    once_close(once);
    return 0;
}
