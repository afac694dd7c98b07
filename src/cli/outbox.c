/* outbox.c - `once outbox list|show|retry|drop`: what waits to be published, and an operator's word on it. */
#include "outbox/outbox.h"

#include "cli/cli.h"
#include "cli/store_url.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "core/json_out.h"
#include "core/span.h"

#include <inttypes.h>
#include <unistd.h>

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
    "  --state S[,S...]   pending, retrying (failed and tried again later), behind (waits for\n"
    "                     an earlier one of its key), later (its time has not come), dead;\n"
    "                     default: all\n"
    "  --topic PREFIX     topics that begin with PREFIX\n"
    "  --limit N          messages to print at most, up to 100000; default 100\n"
    "  --json             one JSON object per line\n"
    ONCE_CLI_HELP_STORE
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0, also if there are none; 64 usage; 69 store unavailable\n"
    "\n"
    "example: once outbox list --state dead --json\n";

static const char help_show[] =
    "usage: once outbox show ID [OPTIONS]\n"
    "\n"
    "Shows a message that is not published yet, or is dead.\n"
    "\n"
    "  --raw              print the payload's bytes and nothing else\n"
    "  --json             as a JSON object\n"
    ONCE_CLI_HELP_STORE
    ONCE_CLI_HELP_HELP
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
    "  --reason TEXT      why, up to 1000 bytes; required, kept in the audit trail\n"
    "  --json             one JSON object per message\n"
    ONCE_CLI_HELP_STORE
    ONCE_CLI_HELP_QUIET
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0; 1 one of them is not there, or waits for nothing; 64 usage; 69 store unavailable\n"
    "\n"
    "example: once outbox retry --all-dead --topic orders. --reason 'the receiver is repaired'\n";

static const char help_drop[] =
    "usage: once outbox drop ID... --reason TEXT [OPTIONS]\n"
    "\n"
    "Removes messages: they will not be published any more. One that is under way just now\n"
    "may have been.\n"
    "\n"
    "  --reason TEXT      why, up to 1000 bytes; required, kept in the audit trail\n"
    "  --json             one JSON object per message\n"
    ONCE_CLI_HELP_STORE
    ONCE_CLI_HELP_QUIET
    ONCE_CLI_HELP_HELP
    "\n"
    "exit: 0; 1 one of them is not there; 64 usage; 69 store unavailable\n"
    "\n"
    "example: once outbox drop 0b8f7a52-6f0e-4a53-9d3e-3b1f6a1c2d4e --reason 'a test order'\n";
/* clang-format on */

enum {
    OPTION_STATE = ONCE_CLI_OWN,
    OPTION_TOPIC,
    OPTION_LIMIT,
    OPTION_RAW,
    OPTION_REASON,
    OPTION_ALL_DEAD,
};

struct verb {
    struct once_cli cli;
    struct outbox *outbox;
    const char *states, *topic, *reason;
    uint64_t limit;
    bool raw, all_dead;
    size_t seen;
    char actor[ONCE_ACTOR_LEN_MAX + 1];
    char (*ids)[ONCE_UUID_LEN + 1];
    size_t id_count;
};

static bool is_uuid(const char *id)
{
    if (strlen(id) != ONCE_UUID_LEN)
        return false;
    for (size_t i = 0; i < ONCE_UUID_LEN; i++)
        if (i == 8 || i == 13 || i == 18 || i == 23 ? id[i] != '-' : strchr("0123456789abcdefABCDEF", id[i]) == NULL)
            return false;
    return true;
}

static int open_outbox(struct verb *v)
{
    struct once_error err;
    if (once_store_url(v->cli.store, false, v->cli.url, &err) != ONCE_OK)
        return once_cli_error(&v->cli, &err, "find the store");
    if (outbox_open(v->cli.url, &v->outbox, &err) != ONCE_OK)
        return once_cli_error(&v->cli, &err, "open the outbox");
    return ONCE_EXIT_OK;
}

static bool states_are_known(const char *states)
{
    static const char *const known[] = { "pending", "retrying", "behind", "later", "dead" };
    for (once_span rest = once_span_str(states), one; rest.len > 0;) {
        bool found = false;
        once_span_cut(rest, ',', &one, &rest);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found |= once_span_equal(one, once_span_str(known[i]));
        if (!found)
            return false;
    }
    return true;
}

/* True: it was one of the verb's own, and right. */
static bool parse(struct verb *v, int argc, char **argv, const struct option *options)
{
    v->states = v->topic = "";
    v->limit = 100;
    for (int c; (c = once_cli_next(&v->cli, argc, argv, "", options)) != -1;)
        switch (c) {
        case OPTION_STATE:
            v->states = optarg;
            if (!states_are_known(optarg)) {
                v->cli.exit =
                    once_cli_usage(&v->cli, "--state: '%s' is none of pending, retrying, behind, later, dead", optarg);
                return false;
            }
            break;
        case OPTION_TOPIC:
            v->topic = optarg;
            break;
        case OPTION_LIMIT:
            v->cli.exit = ONCE_EXIT_USAGE;
            if (!once_cli_number(&v->cli, "--limit", 1, OUTBOX_LIST_MAX, &v->limit))
                return false;
            break;
        case OPTION_RAW:
            v->raw = true;
            break;
        case OPTION_REASON:
            v->reason = optarg;
            break;
        case OPTION_ALL_DEAD:
            v->all_dead = true;
            break;
        default:
            return false;
        }
    v->cli.exit = ONCE_EXIT_USAGE;
    for (int i = optind; i < argc; i++)
        if (!is_uuid(argv[i])) {
            once_cli_usage(&v->cli, "'%s' is no message id", argv[i]);
            return false;
        }
    return true;
}

/* ------------------------------------------------------------------ printing */

static void print_json(const struct outbox_item *item, bool payload)
{
    struct once_json json = { .file = stdout };
    once_json_open(&json, NULL, '{');
    once_json_text(&json, "id", item->id);
    once_json_text(&json, "state", item->state);
    once_json_bytes(&json, "topic", item->topic);
    if (item->has_key)
        once_json_bytes(&json, "message_key", item->key);
    else
        once_json_null(&json, "message_key");
    once_json_bytes(&json, "content_type", item->content_type);
    once_json_bytes(&json, "headers", item->headers);
    once_json_time(&json, "created", item->created_at);
    if (item->at > 0)
        once_json_time(&json, "at", item->at);
    once_json_int(&json, "refusals", item->refusals);
    once_json_int(&json, "delays", item->delays);
    once_json_int(&json, "crashes", item->crashes);
    if (item->reason.len > 0)
        once_json_bytes(&json, "reason", item->reason);
    if (payload) {
        json.base64 = true;
        once_json_bytes(&json, "payload", item->payload);
    }
    once_json_close(&json);
}

static void print_bytes(const char *name, once_span bytes)
{
    struct once_buf text;
    once_buf_init(&text, 1 << 20);
    once_text_escape(&text, bytes);
    printf("%-13s  %.*s\n", name, ONCE_SPAN_ARGS(once_buf_span(&text)));
    once_buf_release(&text);
}

static void print_line(void *arg, const struct outbox_item *item)
{
    struct verb *v = arg;
    struct once_buf text;
    if (v->cli.json) {
        print_json(item, false);
        return;
    }
    if (v->seen++ == 0)
        printf("%-36s  %-8s  %-20s  %-20s  %-8s  %s\n", "ID", "STATE", "TOPIC", "KEY", "FAILURES", "REASON");
    once_buf_init(&text, 1 << 16);
    once_buf_addf(&text, "%s  %-8s  ", item->id, item->state);
    size_t width = once_text_escape(&text, item->topic);
    once_buf_addf(&text, "%*s  ", width < 20 ? (int)(20 - width) : 0, "");
    width = item->has_key ? once_text_escape(&text, item->key) : (once_buf_addf(&text, "-"), (size_t)1);
    once_buf_addf(&text, "%*s  %-8" PRId64 "  ", width < 20 ? (int)(20 - width) : 0, "",
                  item->refusals + item->delays + item->crashes);
    once_text_escape(&text, item->reason);
    printf("%.*s\n", ONCE_SPAN_ARGS(once_buf_span(&text)));
    once_buf_release(&text);
}

static void print_whole(void *arg, const struct outbox_item *item)
{
    struct verb *v = arg;
    char created[ONCE_TEXT_TIME_LEN], at[ONCE_TEXT_TIME_LEN];
    v->seen++;
    if (v->raw) {
        fwrite(item->payload.ptr, 1, item->payload.len, stdout);
        return;
    }
    if (v->cli.json) {
        print_json(item, true);
        return;
    }
    once_text_local(item->created_at, created);
    printf("%-13s  %s\n%-13s  %s\n", "id", item->id, "state", item->state);
    print_bytes("topic", item->topic);
    if (item->has_key)
        print_bytes("message key", item->key);
    print_bytes("content type", item->content_type);
    print_bytes("headers", item->headers);
    printf("%-13s  %s\n", "created", created);
    if (item->at > 0) {
        once_text_local(item->at, at);
        printf("%-13s  %s\n", strcmp(item->state, "dead") == 0 ? "died" : "not before", at);
    }
    printf("%-13s  %" PRId64 "\n%-13s  %" PRId64 "\n%-13s  %" PRId64 "\n", "refusals", item->refusals, "not reached",
           item->delays, "crashes", item->crashes);
    print_bytes("reason", item->reason);
    print_bytes("payload", item->payload);
}

/* ------------------------------------------------------------------ list, show */

static int end(struct verb *v, int exit)
{
    outbox_close(v->outbox);
    free(v->ids);
    return once_cli_finish(&v->cli, exit);
}

int once_cli_outbox_list(int argc, char **argv)
{
    static const struct option options[] = {
        ONCE_CLI_OPTION_HELP,
        ONCE_CLI_OPTION_STORE,
        ONCE_CLI_OPTION_JSON,
        { "state", required_argument, NULL, OPTION_STATE },
        { "topic", required_argument, NULL, OPTION_TOPIC },
        { "limit", required_argument, NULL, OPTION_LIMIT },
        { 0 },
    };
    struct verb v = { .cli = { .verb = "outbox list", .help = help_list } };
    struct once_error err;
    if (!parse(&v, argc, argv, options))
        return v.cli.exit;
    if (optind < argc)
        return once_cli_usage(&v.cli, "'%s' is too much", argv[optind]);
    int exit = open_outbox(&v);
    if (exit == ONCE_EXIT_OK &&
        v.outbox->ops->look(v.outbox, NULL, v.states, v.topic, (int32_t)v.limit, print_line, &v, &err) != ONCE_OK)
        exit = once_cli_error(&v.cli, &err, "list messages");
    return end(&v, exit);
}

int once_cli_outbox_show(int argc, char **argv)
{
    static const struct option options[] = {
        ONCE_CLI_OPTION_HELP,
        ONCE_CLI_OPTION_STORE,
        ONCE_CLI_OPTION_JSON,
        { "raw", no_argument, NULL, OPTION_RAW },
        { 0 },
    };
    struct verb v = { .cli = { .verb = "outbox show", .help = help_show } };
    struct once_error err;
    if (!parse(&v, argc, argv, options))
        return v.cli.exit;
    if (optind + 1 != argc)
        return once_cli_usage(&v.cli, "one ID, please");
    if (v.raw && v.cli.json)
        return once_cli_usage(&v.cli, "one of --raw and --json, please");
    int exit = open_outbox(&v);
    if (exit == ONCE_EXIT_OK &&
        v.outbox->ops->look(v.outbox, argv[optind], NULL, NULL, 1, print_whole, &v, &err) != ONCE_OK)
        exit = once_cli_error(&v.cli, &err, "show a message");
    else if (exit == ONCE_EXIT_OK && v.seen == 0)
        exit = once_cli_fail(&v.cli, ONCE_EXIT_FOUND, "no such message, or it was published");
    return end(&v, exit);
}

/* ------------------------------------------------------------------ retry, drop */

static void keep_id(void *arg, const struct outbox_item *item)
{
    struct verb *v = arg;
    snprintf(v->ids[v->id_count++], ONCE_UUID_LEN + 1, "%s", item->id);
}

static int resolve_one(struct verb *v, const char *id, const char *word)
{
    char did[16];
    struct once_error err;
    if (v->outbox->ops->resolve(v->outbox, id, word, once_span_str(v->actor), once_span_str(v->reason), did, &err) !=
        ONCE_OK)
        return once_cli_error(&v->cli, &err, word);
    if (v->cli.json) {
        struct once_json json = { .file = stdout };
        once_json_open(&json, NULL, '{');
        once_json_text(&json, "id", id);
        once_json_text(&json, "did", did);
        once_json_close(&json);
    } else if (strcmp(did, "absent") == 0) {
        once_cli_fail(&v->cli, ONCE_EXIT_FOUND, "%s: %s", id,
                      strcmp(word, "retry") == 0 ? "neither dead nor waiting after a failure"
                                                 : "no such message, or it was published");
    } else if (!v->cli.quiet) {
        printf("%s %s\n", id, did);
    }
    return strcmp(did, "absent") == 0 ? ONCE_EXIT_FOUND : ONCE_EXIT_OK;
}

static int resolve_all(struct verb *v, int argc, char **argv, const char *word)
{
    struct once_error err;
    int worst = open_outbox(v);
    if (worst != ONCE_EXIT_OK)
        return worst;
    v->ids = calloc(v->all_dead ? OUTBOX_LIST_MAX : 1, sizeof *v->ids);
    if (v->ids == NULL)
        return once_cli_fail(&v->cli, ONCE_EXIT_OS, "out of memory");
    if (v->all_dead &&
        v->outbox->ops->look(v->outbox, NULL, "dead", v->topic, OUTBOX_LIST_MAX, keep_id, v, &err) != ONCE_OK)
        return once_cli_error(&v->cli, &err, "list dead letters");
    once_cli_actor(v->actor, sizeof v->actor);
    size_t count = v->all_dead ? v->id_count : (size_t)(argc - optind);
    for (size_t i = 0; i < count; i++) {
        int exit = resolve_one(v, v->all_dead ? v->ids[i] : argv[optind + (int)i], word);
        if (exit > ONCE_EXIT_FOUND)
            return exit;
        worst = exit > worst ? exit : worst;
    }
    return worst;
}

static int resolve(int argc, char **argv, struct verb *v, const struct option *options, const char *word)
{
    if (!parse(v, argc, argv, options))
        return v->cli.exit;
    if (v->all_dead ? optind < argc : optind == argc)
        return once_cli_usage(&v->cli, v->all_dead ? "IDs or --all-dead, not both" : "which ID?");
    if (!v->all_dead && v->topic[0] != '\0')
        return once_cli_usage(&v->cli, "--topic goes with --all-dead");
    if (v->reason == NULL || v->reason[0] == '\0' || strlen(v->reason) > 1000)
        return once_cli_usage(&v->cli, "--reason TEXT of 1 to 1000 bytes is missing: why?");
    return end(v, resolve_all(v, argc, argv, word));
}

#define OPTIONS_OF_BOTH                                                                                                \
    ONCE_CLI_OPTION_HELP, ONCE_CLI_OPTION_STORE, ONCE_CLI_OPTION_JSON, ONCE_CLI_OPTION_QUIET,                          \
    {                                                                                                                  \
        "reason", required_argument, NULL, OPTION_REASON                                                               \
    }

int once_cli_outbox_retry(int argc, char **argv)
{
    static const struct option options[] = {
        OPTIONS_OF_BOTH,
        { "all-dead", no_argument, NULL, OPTION_ALL_DEAD },
        { "topic", required_argument, NULL, OPTION_TOPIC },
        { 0 },
    };
    struct verb v = { .cli = { .verb = "outbox retry", .help = help_retry } };
    return resolve(argc, argv, &v, options, "retry");
}

int once_cli_outbox_drop(int argc, char **argv)
{
    static const struct option options[] = { OPTIONS_OF_BOTH, { 0 } };
    struct verb v = { .cli = { .verb = "outbox drop", .help = help_drop } };
    return resolve(argc, argv, &v, options, "drop");
}

int once_cli_outbox(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } verbs[] = {
        { "list", once_cli_outbox_list },
        { "show", once_cli_outbox_show },
        { "retry", once_cli_outbox_retry },
        { "drop", once_cli_outbox_drop },
    };
    static const struct option options[] = { ONCE_CLI_OPTION_HELP, { 0 } };
    struct once_cli cli = { .verb = "outbox", .help = help };
    for (size_t i = 0; argc > 1 && i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].run(argc - 1, argv + 1);
    for (int c; (c = once_cli_next(&cli, argc, argv, "+", options)) != -1;)
        return cli.exit;
    if (optind == argc)
        return once_cli_usage(&cli, "which VERB? list, show, retry or drop");
    return once_cli_usage(&cli, "unknown verb '%s'; there are list, show, retry and drop", argv[optind]);
}
