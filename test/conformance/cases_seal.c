/* cases_seal.c - stores whose bytes are sealed, as keys come and go (SEAL-3, SEAL-4: src/store/wrap/seal.c). */
#include "suite.h"

static const once_span A = { (const uint8_t *)"a", 1 };
static const once_span ACME = { (const uint8_t *)"acme", 4 };

#define K1 "k1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define K1_WRONG "k1 100102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define K2 "k2 200102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define ACME_1 "acme-1 acme 300102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define ACME_WRONG "acme-1 acme 400102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define ANSWER .state = ONCE_STATE_SUCCEEDED, .status = 201, .headers = ONCE_LIT("A: b\r\n"), .body = ONCE_LIT("secret")

/* A daemon has the keys, not who asks it; and where all is sealed, the store had others before. */
static bool cannot_choose_keys(void)
{
    if (sut.served || suite_seal_keys() != NULL)
        skip("its keys are somebody else's");
    return sut.served || suite_seal_keys() != NULL;
}

static bool is_whole(const struct once_reply *reply)
{
    return reply->record.status == 201 && span_equal(reply->record.headers, ONCE_LIT("A: b\r\n")) &&
           span_equal(reply->record.body, ONCE_LIT("secret")) && !reply->record.body_dropped;
}

static bool is_told(const struct once_reply *reply)
{
    return reply->arm == ONCE_ARM_REPLAY && reply->record.status == 201 && reply->record.headers.len == 0 &&
           reply->record.body.len == 0 && reply->record.body_dropped;
}

static bool is_told_why(const struct once_reply *reply)
{
    return is_told(reply) && reply->record.body_sealed;
}

static void S3__what_was_sealed_is_as_it_was(void)
{
    if (cannot_choose_keys())
        return;
    CHECK(reopen_with_keys(K1 ACME_1) == ONCE_OK);
    for (int i = 0; i < 2; i++) {
        once_span tenant = i == 0 ? ACME : ONCE_LIT("");
        struct once_grant grant = granted(.tenant = tenant, .key = A, .request = ONCE_LIT("asked"));
        do_advance(grant, ONCE_LIT("sent"), ONCE_LIT("receipt"));
        EXPECT(span_equal(do_lookup_in(tenant, A)->record.checkpoint, ONCE_LIT("receipt")));
        struct once_reply with = { 0 };
        CHECK(once_lookup_request(suite.once, tenant, A, &with, NULL) == ONCE_OK);
        EXPECT(span_equal(with.record.request, ONCE_LIT("asked")));
        once_reply_release(&with);
        CHECK(reopen_with_keys(K1 ACME_1) == ONCE_OK); /* who finishes is asked whose it is */
        EXPECT(do_finish(grant, ANSWER)->arm == ONCE_ARM_DONE);
        EXPECT(do_finish(grant, ANSWER)->arm == ONCE_ARM_DONE); /* the same again is recognised */
        const struct once_reply *other = do_finish(grant, .state = ONCE_STATE_FAILED);
        EXPECT(other->arm == ONCE_ARM_FENCED && is_whole(other));
        EXPECT(is_whole(do_claim(.tenant = tenant, .key = A)));
    }
    CHECK(reopen_with_keys(K1) == ONCE_OK); /* acme's line is dropped: it was sealed with that */
    EXPECT(is_told_why(do_claim(.tenant = ACME, .key = A)) && is_whole(do_claim(.key = A)));
}

static void S4__a_tenant_whose_key_is_gone_is_told_and_not_executed_again(void)
{
    if (cannot_choose_keys())
        return;
    CHECK(reopen_with_keys(K1 ACME_1) == ONCE_OK);
    do_finish(granted(.tenant = ACME, .key = ONCE_LIT("done")), ANSWER);
    do_finish(granted(.tenant = ONCE_LIT("other"), .key = ONCE_LIT("done")), ANSWER);
    do_finish(granted(.tenant = ACME, .key = ONCE_LIT("retry")), .state = ONCE_STATE_FAILED, .retryable = true,
              .body = ONCE_LIT("secret"));
    struct once_grant grant = granted(.tenant = ACME, .key = ONCE_LIT("half"), .lease_ms = 1000);
    do_advance(grant, ONCE_LIT("charged"), ONCE_LIT("receipt"));
    CHECK(reopen_with_keys(K1) == ONCE_OK);
    clock_advance(1000);
    for (int again = 0; again < 2; again++) {
        EXPECT(is_told_why(do_claim(.tenant = ACME, .key = ONCE_LIT("done"))));
        EXPECT(is_whole(do_claim(.tenant = ONCE_LIT("other"), .key = ONCE_LIT("done"))));
        const struct once_reply *half =
            do_claim(.tenant = ACME, .key = ONCE_LIT("half"), .takeover = ONCE_TAKEOVER_RERUN, .lease_ms = 1000);
        EXPECT(half->arm == ONCE_ARM_UNKNOWN && half->record.state == ONCE_STATE_UNKNOWN); /* K10 */
        EXPECT(span_equal(half->record.recovery_point, ONCE_LIT("charged")) && half->record.checkpoint.len == 0);
    }
    EXPECT(do_lookup_in(ACME, ONCE_LIT("half"))->record.state == ONCE_STATE_UNKNOWN);
    EXPECT(do_claim(.tenant = ACME, .key = ONCE_LIT("retry"))->arm ==
           ONCE_ARM_EXECUTE); /* it had failed, and no point */
    struct once_grant anew = granted(.tenant = ACME, .key = ONCE_LIT("new"));
    EXPECT(do_finish(anew, ANSWER)->arm == ONCE_ARM_DONE && is_whole(do_claim(.tenant = ACME, .key = ONCE_LIT("new"))));
    CHECK(reopen_with_keys(K1 ACME_1) == ONCE_OK); /* the line is back, and so are the answers */
    EXPECT(is_whole(do_claim(.tenant = ACME, .key = ONCE_LIT("done"))));
    EXPECT(is_whole(do_claim(.tenant = ACME, .key = ONCE_LIT("new"))));
}

static void S2__a_wrong_key_of_a_tenant_is_damage_and_nothing_is_executed(void)
{
    if (cannot_choose_keys())
        return;
    CHECK(reopen_with_keys(K1 ACME_1) == ONCE_OK);
    do_finish(granted(.tenant = ACME, .key = A), ANSWER);
    CHECK(reopen_with_keys(K1 ACME_WRONG) == ONCE_OK);
    struct once_reply reply;
    struct once_error err;
    struct once_claim claim = { .tenant = ACME, .key = A };
    EXPECT(once_claim(suite.once, &claim, &reply, &err) == ONCE_CORRUPT && strstr(err.text, "sealed") != NULL);
    once_reply_release(&reply);
    CHECK(reopen_with_keys(K1 ACME_1) == ONCE_OK);
    EXPECT(is_whole(do_claim(.tenant = ACME, .key = A)));
}

static void rotation__the_last_key_seals_and_the_others_open(void)
{
    if (cannot_choose_keys())
        return;
    CHECK(reopen_with_keys(K1) == ONCE_OK);
    do_finish(granted(.key = numbered("k", 1)), ANSWER);
    CHECK(reopen_with_keys(K1 K2) == ONCE_OK);
    EXPECT(is_whole(do_claim(.key = numbered("k", 1))));
    do_finish(granted(.key = numbered("k", 2)), ANSWER);
    CHECK(reopen_with_keys(K2 K1) == ONCE_OK); /* as it is spread over machines: first there, then last */
    EXPECT(is_whole(do_claim(.key = numbered("k", 1))) && is_whole(do_claim(.key = numbered("k", 2))));
    CHECK(reopen_with_keys(K2 "k1 gone\n") == ONCE_OK);
    EXPECT(is_told_why(do_claim(.key = numbered("k", 1))) && is_whole(do_claim(.key = numbered("k", 2))));
}

static void open__without_its_keys_a_sealed_store_is_refused(void)
{
    if (cannot_choose_keys())
        return;
    do_finish(granted(.key = ONCE_LIT("plain")), ANSWER);
    CHECK(reopen_with_keys(K1 K2) == ONCE_OK); /* from here on; what was there stays as it is */
    EXPECT(is_whole(do_claim(.key = ONCE_LIT("plain"))));
    do_finish(granted(.key = A), ANSWER);
    EXPECT(reopen_with_keys(NULL) == ONCE_UNAVAILABLE && strstr(suite.err.text, "'k2'") != NULL);
    EXPECT(reopen_with_keys(K1) == ONCE_UNAVAILABLE && strstr(suite.err.text, "'k2'") != NULL);
    EXPECT(reopen_with_keys(K2 "k1 gone\n") == ONCE_OK); /* it never sealed anything */
    EXPECT(reopen_with_keys("k2 "
                            "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n") == ONCE_UNAVAILABLE);
    EXPECT(strstr(suite.err.text, "not the one") != NULL && strstr(suite.err.text, "0102") == NULL);
    EXPECT(reopen_with_keys(K2) == ONCE_OK && is_whole(do_claim(.key = A)));
}

static void open__without_keys_one_can_look_and_forget_only(void)
{
    if (cannot_choose_keys())
        return;
    CHECK(reopen_with_keys(K1) == ONCE_OK);
    do_finish(granted(.key = A), ANSWER);
    struct once_grant grant = granted(.key = ONCE_LIT("b"));
    suite.options.without_keys = true;
    CHECK(reopen_with_keys(NULL) == ONCE_OK);
    const struct once_reply *found = do_lookup(A);
    EXPECT(found->arm == ONCE_ARM_FOUND && found->record.status == 201 && found->record.body_dropped);
    EXPECT(found->record.body_sealed);
    EXPECT(do_list((struct once_filter){ 0 })->count == 2);
    struct once_reply reply;
    EXPECT(once_claim(suite.once, &(struct once_claim){ .key = A }, &reply, NULL) == ONCE_INVALID);
    once_reply_release(&reply);
    EXPECT(once_finish(suite.once, grant, &(struct once_outcome){ ANSWER }, &reply, NULL) == ONCE_INVALID);
    once_reply_release(&reply);
    EXPECT(do_forget(.key = A, .reason = ONCE_LIT("r"))->arm == ONCE_ARM_DONE);
    CHECK(reopen_with_keys(K1) == ONCE_OK);
    EXPECT(is_told(do_claim(.key = A)) && do_claim(.key = A)->record.forgotten &&
           !do_claim(.key = A)->record.body_sealed);
    EXPECT(do_finish(grant, ANSWER)->arm == ONCE_ARM_DONE);
}

static void limits__what_is_longest_can_be_sealed(void)
{
    if (cannot_choose_keys())
        return;
    CHECK(reopen_with_keys(K1 ACME_1) == ONCE_OK);
    once_span request = bytes_of(ONCE_REQUEST_LEN_MAX, true), checkpoint = bytes_of(ONCE_CHECKPOINT_LEN_MAX, true);
    once_span body = bytes_of(ONCE_BODY_LEN_MAX, true);
    struct once_grant grant = granted(.tenant = ACME, .key = A, .request = request);
    EXPECT(do_advance(grant, ONCE_LIT("p"), checkpoint)->arm == ONCE_ARM_DONE);
    struct once_reply with = { 0 };
    CHECK(once_lookup_request(suite.once, ACME, A, &with, NULL) == ONCE_OK);
    EXPECT(span_equal(with.record.request, request) && span_equal(with.record.checkpoint, checkpoint));
    once_reply_release(&with);
    EXPECT(do_finish(grant, .state = ONCE_STATE_SUCCEEDED, .body = body)->arm == ONCE_ARM_DONE);
    EXPECT(span_equal(do_claim(.tenant = ACME, .key = A)->record.body, body));
    once_span same = bytes_of(ONCE_BODY_LEN_MAX, false); /* one that is compressed first */
    do_finish(granted(.key = A), .state = ONCE_STATE_SUCCEEDED, .body = same);
    EXPECT(span_equal(do_claim(.key = A)->record.body, same));
}

static void limits__plain_bytes_that_look_sealed_are_refused(void)
{
    once_span sealed = ONCE_LIT("\x9bonce\r\n\x01 and more");
    struct once_reply reply;
    struct once_grant grant = granted(.key = A);
    EXPECT(once_claim(suite.once, &(struct once_claim){ .key = ONCE_LIT("b"), .request = sealed }, &reply, NULL) ==
           ONCE_INVALID);
    once_reply_release(&reply);
    EXPECT(once_advance(suite.once, grant, ONCE_LIT("p"), sealed, &reply, NULL) == ONCE_INVALID);
    once_reply_release(&reply);
    struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED, .headers = ONCE_LIT("Once-Sealed: k\r\n") };
    EXPECT(once_finish(suite.once, grant, &outcome, &reply, NULL) == ONCE_INVALID);
    once_reply_release(&reply);
    outcome = (struct once_outcome){ .state = ONCE_STATE_SUCCEEDED, .body = sealed }; /* a body may be anything */
    EXPECT(do_finish(grant, .state = ONCE_STATE_SUCCEEDED, .body = sealed)->arm == ONCE_ARM_DONE);
    EXPECT(span_equal(do_claim(.key = A)->record.body, sealed));
}

const struct suite_case seal_cases[] = {
    CASE(S3__what_was_sealed_is_as_it_was),
    CASE(S4__a_tenant_whose_key_is_gone_is_told_and_not_executed_again),
    CASE(S2__a_wrong_key_of_a_tenant_is_damage_and_nothing_is_executed),
    CASE(rotation__the_last_key_seals_and_the_others_open),
    CASE(open__without_its_keys_a_sealed_store_is_refused),
    CASE(open__without_keys_one_can_look_and_forget_only),
    CASE(limits__what_is_longest_can_be_sealed),
    CASE(limits__plain_bytes_that_look_sealed_are_refused),
    { NULL, NULL },
};
