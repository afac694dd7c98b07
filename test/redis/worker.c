/*
 * worker.c - a handle on a store that does as it is told, line by line, and says what it was told.
 *
 * usage: worker URL
 *   fill COUNT NAME [BYTES]   claims and finishes NAME0 ...; "fill DONE": how many were acknowledged
 *   look COUNT NAME           "look FOUND ABSENT"
 *   again COUNT NAME          claims them anew: "again REPLAYED EXECUTED", and the smallest fence of those executed
 *   press COUNT NAME          as fill, but what fails is asked again, with its nonce, until it is answered:
 *                             "press DONE FENCED OTHERS", OTHERS: claims that were not told execute, attempt 1
 *   hold NAME                 claims, and keeps the grant: "hold ARM FENCE CHILDKEY"
 *   end                       finishes what is held: "end ARM STATE"
 *   stats                     "stats LOST EVICTED RESTARTS"
 * What fails is said after that: RESULT and the text. What the store tells begins with "told: ".
 */
#include "once.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BODY_MAX = 1 << 20 };

static struct once *once;
static struct once_error err;
static struct once_grant held;
static uint64_t newest; /* fence seen */

static void warn(void *arg, const char *text)
{
    (void)arg;
    printf("told: %s\n", text);
    fflush(stdout);
}

static void say_failure(once_result r)
{
    if (r != ONCE_OK)
        printf(" %s %s", once_result_name(r), err.text);
}

static once_result claim(const char *name, int number, int64_t lease_ms, struct once_reply *reply)
{
    char key[100];
    int len = snprintf(key, sizeof key, "%s%d", name, number);
    struct once_claim c = { .key = { (const uint8_t *)key, (size_t)len }, .lease_ms = lease_ms };
    return once_claim(once, &c, reply, &err);
}

static once_result do_one(const char *name, int number, size_t bytes)
{
    static uint8_t body[BODY_MAX];
    struct once_reply reply, end;
    static uint64_t x = 88172645463325252u; /* bytes that do not compress */
    for (size_t i = 0; i < bytes; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        body[i] = (uint8_t)x;
    }
    once_result r = claim(name, number, 0, &reply);
    if (r == ONCE_OK && reply.arm == ONCE_ARM_EXECUTE) {
        if (reply.record.grant.fence > newest)
            newest = reply.record.grant.fence;
        struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED, .status = 200, .body = { body, bytes } };
        r = once_finish(once, reply.record.grant, &outcome, &end, &err);
        if (r == ONCE_OK && end.arm != ONCE_ARM_DONE)
            r = ONCE_INVALID;
        once_reply_release(&end);
    }
    once_reply_release(&reply);
    return r;
}

static void fill(int count, const char *name, size_t bytes)
{
    once_result r = ONCE_OK;
    int done = 0;
    for (int i = 0; i < count && r == ONCE_OK; i++) {
        r = do_one(name, i, bytes < BODY_MAX ? bytes : BODY_MAX);
        done += r == ONCE_OK;
    }
    printf("fill %d", done);
    say_failure(r);
}

static void look(int count, const char *name)
{
    int found = 0, absent = 0;
    once_result r = ONCE_OK;
    for (int i = 0; i < count && r == ONCE_OK; i++) {
        char key[100];
        int len = snprintf(key, sizeof key, "%s%d", name, i);
        struct once_reply reply;
        r = once_lookup(once, (once_span){ .len = 0 }, (once_span){ (const uint8_t *)key, (size_t)len }, &reply, &err);
        found += r == ONCE_OK && reply.arm == ONCE_ARM_FOUND;
        absent += r == ONCE_OK && reply.arm == ONCE_ARM_ABSENT;
        once_reply_release(&reply);
    }
    printf("look %d %d", found, absent);
    say_failure(r);
}

/* One claim, one finish, each until it is answered. */
static bool press_one(const char *name, int number, int *fenced, int *twice)
{
    char key[100];
    int len = snprintf(key, sizeof key, "%s%d", name, number);
    struct once_claim c = { .key = { (const uint8_t *)key, (size_t)len }, .nonce = { 1 } };
    memcpy(c.nonce + 1, &number, sizeof number);
    struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED, .status = 200 };
    struct once_reply reply, end;
    once_result r = ONCE_BUSY;
    for (int tries = 0; tries < 1000 && r != ONCE_OK; tries++) {
        r = once_claim(once, &c, &reply, &err);
        if (r != ONCE_OK)
            once_reply_release(&reply);
    }
    if (r != ONCE_OK)
        return false;
    *twice += reply.arm != ONCE_ARM_EXECUTE || reply.record.attempt != 1;
    r = ONCE_BUSY;
    for (int tries = 0; tries < 1000 && r != ONCE_OK; tries++) {
        r = once_finish(once, reply.record.grant, &outcome, &end, &err);
        *fenced += r == ONCE_OK && end.arm != ONCE_ARM_DONE;
        once_reply_release(&end);
    }
    once_reply_release(&reply);
    return r == ONCE_OK;
}

static void press(int count, const char *name)
{
    int done = 0, fenced = 0, twice = 0;
    for (int i = 0; i < count; i++)
        done += press_one(name, i, &fenced, &twice);
    printf("press %d %d %d", done, fenced, twice);
}

/* "grown": no fence that was given before, or less, was given again. */
static void again(int count, const char *name)
{
    int replayed = 0, executed = 0;
    bool grown = true;
    once_result r = ONCE_OK;
    for (int i = 0; i < count && r == ONCE_OK; i++) {
        struct once_reply reply;
        r = claim(name, i, 0, &reply);
        replayed += r == ONCE_OK && reply.arm == ONCE_ARM_REPLAY;
        executed += r == ONCE_OK && reply.arm == ONCE_ARM_EXECUTE;
        if (r == ONCE_OK && reply.arm == ONCE_ARM_EXECUTE && reply.record.grant.fence <= newest)
            grown = false;
        once_reply_release(&reply);
    }
    printf("again %d %d %s", replayed, executed, grown ? "grown" : "REPEATED");
    say_failure(r);
}

static void hold(const char *name)
{
    struct once_reply reply;
    char child[ONCE_CHILD_KEY_LEN + 1] = "";
    once_result r = claim(name, 0, 0, &reply);
    if (r == ONCE_OK) {
        held = reply.record.grant;
        once_child_key(once, &held, ONCE_LIT("charge"), child);
    }
    printf("hold %s %s", r == ONCE_OK ? once_arm_name(reply.arm) : "-", child);
    say_failure(r);
    once_reply_release(&reply);
}

static void end(void)
{
    struct once_reply reply;
    struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED, .status = 200 };
    once_result r = once_finish(once, held, &outcome, &reply, &err);
    printf("end %s %d", r == ONCE_OK ? once_arm_name(reply.arm) : "-", (int)reply.record.state);
    say_failure(r);
    once_reply_release(&reply);
}

static void stats(void)
{
    struct once_stats s;
    once_result r = once_stats(once, &s, &err);
    printf("stats %" PRIu64 " %" PRIu64 " %" PRIu64, s.lost, s.evicted, s.restarts);
    say_failure(r);
}

int main(int argc, char **argv)
{
    struct once_options options = { .warn = warn };
    if (argc != 2 || once_open(argv[1], &options, &once, &err) != ONCE_OK) {
        printf("failed %s\n", err.text);
        return 1;
    }
    printf("ready\n");
    fflush(stdout);
    char line[200], verb[20], name[60];
    while (fgets(line, sizeof line, stdin) != NULL) {
        int count = 0;
        unsigned bytes = 4;
        if (sscanf(line, "%19s %d %59s %u", verb, &count, name, &bytes) >= 3) {
            if (strcmp(verb, "fill") == 0)
                fill(count, name, bytes);
            else if (strcmp(verb, "look") == 0)
                look(count, name);
            else if (strcmp(verb, "press") == 0)
                press(count, name);
            else
                again(count, name);
        } else if (sscanf(line, "hold %59s", name) == 1) {
            hold(name);
        } else if (strncmp(line, "end", 3) == 0) {
            end();
        } else {
            stats();
        }
        printf("\n");
        fflush(stdout);
    }
    once_close(once);
    return 0;
}
