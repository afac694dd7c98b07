/*
 * banned.h - functions that do not compile here.
 *
 * Included before every file by the build. Each has a bounded or thread-safe
 * stand-in: snprintf, memcpy with a length, strtol, gmtime_r, once_buf.
 */
#ifndef ONCE_CORE_BANNED_H
#define ONCE_CORE_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Where they are macros. */
#undef alloca
#undef sprintf
#undef vsprintf
#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf strtok atoi atol atoll atof gmtime localtime ctime   \
    asctime gets rand srand alloca tmpnam mktemp

#endif
