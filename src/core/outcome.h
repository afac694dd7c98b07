/*
 * outcome.h - the stored form of an outcome, the same in every store.
 *
 *     offset  size
 *     0       1     version, 1
 *     1       1     flags: 1 the body is compressed (zstd), 2 the body was not stored
 *     2       4     length of the header lines, H   (all integers big-endian)
 *     6       4     length of the body, B
 *     10      4     length of the body as stored, S (= B unless compressed)
 *     14      H     header lines, each "Name: value\r\n"
 *     14+H    S     body
 *     14+H+S  8     XXH64 of everything before it, with the seed of its row
 *
 * The seed binds the bytes to their row: record id, fence, state, status. A flipped
 * bit, or the outcome of another row, is ONCE_CORRUPT and never replayed (FAULT-14). The same
 * outcome is always encoded to the same bytes, so that a repeated finish is recognised.
 */
#ifndef ONCE_CORE_OUTCOME_H
#define ONCE_CORE_OUTCOME_H

#include "core/buf.h"

#define ONCE_OUTCOME_LEN_MIN 22 /* without header lines and body */

/* The seed of the checksum, computed from the row that the outcome belongs to: all but its headers and body. */
uint64_t once_outcome_sum_seed(struct once_grant grant, const struct once_outcome *outcome);
/* The record's outcome, without headers and body. */
struct once_outcome once_outcome_of(const struct once_record *record);
/* Whether the record ended with this outcome, headers and body apart. */
bool once_outcome_is_of(const struct once_outcome *outcome, const struct once_record *record);

/* Appends the encoding. The outcome must have passed once_outcome_check(). */
once_result once_outcome_encode(const struct once_outcome *outcome, uint64_t sum_seed, struct once_buf *out,
                                struct once_error *err);

/* Reads bytes that may be hostile. Headers point into `bytes`, the body into `bytes`
 * or, decompressed, into `scratch`. */
once_result once_outcome_decode(once_span bytes, uint64_t sum_seed, struct once_buf *scratch, once_span *headers,
                                once_span *body, bool *body_dropped, struct once_error *err);

/* Do the bytes match their checksum? Cheaper than decoding them. */
bool once_outcome_sum_is_right(once_span bytes, uint64_t sum_seed);

/* May a caller finish with this outcome? */
once_result once_outcome_check(const struct once_outcome *outcome, struct once_error *err);

/* Are these lines "Name: value" CR LF, as HTTP defines them? */
ONCE_CHECKED once_result once_headers_check(once_span headers, struct once_error *err);

#endif
