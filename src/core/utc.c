/* utc.c - see utc.h. */
#include "core/utc.h"

#include <stdio.h>
#include <time.h>

void once_text_utc(once_time time, char out[ONCE_TEXT_TIME_LEN])
{
    time_t seconds = (time_t)(time / 1000);
    struct tm parts;
    char day[ONCE_TEXT_TIME_LEN - 8];
    if (time == ONCE_NEVER)
        snprintf(out, ONCE_TEXT_TIME_LEN, "never");
    else if (gmtime_r(&seconds, &parts) == NULL || strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &parts) == 0)
        snprintf(out, ONCE_TEXT_TIME_LEN, "@%lld ms", (long long)time);
    else
        snprintf(out, ONCE_TEXT_TIME_LEN, "%s.%03dZ", day, (int)(time % 1000 + 1000) % 1000);
}
