/*
 * url.h - which store a command means.
 *
 * In this order: --store, $ONCE_STORE, the file once/once.db in the user's state
 * directory (XDG base directories).
 */
#ifndef ONCE_STORE_URL_H
#define ONCE_STORE_URL_H

#include "core/limits.h"
#include "once.h"

#include <limits.h>

/* Writes the URL, with a relative path made absolute, so that it means the same in a
 * command that changes its directory. `create`: make the default's directory.
 * ONCE_INVALID: what was given cannot be a store's URL. */
once_result once_store_url(const char *given, bool create, char out[ONCE_URL_LEN_MAX + 1], struct once_error *err);

/* The path of the default store if it is the one that is meant and does not exist yet; else NULL. */
const char *once_store_default_missing(const char *given, const char *url);

/* The folder `sub` beside the default store. */
once_result once_state_directory(const char *sub, bool create, char out[PATH_MAX], struct once_error *err);

#endif
