/*
 * fetch.h - judges records whose stored answers have to be fetched, some at a time.
 *
 * A listing has no bodies. To compare values each must be looked up: one by one that is a
 * round trip each. Here the look-ups of a batch are handed in together; each answer is compared
 * where it arrives (on the engine's thread) and dropped, so that no bodies pile up.
 */
#ifndef ONCE_RECONCILE_FETCH_H
#define ONCE_RECONCILE_FETCH_H

#include "reconcile/reconcile.h"

/* 64 bodies of the largest size would be 1 GiB; the usual answer has a few hundred bytes. */
enum { RECONCILE_FETCH_MAX = 64 };

struct reconcile_fetch {
    struct reconcile_match match;
    const struct once_record *record; /* as it was listed */
    struct reconcile_charge charge;   /* its values are a copy, which this owns */
    enum reconcile_kind kind;         /* the verdict; text says more */
    char text[RECONCILE_TEXT_LEN];
};

/* Gives each its verdict; 0 or an exit code after a message. */
int reconcile_fetch(struct reconcile *r, struct reconcile_fetch *items, size_t count);

#endif
