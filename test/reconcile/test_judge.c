/* test_judge.c - every pair of what we say and what the other side says; what may be resolved. */
#include "reconcile/judge.h"

#include "../test.h"

enum { NOW = 1000000, GRACE = 1000 };

static const struct reconcile_rules rules = {
    .as_of = NOW, .grace_ms = GRACE, .complete = true, .resolve_done = true, .resolve_not_done = true
};

static struct once_record record_of(enum once_state state, bool flag, once_time changed_at)
{
    return (struct once_record){
        .grant = { .fence = 7 },
        .state = state,
        .retryable = state == ONCE_STATE_FAILED && flag,
        .lease_live = state == ONCE_STATE_RUNNING && flag,
        .attempt = 1,
        .claimed_at = state == ONCE_STATE_RUNNING ? changed_at : 1,
        .finished_at = state == ONCE_STATE_RUNNING ? 0 : changed_at,
    };
}

static struct reconcile_charge charge_of(enum reconcile_theirs theirs)
{
    return (struct reconcile_charge){ .theirs = theirs,
                                      .lines = theirs != RECONCILE_ABSENT,
                                      .dones = theirs == RECONCILE_DONE };
}

static const struct row {
    const char *name;
    enum once_state state;                /* NONE: no record */
    bool flag;                            /* retryable, or lease live */
    enum reconcile_kind old[4], young[4]; /* absent, done, not done, undecided */
} rows[] = {
    { "no record",
      ONCE_STATE_NONE,
      false,
      { RECONCILE_EQUAL, RECONCILE_NO_RECORD, RECONCILE_EQUAL, RECONCILE_PENDING },
      { RECONCILE_EQUAL, RECONCILE_NO_RECORD, RECONCILE_EQUAL, RECONCILE_PENDING } },
    { "succeeded",
      ONCE_STATE_SUCCEEDED,
      false,
      { RECONCILE_NO_CHARGE, RECONCILE_EQUAL, RECONCILE_OUTCOME, RECONCILE_PENDING },
      { RECONCILE_YOUNG, RECONCILE_EQUAL, RECONCILE_YOUNG, RECONCILE_YOUNG } },
    { "failed",
      ONCE_STATE_FAILED,
      false,
      { RECONCILE_EQUAL, RECONCILE_OUTCOME, RECONCILE_EQUAL, RECONCILE_PENDING },
      { RECONCILE_EQUAL, RECONCILE_OUTCOME, RECONCILE_EQUAL, RECONCILE_YOUNG } },
    { "failed, to be retried",
      ONCE_STATE_FAILED,
      true,
      { RECONCILE_EQUAL, RECONCILE_OUTCOME, RECONCILE_EQUAL, RECONCILE_PENDING },
      { RECONCILE_EQUAL, RECONCILE_OUTCOME, RECONCILE_EQUAL, RECONCILE_YOUNG } },
    { "unknown",
      ONCE_STATE_UNKNOWN,
      false,
      { RECONCILE_UNKNOWN, RECONCILE_UNKNOWN, RECONCILE_UNKNOWN, RECONCILE_UNKNOWN },
      { RECONCILE_YOUNG, RECONCILE_UNKNOWN, RECONCILE_YOUNG, RECONCILE_YOUNG } },
    { "running",
      ONCE_STATE_RUNNING,
      true,
      { RECONCILE_RUNNING, RECONCILE_RUNNING, RECONCILE_RUNNING, RECONCILE_RUNNING },
      { RECONCILE_RUNNING, RECONCILE_RUNNING, RECONCILE_RUNNING, RECONCILE_RUNNING } },
    { "running, lease over",
      ONCE_STATE_RUNNING,
      false,
      { RECONCILE_ABANDONED, RECONCILE_ABANDONED, RECONCILE_ABANDONED, RECONCILE_ABANDONED },
      { RECONCILE_ABANDONED, RECONCILE_ABANDONED, RECONCILE_ABANDONED, RECONCILE_ABANDONED } },
};

static void judge__every_pair(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (enum reconcile_theirs theirs = RECONCILE_ABSENT; theirs <= RECONCILE_UNDECIDED; theirs++) {
            struct reconcile_charge charge = charge_of(theirs);
            /* Exactly as old as it has to be, and a millisecond less. */
            struct once_record old = record_of(rows[i].state, rows[i].flag, NOW - GRACE);
            struct once_record young = record_of(rows[i].state, rows[i].flag, NOW - GRACE + 1);
            bool there = rows[i].state != ONCE_STATE_NONE;
            EXPECT_ROW(rows[i].name, reconcile_judge(&rules, there ? &old : NULL, &charge) == rows[i].old[theirs]);
            EXPECT_ROW(rows[i].name, reconcile_judge(&rules, there ? &young : NULL, &charge) == rows[i].young[theirs]);
        }
}

static void judge__twice(void)
{
    struct reconcile_charge twice = { .theirs = RECONCILE_DONE, .lines = 2, .dones = 2 };
    struct reconcile_charge mixed = { .theirs = RECONCILE_DONE, .lines = 2, .dones = 1 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct once_record record = record_of(rows[i].state, rows[i].flag, NOW);
        bool there = rows[i].state != ONCE_STATE_NONE;
        EXPECT_ROW(rows[i].name, reconcile_judge(&rules, there ? &record : NULL, &twice) == RECONCILE_CHARGED_TWICE);
        enum reconcile_kind kind = reconcile_judge(&rules, there ? &record : NULL, &mixed);
        EXPECT_ROW(rows[i].name, kind == (!there                                ? RECONCILE_NO_RECORD
                                          : rows[i].state == ONCE_STATE_RUNNING ? rows[i].old[0]
                                                                                : RECONCILE_LISTED_TWICE));
    }
}

static const struct plan {
    const char *name;
    enum reconcile_theirs theirs;
    uint32_t lines;
    bool done, not_done, complete, young, unknown_there; /* the rules, and the world */
    enum once_verdict want;
    bool explained;
} plans[] = {
    { "done there", RECONCILE_DONE, 1, true, false, false, false, false, ONCE_VERDICT_DONE, false },
    { "done there, young", RECONCILE_DONE, 1, true, false, false, true, false, ONCE_VERDICT_DONE, false },
    { "done there, no rule", RECONCILE_DONE, 1, false, true, true, false, false, 0, false },
    { "done there on two lines", RECONCILE_DONE, 2, true, true, true, false, false, 0, true },
    { "absent, complete", RECONCILE_ABSENT, 0, false, true, true, false, false, ONCE_VERDICT_NOT_DONE, false },
    { "absent, no rule", RECONCILE_ABSENT, 0, true, false, true, false, false, 0, false },
    { "absent, nobody vouches", RECONCILE_ABSENT, 0, true, true, false, false, false, 0, true },
    { "absent, young", RECONCILE_ABSENT, 0, true, true, true, true, false, 0, true },
    { "absent, and so is everything", RECONCILE_ABSENT, 0, true, true, true, false, true, 0, true },
    { "not done there", RECONCILE_NOT_DONE, 1, false, true, true, false, false, ONCE_VERDICT_NOT_DONE, false },
    { "not done there, nobody vouches", RECONCILE_NOT_DONE, 1, true, true, false, false, false, 0, true },
    { "not done there, young", RECONCILE_NOT_DONE, 1, true, true, true, true, false, 0, true },
    { "undecided", RECONCILE_UNDECIDED, 1, true, true, true, false, false, 0, true },
};

static void plan__silence_is_proof_of_nothing(void)
{
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        const struct plan *plan = &plans[i];
        const struct reconcile_rules r = { .as_of = NOW,
                                           .grace_ms = GRACE,
                                           .complete = plan->complete,
                                           .resolve_done = plan->done,
                                           .resolve_not_done = plan->not_done };
        struct once_record record = record_of(ONCE_STATE_UNKNOWN, false, plan->young ? NOW - GRACE + 1 : NOW - GRACE);
        struct reconcile_charge charge = charge_of(plan->theirs);
        charge.lines = plan->lines;
        const char *why = NULL;
        EXPECT_ROW(plan->name, reconcile_plan(&r, &record, &charge, !plan->unknown_there, &why) == plan->want);
        EXPECT_ROW(plan->name, (why != NULL) == plan->explained);
    }
}

/* RECONCILE-3: a key that is used again after its retention has the same derived keys. */
static void plan__charge_of_an_earlier_life_is_no_proof(void)
{
    struct once_record record = record_of(ONCE_STATE_UNKNOWN, false, NOW - GRACE);
    struct reconcile_charge charge = charge_of(RECONCILE_DONE);
    const char *why = NULL;
    record.created_at = record.claimed_at = 500000;
    charge.at = record.created_at - GRACE; /* clocks differ that much */
    EXPECT(reconcile_plan(&rules, &record, &charge, true, &why) == ONCE_VERDICT_DONE);
    charge.at--;
    EXPECT(reconcile_plan(&rules, &record, &charge, true, &why) == 0);
    EXPECT(why != NULL);
    charge.at = 0; /* it does not say */
    EXPECT(reconcile_plan(&rules, &record, &charge, true, &why) == ONCE_VERDICT_DONE);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = { TEST(judge__every_pair), TEST(judge__twice),
                                         TEST(plan__silence_is_proof_of_nothing),
                                         TEST(plan__charge_of_an_earlier_life_is_no_proof) };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
