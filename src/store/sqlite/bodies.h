/*
 * bodies.h - drops headers and bodies that are not kept as long as their records (ADR 29).
 */
#ifndef ONCE_STORE_SQLITE_BODIES_H
#define ONCE_STORE_SQLITE_BODIES_H

#include "store/sqlite/store.h"

/* One bounded step, inside the caller's transaction: at most `budget` outcomes. *more: others are due as well. */
once_result sqlite_bodies_drop(struct sqlite_store *s, uint32_t budget, bool *more, struct once_error *err);

#endif
