/*
 * banned.h - functions that do not compile here.
 *
 * The build includes this before every file. Each function has a bounded or thread-safe
 * replacement: snprintf, memcpy with a length, strtol, gmtime_r, once_buf.
 */
#ifndef ONCE_CORE_BANNED_H
#define ONCE_CORE_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Some libraries define them as macros. */
#undef alloca
#undef sprintf
#undef vsprintf
#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf strtok atoi atol atoll atof gmtime localtime ctime   \
    asctime gets rand srand alloca tmpnam mktemp

#endif
