/* out.h - an answer of `once send` on its way out: to standard output, or into a file that is whole or not there.
 */
#ifndef ONCE_SEND_OUT_H
#define ONCE_SEND_OUT_H

#include "once_client.h"
#include "program/cli.h"

/* Synced, where it is a file, before this returns 0; else ONCE_EXIT_IO after a message. `path`: NULL or "-": standard
 * output. `include`: its head, too. */
int send_out(const struct once_cli *cli, const struct once_client_answer *answer, const char *path, bool include);

#endif
