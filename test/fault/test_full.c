/*
 * test_full.c - a real disk that is full (FACT-5, FAULT-13).
 *
 * On a tmpfs of 3 MiB in a mount namespace of its own: the store is filled until it says
 * that there is no room. Then: that was said in words, nothing acknowledged is lost,
 * replays still work, expiry works thanks to the reserve, and then claims do again.
 * Skipped where such a mount is not permitted.
 */
#include "core/span.h"
#include "once.h"

#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

enum { KEYS_MAX = 4000, BODY_LEN = 2000, REFUSALS = 20, AFTER = 10000, AGAIN = 50 };

static char folder[256];
static once_time now;

static once_time clock_ms(void *arg)
{
    (void)arg;
    return now;
}

static void clock_boot(void *arg, uint8_t id[16])
{
    (void)arg;
    memset(id, 1, 16);
}

static const struct once_clock test_clock = { clock_ms, clock_ms, clock_boot, NULL };

/* ------------------------------------------------------------------ the store */

/* Different for every key, and nothing that compresses. */
static once_span body_of(unsigned key)
{
    static uint8_t bytes[BODY_LEN];
    uint64_t x = key * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < BODY_LEN; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        bytes[i] = (uint8_t)x;
    }
    return once_span_of(bytes, BODY_LEN);
}

static once_result claim(struct once *once, unsigned number, struct once_reply *reply, struct once_error *err)
{
    char key[32];
    snprintf(key, sizeof key, "key %u", number);
    struct once_claim claim = { .key = once_span_str(key), .retention_ms = 3600000 };
    return once_claim(once, &claim, reply, err);
}

/* Claim and finish. False: there was no room for one of them; `err` says what it said. */
static bool work(struct once *once, unsigned number, once_result *result, struct once_error *err)
{
    struct once_reply claimed, finished;
    *result = claim(once, number, &claimed, err);
    if (*result != ONCE_OK)
        return false;
    struct once_grant grant = claimed.record.grant;
    EXPECT(claimed.arm == ONCE_ARM_EXECUTE);
    once_reply_release(&claimed);
    struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED, .status = (int32_t)number, .body = body_of(number) };
    *result = once_finish(once, grant, &outcome, &finished, err);
    bool done = *result == ONCE_OK && finished.arm == ONCE_ARM_DONE;
    once_reply_release(&finished);
    return done;
}

static struct once *open_store(bool shared)
{
    char url[300];
    snprintf(url, sizeof url, "sqlite:%s/once.db", folder);
    struct once *once = NULL;
    struct once_error err = { .text = "" };
    once_result r = once_open(url, &(struct once_options){ .shared = shared, .clock = &test_clock }, &once, &err);
    if (r != ONCE_OK)
        printf("# open: %s: %s\n", once_result_name(r), err.text);
    return once;
}

static void on_problem(void *arg, const struct once_problem *problem)
{
    (void)arg;
    printf("# %s at fence %llu: %s\n", problem->invariant, (unsigned long long)problem->fence, problem->text);
}

static bool is_sound(struct once *once)
{
    struct once_check_report report;
    struct once_error err = { .text = "" };
    once_result r = once_check(once, on_problem, NULL, &report, &err);
    if (r != ONCE_OK)
        printf("# check: %s: %s\n", once_result_name(r), err.text);
    return r == ONCE_OK && report.problems == 0;
}

static unsigned replays(struct once *once, unsigned first, unsigned count)
{
    unsigned right = 0;
    for (unsigned i = first; i < first + count; i++) {
        struct once_reply reply;
        struct once_error err = { .text = "" };
        once_result r = claim(once, i, &reply, &err);
        bool same = r == ONCE_OK && reply.arm == ONCE_ARM_REPLAY && reply.record.status == (int32_t)i &&
                    once_span_equal(reply.record.body, body_of(i));
        if (!same && i - first == right)
            printf("# key %u: %s %s %s\n", i, once_result_name(r), once_arm_name(reply.arm), err.text);
        right += same;
        once_reply_release(&reply);
    }
    return right;
}

/* How many keys were finished before there was no room. */
static unsigned fill(struct once *once)
{
    unsigned count = 0, unclear = 0;
    once_result r;
    struct once_error err = { .text = "" };
    while (count < KEYS_MAX && work(once, count, &r, &err))
        count++;
    printf("# full after %u keys: %s: %s\n", count, once_result_name(r), err.text);
    for (int i = 0; i < REFUSALS; i++) {
        struct once_reply reply;
        r = claim(once, KEYS_MAX + (unsigned)i, &reply, &err);
        once_reply_release(&reply);
        /* The last bytes may still be enough for a small claim. */
        unclear += r != ONCE_OK && (r != ONCE_UNAVAILABLE || strstr(err.text, "disk is full") == NULL);
    }
    if (unclear > 0)
        printf("# of %d claims on a full disk %u were not refused as UNAVAILABLE, disk full: %s: %s\n", REFUSALS,
               unclear, once_result_name(r), err.text);
    EXPECT(unclear == 0);
    return count;
}

static void expire_all(struct once *once, unsigned expected)
{
    uint64_t total = 0;
    bool more = true;
    for (int step = 0; more && step < KEYS_MAX; step++) {
        uint64_t removed = 0;
        struct once_error err = { .text = "" };
        once_result r = once_expire(once, 1000, &removed, &more, &err);
        if (r != ONCE_OK)
            printf("# expiry on the full disk: %s: %s\n", once_result_name(r), err.text);
        CHECK(r == ONCE_OK);
        total += removed;
    }
    printf("# %llu records expired\n", (unsigned long long)total);
    EXPECT(total >= expected);
}

/* ------------------------------------------------------------------ the disk */

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        printf("# cannot write %s\n", path);
    close(fd);
}

/* False: not permitted. */
static bool namespace_enter(void)
{
    char map[64];
    snprintf(map, sizeof map, "0 %u 1\n", (unsigned)getuid());
    if (unshare(CLONE_NEWNS) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            return false;
        write_file("/proc/self/uid_map", map);
    }
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static void fill_expire_go_on(bool shared)
{
    now = 1700000000000;
    CHECK(mount("once-test", folder, "tmpfs", 0, "size=3m") == 0);
    struct once *once = open_store(shared);
    CHECK(once != NULL);
    unsigned count = fill(once);
    EXPECT(count > 20 && count < KEYS_MAX);
    EXPECT(replays(once, 0, count) == count);
    once_close(once);
    once = open_store(shared); /* a full disk is no reason not to start */
    CHECK(once != NULL);
    EXPECT(is_sound(once));
    EXPECT(replays(once, 0, count) == count);
    now += 2 * 3600000;
    expire_all(once, count);
    once_result r;
    struct once_error err = { .text = "" };
    for (unsigned i = AFTER; i < AFTER + AGAIN; i++) {
        bool done = work(once, i, &r, &err);
        if (!done)
            printf("# after expiry, key %u: %s: %s\n", i, once_result_name(r), err.text);
        CHECK(done);
    }
    EXPECT(replays(once, AFTER, AGAIN) == AGAIN);
    EXPECT(is_sound(once));
    once_close(once);
    umount2(folder, MNT_DETACH);
}

static void full__owned(void)
{
    fill_expire_go_on(false);
}

static void full__shared(void)
{
    fill_expire_go_on(true);
}

int main(int argc, char **argv)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/once-full.XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(folder) == NULL)
        abort();
    if (!namespace_enter() || mount("once-test", folder, "tmpfs", 0, "size=3m") != 0) {
        printf("1..0 # SKIP no mount namespace with a tmpfs here: %s\n", strerror(errno));
        rmdir(folder);
        return 0;
    }
    umount2(folder, MNT_DETACH);
    static const struct test tests[] = { TEST(full__owned), TEST(full__shared) };
    int failed = test_main(argc, argv, tests, sizeof tests / sizeof *tests);
    while (umount2(folder, MNT_DETACH) == 0)
        ; /* a case that failed left its mount */
    rmdir(folder);
    return failed;
}
