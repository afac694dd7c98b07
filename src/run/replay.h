/* replay.h - prints a stored outcome again. */
#ifndef ONCE_RUN_REPLAY_H
#define ONCE_RUN_REPLAY_H

#include "once.h"

/* Writes the output of the record's outcome: the same bytes to the same streams in the same
 * order. A body that did not come from `once run` goes to standard output as it is.
 * False: the body is damaged, and nothing was written. write_error: see command.h. */
bool once_replay_print(const struct once_record *record, int write_error[3]);

/* The exit status to replay: the stored status if it is from 0 to 255. */
int once_replay_status(const struct once_record *record);

#endif
