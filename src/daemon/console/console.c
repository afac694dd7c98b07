/* console.c - see console.h: the listener, who is let in, the page's files. */
#include "daemon/console/console.h"

#include "core/err.h"
#include "core/span.h"
#include "daemon/completer/completer.h"
#include "daemon/completer/escalate.h"
#include "daemon/console/parts.h"
#include "daemon/reaper/reaper.h"
#include "daemon/socket/admin_queries.h"
#include "engine/recent_events.h"
#include "os/os.h"

#include <stdlib.h>

#include "console_files.h"

enum { CONNECTIONS_MAX = 32, REQUEST_MS = 30000, BYTES_MAX = 64 << 20 };

/* What the page may do: load its own files, ask its own server. No frame, form, base, image from elsewhere, and no
 * text becomes markup (trusted types). */
static const char *const headers[][2] = {
    { "Content-Security-Policy",
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
      "trusted-types 'none'" },
    { "X-Frame-Options", "DENY" },
    { "Referrer-Policy", "no-referrer" },
    { "Cross-Origin-Opener-Policy", "same-origin" },
    { "Cross-Origin-Resource-Policy", "same-origin" },
    { "Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()" },
};

static const struct api_route asked[] = {
    { "/api/login", "POST", CONSOLE_SMALL_LEN_MAX, console_login },
    { "/api/logout", "POST", CONSOLE_SMALL_LEN_MAX, console_logout },
    { "/api/overview", "GET", 0, console_overview },
    { "/api/activity", "GET", 0, console_activity },
    { "/api/keys", "GET", 0, console_keys },
    { "/api/key", "GET", 0, console_key },
    { "/api/reveal", "POST", CONSOLE_SMALL_LEN_MAX, console_reveal },
    { "/api/resolve", "POST", CONSOLE_BODY_LEN_MAX, console_resolve },
    { "/api/forget", "POST", CONSOLE_SMALL_LEN_MAX, console_forget },
    { "/api/child-key", "POST", CONSOLE_SMALL_LEN_MAX, console_child_key },
    { "/api/outbox", "GET", 0, console_outbox },
    { "/api/outbox/reveal", "POST", CONSOLE_SMALL_LEN_MAX, console_outbox_reveal },
    { "/api/outbox/action", "POST", CONSOLE_SMALL_LEN_MAX, console_outbox_action },
};

enum { ASKED_COUNT = sizeof asked / sizeof *asked };

/* ---------------------------------------------------------------- who is let in */

static struct console *console_of(const struct api_call *call)
{
    return call->context;
}

void console_name_of(const struct api_call *call, char name[CONSOLE_NAME_LEN_MAX + 1])
{
    /* It was checked when the headers were there; one that ended since then still has its word. */
    if (!console_auth_check(&console_of(call)->auth, call->cookie, call->csrf, name))
        snprintf(name, CONSOLE_NAME_LEN_MAX + 1, "(signed out)");
}

/* CONSOLE-1, CONSOLE-2 */
static bool admit(struct api_call *call)
{
    char name[CONSOLE_NAME_LEN_MAX + 1];
    if (call->route->run == console_file)
        return true;
    if (call->route->method[0] == 'P' && call->origin == NULL) {
        api_answer_problem(&call->answer, API_PROBLEM_FORBIDDEN, NULL, "the Origin header is missing");
        return false;
    }
    if (call->route->run == console_login ||
        console_auth_check(&console_of(call)->auth, call->cookie, call->csrf, name))
        return true;
    api_answer_problem(&call->answer, API_PROBLEM_UNAUTHENTICATED, NULL, "sign in with the console's token");
    return false;
}

void console_login(struct api_call *call)
{
    struct console *console = console_of(call);
    struct api_input in;
    once_span token = { 0 }, name = { 0 };
    if (api_input_parse(&in, call->body) == ONCE_OK) {
        api_input_bytes(&in, "token", API_REQUIRED, &token);
        if (api_input_bytes(&in, "name", API_REQUIRED, &name) && !console_auth_is_name(name))
            api_input_fail(&in, "name", ONCE_INVALID, "must be 1 to 64 bytes of text without control characters");
    }
    if (api_call_accept(call, &in)) {
        char cookie[200], csrf[CONSOLE_SECRET_LEN + 1], text[CONSOLE_NAME_LEN_MAX + 1];
        snprintf(text, sizeof text, "%.*s", ONCE_SPAN_ARGS(name));
        enum console_login answer = console_auth_login(&console->auth, token, name, cookie, csrf);
        if (answer == CONSOLE_LOGIN_OK && call->origin != NULL && strncmp(call->origin, "https:", 6) == 0)
            snprintf(cookie + strlen(cookie), sizeof cookie - strlen(cookie), "; Secure");
        struct once_json json;
        if (answer == CONSOLE_LOGIN_TOO_MANY) {
            api_answer_problem(&call->answer, API_PROBLEM_BUSY, NULL, "too many wrong tokens; one try a second");
        } else if (answer == CONSOLE_LOGIN_WRONG) {
            console_log_note(&console->log, text, NULL, (once_span){ 0 }, (once_span){ 0 }, "refused: a wrong token");
            api_answer_problem(&call->answer, API_PROBLEM_UNAUTHENTICATED, NULL,
                               "this is not the token, or it was used: the daemon's log has the one that is good now");
        } else if (console_answer_begin(call, &json)) {
            once_json_text(&json, "csrf", csrf);
            once_json_text(&json, "name", text);
            console_answer_end(call, &json);
            snprintf(call->answer.cookie, sizeof call->answer.cookie, "%s", cookie);
            console_log_note(&console->log, text, NULL, (once_span){ 0 }, (once_span){ 0 }, "signed in");
            console_print_url(console);
        }
        explicit_bzero(cookie, sizeof cookie);
        explicit_bzero(csrf, sizeof csrf);
    }
    api_input_release(&in);
}

void console_logout(struct api_call *call)
{
    struct console *console = console_of(call);
    struct once_json json;
    char name[CONSOLE_NAME_LEN_MAX + 1];
    console_name_of(call, name);
    if (!console_answer_begin(call, &json))
        return;
    console_answer_end(call, &json);
    console_auth_logout(&console->auth, call->cookie, call->answer.cookie);
    console_log_note(&console->log, name, NULL, (once_span){ 0 }, (once_span){ 0 }, "signed out");
}

/* ---------------------------------------------------------------- answers */

void console_file(struct api_call *call)
{
    for (size_t i = 0; i < console_file_count; i++)
        if (strcmp(console_files[i].path, call->route->path) == 0) {
            FILE *file = api_answer_begin(&call->answer, 200, console_files[i].type);
            if (file == NULL)
                return;
            fwrite(console_files[i].bytes, 1, console_files[i].len, file);
            api_answer_end(&call->answer);
        }
}

bool console_answer_begin(struct api_call *call, struct once_json *json)
{
    *json = (struct once_json){ .file = api_answer_begin(&call->answer, 200, "application/json"),
                                .base64 = true,
                                .text_ids = true };
    if (json->file == NULL)
        return false;
    once_json_open(json, NULL, '{');
    once_json_int(json, "asked_at", once_os_clock.wall(once_os_clock.arg));
    return true;
}

void console_answer_end(struct api_call *call, struct once_json *json)
{
    once_json_close(json);
    api_answer_end(&call->answer);
}

void console_activity(struct api_call *call)
{
    struct once_json json;
    if (!console_answer_begin(call, &json))
        return;
    console_log_put(&console_of(call)->log, &json, "entries");
    console_answer_end(call, &json);
}

/* ---------------------------------------------------------------- start, stop */

static const struct api_route *make_routes(struct console *console, size_t *count)
{
    *count = ASKED_COUNT + console_file_count;
    console->routes = calloc(*count, sizeof *console->routes);
    if (console->routes == NULL)
        return NULL;
    memcpy(console->routes, asked, sizeof asked);
    for (size_t i = 0; i < console_file_count; i++)
        console->routes[ASKED_COUNT + i] =
            (struct api_route){ .path = console_files[i].path, .method = "GET", .run = console_file };
    return console->routes;
}

static once_result start(struct console *console, struct once_error *err)
{
    struct api_service service = {
        .admit = admit, .context = console, .headers = headers, .header_count = sizeof headers / sizeof *headers
    };
    service.routes = make_routes(console, &service.route_count);
    if (service.routes == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the console");
    struct once_api_options options = { .once = console->options.once,
                                        .listen = console->options.listen,
                                        .any_address = console->options.any_address,
                                        .origin = console->options.origin,
                                        .connection_max = CONNECTIONS_MAX,
                                        .request_ms = REQUEST_MS,
                                        .bytes_max = BYTES_MAX,
                                        .service = &service };
    once_result r = console_sampler_start(console, &console->sampler, err);
    if (r == ONCE_OK)
        r = once_api_start(&options, &console->api, err);
    if (r == ONCE_OK)
        console_auth_name_cookie(&console->auth, once_api_address(console->api));
    return r;
}

once_result console_start(const struct console_options *options, struct console **out, struct once_error *err)
{
    struct console *console = calloc(1, sizeof *console);
    if (console == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the console");
    console->options = *options;
    once_result r = console_auth_init(&console->auth, options->token_file, err);
    if (r != ONCE_OK) {
        free(console);
        return r;
    }
    console_log_init(&console->log);
    pthread_mutex_init(&console->list_lock, NULL);
    pthread_mutex_init(&console->outbox_lock, NULL);
    once_record_recent_events(options->once); /* without memory for it a key's page shows less */
    r = start(console, err);
    if (r != ONCE_OK) {
        console_stop(console);
        return r;
    }
    *out = console;
    return ONCE_OK;
}

void console_stop(struct console *console)
{
    if (console == NULL)
        return;
    once_api_stop(console->api);
    console_sampler_stop(console->sampler);
    console_outbox_close(console);
    pthread_mutex_destroy(&console->outbox_lock);
    pthread_mutex_destroy(&console->list_lock);
    console_log_release(&console->log);
    console_auth_release(&console->auth);
    free(console->routes);
    free(console);
}

const char *console_address(const struct console *console)
{
    return once_api_address(console->api);
}

void console_print_url(struct console *console)
{
    char token[CONSOLE_SECRET_LEN + 1];
    const char *address = console_address(console);
    const char *origin = console->options.origin;
    const char *before = origin != NULL ? "" : address[0] == '/' ? "unix:" : "http://";
    console_auth_token(&console->auth, token);
    if (token[0] == '\0')
        fprintf(stderr, "once daemon: console: %s%s, with the token of the file\n", address[0] == '/' ? "" : before,
                origin != NULL ? origin : address);
    else
        fprintf(stderr, "once daemon: console: sign in once at %s%s/#token=%s\n", before,
                origin != NULL ? origin : address, token);
    explicit_bzero(token, sizeof token);
}
