/*
 * fetch.h - judges records that need their stored answers, several at a time.
 *
 * A listing has no bodies; to compare values, each record must be looked up. The lookups of a
 * batch are submitted together, to save round trips; each answer is compared when it arrives, on
 * the engine's thread, and released, so that bodies do not accumulate.
 */
#ifndef ONCE_RECONCILE_FETCH_H
#define ONCE_RECONCILE_FETCH_H

#include "reconcile/reconcile.h"

/* 64 bodies of the largest size would be 1 GiB; the usual answer has a few hundred bytes. */
enum { RECONCILE_FETCH_MAX = 64 };

struct reconcile_fetch {
    struct reconcile_match match;
    const struct once_record *record; /* as it was listed */
    struct reconcile_charge charge;   /* owns a copy of its values */
    enum reconcile_kind kind;         /* the verdict; `text` explains it */
    char text[RECONCILE_TEXT_LEN];
};

/* Sets `kind` and `text` of each item. 0, or an exit code after a message. */
int reconcile_fetch(struct reconcile *r, struct reconcile_fetch *items, size_t count);

#endif
