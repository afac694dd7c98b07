/*
 * messages.h - the verbs that `once outbox` and `once inbox` share: list, show, retry and drop messages of a table.
 *
 * A struct box describes one of the two: how its table is opened, queried and changed, and its help texts.
 */
#ifndef ONCE_CLI_MESSAGES_H
#define ONCE_CLI_MESSAGES_H

#include "core/json/out.h"
#include "messages/message.h"
#include "program/cli.h"

/* clang-format off */
/* The help texts of options that both have. */
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
    const char *const *states; /* of its messages; ends with NULL */
    const char *absent;        /* another reason why a message may be missing */
    bool consumers;            /* it has the option --consumer */
    const char *help, *help_list, *help_show, *help_retry, *help_drop;
    once_result (*open)(const char *url, void **handle, struct once_error *err);
    void (*close)(void *handle);
    once_result (*query)(void *handle, const char *id, const struct message_filter *filter, message_item_fn *each,
                         void *arg, struct once_error *err);
    once_result (*resolve)(void *handle, const char *id, const char *action, once_span actor, once_span reason,
                           char did[16], struct once_error *err);
    /* The members of an item that only this table has. */
    void (*put_json)(struct once_json *json, const struct message_item *item);
    void (*print)(const struct message_item *item);
    int64_t (*failures)(const struct message_item *item);
};

/* Lines "NAME  VALUE" of `show`. */
void messages_print_bytes(const char *name, once_span bytes);
void messages_print_time(const char *name, once_time time);
void messages_print_int(const char *name, int64_t value);
int messages_main(const struct box *box, int argc, char **argv);

#endif
