/*
 * handle.h - what a `struct once` is made of.
 */
#ifndef ONCE_ENGINE_HANDLE_H
#define ONCE_ENGINE_HANDLE_H

#include "engine/engine.h"

struct keeper;

struct once {
    struct once_store *store; /* the writer's, but for its secret, which never changes */
    struct engine *engine;
    struct keeper *keeper; /* renews leases for once_run() */
};

#endif
