/* when.h - a moment as people and exports write it. */
#ifndef ONCE_RECONCILE_WHEN_H
#define ONCE_RECONCILE_WHEN_H

#include "once.h"

/*
 * "2026-08-01T12:00:00.123Z", with "+02:00" or "+0200" in place of "Z" (a space may stand
 * before it, and in place of "T"), "2026-08-01" (midnight UTC), "@1785585600" (seconds since
 * 1970, also with a fraction). False: it is none of these, or beyond the years 1970 to 9999.
 * A time without a zone is refused: nobody knows which was meant.
 */
bool once_when_parse(once_span text, once_time *time);

#endif
