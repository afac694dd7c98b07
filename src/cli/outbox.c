/* outbox.c - `once outbox list|show|retry|drop`: shows the messages of an outbox, retries and removes them. */
#include "messages/outbox/outbox.h"
#include "cli/messages.h"
#include "cli/verbs.h"

/* clang-format off */
static const char help[] =
    "usage: once outbox list|show|retry|drop [OPTIONS]\n"
    "\n"
    "  list     messages that are not published yet, and dead letters\n"
    "  show     everything about one, its payload too\n"
    "  retry    publish a dead letter after all; try one that waits at once\n"
    "  drop     never publish it\n"
    "\n"
    "'once outbox VERB --help' tells more.\n"
    "\n"
    "exit: 0; 1 no such message; 64 usage; others see the verb\n"
    "\n"
    "example: once outbox list --state dead\n";

static const char help_list[] =
    "usage: once outbox list [OPTIONS]\n"
    "\n"
    "Lists the messages that are not published yet, and dead letters, oldest first.\n"
    "\n"
    "  --state S[,S...]   pending, retrying (failed, to be tried again), blocked (waits for\n"
    "                     an earlier one of its key), scheduled (its time has not come), dead;\n"
    "                     default: all\n"
    "  --topic PREFIX     topics that begin with PREFIX\n"
    "  --limit N          messages to print at most, up to 100000; default 100\n"
    MESSAGES_HELP_LIST
    "\n"
    "example: once outbox list --state dead --json\n";

static const char help_show[] =
    "usage: once outbox show ID [OPTIONS]\n"
    "\n"
    "Shows a message that is not published yet, or is dead.\n"
    "\n"
    MESSAGES_HELP_SHOW
    "\n"
    "exit: 0; 1 no such message, or it was published; 64 usage; 69 store unavailable\n"
    "\n"
    "example: once outbox show 0b8f7a52-6f0e-4a53-9d3e-3b1f6a1c2d4e\n";

static const char help_retry[] =
    "usage: once outbox retry ID... --reason TEXT [OPTIONS]\n"
    "       once outbox retry --all-dead [--topic PREFIX] --reason TEXT [OPTIONS]\n"
    "\n"
    "Puts dead letters back into the outbox, under their ids, at the end of their keys'\n"
    "messages. One that waits after a failure is due at once.\n"
    "\n"
    "  --all-dead         all dead letters, 100000 at most\n"
    "  --topic PREFIX     with --all-dead: of topics that begin with PREFIX\n"
    MESSAGES_HELP_ACTION("message")
    "\n"
    "exit: 0; 1 one of them is not there, or is not waiting; 64 usage; 69 store unavailable\n"
    "\n"
    "example: once outbox retry --all-dead --topic orders. --reason 'the receiver is repaired'\n";

static const char help_drop[] =
    "usage: once outbox drop ID... --reason TEXT [OPTIONS]\n"
    "\n"
    "Removes messages: they will not be published any more. One that is in flight now may\n"
    "still be published.\n"
    "\n"
    MESSAGES_HELP_ACTION("message")
    "\n"
    "exit: 0; 1 one of them is not there; 64 usage; 69 store unavailable\n"
    "\n"
    "example: once outbox drop 0b8f7a52-6f0e-4a53-9d3e-3b1f6a1c2d4e --reason 'a test order'\n";
/* clang-format on */

static once_result open_outbox(const char *url, void **handle, struct once_error *err)
{
    struct outbox *o = NULL;
    once_result r = outbox_open(url, &o, err);
    *handle = o;
    return r;
}

static void close_outbox(void *handle)
{
    outbox_close(handle);
}

static once_result query(void *handle, const char *id, const struct message_filter *filter, message_item_fn *each,
                         void *arg, struct once_error *err)
{
    return outbox_query(handle, id, filter, each, arg, err);
}

static once_result resolve(void *handle, const char *id, const char *action, once_span actor, once_span reason,
                           char did[16], struct once_error *err)
{
    return outbox_resolve(handle, id, action, actor, reason, did, err);
}

static void put_json(struct once_json *json, const struct message_item *item)
{
    const struct outbox_item *o = (const struct outbox_item *)item;
    once_json_time(json, "created", o->created_at);
    once_json_int(json, "refusals", item->message.refusals);
    once_json_int(json, "delays", o->delays);
    once_json_int(json, "crashes", item->message.crashes);
}

static void print(const struct message_item *item)
{
    const struct outbox_item *o = (const struct outbox_item *)item;
    messages_print_time("created", o->created_at);
    messages_print_time(strcmp(item->state, "dead") == 0 ? "died" : "not before", item->at);
    messages_print_int("refusals", item->message.refusals);
    messages_print_int("not reached", o->delays);
    messages_print_int("crashes", item->message.crashes);
}

static int64_t failures(const struct message_item *item)
{
    return item->message.refusals + item->message.crashes + ((const struct outbox_item *)item)->delays;
}

static const char *const states[] = { "pending", "retrying", "blocked", "scheduled", "dead", NULL };

static const struct box box = {
    .name = "outbox",
    .states = states,
    .absent = "it was published",
    .help = help,
    .help_list = help_list,
    .help_show = help_show,
    .help_retry = help_retry,
    .help_drop = help_drop,
    .open = open_outbox,
    .close = close_outbox,
    .query = query,
    .resolve = resolve,
    .put_json = put_json,
    .print = print,
    .failures = failures,
};

int once_cli_outbox(int argc, char **argv)
{
    return messages_main(&box, argc, argv);
}
