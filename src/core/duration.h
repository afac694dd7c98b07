/*
 * duration.h - lengths of time and sizes as people write them.
 *
 * "250ms", "60s", "5m", "24h", "7d", "1h30m", "never"; "4096", "64K", "1M", "2G".
 */
#ifndef ONCE_CORE_DURATION_H
#define ONCE_CORE_DURATION_H

#include "once.h"

#define ONCE_DURATION_TEXT_LEN 32 /* of a formatted duration with its NUL; the longest has 26 */

/* "never" is ONCE_NEVER if allow_never is set, otherwise refused. The caller checks
 * whether the duration suits its purpose. */
ONCE_CHECKED once_result once_duration_parse(once_span text, bool allow_never, int64_t *ms, struct once_error *err);

/* The shortest text that once_duration_parse() reads back as ms: "1h30m", "1d" for 24 h,
 * "0s", "never". ms is ONCE_NEVER or not negative. */
void once_duration_format(int64_t ms, char out[ONCE_DURATION_TEXT_LEN]);

/* Bytes, or with a suffix, in either case: K 2^10, M 2^20, G 2^30. */
ONCE_CHECKED once_result once_size_parse(once_span text, uint64_t *bytes, struct once_error *err);

#endif
