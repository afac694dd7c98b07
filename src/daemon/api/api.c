/*
 * api.c - see api.h: the path of a request through libmicrohttpd.
 *
 *     URI known        on_uri       allocates a struct request
 *     headers arrived  on_headers   checks host, path, method, type, size
 *     body arrives     on_body      stored, or dropped if the request is refused
 *     complete         on_complete  the route answers; the answer is queued
 *     sent or lost     on_end       frees it
 *
 * A refusal waits for the end of the body: a client that is cut off while it sends would not read the reason. Except if
 * the client asked first (Expect) or would send more than SWALLOW_LEN_MAX.
 */
#include "daemon/api/api.h"

#include "core/buf.h"
#include "core/err.h"
#include "core/span.h"
#include "daemon/api/call.h"
#include "daemon/api/conns.h"
#include "daemon/api/guard.h"
#include "daemon/api/listen.h"
#include "os/os.h"
#include "os/thread.h"

#include <assert.h>
#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

enum {
    CONNECTION_MAX = 256,
    CONNECTION_MAX_MAX = 4096,
    REQUEST_MS = 30000,
    ANSWER_MS = 60000,
    DRAIN_MS = 5000,
    STACK_LEN = 1 << 20,     /* of a connection's thread; unused pages cost no memory */
    HEAD_LEN_MAX = 64 << 10, /* of a request line and headers, and of one part of a body */
};

#define BYTES_MAX (128ULL << 20)
/* The body of a refused request is read to its end up to this length. */
#define SWALLOW_LEN_MAX (64ULL << 20)

struct once_api {
    struct once *once;
    struct api_service service;
    unknown_fn *escalated;
    void *escalated_arg;
    struct decisions *log;
    struct MHD_Daemon *server;
    int listener;
    pthread_t acceptor;
    char address[API_ADDRESS_LEN];
    struct api_guard guard;
    struct api_conns conns;
    struct api_counters counters;
    struct api_budget budget;
    _Atomic bool ending;
    int64_t drain_ms;
};

struct request {
    struct once_api *api;
    char *uri;
    const struct api_route *route; /* NULL: none */
    bool begun;                    /* its headers were checked */
    bool answered;                 /* an answer is queued */
    bool working;                  /* counted by api_conns */
    uint64_t got;                  /* bytes of the body so far */
    struct api_conn *conn;
    struct once_buf body;
    struct api_call call;
};

/* ---------------------------------------------------------------- the answer */

static enum MHD_Result send_answer(struct request *request, struct MHD_Connection *connection)
{
    struct api_answer *answer = &request->call.answer;
    assert(answer->status >= 200 && answer->status < API_STATUS_COUNT);
    static char nothing[1];
    bool empty = answer->len == 0;
    struct MHD_Response *response = MHD_create_response_from_buffer(
        answer->len, empty ? nothing : answer->body, empty ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_FREE);
    if (response == NULL)
        return MHD_NO; /* closes the connection */
    if (!empty)
        answer->body = NULL;
    char retry_after[12];
    snprintf(retry_after, sizeof retry_after, "%u", answer->retry_after);
    bool good = MHD_add_response_header(response, "Content-Type", answer->type) == MHD_YES &&
                MHD_add_response_header(response, "Cache-Control", "no-store") == MHD_YES &&
                MHD_add_response_header(response, "X-Content-Type-Options", "nosniff") == MHD_YES;
    const struct once *once = request->api->once; /* NULL: there is no store here */
    if (once != NULL && strcmp(once_tier(once), "full") != 0)
        good = good && MHD_add_response_header(response, "Once-Tier", once_tier(once)) == MHD_YES;
    for (size_t i = 0; i < request->api->service.header_count; i++)
        good = good && MHD_add_response_header(response, request->api->service.headers[i][0],
                                               request->api->service.headers[i][1]) == MHD_YES;
    if (answer->cookie[0] != '\0')
        good = good && MHD_add_response_header(response, "Set-Cookie", answer->cookie) == MHD_YES;
    if (answer->allow != NULL)
        good = good && MHD_add_response_header(response, "Allow", answer->allow) == MHD_YES;
    if (answer->retry_after > 0)
        good = good && MHD_add_response_header(response, "Retry-After", retry_after) == MHD_YES;
    if (atomic_load(&request->api->ending))
        good = good && MHD_add_response_header(response, "Connection", "close") == MHD_YES;
    enum MHD_Result queued = good ? MHD_queue_response(connection, answer->status, response) : MHD_NO;
    MHD_destroy_response(response);
    request->answered = true;
    atomic_fetch_add(&request->api->counters.answers[answer->status], 1);
    if (request->conn != NULL && request->working)
        api_conns_answer(&request->api->conns, request->conn);
    return queued;
}

/* ---------------------------------------------------------------- the headers */

struct headers {
    struct api_guard_headers guard;
    const char *content_type, *content_length, *expect, *cookie, *csrf, *traceparent;
};

static enum MHD_Result on_header(void *arg, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct headers *headers = arg;
    (void)kind;
    const struct {
        const char *name;
        const char **value;
        bool guarded;
    } wanted[] = {
        { "Host", &headers->guard.host, true },
        { "Origin", &headers->guard.origin, true },
        { "Sec-Fetch-Site", &headers->guard.fetch_site, true },
        { "Content-Type", &headers->content_type, false },
        { "Content-Length", &headers->content_length, false },
        { "Expect", &headers->expect, false },
        { "Cookie", &headers->cookie, false },
        { "X-Once-Csrf", &headers->csrf, false },
        { "traceparent", &headers->traceparent, false },
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (strcasecmp(name, wanted[i].name) != 0)
            continue;
        if (*wanted[i].value != NULL && wanted[i].guarded)
            headers->guard.repeated = true;
        *wanted[i].value = value != NULL ? value : "";
    }
    return MHD_YES;
}

/* application/json, with any parameters: JSON is UTF-8, which is checked. */
static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    if (type == NULL || strncasecmp(type, json, sizeof json - 1) != 0)
        return false;
    type += sizeof json - 1;
    return type[strspn(type, " \t")] == '\0' || type[strspn(type, " \t")] == ';';
}

/* Without a store only some routes exist. */
static const struct api_route *find_route(const struct once_api *api, const char *uri)
{
    const struct api_service *service = &api->service;
    size_t len = strcspn(uri, "?");
    for (size_t i = 0; i < service->route_count; i++)
        if ((api->once != NULL || strncmp(service->routes[i].path, "/v1/", 4) != 0) &&
            strlen(service->routes[i].path) == len && memcmp(service->routes[i].path, uri, len) == 0)
            return &service->routes[i];
    return NULL;
}

static bool takes_method(const struct api_route *route, const char *method)
{
    return strcmp(method, route->method) == 0 || (strcmp(route->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

/* All checks that do not need the body. */
static void check_head(struct request *request, const struct headers *headers, const char *method, uint64_t declared)
{
    struct api_answer *answer = &request->call.answer;
    const char *refused = api_guard_refuses(&request->api->guard, &headers->guard);
    request->route = request->call.route = find_route(request->api, request->uri);
    request->call.cookie = headers->cookie;
    request->call.csrf = headers->csrf;
    request->call.traceparent = headers->traceparent;
    request->call.origin = headers->guard.origin;
    if (refused != NULL) {
        api_answer_problem(answer, API_PROBLEM_FORBIDDEN, NULL, "%s", refused);
    } else if (request->route == NULL) {
        api_answer_problem(answer, API_PROBLEM_NOT_FOUND, NULL, "unknown path '%.200s'", request->uri);
    } else if (!takes_method(request->route, method)) {
        answer->allow = strcmp(request->route->method, "GET") == 0 ? "GET, HEAD" : "POST";
        api_answer_problem(answer, API_PROBLEM_METHOD, NULL, "'%s' takes %s, not '%.40s'", request->route->path,
                           answer->allow, method);
    } else if (strcmp(request->route->method, "POST") == 0 && !is_json(headers->content_type)) {
        api_answer_problem(answer, API_PROBLEM_MEDIA_TYPE, NULL, "Content-Type must be application/json, is '%.100s'",
                           headers->content_type != NULL ? headers->content_type : "");
    } else if (request->api->service.admit != NULL && !request->api->service.admit(&request->call)) {
        assert(answer->status != 0);
    } else if (declared > request->route->body_max) {
        api_answer_problem(answer, API_PROBLEM_LIMIT, NULL, "the body is %llu bytes long, the limit for '%s' is %zu",
                           (unsigned long long)declared, request->route->path, request->route->body_max);
    } else if (declared > API_UNCOUNTED_LEN && api_call_charge(&request->call, declared)) {
        once_buf_reserve(&request->body, declared);
    }
}

static uint64_t read_length(const char *text)
{
    uint64_t value = 0;
    for (; text != NULL && *text >= '0' && *text <= '9'; text++)
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
            return UINT64_MAX;
    return value;
}

static enum MHD_Result on_headers(struct request *request, struct MHD_Connection *connection, const char *method,
                                  const char *version)
{
    struct headers headers = { .guard.http_1_0 = strcmp(version, MHD_HTTP_VERSION_1_0) == 0 };
    MHD_get_connection_values(connection, MHD_HEADER_KIND, on_header, &headers);
    uint64_t declared = read_length(headers.content_length);
    request->begun = true;
    once_buf_init(&request->body, API_BODY_LEN_MAX);
    check_head(request, &headers, method, declared);
    if (request->call.answer.status != 0 && (headers.expect != NULL || declared > SWALLOW_LEN_MAX))
        return send_answer(request, connection);
    return MHD_YES;
}

/* ---------------------------------------------------------------- the body */

/* If the length of a body was not declared, each part is charged when it arrives. */
static void on_body(struct request *request, const char *piece, size_t len)
{
    struct api_answer *answer = &request->call.answer;
    request->got += len;
    if (answer->status != 0)
        return;
    if (request->got > request->route->body_max) {
        api_answer_problem(answer, API_PROBLEM_LIMIT, NULL, "the body is longer than %zu bytes, the limit for '%s'",
                           request->route->body_max, request->route->path);
    } else if (request->got <= API_UNCOUNTED_LEN || request->got <= request->call.charged ||
               api_call_charge(&request->call, len)) {
        once_buf_add(&request->body, once_span_of(piece, len));
        if (request->body.result != ONCE_OK)
            api_answer_problem(answer, API_PROBLEM_NO_MEMORY, NULL, "out of memory for a body of %llu bytes",
                               (unsigned long long)request->got);
    }
    if (answer->status != 0)
        once_buf_release(&request->body);
}

static enum MHD_Result on_complete(struct request *request, struct MHD_Connection *connection)
{
    struct api_call *call = &request->call;
    if (request->conn != NULL) {
        request->working = true;
        api_conns_begin(&request->api->conns, request->conn);
    }
    uint64_t charged = call->charged; /* for the body */
    if (call->answer.status == 0) {
        const char *query = strchr(request->uri, '?');
        call->query = query != NULL ? query + 1 : NULL;
        call->body = once_buf_span(&request->body);
        request->route->run(call);
    }
    /* Before the answer is sent: a slow client may take long, a fast one sends its next request at once. */
    once_buf_release(&request->body);
    call->charged -= charged;
    atomic_fetch_sub(&call->budget->used, charged);
    return send_answer(request, connection);
}

/* ---------------------------------------------------------------- libmicrohttpd's callbacks */

static struct api_conn *conn_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

static void *on_uri(void *arg, const char *uri, struct MHD_Connection *connection)
{
    struct once_api *api = arg;
    struct request *request = calloc(1, sizeof *request);
    if (request == NULL || (request->uri = strdup(uri)) == NULL) {
        free(request);
        return NULL;
    }
    request->api = api;
    request->conn = conn_of(connection);
    request->call = (struct api_call){
        .once = api->once,
        .context = api->service.context,
        .counters = &api->counters,
        .escalated = api->escalated,
        .escalated_arg = api->escalated_arg,
        .log = api->log,
        .budget = &api->budget,
        .ending = &api->ending,
        .fd = request->conn != NULL ? request->conn->fd : -1,
    };
    return request;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_len, void **state)
{
    (void)arg, (void)url;
    struct request *request = *state;
    if (request == NULL || request->conn == NULL)
        return MHD_NO; /* no memory or descriptor: closed without an answer */
    if (!request->begun)
        return on_headers(request, connection, method, version);
    if (*upload_len > 0) {
        if (request->got > SWALLOW_LEN_MAX)
            return MHD_NO;
        on_body(request, upload, *upload_len);
        *upload_len = 0;
        return MHD_YES;
    }
    return request->answered ? MHD_YES : on_complete(request, connection);
}

static void on_end(void *arg, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode how)
{
    (void)connection, (void)how;
    struct once_api *api = arg;
    struct request *request = *state;
    if (request == NULL)
        return;
    *state = NULL;
    once_buf_release(&request->body);
    api_answer_release(&request->call.answer);
    atomic_fetch_sub(&api->budget.used, request->call.charged);
    if (request->working)
        api_conns_end(&api->conns, request->conn);
    free(request->uri);
    free(request);
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode how)
{
    struct once_api *api = arg;
    if (how == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        *context = info != NULL ? api_conns_add(&api->conns, info->connect_fd) : NULL;
        atomic_fetch_add(&api->counters.connections, 1);
        atomic_fetch_add(&api->counters.connections_ever, 1);
    } else {
        if (*context != NULL)
            api_conns_remove(&api->conns, *context);
        *context = NULL;
        atomic_fetch_sub(&api->counters.connections, 1);
        api_conns_leave(&api->conns);
    }
}

/* ---------------------------------------------------------------- start, stop */

/* Accepts only while there is room: at its own limit libmicrohttpd accepts and resets, which for a client looks like a
 * lost answer. */
static void *accept_all(void *arg)
{
    struct once_api *api = arg;
    while (api_conns_admit(&api->conns)) {
        struct sockaddr_storage peer;
        socklen_t len = sizeof peer;
        struct pollfd ready = { .fd = api->listener, .events = POLLIN };
        (void)poll(&ready, 1, -1);
        int fd = accept4(api->listener, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        bool short_of = fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
        if (fd >= 0 && MHD_add_connection(api->server, fd, (struct sockaddr *)&peer, len) == MHD_YES)
            continue;
        api_conns_leave(&api->conns);
        if (short_of || fd >= 0)
            api_conns_pause(&api->conns);
    }
    return NULL;
}

static once_result start_server(struct once_api *api, struct once_error *err)
{
    unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC |
                     MHD_USE_NO_LISTEN_SOCKET;
    api->server = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, api, MHD_OPTION_CONNECTION_LIMIT, (unsigned)api->conns.open_max + 1,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_LEN_MAX, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_LEN,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_URI_LOG_CALLBACK, on_uri, api, MHD_OPTION_NOTIFY_COMPLETED, on_end,
        api, MHD_OPTION_NOTIFY_CONNECTION, on_connection, api, MHD_OPTION_END);
    if (api->server == NULL)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot start the HTTP listener on '%s'", api->address);
    int error = once_thread_start(&api->acceptor, accept_all, api);
    if (error == 0)
        return ONCE_OK;
    MHD_stop_daemon(api->server);
    return once_fail(err, ONCE_UNAVAILABLE, "cannot start a thread: %s", strerror(error));
}

static uint32_t or_default(uint32_t value, uint32_t if_zero)
{
    return value > 0 ? value : if_zero;
}

once_result once_api_start(const struct once_api_options *options, struct once_api **out, struct once_error *err)
{
    assert(options->once != NULL || options->up != NULL);
    uint32_t connection_max = or_default(options->connection_max, CONNECTION_MAX);
    if (connection_max > CONNECTION_MAX_MAX)
        return once_fail(err, ONCE_INVALID, "%u HTTP connections are too many, the limit is %d", connection_max,
                         CONNECTION_MAX_MAX);
    struct once_api *api = calloc(1, sizeof *api);
    if (api == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "out of memory for the HTTP listener");
    api->once = options->once;
    api->service = (struct api_service){ .routes = api_routes, .route_count = api_route_count };
    if (options->service != NULL)
        api->service = *options->service;
    api->counters.more = options->more;
    api->counters.more_arg = options->more_arg;
    api->counters.up = options->up;
    api->counters.escalations = options->escalations;
    api->counters.completer = options->completer;
    api->counters.expiry = options->expiry;
    api->counters.health = options->health;
    api->escalated = options->escalated;
    api->escalated_arg = options->escalated_arg;
    api->log = options->log;
    api->guard.hosts = options->hosts;
    api->guard.host_count = options->host_count;
    api->guard.origin = options->origin;
    api->budget.max = options->bytes_max > 0 ? options->bytes_max : BYTES_MAX;
    api->drain_ms = or_default(options->drain_ms, DRAIN_MS);
    api->counters.started_ms = once_os_monotonic_ms();
    api->conns.request_ms = or_default(options->request_ms, REQUEST_MS);
    api->conns.answer_ms = or_default(options->answer_ms, ANSWER_MS);
    api->conns.counters = &api->counters;
    api->conns.open_max = connection_max;
    const char *address = options->listen != NULL ? options->listen : ONCE_API_LISTEN_DEFAULT;
    once_result r =
        options->service != NULL && address[0] == '/'
            ? api_listen_unix(address, &api->listener, &api->guard.bound, api->address, err)
            : api_listen(address, options->any_address, &api->listener, &api->guard.bound, api->address, err);
    if (r != ONCE_OK)
        goto no_listener;
    r = api_conns_init(&api->conns, err);
    if (r != ONCE_OK)
        goto no_conns;
    r = start_server(api, err);
    if (r != ONCE_OK)
        goto no_server;
    *out = api;
    return ONCE_OK;

no_server:
    api_conns_release(&api->conns);
no_conns:
    api_listen_close(api->listener, &api->guard.bound);
no_listener:
    free(api);
    return r;
}

void once_api_stop(struct once_api *api)
{
    if (api == NULL)
        return;
    atomic_store(&api->ending, true);
    api_conns_shut(&api->conns);
    shutdown(api->listener, SHUT_RD); /* wakes the acceptor; new connections are refused from now on */
    pthread_join(api->acceptor, NULL);
    api_listen_close(api->listener, &api->guard.bound);
    api_conns_drain(&api->conns, api->drain_ms);
    MHD_stop_daemon(api->server);
    api_conns_release(&api->conns);
    free(api);
}

const char *once_api_address(const struct once_api *api)
{
    return api->address;
}
