/*
 * messages.h - what `once outbox` and `once inbox` have in common: messages in a table, listed, shown, and an
 * operator's word on them.
 *
 * Each of the two is a struct box: how its table is opened, looked at and changed, and what its verbs are called.
 */
#ifndef ONCE_CLI_MESSAGES_H
#define ONCE_CLI_MESSAGES_H

#include "messages/outbox/outbox.h"
#include "program/cli.h"

/* clang-format off */
/* Of the verbs' help: options that are the same in both. */
#define MESSAGES_HELP_LIST \
    "  --json             one JSON object per line\n" \
    ONCE_CLI_HELP_STORE \
    ONCE_CLI_HELP_HELP \
    "\n" \
    "exit: 0, also if there are none; 64 usage; 69 store unavailable\n"
#define MESSAGES_HELP_SHOW \
    "  --raw              print the payload's bytes and nothing else\n" \
    "  --json             as a JSON object\n" \
    ONCE_CLI_HELP_STORE \
    ONCE_CLI_HELP_HELP
#define MESSAGES_HELP_ACTION(one) /* retry, drop; `one` is "message" */ \
    "  --reason TEXT      why, up to 1000 bytes; required, kept in the audit trail\n" \
    "  --json             one JSON object per " one "\n" \
    ONCE_CLI_HELP_STORE \
    ONCE_CLI_HELP_QUIET \
    ONCE_CLI_HELP_HELP
/* clang-format on */

struct box {
    const char *name;          /* "outbox" */
    const char *const *states; /* that messages can have; ends with NULL */
    const char *absent;        /* a message that is not there: why that may be */
    bool consumers;            /* --consumer is an option */
    const char *help, *help_list, *help_show, *help_retry, *help_drop;
    once_result (*open)(const char *url, void **handle, struct once_error *err);
    void (*close)(void *handle);
    once_result (*query)(void *handle, const char *id, const char *states, const char *topic_prefix,
                         const char *consumer, int32_t most, outbox_item_fn *each, void *arg, struct once_error *err);
    once_result (*resolve)(void *handle, const char *id, const char *action, once_span actor, once_span reason,
                           char did[16], struct once_error *err);
};

int messages_main(const struct box *box, int argc, char **argv);
int messages_list(const struct box *box, int argc, char **argv);
int messages_show(const struct box *box, int argc, char **argv);
int messages_retry(const struct box *box, int argc, char **argv);
int messages_drop(const struct box *box, int argc, char **argv);

#endif
