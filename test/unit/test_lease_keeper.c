/*
 * test_lease_keeper.c - when a holder thinks that its lease is over: never later than the store does (FAULT-38).
 */
#include "engine/lease_keeper.h"
#include "os/os.h"

#include "../test.h"

#include <stdlib.h>
#include <unistd.h>

enum { LEASE_MS = 600000 };

static struct once *once;
static char folder[200];

static void set_up(void)
{
    const char *tmp = getenv("TMPDIR");
    char url[300];
    snprintf(folder, sizeof folder, "%s/once-keeper-XXXXXX", tmp != NULL ? tmp : "/tmp");
    CHECK(mkdtemp(folder) != NULL);
    snprintf(url, sizeof url, "sqlite:%s/once.db", folder);
    CHECK(once_open(url, NULL, &once, NULL) == ONCE_OK);
}

static void tear_down(void)
{
    static const char *const names[] = { "once.db", "once.db-wal", "once.db-shm", "once.db-lock", "once.db-reserve" };
    char path[300];
    once_close(once);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

/* The answer to the claim came after a whole lease: whether it is still held is for a renewal to say, and until it has
 * said so it is not. That of a record that is not there says no. */
static void lease_keeper__counts_from_when_it_was_asked_for(void)
{
    set_up();
    struct kept_lease kept_lease;
    struct once_grant nobodys = { .record = { 1 }, .fence = 1 };
    once_time now = once_os_lease_ms();
    CHECK(lease_keeper_add(once, &kept_lease, nobodys, LEASE_MS, now - LEASE_MS, NULL) == ONCE_OK);
    EXPECT(!lease_keeper_is_held(&kept_lease));
    lease_keeper_remove(once, &kept_lease);
    CHECK(lease_keeper_add(once, &kept_lease, nobodys, LEASE_MS, now, NULL) == ONCE_OK);
    EXPECT(lease_keeper_is_held(&kept_lease)); /* and only asked about after a third of it */
    lease_keeper_remove(once, &kept_lease);
    tear_down();
}

/* What is due is renewed at once, and is held then. */
static void lease_keeper__renews_at_once_what_was_asked_for_long_ago(void)
{
    set_up();
    struct once_claim claim = { .key = ONCE_LIT("k"), .lease_ms = LEASE_MS };
    struct once_reply reply;
    struct kept_lease kept_lease;
    CHECK(once_claim(once, &claim, &reply, NULL) == ONCE_OK && reply.arm == ONCE_ARM_EXECUTE);
    CHECK(lease_keeper_add(once, &kept_lease, reply.record.grant, LEASE_MS, once_os_lease_ms() - LEASE_MS, NULL) ==
          ONCE_OK);
    bool held = false;
    for (int i = 0; !held && i < 100000; i++) {
        held = lease_keeper_is_held(&kept_lease);
        usleep(1000);
    }
    EXPECT(held);
    lease_keeper_remove(once, &kept_lease);
    once_reply_release(&reply);
    tear_down();
}

static void lease__is_held_from_the_question_and_renewed_each_third(void)
{
    struct once_lease lease;
    once_lease_granted(&lease, 3000, 100);
    EXPECT(lease.renew_at == 1100 && once_lease_is_held(&lease, 3099) && !once_lease_is_held(&lease, 3100));
    once_lease_renewed(&lease, ONCE_RENEWAL_FAILED, 1100, 1400); /* nothing is known: tried again sooner */
    EXPECT(lease.renew_at == 1700 && !once_lease_is_held(&lease, 3100));
    once_lease_renewed(&lease, ONCE_RENEWAL_DONE, 1700, 1900);
    EXPECT(lease.renew_at == 2900 && once_lease_is_held(&lease, 4699) && !once_lease_is_held(&lease, 4700));
    once_lease_renewed(&lease, ONCE_RENEWAL_FENCED, 2900, 2901);
    EXPECT(lease.renew_at == INT64_MAX && !once_lease_is_held(&lease, 2902));
    once_lease_granted(&lease, 1, 5000);
    EXPECT(lease.renew_at == 5001 && once_lease_is_held(&lease, 5000));
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(lease__is_held_from_the_question_and_renewed_each_third),
        TEST(lease_keeper__counts_from_when_it_was_asked_for),
        TEST(lease_keeper__renews_at_once_what_was_asked_for_long_ago),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
