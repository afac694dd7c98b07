/*
 * suite.h - what the cases of the conformance suite are written with.
 *
 * A case finds an open, fresh store in `suite.once`, speaks to it through once.h only, and
 * moves the clock by hand. The runner opens before it, and after it verifies the store with
 * once_check(), closes, reopens and verifies again: a case that leaves the smallest problem
 * behind fails, whatever it looked at itself.
 *
 * The do_ functions are the calls of once.h that are expected to work: they end the case if
 * the result is not ONCE_OK, and their replies live until the case is over.
 *
 *     struct once_grant old = granted(.key = ONCE_LIT("a"), .lease_ms = 1000);
 *     clock_advance(1000);
 *     struct once_grant new = granted(.key = ONCE_LIT("a"), .takeover = ONCE_TAKEOVER_RERUN);
 *     CHECK(do_extend(old, 0)->arm == ONCE_ARM_FENCED);
 *
 * CHECK leaves the case (main thread only), EXPECT goes on, EXPECT_ROW names a table's row.
 */
#ifndef ONCE_CONFORMANCE_SUITE_H
#define ONCE_CONFORMANCE_SUITE_H

#include "once.h"
#include "store_under_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))

struct suite {
    struct once *once;
    struct once_options options; /* as it was opened last */
    char url[300];
    bool in_callback;      /* of once_run(): the case cannot be left from here */
    struct once_error err; /* of the last call that was made through this suite */
    bool own_keys;         /* the case chose them */
};
extern struct suite suite;

/* The groups of cases, each ends with an empty row. */
extern const struct suite_case claim_cases[], finish_cases[], progress_cases[], resolve_cases[], time_cases[],
    name_cases[], take_over_cases[], look_cases[], async_cases[], run_cases[], shared_cases[], forget_cases[],
    seal_cases[], retention_cases[], steady_cases[], quota_cases[];

/* ---------------------------------------------------------------- failing */

void suite_failed(const char *file, int line, const char *row, const char *what);
_Noreturn void suite_leave(void);

#define EXPECT_ROW(row, cond) ((cond) ? (void)0 : suite_failed(__FILE__, __LINE__, (row), #cond))
#define EXPECT(cond) EXPECT_ROW(NULL, cond)
#define CHECK(cond)                                                                                                    \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            suite_failed(__FILE__, __LINE__, NULL, #cond);                                                             \
            suite_leave();                                                                                             \
        }                                                                                                              \
    } while (0)

/* ---------------------------------------------------------------- the clock */

extern const struct once_clock suite_clock;

void clock_advance(int64_t ms);    /* time passes: both clocks run on */
void clock_step_wall(int64_t ms);  /* somebody sets the wall clock */
void clock_reboot(int64_t off_ms); /* another boot, after that long with the power off; steady starts over */

/* ---------------------------------------------------------------- the handle */

/* Close and open the same store again, with the same or other options (clock and
 * sharing are filled in). */
void reopen(void);
void reopen_with(struct once_options options);
/* On the machine's own clock from here to the end of the case. */
void reopen_with_real_clock(void);

/* With ONCE_TEST_SEAL set: a file of keys that all stores of this run are sealed with; else NULL. */
#define SUITE_KEYS                                                                                                     \
    "k1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"                                            \
    "acme-1 acme 101102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"                                   \
    "t-1 t 201102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
const char *suite_seal_keys(void);
/* Close it and try to open it with these keys (NULL: none), to the end of the case. Not where the store is served. */
once_result reopen_with_keys(const char *text);

/* For once_submit(), where nobody wants to know. */
void forget_answer(void *arg, once_result result, struct once_reply *reply, const struct once_error *err);
/* With options.poll: waits until something is to be dispatched, and does. 0: nothing came. */
size_t dispatch_some(void);

/* ---------------------------------------------------------------- calls that must work */

const struct once_reply *suite_claim(const struct once_claim *claim);
const struct once_reply *suite_finish(struct once_grant grant, const struct once_outcome *outcome);
const struct once_reply *suite_resolve(const struct once_resolve *resolve);
const struct once_reply *suite_forget(const struct once_forget *forget);
struct once_grant suite_granted(const char *file, int line, const struct once_claim *claim);

#define do_claim(...) suite_claim(&(struct once_claim){ __VA_ARGS__ })
#define do_finish(grant, ...) suite_finish((grant), &(struct once_outcome){ __VA_ARGS__ })
#define do_resolve(...) suite_resolve(&(struct once_resolve){ __VA_ARGS__ })
#define do_forget(...) suite_forget(&(struct once_forget){ __VA_ARGS__ })
/* A claim that must be answered EXECUTE or PROBE. */
#define granted(...) suite_granted(__FILE__, __LINE__, &(struct once_claim){ __VA_ARGS__ })

#define do_take_over(grant, ...) suite_take_over(&(struct once_take_over){ .seen = (grant), __VA_ARGS__ })
const struct once_reply *suite_take_over(const struct once_take_over *take_over);
const struct once_reply *do_extend(struct once_grant grant, int64_t lease_ms);
const struct once_reply *do_advance(struct once_grant grant, once_span point, once_span checkpoint);
const struct once_reply *do_release(struct once_grant grant);
const struct once_reply *do_lookup(once_span key);
const struct once_reply *do_lookup_in(once_span tenant, once_span key);
const struct once_reply *do_lookup_record(const uint8_t record[16]);
const struct once_page *do_list(struct once_filter filter);
const struct once_history *do_history(once_span key);
struct once_stats do_stats(void);
/* Steps until no more is due; how many records went. */
uint64_t do_expire_all(uint32_t budget);
/* The same; did just `count` of them go? Where space is given back later: none if none is due. */
bool do_expire(uint32_t budget, uint64_t count);

/* Finish as succeeded, with status 200 and this body. */
void succeed(struct once_grant grant, once_span body);

/* ---------------------------------------------------------------- values */

struct once_fingerprint print_of(uint8_t seed); /* 32 times that byte */
once_span span_str(const char *text);
once_span numbered(const char *prefix, int number); /* lives until the case is over */
once_span bytes_of(size_t len, bool random);        /* the same */
bool span_equal(once_span a, once_span b);
bool same_grant(struct once_grant a, struct once_grant b);
bool same_record(const struct once_record *a, const struct once_record *b); /* every field */
/* How often the page shows a record with this key. */
size_t times_listed(const struct once_page *page, once_span key);

/* The case does not apply to the store under test: say why, then return. */
void skip(const char *why);

#endif
