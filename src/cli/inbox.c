/* inbox.c - `once inbox list|show|retry|drop`: shows the dead letters of `once consume`, retries and removes them. */
#include "cli/messages.h"
#include "cli/verbs.h"
#include "core/span.h"
#include "messages/dead_letters/dead_letters.h"

/* clang-format off */
static const char help[] =
    "usage: once inbox list|show|retry|drop [OPTIONS]\n"
    "\n"
    "  list     dead letters: messages that 'once consume' could not deliver\n"
    "  show     everything about one, its payload too\n"
    "  retry    deliver it after all\n"
    "  drop     never deliver it\n"
    "\n"
    "'once inbox VERB --help' tells more.\n"
    "\n"
    "exit: 0; 1 no such letter; 64 usage; others see the verb\n"
    "\n"
    "example: once inbox list --consumer billing\n";

static const char help_list[] =
    "usage: once inbox list [OPTIONS]\n"
    "\n"
    "Lists the messages that 'once consume' could not deliver, oldest first.\n"
    "\n"
    "  --state S[,S...]   dead, retrying (will be delivered by a running 'once consume');\n"
    "                     default: both\n"
    "  --consumer NAME    of this consumer only\n"
    "  --topic PREFIX     topics that begin with PREFIX\n"
    "  --limit N          letters to print at most, up to 100000; default 100\n"
    MESSAGES_HELP_LIST
    "\n"
    "example: once inbox list --consumer billing --json\n";

static const char help_show[] =
    "usage: once inbox show ID [OPTIONS]\n"
    "\n"
    "Shows a dead letter. Its ID is that of the letter, as 'once inbox list' prints it.\n"
    "\n"
    MESSAGES_HELP_SHOW
    "\n"
    "exit: 0; 1 no such letter, or it was delivered; 64 usage; 69 store unavailable\n"
    "\n"
    "example: once inbox show 0b8f7a52-6f0e-8a53-9d3e-3b1f6a1c2d4e\n";

static const char help_retry[] =
    "usage: once inbox retry ID... --reason TEXT [OPTIONS]\n"
    "       once inbox retry --all-dead --reason TEXT [OPTIONS]\n"
    "\n"
    "Lets a running 'once consume' of their consumer deliver dead letters: under their ids,\n"
    "with as many attempts as a new message, behind the messages that it has of their keys.\n"
    "\n"
    "  --all-dead         all dead letters, 100000 at most\n"
    "  --consumer NAME    with --all-dead: of this consumer only\n"
    "  --topic PREFIX     with --all-dead: of topics that begin with PREFIX\n"
    MESSAGES_HELP_ACTION("letter")
    "\n"
    "exit: 0; 1 one of them is not there, or is being retried; 64 usage; 69 store unavailable\n"
    "\n"
    "example: once inbox retry --all-dead --consumer billing --reason 'repaired'\n";

static const char help_drop[] =
    "usage: once inbox drop ID... --reason TEXT [OPTIONS]\n"
    "\n"
    "Removes dead letters: they will not be delivered any more. One that is being delivered\n"
    "now may still arrive.\n"
    "\n"
    MESSAGES_HELP_ACTION("letter")
    "\n"
    "exit: 0; 1 one of them is not there; 64 usage; 69 store unavailable\n"
    "\n"
    "example: once inbox drop 0b8f7a52-6f0e-8a53-9d3e-3b1f6a1c2d4e --reason 'a test order'\n";
/* clang-format on */

static once_result open_dead_letters(const char *url, void **handle, struct once_error *err)
{
    struct dead_letters *l = NULL;
    once_result r = dead_letters_open(url, &l, err);
    *handle = l;
    return r;
}

static void close_dead_letters(void *handle)
{
    dead_letters_close(handle);
}

static once_result query(void *handle, const char *id, const struct message_filter *filter, message_item_fn *each,
                         void *arg, struct once_error *err)
{
    return dead_letters_query(handle, id, filter, each, arg, err);
}

static once_result resolve(void *handle, const char *id, const char *action, once_span actor, once_span reason,
                           char did[16], struct once_error *err)
{
    return dead_letters_resolve(handle, id, action, actor, reason, did, err);
}

static void put_json(struct once_json *json, const struct message_item *item)
{
    const struct dead_letter_item *l = (const struct dead_letter_item *)item;
    once_json_bytes(json, "consumer", l->consumer);
    once_json_bytes(json, "message_id", l->message_id);
    once_json_bytes(json, "source", l->source);
    once_json_int(json, "failures", item->message.refusals);
}

static void print(const struct message_item *item)
{
    const struct dead_letter_item *l = (const struct dead_letter_item *)item;
    messages_print_bytes("consumer", l->consumer);
    messages_print_bytes("message id", l->message_id);
    messages_print_bytes("source", l->source);
    messages_print_time("died", item->at);
    messages_print_int("failures", item->message.refusals);
}

static int64_t failures(const struct message_item *item)
{
    return item->message.refusals;
}

static const char *const states[] = { "dead", "retrying", NULL };

static const struct box box = {
    .name = "inbox",
    .states = states,
    .absent = "it was delivered",
    .consumers = true,
    .help = help,
    .help_list = help_list,
    .help_show = help_show,
    .help_retry = help_retry,
    .help_drop = help_drop,
    .open = open_dead_letters,
    .close = close_dead_letters,
    .query = query,
    .resolve = resolve,
    .put_json = put_json,
    .print = print,
    .failures = failures,
};

int once_cli_inbox(int argc, char **argv)
{
    return messages_main(&box, argc, argv);
}
