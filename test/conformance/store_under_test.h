/*
 * store_under_test.h - everything the suite has to know about one kind of store.
 *
 * A new kind (postgresql:, redis:) adds its own file with these functions and cases. What
 * the others promise, it has to promise too.
 */
#ifndef ONCE_CONFORMANCE_STORE_UNDER_TEST_H
#define ONCE_CONFORMANCE_STORE_UNDER_TEST_H

#include <stdbool.h>
#include <stddef.h>

struct suite_case {
    const char *name;
    void (*run)(void);
};

#define CASE(fn)                                                                                                       \
    {                                                                                                                  \
#fn, fn                                                                                                        \
    }

struct store_under_test {
    bool shared;        /* opened with options.shared: other handles may write too */
    bool loses_answers; /* every third step has to be settled: do less of the same */
    bool reopens;       /* what was stored is there after closing */
    bool expires_later; /* once_expire() gives space back in generations, not record by record */
    bool served;        /* by a daemon, which settles by itself, and has the suite's clock
                           whatever options.clock says */
    bool no_never;      /* retention 'never' is refused */
    bool unordered;     /* a listing has an order within a page only, and may repeat and add */
    bool compact;       /* its size is that of what it keeps, about */
    bool foreign_clock; /* the store's clock is another machine's wall clock: it may step, and
                           knows nothing of our boots */
};
extern struct store_under_test sut;

/* "sqlite", "sqlite-shared", "fault+sqlite", ...: false if there is no such store. */
bool sut_choose(const char *name);
/* A store that does not exist yet, in a private place. */
void sut_fresh(char *url, size_t len);
/* A place for a store, without one: where opening makes a store, the same as sut_fresh(). */
void sut_empty(char *url, size_t len);
/* Between closing a handle and opening it again: where somebody serves the store, he ends, and
 * starts again. */
void sut_restart(void);
/* What a running store has done to it by its surroundings after an expiry (autovacuum). */
void sut_tidy(void);
/* Removes everything sut_fresh() made room for. */
void sut_discard(void);
/* A case that this kind of store does not promise to pass. NULL: it does. */
struct suite_gap {
    const char *name;      /* of the case */
    const char *invariant; /* that is not promised, as once_gaps() has it */
    const char *why;
};
extern const struct suite_gap sut_gaps[] __attribute__((weak)); /* ends with an empty row; none: there are no gaps */
/* The promises that only this kind of store makes. */
extern const struct suite_case sut_cases[];

#endif
