/*
 * err.h - one result enum, one message buffer.
 *
 * The code is for the program, the text for the person. A message is lower case,
 * without a full stop, says what failed first and quotes the subject:
 *
 *     return once_fail(err, ONCE_INVALID, "key is %zu bytes long, the limit is %d", ...);
 */
#ifndef ONCE_CORE_ERR_H
#define ONCE_CORE_ERR_H

#include "once.h"

/* Writes the message to *err, unless err is NULL; returns `result`. */
__attribute__((format(printf, 3, 4))) once_result once_fail(struct once_error *err, once_result result,
                                                            const char *format, ...);

/* Prepends the failed action to the message: "open store 'x': ...". */
__attribute__((format(printf, 2, 3))) void once_error_prefix(struct once_error *err, const char *format, ...);

#endif
