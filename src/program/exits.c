/* exits.c - see exits.h. */
#include "program/exits.h"

enum once_exit once_exit_of(once_result result)
{
    switch (result) {
    case ONCE_OK:
        return ONCE_EXIT_OK;
    case ONCE_INVALID:
    case ONCE_LIMIT:
        return ONCE_EXIT_USAGE;
    case ONCE_BUSY:
    case ONCE_QUOTA:
        return ONCE_EXIT_BUSY;
    case ONCE_UNAVAILABLE:
        return ONCE_EXIT_UNAVAILABLE;
    case ONCE_UNKNOWN:
    case ONCE_CORRUPT:
        return ONCE_EXIT_UNKNOWN;
    case ONCE_NO_MEMORY:
        return ONCE_EXIT_OS;
    }
    return ONCE_EXIT_UNKNOWN;
}
