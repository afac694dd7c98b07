/*
 * query.h - the parameters behind the "?" of a request, as forms are encoded.
 *
 * Nothing is guessed: a parameter that is not expected, or stands there twice, is an error.
 */
#ifndef ONCE_DAEMON_API_QUERY_H
#define ONCE_DAEMON_API_QUERY_H

#include "core/buf.h"
#include "daemon/api/call.h"

struct api_parameter {
    const char *name;
    struct once_buf value; /* its ceiling is the limit */
    bool there;
};

/* Fills the parameters; else the answer says what is wrong. */
bool api_query_read(struct api_call *call, struct api_parameter *parameters, size_t count);

#endif
