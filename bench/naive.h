/*
 * naive.h - the design that Once is measured against on PostgreSQL: a table of keys, one
 * INSERT and one UPDATE a request, each a transaction of its own, on many connections.
 *
 * The table is what most home-made designs have: a primary key of tenant and key, an index
 * for expiry, one over the request's hash. It lives in a schema of its own, which is dropped.
 */
#ifndef ONCE_BENCH_NAIVE_H
#define ONCE_BENCH_NAIVE_H

#include "load.h"

enum { NAIVE_CONNECTIONS = 64 };

struct naive;

once_result naive_open(const char *url, struct naive **out, struct once_error *err);
/* As load_run(): load->seconds of fresh keys from load->next on. More callers than there are
 * connections wait for one, so they change nothing. */
void naive_run(struct naive *naive, struct load *load, struct load_result *result);
/* Table and indexes, per row. */
once_result naive_size(struct naive *naive, double *bytes_per_record, struct once_error *err);
void naive_close(struct naive *naive);

#endif
