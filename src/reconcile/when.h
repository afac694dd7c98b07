/* when.h - parses a time as people and exports write it. */
#ifndef ONCE_RECONCILE_WHEN_H
#define ONCE_RECONCILE_WHEN_H

#include "once.h"

/*
 * "2026-08-01T12:00:00.123Z", with "+02:00" or "+0200" in place of "Z" (a space is allowed
 * before it, and instead of "T"), "2026-08-01" (midnight UTC), "@1785585600" (seconds since
 * 1970, also with a fraction). False: another format, or not in the years 1970 to 9999.
 * A time without a zone is refused, because it is ambiguous.
 */
bool once_when_parse(once_span text, once_time *time);

#endif
