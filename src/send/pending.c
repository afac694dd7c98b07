/* pending.c - finds, lists and forgets the pending requests of `once send`. */
#include "core/json/out.h"
#include "core/span.h"
#include "os/os.h"
#include "program/text.h"
#include "send/send.h"

int send_cannot(const struct send *s, const struct once_error *err)
{
    if (err->result == ONCE_INVALID || err->result == ONCE_LIMIT)
        return once_cli_usage(&s->cli, "%s", err->text);
    return once_cli_fail(&s->cli, (int)once_exit_of(err->result), "%s", err->text);
}

int send_no_such(const struct send *s, const char *id)
{
    return once_cli_fail(&s->cli, ONCE_EXIT_FOUND, "no pending request '%.60s'; 'once send --list' shows them", id);
}

/* Is this the key of the request? A damaged file has none. */
static bool has_key(struct send *s, const char *id, const char *key)
{
    struct send_pending pending;
    bool sending;
    bool is = send_folder_look(&s->folder, id, &pending, &sending, NULL) == ONCE_OK &&
              once_span_equal(pending.saved.key, once_span_str(key));
    send_pending_release(&pending);
    return is;
}

static bool begins_with(const char *id, const char *given)
{
    return strlen(given) >= 4 && strncmp(id, given, strlen(given)) == 0;
}

int send_find(struct send *s, char id[SEND_ID_LEN_MAX + 1])
{
    struct send_entry *entries;
    struct once_error err;
    size_t count, found = 0;
    if (send_folder_open(s->state, false, &s->folder, &err) != ONCE_OK ||
        send_folder_list(&s->folder, &entries, &count, &err) != ONCE_OK)
        return once_cli_fail(&s->cli, (int)once_exit_of(err.result), "%s", err.text);
    for (int by_key = 0; by_key <= (s->id != NULL) && found == 0; by_key++)
        for (size_t i = 0; i < count; i++)
            if (s->id == NULL || (by_key ? has_key(s, entries[i].id, s->id) : begins_with(entries[i].id, s->id))) {
                found++;
                snprintf(id, SEND_ID_LEN_MAX + 1, "%s", entries[i].id);
            }
    free(entries);
    if (found == 1)
        return ONCE_EXIT_OK;
    if (found == 0 && s->id == NULL)
        return once_cli_fail(&s->cli, ONCE_EXIT_FOUND, "there is no pending request");
    return found == 0
               ? send_no_such(s, s->id)
               : once_cli_usage(&s->cli, "%zu requests are pending: give an ID; 'once send --list' shows them", found);
}

int send_forget(struct send *s)
{
    char id[SEND_ID_LEN_MAX + 1];
    struct once_error err;
    int exit = send_find(s, id);
    if (exit != ONCE_EXIT_OK)
        return exit;
    once_result r = send_folder_lock(&s->folder, id, &s->pending, &err);
    if (r == ONCE_INVALID)
        return send_no_such(s, id);
    if (r != ONCE_OK && r != ONCE_CORRUPT)
        return send_cannot(s, &err);
    if (send_folder_forget(&s->folder, &s->pending, &err) != ONCE_OK)
        return once_cli_fail(&s->cli, ONCE_EXIT_IO, "%s", err.text);
    if (!s->cli.quiet)
        printf("forgotten here; the server may still have it\n");
    return once_cli_finish(&s->cli, ONCE_EXIT_OK);
}

static void list_json(const struct send_pending *pending, const char *state)
{
    const struct once_client_saved *saved = &pending->saved;
    struct once_json json = { .file = stdout };
    once_span left = saved->withheld, name;
    once_json_open(&json, NULL, '{');
    once_json_text(&json, "id", pending->id);
    once_json_text(&json, "state", state);
    if (saved->key.len > 0) {
        once_json_bytes(&json, "key", saved->key);
        once_json_bytes(&json, "method", saved->method);
        once_json_bytes(&json, "url", saved->url);
        once_json_time(&json, "created_at", saved->created_at);
        once_json_bytes(&json, "header_name", saved->key_header);
        once_json_text(&json, "header_format", saved->format == ONCE_CLIENT_FORMAT_SF ? "sf" : "bare");
        once_json_uint(&json, "body_len", saved->body.len);
        once_json_open(&json, "withheld", '[');
        while (left.len > 0) {
            once_span_cut(left, '\n', &name, &left);
            once_json_bytes(&json, NULL, name);
        }
        once_json_close(&json);
    }
    once_json_close(&json);
}

static void list_row(const struct send_pending *pending, const char *state)
{
    const struct once_client_saved *saved = &pending->saved;
    char age[ONCE_TEXT_TIME_LEN] = "-";
    struct once_buf text;
    once_buf_init(&text, 64 << 10);
    if (saved->key.len > 0)
        once_text_about(once_os_clock.wall(once_os_clock.arg) - saved->created_at, age);
    once_buf_addf(&text, "%-36s  %-7s  %-7s  %-6.*s  ", pending->id, state, age, ONCE_SPAN_ARGS(saved->method));
    once_text_escape(&text, saved->url);
    if (saved->key.len > 0 && !once_span_equal(saved->key, once_span_str(pending->id))) {
        once_buf_addf(&text, "  ");
        once_text_escape(&text, saved->key);
    }
    once_buf_add_byte(&text, '\n');
    fwrite(text.ptr, 1, text.len, stdout);
    once_buf_release(&text);
}

int send_list(struct send *s)
{
    struct send_entry *entries;
    struct once_error err;
    size_t count;
    if (send_folder_open(s->state, false, &s->folder, &err) != ONCE_OK ||
        send_folder_list(&s->folder, &entries, &count, &err) != ONCE_OK)
        return once_cli_fail(&s->cli, (int)once_exit_of(err.result), "%s", err.text);
    if (count > 0 && !s->cli.json)
        printf("%-36s  %-7s  %-7s  %-6s  %s\n", "ID", "STATE", "AGE", "METHOD", "URL AND OTHER KEY");
    for (size_t i = 0; i < count; i++) {
        struct send_pending pending;
        bool sending = false;
        once_result r = send_folder_look(&s->folder, entries[i].id, &pending, &sending, &err);
        const char *state = r != ONCE_OK ? "damaged" : sending ? "sending" : "pending";
        if (r != ONCE_INVALID && s->cli.json)
            list_json(&pending, state);
        else if (r != ONCE_INVALID)
            list_row(&pending, state);
        send_pending_release(&pending);
    }
    free(entries);
    return once_cli_finish(&s->cli, ONCE_EXIT_OK);
}
