/*
 * handle.h - what a `struct once` is made of; for the engine's own files.
 */
#ifndef ONCE_ENGINE_HANDLE_H
#define ONCE_ENGINE_HANDLE_H

#include "engine/daemon_api.h"
#include "engine/engine.h"

struct lease_keeper;
struct abandoned_finder;

struct once {
    struct once_store *store; /* used by the writer only, except for the secret, which never changes */
    struct engine *engine;
    struct lease_keeper *lease_keeper;         /* renews leases for once_run() */
    struct abandoned_finder *abandoned_finder; /* for stores with has_sweep */
};

#endif
