/* out.h - writes the answer of `once send` to standard output, or to a file, completely or not at all. */
#ifndef ONCE_SEND_OUT_H
#define ONCE_SEND_OUT_H

#include "once_client.h"
#include "program/cli.h"

/* Returns 0, after a file was synced; else ONCE_EXIT_IO after a message. `path`: NULL or "-" is standard output.
 * `include`: write the head as well. */
int send_out(const struct once_cli *cli, const struct once_client_answer *answer, const char *path, bool include);

#endif
