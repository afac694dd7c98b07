/* utc.h - a time as text. */
#ifndef ONCE_CORE_UTC_H
#define ONCE_CORE_UTC_H

#include "once.h"

#define ONCE_TEXT_TIME_LEN 40

/* "2026-08-01T12:00:00.123Z"; "never" for ONCE_NEVER. */
void once_text_utc(once_time time, char out[ONCE_TEXT_TIME_LEN]);

#endif
