/*
 * input.h - reads the JSON object of a request, member by member.
 *
 *     struct api_input in;
 *     if (api_input_parse(&in, body) == ONCE_OK) {
 *         api_input_bytes(&in, "key", API_REQUIRED, &claim.key);
 *         api_input_int(&in, "lease_ms", 1, ONCE_LEASE_MS_MAX, &claim.lease_ms);
 *     }
 *     if (api_input_end(&in) != ONCE_OK) ... in.member and in.text say what is wrong
 *     api_input_release(&in);
 *
 * Invariants: API-INPUT-1 nothing is guessed: an unknown member, a repeated name, a value of another type, text that is
 *                not UTF-8 are errors.
 *             API-INPUT-2 the first error stays; after it, reading does nothing.
 *             API-INPUT-3 a value that is absent leaves the variable as it is.
 *             API-INPUT-4 memory is bounded by the text, the number and depth of values by the enum below.
 * Spans live until api_input_release().
 */
#ifndef ONCE_DAEMON_API_INPUT_H
#define ONCE_DAEMON_API_INPUT_H

#include "core/buf.h"
#include "once.h"

enum {
    API_VALUE_COUNT_MAX = 1024, /* a request with 64 headers and 64 pointers has some 300 */
    API_DEPTH_MAX = 4,          /* { request { headers [ [ name, value ] ] } } */
};

enum api_need { API_OPTIONAL, API_REQUIRED };

struct api_value;

struct api_input {
    struct api_value *values;
    uint32_t count;
    uint32_t object;               /* its members are read now */
    uint32_t above[API_DEPTH_MAX]; /* the objects around it */
    int depth;
    struct once_buf strings; /* what the values' spans point into; never moves */
    struct once_buf decoded; /* base64; never moves */
    once_result result;      /* ONCE_OK, ONCE_INVALID, ONCE_LIMIT, ONCE_NO_MEMORY */
    char member[100];        /* the member that is wrong: "request.path"; empty: none */
    char text[400];
};

once_result api_input_parse(struct api_input *in, once_span text);
void api_input_release(struct api_input *in);

/* NAME as text, or NAME_base64. */
bool api_input_bytes(struct api_input *in, const char *name, enum api_need need, once_span *out);
bool api_input_hex(struct api_input *in, const char *name, enum api_need need, uint8_t *out, size_t len);
bool api_input_int(struct api_input *in, const char *name, int64_t min, int64_t max, int64_t *out);
bool api_input_uint(struct api_input *in, const char *name, enum api_need need, uint64_t *out);
bool api_input_bool(struct api_input *in, const char *name, bool *out);
/* One of `words`, as its index. */
bool api_input_word(struct api_input *in, const char *name, enum api_need need, const char *const *words, size_t count,
                    size_t *out);
/* Whether the member is exactly this text; then it counts as read. */
bool api_input_is(struct api_input *in, const char *name, const char *text);
bool api_input_has(const struct api_input *in, const char *name);
/* A list of texts, or of lists of `width` texts (0: texts); *out is malloc'd. */
bool api_input_texts(struct api_input *in, const char *name, size_t width, size_t max, once_span **out, size_t *count);

/* Members that are read between these two belong to the object `name`; false: it is absent. */
bool api_input_enter(struct api_input *in, const char *name);
void api_input_leave(struct api_input *in);

/* Records that `name` is wrong, with this text; returns false. */
__attribute__((format(printf, 4, 5))) bool api_input_fail(struct api_input *in, const char *name, once_result result,
                                                          const char *format, ...);
/* After all members were read: an unknown member that is left is an error. */
once_result api_input_end(struct api_input *in);

#endif
