/*
 * test_decide.c - the arms of a claim, as a table over every kind of record (docs/design.md section 4).
 */
#include "core/decide.h"
#include "core/span.h"

#include "../test.h"

enum { NOW = 1000000 };

/* Kinds of records, each a row of the tables below. */
enum kind {
    ABSENT,
    RUNNING_LIVE,
    RUNNING_OVER,
    RUNNING_OWN,
    UNSENT,
    SENT,
    SUCCEEDED,
    FAILED,
    RETRYABLE,
    UNKNOWN,
    RELEASED,
    EXPIRED,
    LEFT /* to a completer, its lease over */
};

static struct once_stored make(enum kind kind, bool other_fingerprint)
{
    struct once_stored s = { .record = { .grant = { .fence = 5 }, .attempt = 1, .expires_at = NOW + 1 } };
    struct once_record *r = &s.record;
    memset(s.nonce, kind == RUNNING_OWN ? 1 : 2, sizeof s.nonce);
    r->fingerprint.bytes[0] = other_fingerprint;
    switch (kind) {
    case RUNNING_LIVE:
    case RUNNING_OVER:
    case RUNNING_OWN:
    case UNSENT:
    case SENT:
    case LEFT:
        if (kind == LEFT)
            r->takeover = ONCE_TAKEOVER_COMPLETER;
        s.intent = kind == UNSENT || kind == SENT;
        if (kind == SENT)
            r->recovery_point = ONCE_LIT(ONCE_POINT_SENDING);
        r->state = ONCE_STATE_RUNNING;
        r->lease_live = kind == RUNNING_LIVE;
        r->expires_at = 0;
        break;
    case SUCCEEDED:
        r->state = ONCE_STATE_SUCCEEDED;
        break;
    case EXPIRED:
        r->state = ONCE_STATE_SUCCEEDED;
        r->expires_at = NOW;
        break;
    case UNKNOWN:
        r->state = ONCE_STATE_UNKNOWN;
        r->expires_at = ONCE_NEVER;
        break;
    default:
        r->state = ONCE_STATE_FAILED;
        r->retryable = kind == RETRYABLE || kind == RELEASED;
        s.released = kind == RELEASED;
    }
    return s;
}

static void decide__every_arm_in_its_order(void)
{
#define ARM(name) ONCE_ARM_##name
#define CHANGE(name) ONCE_CHANGE_##name
    static const struct {
        const char *name;
        enum kind kind;
        bool other;
        enum once_takeover takeover;
        enum once_arm arm;
        enum once_change change;
    } rows[] = {
        { "absent", ABSENT, false, ONCE_TAKEOVER_ESCALATE, ARM(EXECUTE), CHANGE(CREATE) },
        { "K8 expired", EXPIRED, false, ONCE_TAKEOVER_ESCALATE, ARM(EXECUTE), CHANGE(CREATE) },
        { "K8 expired, other request", EXPIRED, true, ONCE_TAKEOVER_ESCALATE, ARM(EXECUTE), CHANGE(CREATE) },
        { "released", RELEASED, false, ONCE_TAKEOVER_ESCALATE, ARM(EXECUTE), CHANGE(CREATE) },
        { "released, other request", RELEASED, true, ONCE_TAKEOVER_ESCALATE, ARM(EXECUTE), CHANGE(CREATE) },
        { "K6 live", RUNNING_LIVE, true, ONCE_TAKEOVER_RERUN, ARM(MISMATCH), CHANGE(NONE) },
        { "K6 over", RUNNING_OVER, true, ONCE_TAKEOVER_RERUN, ARM(MISMATCH), CHANGE(NONE) },
        { "K6 succeeded", SUCCEEDED, true, ONCE_TAKEOVER_RERUN, ARM(MISMATCH), CHANGE(NONE) },
        { "K6 retryable", RETRYABLE, true, ONCE_TAKEOVER_RERUN, ARM(MISMATCH), CHANGE(NONE) },
        { "K6 unknown", UNKNOWN, true, ONCE_TAKEOVER_RERUN, ARM(MISMATCH), CHANGE(NONE) },
        { "K5 succeeded", SUCCEEDED, false, ONCE_TAKEOVER_RERUN, ARM(REPLAY), CHANGE(NONE) },
        { "K5 failed", FAILED, false, ONCE_TAKEOVER_RERUN, ARM(REPLAY), CHANGE(NONE) },
        { "retryable", RETRYABLE, false, ONCE_TAKEOVER_ESCALATE, ARM(EXECUTE), CHANGE(TAKE) },
        { "K10 unknown", UNKNOWN, false, ONCE_TAKEOVER_RERUN, ARM(UNKNOWN), CHANGE(NONE) },
        { "K1 live", RUNNING_LIVE, false, ONCE_TAKEOVER_RERUN, ARM(IN_PROGRESS), CHANGE(NONE) },
        { "over, rerun", RUNNING_OVER, false, ONCE_TAKEOVER_RERUN, ARM(EXECUTE), CHANGE(TAKE) },
        { "over, probe", RUNNING_OVER, false, ONCE_TAKEOVER_PROBE, ARM(PROBE), CHANGE(TAKE) },
        { "over, escalate", RUNNING_OVER, false, ONCE_TAKEOVER_ESCALATE, ARM(UNKNOWN), CHANGE(ESCALATE) },
        { "over, completer, not said before", RUNNING_OVER, false, ONCE_TAKEOVER_COMPLETER, ARM(UNKNOWN),
          CHANGE(ESCALATE) },
        { "over, completer", LEFT, false, ONCE_TAKEOVER_COMPLETER, ARM(IN_PROGRESS), CHANGE(NONE) },
        { "left, rerun", LEFT, false, ONCE_TAKEOVER_RERUN, ARM(EXECUTE), CHANGE(TAKE) },
        { "left, escalate", LEFT, false, ONCE_TAKEOVER_ESCALATE, ARM(UNKNOWN), CHANGE(ESCALATE) },
        { "intent, not sent, completer", UNSENT, false, ONCE_TAKEOVER_COMPLETER, ARM(EXECUTE), CHANGE(TAKE) },
        { "intent, not sent, escalate", UNSENT, false, ONCE_TAKEOVER_ESCALATE, ARM(EXECUTE), CHANGE(TAKE) },
        { "intent, not sent, probe", UNSENT, false, ONCE_TAKEOVER_PROBE, ARM(EXECUTE), CHANGE(TAKE) },
        { "intent, sent, escalate", SENT, false, ONCE_TAKEOVER_ESCALATE, ARM(UNKNOWN), CHANGE(ESCALATE) },
        { "intent, sent, probe", SENT, false, ONCE_TAKEOVER_PROBE, ARM(PROBE), CHANGE(TAKE) },
        { "intent, sent, rerun", SENT, false, ONCE_TAKEOVER_RERUN, ARM(EXECUTE), CHANGE(TAKE) },
        { "K6 intent, not sent", UNSENT, true, ONCE_TAKEOVER_RERUN, ARM(MISMATCH), CHANGE(NONE) },
        { "own nonce", RUNNING_OWN, false, ONCE_TAKEOVER_ESCALATE, ARM(EXECUTE), CHANGE(RENEW) },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct once_stored stored = make(rows[i].kind, rows[i].other);
        struct once_claim claim = { .takeover = rows[i].takeover };
        memset(claim.nonce, 1, sizeof claim.nonce);
        struct once_decision d = once_decide_claim(rows[i].kind == ABSENT ? NULL : &stored, &claim, NOW);
        EXPECT_ROW(rows[i].name, d.arm == rows[i].arm);
        EXPECT_ROW(rows[i].name, d.change == rows[i].change);
    }
}

static void decide__a_takeover_only_of_what_was_seen(void)
{
    static const struct {
        const char *name;
        enum kind kind;
        enum once_takeover stored;
        uint64_t seen;
        bool again;
        enum once_arm arm;
        enum once_change change;
    } rows[] = {
        { "absent", ABSENT, ONCE_TAKEOVER_RERUN, 5, false, ARM(ABSENT), CHANGE(NONE) },
        { "K8 expired", EXPIRED, ONCE_TAKEOVER_RERUN, 5, false, ARM(ABSENT), CHANGE(NONE) },
        { "released", RELEASED, ONCE_TAKEOVER_RERUN, 5, false, ARM(ABSENT), CHANGE(NONE) },
        { "over, rerun", RUNNING_OVER, ONCE_TAKEOVER_RERUN, 5, false, ARM(EXECUTE), CHANGE(TAKE) },
        { "over, probe", RUNNING_OVER, ONCE_TAKEOVER_PROBE, 5, false, ARM(PROBE), CHANGE(TAKE) },
        { "over, escalate", RUNNING_OVER, ONCE_TAKEOVER_ESCALATE, 5, false, ARM(UNKNOWN), CHANGE(ESCALATE) },
        { "over, completer", RUNNING_OVER, ONCE_TAKEOVER_COMPLETER, 5, false, ARM(PROBE), CHANGE(TAKE) },
        { "intent, not sent, completer", UNSENT, ONCE_TAKEOVER_COMPLETER, 5, false, ARM(EXECUTE), CHANGE(TAKE) },
        { "over, but not what was seen", RUNNING_OVER, ONCE_TAKEOVER_RERUN, 4, false, ARM(FENCED), CHANGE(NONE) },
        { "K1 live", RUNNING_LIVE, ONCE_TAKEOVER_RERUN, 5, false, ARM(FENCED), CHANGE(NONE) },
        { "intent, not sent", UNSENT, ONCE_TAKEOVER_ESCALATE, 5, false, ARM(EXECUTE), CHANGE(TAKE) },
        { "intent, sent", SENT, ONCE_TAKEOVER_ESCALATE, 5, false, ARM(UNKNOWN), CHANGE(ESCALATE) },
        { "own nonce", RUNNING_OWN, ONCE_TAKEOVER_ESCALATE, 3, false, ARM(EXECUTE), CHANGE(RENEW) },
        { "retryable", RETRYABLE, ONCE_TAKEOVER_ESCALATE, 5, false, ARM(EXECUTE), CHANGE(TAKE) },
        { "retryable, but not what was seen", RETRYABLE, ONCE_TAKEOVER_RERUN, 6, false, ARM(FENCED), CHANGE(NONE) },
        { "K5 succeeded", SUCCEEDED, ONCE_TAKEOVER_RERUN, 5, false, ARM(FENCED), CHANGE(NONE) },
        { "K5 failed", FAILED, ONCE_TAKEOVER_RERUN, 5, false, ARM(FENCED), CHANGE(NONE) },
        { "K10 unknown", UNKNOWN, ONCE_TAKEOVER_ESCALATE, 5, false, ARM(FENCED), CHANGE(NONE) },
        { "K10 unknown, by this call", UNKNOWN, ONCE_TAKEOVER_ESCALATE, 5, true, ARM(UNKNOWN), CHANGE(NONE) },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct once_stored stored = make(rows[i].kind, false);
        stored.record.takeover = rows[i].stored;
        struct once_take_over take_over = { .seen.fence = rows[i].seen };
        memset(take_over.nonce, 1, sizeof take_over.nonce);
        struct once_decision d =
            once_decide_take_over(rows[i].kind == ABSENT ? NULL : &stored, &take_over, rows[i].again, NOW);
        EXPECT_ROW(rows[i].name, d.arm == rows[i].arm);
        EXPECT_ROW(rows[i].name, d.change == rows[i].change);
    }
}

/* No mark of a later attempt can say that an earlier one sent nothing. */
static void decide__intent_counts_only_after_what_is_certain(void)
{
    static const struct {
        enum kind kind;
        bool holds;
    } rows[] = { { ABSENT, true }, { RETRYABLE, true }, { UNSENT, true }, { SENT, false }, { RUNNING_OVER, false } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct once_stored stored = make(rows[i].kind, false);
        EXPECT(once_intent_holds(rows[i].kind == ABSENT ? NULL : &stored) == rows[i].holds);
    }
}

static void decide__a_release_speaks_for_its_own_attempt(void)
{
    static const struct {
        const char *name;
        uint32_t attempt;
        bool in_doubt;
        const char *points;
        enum once_released left;
    } rows[] = {
        { "first", 1, false, "", ONCE_RELEASED_FREE },
        { "first, marked", 1, false, "once:sending 00000000\n", ONCE_RELEASED_FREE },
        { "first, a point", 1, false, "booked 00000000\n", ONCE_RELEASED_RETRYABLE },
        { "first, a point, then marked", 1, false, "booked 00000000\nonce:sending 00000000\n",
          ONCE_RELEASED_RETRYABLE },
        { "first, marked, then a point", 1, false, "once:sending 00000000\nbooked 00000000\n",
          ONCE_RELEASED_RETRYABLE },
        { "first, nearly a mark", 1, false, "once:sendin 00000000\n", ONCE_RELEASED_RETRYABLE },
        { "later, after a failure", 2, false, "", ONCE_RELEASED_RETRYABLE },
        { "later, after a failure, marked", 2, false, "once:sending 00000000\n", ONCE_RELEASED_RETRYABLE },
        { "K10 after one that may have sent", 2, true, "", ONCE_RELEASED_ABANDONED },
        { "K10 the same with a point", 9, true, "booked 00000000\n", ONCE_RELEASED_ABANDONED },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct once_stored stored = make(RUNNING_LIVE, false);
        stored.record.attempt = rows[i].attempt;
        stored.in_doubt = rows[i].in_doubt;
        EXPECT_ROW(rows[i].name, once_decide_release(&stored, once_span_str(rows[i].points)) == rows[i].left);
    }
}

static void decide__a_verdict_only_where_nobody_knows(void)
{
    static const struct {
        const char *name;
        enum kind kind;
        uint64_t fence;
        enum once_arm arm;
    } rows[] = {
        { "absent", ABSENT, 0, ARM(ABSENT) },       { "expired", EXPIRED, 0, ARM(ABSENT) },
        { "released", RELEASED, 0, ARM(ABSENT) },   { "unknown", UNKNOWN, 0, ARM(DONE) },
        { "unknown, seen", UNKNOWN, 5, ARM(DONE) }, { "unknown, changed", UNKNOWN, 4, ARM(FENCED) },
        { "over", RUNNING_OVER, 0, ARM(DONE) },     { "live", RUNNING_LIVE, 0, ARM(IN_PROGRESS) },
        { "K5 done", SUCCEEDED, 0, ARM(REPLAY) },   { "retryable", RETRYABLE, 0, ARM(REPLAY) },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct once_stored stored = make(rows[i].kind, false);
        enum once_arm arm = once_decide_resolve(rows[i].kind == ABSENT ? NULL : &stored, rows[i].fence, NOW);
        EXPECT_ROW(rows[i].name, arm == rows[i].arm);
    }
}

static void arm_of_state__what_became_of_a_lost_record(void)
{
    EXPECT(once_arm_of_state(ONCE_STATE_NONE) == ONCE_ARM_FENCED);
    EXPECT(once_arm_of_state(ONCE_STATE_RUNNING) == ONCE_ARM_IN_PROGRESS);
    EXPECT(once_arm_of_state(ONCE_STATE_SUCCEEDED) == ONCE_ARM_REPLAY);
    EXPECT(once_arm_of_state(ONCE_STATE_FAILED) == ONCE_ARM_REPLAY);
    EXPECT(once_arm_of_state(ONCE_STATE_UNKNOWN) == ONCE_ARM_UNKNOWN);
}

static void same_operation__needs_the_fingerprint_and_the_first_claim(void)
{
    struct once_fingerprint mine = { { 1 } }, other = { { 2 } };
    struct once_record record = { .fingerprint = mine, .created_at = 1000 };
    EXPECT(once_record_is_same_operation(&record, &mine, 1000));
    EXPECT(!once_record_is_same_operation(&record, &other, 1000)); /* the key stands for another request (K6) */
    EXPECT(!once_record_is_same_operation(&record, &mine, 999));   /* it expired in between (K5) */
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(decide__every_arm_in_its_order),
        TEST(decide__a_takeover_only_of_what_was_seen),
        TEST(decide__intent_counts_only_after_what_is_certain),
        TEST(decide__a_release_speaks_for_its_own_attempt),
        TEST(decide__a_verdict_only_where_nobody_knows),
        TEST(arm_of_state__what_became_of_a_lost_record),
        TEST(same_operation__needs_the_fingerprint_and_the_first_claim),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
