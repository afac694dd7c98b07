/*
 * input.h - the JSON object that a request carries, read member by member.
 *
 *     struct api_input in;
 *     if (api_input_parse(&in, body) == ONCE_OK) {
 *         api_input_bytes(&in, "key", API_REQUIRED, &claim.key);
 *         api_input_int(&in, "lease_ms", 1, ONCE_LEASE_MS_MAX, &claim.lease_ms);
 *     }
 *     if (api_input_end(&in) != ONCE_OK) ... in.member and in.text say what is wrong
 *     api_input_release(&in);
 *
 * Invariants: API-INPUT-1 nothing is guessed: a member that nobody asked for, a name that stands
 *                twice, a value of another type, text that is not UTF-8 are errors.
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
    uint32_t object;               /* whose members are read */
    uint32_t above[API_DEPTH_MAX]; /* the objects around it */
    int depth;
    struct once_buf strings; /* what the values' spans point into; never moves */
    struct once_buf decoded; /* base64; never moves */
    once_result result;      /* ONCE_OK, ONCE_INVALID, ONCE_LIMIT, ONCE_NO_MEMORY */
    char member[100];        /* whose fault it is: "request.path"; empty: of none */
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
/* Is the member this very text? Then it has been read. */
bool api_input_is(struct api_input *in, const char *name, const char *text);
bool api_input_has(const struct api_input *in, const char *name);
/* A list of texts, or of lists of `width` texts (0: texts); *out is malloc'd. */
bool api_input_texts(struct api_input *in, const char *name, size_t width, size_t max, once_span **out, size_t *count);

/* Members read between these are of the object `name`; false: there is none. */
bool api_input_enter(struct api_input *in, const char *name);
void api_input_leave(struct api_input *in);

/* Says that `name` is wrong, in the caller's words; returns false. */
__attribute__((format(printf, 4, 5))) bool api_input_fail(struct api_input *in, const char *name, once_result result,
                                                          const char *format, ...);
/* Everything is read: a member is left that means nothing? */
once_result api_input_end(struct api_input *in);

#endif
