/*
 * seal_keys.h - fetches the keys that bytes are sealed with: from a file, or from the output of a command.
 *
 * A file is a regular one of mode 0600 or less, its owner's or root's. A command is run by /bin/sh, has 30 s, and must
 * exit with 0. No message ever quotes their contents, and all copies are wiped.
 */
#ifndef ONCE_STORE_WRAP_SEAL_KEYS_H
#define ONCE_STORE_WRAP_SEAL_KEYS_H

#include "core/seal_ring.h"

once_result once_seal_keys_file(const char *path, struct once_seal_ring **out, struct once_error *err);
once_result once_seal_keys_command(const char *command, struct once_seal_ring **out, struct once_error *err);

#endif
