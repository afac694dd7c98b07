/* record_out.h - the parts of a record that `keys list` and `keys show` both print. */
#ifndef ONCE_PROGRAM_RECORD_OUT_H
#define ONCE_PROGRAM_RECORD_OUT_H

#include "core/json/out.h"
#include "once.h"

/* "running", "running, lease over", "failed, to be retried", ... */
const char *once_record_state_text(const struct once_record *record);

/* Writes the JSON members that listings also have; `now` is the store's clock. */
void once_record_listed_json(struct once_json *json, const struct once_record *record, once_time now);

/* Reads the store's clock. 0, or an exit code after a message. */
struct once_cli;
int once_record_now(const struct once_cli *cli, struct once *once, once_time *now);

#endif
