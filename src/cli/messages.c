/* messages.c - see messages.h. */
#include "cli/messages.h"

#include "core/span.h"
#include "messages/outbox/outbox.h"
#include "program/text.h"
#include "store/url.h"

#include <inttypes.h>
#include <unistd.h>

enum {
    OPTION_STATE = ONCE_CLI_OWN,
    OPTION_TOPIC,
    OPTION_LIMIT,
    OPTION_RAW,
    OPTION_REASON,
    OPTION_ALL_DEAD,
    OPTION_CONSUMER,
};

struct verb {
    struct once_cli cli;
    const struct box *box;
    void *handle;
    const char *states, *topic, *reason, *consumer;
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

static int open_box(struct verb *v)
{
    struct once_error err;
    char what[40];
    if (once_store_url(v->cli.store, false, v->cli.url, &err) != ONCE_OK)
        return once_cli_error(&v->cli, &err, "find the store");
    snprintf(what, sizeof what, "open the %s", v->box->name);
    if (v->box->open(v->cli.url, &v->handle, &err) != ONCE_OK)
        return once_cli_error(&v->cli, &err, what);
    return ONCE_EXIT_OK;
}

static bool states_are_known(const struct box *box, const char *states)
{
    for (once_span rest = once_span_str(states), one; rest.len > 0;) {
        bool found = false;
        once_span_cut(rest, ',', &one, &rest);
        for (const char *const *known = box->states; *known != NULL; known++)
            found |= once_span_equal(one, once_span_str(*known));
        if (!found)
            return false;
    }
    return true;
}

static int say_states(const struct verb *v)
{
    char all[120] = "";
    for (const char *const *known = v->box->states; *known != NULL; known++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", all[0] != '\0' ? ", " : "", *known);
    return once_cli_usage(&v->cli, "--state: '%s' is not one of %s", optarg, all);
}

/* False: the exit status is in v->cli.exit. */
static bool parse(struct verb *v, int argc, char **argv, const struct option *options)
{
    v->states = v->topic = v->consumer = "";
    v->limit = 100;
    for (int c; (c = once_cli_next(&v->cli, argc, argv, "", options)) != -1;)
        switch (c) {
        case OPTION_STATE:
            v->states = optarg;
            if (!states_are_known(v->box, optarg)) {
                v->cli.exit = say_states(v);
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
        case OPTION_CONSUMER:
            v->consumer = optarg;
            break;
        default:
            return false;
        }
    v->cli.exit = ONCE_EXIT_USAGE;
    for (int i = optind; i < argc; i++)
        if (!is_uuid(argv[i])) {
            once_cli_usage(&v->cli, "'%s' is not a message id", argv[i]);
            return false;
        }
    return true;
}

/* ------------------------------------------------------------------ printing */

static void print_json(const struct verb *v, const struct message_item *item, bool payload)
{
    const struct message *m = &item->message;
    struct once_json json = { .file = stdout };
    once_json_open(&json, NULL, '{');
    once_json_text(&json, "id", m->id);
    once_json_text(&json, "state", item->state);
    once_json_bytes(&json, "topic", m->topic);
    if (m->has_key)
        once_json_bytes(&json, "message_key", m->key);
    else
        once_json_null(&json, "message_key");
    once_json_bytes(&json, "content_type", m->content_type);
    once_json_bytes(&json, "headers", m->headers);
    if (item->at > 0)
        once_json_time(&json, "at", item->at);
    v->box->put_json(&json, item);
    if (item->reason.len > 0)
        once_json_bytes(&json, "reason", item->reason);
    if (payload) {
        json.base64 = true;
        once_json_bytes(&json, "payload", m->payload);
    }
    once_json_close(&json);
}

void messages_print_bytes(const char *name, once_span bytes)
{
    struct once_buf text;
    once_buf_init(&text, 1 << 20);
    once_text_escape(&text, bytes);
    printf("%-13s  %.*s\n", name, ONCE_SPAN_ARGS(once_buf_span(&text)));
    once_buf_release(&text);
}

void messages_print_time(const char *name, once_time time)
{
    char text[ONCE_TEXT_TIME_LEN];
    once_text_local(time, text);
    if (time > 0)
        printf("%-13s  %s\n", name, text);
}

void messages_print_int(const char *name, int64_t value)
{
    printf("%-13s  %" PRId64 "\n", name, value);
}

static void print_line(void *arg, const struct message_item *item)
{
    struct verb *v = arg;
    const struct message *m = &item->message;
    struct once_buf text;
    if (v->cli.json) {
        print_json(v, item, false);
        return;
    }
    if (v->seen++ == 0)
        printf("%-36s  %-8s  %-20s  %-20s  %-8s  %s\n", "ID", "STATE", "TOPIC", "KEY", "FAILURES", "REASON");
    once_buf_init(&text, 1 << 16);
    once_buf_addf(&text, "%s  %-8s  ", m->id, item->state);
    size_t width = once_text_escape(&text, m->topic);
    once_buf_addf(&text, "%*s  ", width < 20 ? (int)(20 - width) : 0, "");
    width = m->has_key ? once_text_escape(&text, m->key) : (once_buf_addf(&text, "-"), (size_t)1);
    once_buf_addf(&text, "%*s  %-8" PRId64 "  ", width < 20 ? (int)(20 - width) : 0, "", v->box->failures(item));
    once_text_escape(&text, item->reason);
    printf("%.*s\n", ONCE_SPAN_ARGS(once_buf_span(&text)));
    once_buf_release(&text);
}

static void print_whole(void *arg, const struct message_item *item)
{
    struct verb *v = arg;
    const struct message *m = &item->message;
    v->seen++;
    if (v->raw) {
        fwrite(m->payload.ptr, 1, m->payload.len, stdout);
        return;
    }
    if (v->cli.json) {
        print_json(v, item, true);
        return;
    }
    printf("%-13s  %s\n%-13s  %s\n", "id", m->id, "state", item->state);
    messages_print_bytes("topic", m->topic);
    if (m->has_key)
        messages_print_bytes("message key", m->key);
    messages_print_bytes("content type", m->content_type);
    messages_print_bytes("headers", m->headers);
    v->box->print(item);
    messages_print_bytes("reason", item->reason);
    messages_print_bytes("payload", m->payload);
}

/* ------------------------------------------------------------------ list, show */

static int end(struct verb *v, int exit)
{
    if (v->handle != NULL)
        v->box->close(v->handle);
    free(v->ids);
    return once_cli_finish(&v->cli, exit);
}

static int list(const struct box *box, int argc, char **argv)
{
    const struct option options[] = {
        ONCE_CLI_OPTION_HELP,
        ONCE_CLI_OPTION_STORE,
        ONCE_CLI_OPTION_JSON,
        { "state", required_argument, NULL, OPTION_STATE },
        { "topic", required_argument, NULL, OPTION_TOPIC },
        { "limit", required_argument, NULL, OPTION_LIMIT },
        { box->consumers ? "consumer" : NULL, required_argument, NULL, OPTION_CONSUMER }, /* NULL ends the list */
        { 0 },
    };
    char name[32];
    snprintf(name, sizeof name, "%s list", box->name);
    struct verb v = { .cli = { .verb = name, .help = box->help_list }, .box = box };
    struct once_error err;
    if (!parse(&v, argc, argv, options))
        return v.cli.exit;
    if (optind < argc)
        return once_cli_usage(&v.cli, "unexpected argument '%s'", argv[optind]);
    int exit = open_box(&v);
    struct message_filter filter = { v.states, v.topic, v.consumer, (int32_t)v.limit };
    if (exit == ONCE_EXIT_OK && box->query(v.handle, NULL, &filter, print_line, &v, &err) != ONCE_OK)
        exit = once_cli_error(&v.cli, &err, "list messages");
    return end(&v, exit);
}

static int show(const struct box *box, int argc, char **argv)
{
    static const struct option options[] = {
        ONCE_CLI_OPTION_HELP,
        ONCE_CLI_OPTION_STORE,
        ONCE_CLI_OPTION_JSON,
        { "raw", no_argument, NULL, OPTION_RAW },
        { 0 },
    };
    char name[32];
    snprintf(name, sizeof name, "%s show", box->name);
    struct verb v = { .cli = { .verb = name, .help = box->help_show }, .box = box };
    struct once_error err;
    if (!parse(&v, argc, argv, options))
        return v.cli.exit;
    if (optind + 1 != argc)
        return once_cli_usage(&v.cli, "give exactly one ID");
    if (v.raw && v.cli.json)
        return once_cli_usage(&v.cli, "--raw and --json exclude each other");
    int exit = open_box(&v);
    if (exit == ONCE_EXIT_OK && box->query(v.handle, argv[optind], NULL, print_whole, &v, &err) != ONCE_OK)
        exit = once_cli_error(&v.cli, &err, "show a message");
    else if (exit == ONCE_EXIT_OK && v.seen == 0)
        exit = once_cli_fail(&v.cli, ONCE_EXIT_FOUND, "no such message, or %s", box->absent);
    return end(&v, exit);
}

/* ------------------------------------------------------------------ retry, drop */

static void keep_id(void *arg, const struct message_item *item)
{
    struct verb *v = arg;
    snprintf(v->ids[v->id_count++], ONCE_UUID_LEN + 1, "%s", item->message.id);
}

static int resolve_one(struct verb *v, const char *id, const char *action)
{
    char did[16];
    struct once_error err;
    if (v->box->resolve(v->handle, id, action, once_span_str(v->actor), once_span_str(v->reason), did, &err) != ONCE_OK)
        return once_cli_error(&v->cli, &err, action);
    if (v->cli.json) {
        struct once_json json = { .file = stdout };
        once_json_open(&json, NULL, '{');
        once_json_text(&json, "id", id);
        once_json_text(&json, "did", did);
        once_json_close(&json);
    } else if (strcmp(did, "absent") == 0) {
        once_cli_fail(&v->cli, ONCE_EXIT_FOUND, "%s: %s", id,
                      strcmp(action, "retry") == 0 ? "neither dead nor waiting after a failure" : "no such message");
    } else if (!v->cli.quiet) {
        printf("%s %s\n", id, did);
    }
    return strcmp(did, "absent") == 0 ? ONCE_EXIT_FOUND : ONCE_EXIT_OK;
}

static int resolve_all(struct verb *v, int argc, char **argv, const char *action)
{
    struct once_error err;
    int worst = open_box(v);
    if (worst != ONCE_EXIT_OK)
        return worst;
    v->ids = calloc(v->all_dead ? OUTBOX_LIST_MAX : 1, sizeof *v->ids);
    if (v->ids == NULL)
        return once_cli_fail(&v->cli, ONCE_EXIT_OS, "out of memory");
    struct message_filter dead = { "dead", v->topic, v->consumer, OUTBOX_LIST_MAX };
    if (v->all_dead && v->box->query(v->handle, NULL, &dead, keep_id, v, &err) != ONCE_OK)
        return once_cli_error(&v->cli, &err, "list dead letters");
    once_cli_actor(v->actor, sizeof v->actor);
    size_t count = v->all_dead ? v->id_count : (size_t)(argc - optind);
    for (size_t i = 0; i < count; i++) {
        int exit = resolve_one(v, v->all_dead ? v->ids[i] : argv[optind + (int)i], action);
        if (exit > ONCE_EXIT_FOUND)
            return exit;
        worst = exit > worst ? exit : worst;
    }
    return worst;
}

static int resolve(int argc, char **argv, struct verb *v, const struct option *options, const char *action)
{
    if (!parse(v, argc, argv, options))
        return v->cli.exit;
    if (v->all_dead ? optind < argc : optind == argc)
        return once_cli_usage(&v->cli, v->all_dead ? "IDs or --all-dead, not both" : "which ID?");
    if (!v->all_dead && (v->topic[0] != '\0' || v->consumer[0] != '\0'))
        return once_cli_usage(&v->cli, "--%s goes with --all-dead", v->topic[0] != '\0' ? "topic" : "consumer");
    if (v->reason == NULL || v->reason[0] == '\0' || strlen(v->reason) > 1000)
        return once_cli_usage(&v->cli, "--reason TEXT of 1 to 1000 bytes is missing");
    return end(v, resolve_all(v, argc, argv, action));
}

#define OPTIONS_OF_BOTH                                                                                                \
    ONCE_CLI_OPTION_HELP, ONCE_CLI_OPTION_STORE, ONCE_CLI_OPTION_JSON, ONCE_CLI_OPTION_QUIET,                          \
    {                                                                                                                  \
        "reason", required_argument, NULL, OPTION_REASON                                                               \
    }

static int retry(const struct box *box, int argc, char **argv)
{
    const struct option options[] = {
        OPTIONS_OF_BOTH,
        { "all-dead", no_argument, NULL, OPTION_ALL_DEAD },
        { "topic", required_argument, NULL, OPTION_TOPIC },
        { box->consumers ? "consumer" : NULL, required_argument, NULL, OPTION_CONSUMER },
        { 0 },
    };
    char name[32];
    snprintf(name, sizeof name, "%s retry", box->name);
    struct verb v = { .cli = { .verb = name, .help = box->help_retry }, .box = box };
    return resolve(argc, argv, &v, options, "retry");
}

static int drop(const struct box *box, int argc, char **argv)
{
    static const struct option options[] = { OPTIONS_OF_BOTH, { 0 } };
    char name[32];
    snprintf(name, sizeof name, "%s drop", box->name);
    struct verb v = { .cli = { .verb = name, .help = box->help_drop }, .box = box };
    return resolve(argc, argv, &v, options, "drop");
}

int messages_main(const struct box *box, int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const struct box *box, int argc, char **argv);
    } verbs[] = {
        { "list", list },
        { "show", show },
        { "retry", retry },
        { "drop", drop },
    };
    static const struct option options[] = { ONCE_CLI_OPTION_HELP, { 0 } };
    struct once_cli cli = { .verb = box->name, .help = box->help };
    for (size_t i = 0; argc > 1 && i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].run(box, argc - 1, argv + 1);
    for (int c; (c = once_cli_next(&cli, argc, argv, "+", options)) != -1;)
        return cli.exit;
    if (optind == argc)
        return once_cli_usage(&cli, "a verb is missing: list, show, retry or drop");
    return once_cli_usage(&cli, "unknown verb '%s'; there are list, show, retry and drop", argv[optind]);
}
