/*
 * query.h - the query parameters of a request, in the encoding of forms.
 *
 * Nothing is guessed: an unknown or repeated parameter is an error.
 */
#ifndef ONCE_DAEMON_API_QUERY_H
#define ONCE_DAEMON_API_QUERY_H

#include "core/buf.h"
#include "daemon/api/call.h"

struct api_parameter {
    const char *name;
    struct once_buf value; /* its maximum length is the parameter's limit */
    bool there;
};

/* Fills the parameters; false: the answer says what is wrong. */
bool api_query_read(struct api_call *call, struct api_parameter *parameters, size_t count);

#endif
