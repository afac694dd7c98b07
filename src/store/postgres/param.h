/*
 * param.h - parameters and columns in PostgreSQL's binary format.
 *
 * Arrays of a batch go over as one parameter each; numbers are big-endian, byte strings as
 * they are.
 */
#ifndef ONCE_STORE_POSTGRES_PARAM_H
#define ONCE_STORE_POSTGRES_PARAM_H

#include "core/buf.h"

#include <libpq-fe.h>

enum { PG_INT4 = 23, PG_INT8 = 20, PG_BYTEA = 17, PG_TEXT = 25, PG_UUID = 2950 };
enum { PG_PARAMS_MAX = 14 };

/* The parameters of one statement, gathered in one buffer. */
struct pg_params {
    struct once_buf bytes;
    int count;
    size_t starts[PG_PARAMS_MAX];
    bool absent[PG_PARAMS_MAX]; /* NULL */
    const char *values[PG_PARAMS_MAX];
    int lengths[PG_PARAMS_MAX], formats[PG_PARAMS_MAX];
    Oid types[PG_PARAMS_MAX];
};

void pg_params_init(struct pg_params *p);
void pg_params_release(struct pg_params *p);
void pg_add_int(struct pg_params *p, Oid type, int64_t value); /* PG_INT4 or PG_INT8 */
void pg_add_bytes(struct pg_params *p, Oid type, once_span bytes);
void pg_array_begin(struct pg_params *p, Oid element_type, size_t count);
void pg_array_absent(struct pg_params *p, Oid element_type); /* NULL in place of an array */
void pg_array_int(struct pg_params *p, Oid type, int64_t value);
void pg_array_bytes(struct pg_params *p, once_span bytes);
void pg_array_null(struct pg_params *p);
/* Sends `sql` with them, in pipeline mode. */
once_result pg_send(PGconn *conn, const char *sql, struct pg_params *p, struct once_error *err);
/* The same for a statement that was prepared under a name. */
once_result pg_send_prepared(PGconn *conn, const char *name, struct pg_params *p, struct once_error *err);

int64_t pg_int(const PGresult *result, int row, int column); /* of any integer width; 0 for NULL */
bool pg_bool(const PGresult *result, int row, int column);
once_span pg_bytes(const PGresult *result, int row, int column);
void pg_uuid(const PGresult *result, int row, int column, char out[ONCE_UUID_LEN + 1]); /* as text */

/* An array of elements of one width, none of them NULL; empty if it is anything else. */
struct pg_array {
    const uint8_t *elements;
    size_t count, width;
};
struct pg_array pg_array(const PGresult *result, int row, int column, size_t width);
const uint8_t *pg_array_at(const struct pg_array *array, size_t i);
int64_t pg_array_int64(const struct pg_array *array, size_t i);

#endif
