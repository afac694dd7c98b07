/*
 * err.c - messages for people, and the names of results, states and arms.
 *
 * Names and numbers come from the lists in once.h, so they cannot drift.
 */
#include "core/err.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

once_result once_fail(struct once_error *err, once_result result, const char *format, ...)
{
    assert(result != ONCE_OK);
    if (err != NULL) {
        err->result = result;
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return result;
}

void once_error_prefix(struct once_error *err, const char *format, ...)
{
    if (err == NULL)
        return;
    char old[sizeof err->text];
    memcpy(old, err->text, sizeof old);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof err->text)
        snprintf(err->text + n, sizeof err->text - (size_t)n, ": %.*s", (int)(sizeof err->text - (size_t)n) - 3, old);
}

#define NAME(list, value, prefix)                                                                                      \
    switch (value) {                                                                                                   \
        list(prefix) default : return "?";                                                                             \
    }

const char *once_result_name(once_result result)
{
#define CASE(name, text)                                                                                               \
    case ONCE_##name:                                                                                                  \
        return #name;
    NAME(ONCE_RESULTS, result, CASE)
#undef CASE
}

const char *once_result_text(once_result result)
{
#define CASE(name, text)                                                                                               \
    case ONCE_##name:                                                                                                  \
        return text;
    NAME(ONCE_RESULTS, result, CASE)
#undef CASE
}

const char *once_state_name(enum once_state state)
{
#define CASE(name, text)                                                                                               \
    case ONCE_STATE_##name:                                                                                            \
        return text;
    NAME(ONCE_STATES, state, CASE)
#undef CASE
}

const char *once_takeover_name(enum once_takeover takeover)
{
#define CASE(name, text)                                                                                               \
    case ONCE_TAKEOVER_##name:                                                                                         \
        return text;
    NAME(ONCE_TAKEOVERS, takeover, CASE)
#undef CASE
}

const char *once_arm_name(enum once_arm arm)
{
#define CASE(name, text)                                                                                               \
    case ONCE_ARM_##name:                                                                                              \
        return text;
    NAME(ONCE_ARMS, arm, CASE)
#undef CASE
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *once_version(void)
{
    return TEXT(ONCE_VERSION_MAJOR) "." TEXT(ONCE_VERSION_MINOR) "." TEXT(ONCE_VERSION_PATCH);
}
