/* http.c - see http.h. */
#include "http.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct server {
    http_handler *handler;
    void *arg;
};

static struct server server; /* one per process */

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *path, const char *method,
                                  const char *version, const char *bytes, size_t *len, void **state)
{
    (void)arg, (void)version;
    struct http_request *r = *state;
    if (r == NULL) {
        r = calloc(1, sizeof *r);
        *state = r;
        return r != NULL ? MHD_YES : MHD_NO;
    }
    if (*len > 0) {
        r->too_long |= *len >= sizeof r->body - r->len;
        if (!r->too_long) {
            memcpy(r->body + r->len, bytes, *len);
            r->len += *len;
        }
        *len = 0;
        return MHD_YES;
    }
    r->connection = connection;
    r->method = method;
    r->path = path;
    if (r->too_long)
        return http_answer(r, 413, NULL, "too long\n", 9);
    return server.handler(server.arg, r);
}

static void on_end(void *arg, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code)
{
    (void)arg, (void)connection, (void)code;
    free(*state);
    *state = NULL;
}

struct MHD_Daemon *http_listen(uint16_t port, unsigned threads, http_handler *handler, void *arg)
{
    server = (struct server){ handler, arg };
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | (threads == 0 ? MHD_USE_THREAD_PER_CONNECTION : 0);
    return MHD_start_daemon(flags, port, NULL, NULL, on_request, NULL, MHD_OPTION_SOCK_ADDR, &address,
                            MHD_OPTION_NOTIFY_COMPLETED, on_end, NULL, MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u,
                            MHD_OPTION_THREAD_POOL_SIZE, threads > 1 ? threads : 0, MHD_OPTION_END);
}

enum MHD_Result http_answer(struct http_request *request, unsigned status, const char *headers, const void *body,
                            size_t len)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(len, (void *)body, MHD_RESPMEM_MUST_COPY);
    char name[100], value[500];
    for (const char *line = headers; line != NULL && *line != '\0';) {
        size_t end = strcspn(line, "\r"), colon = strcspn(line, ":");
        snprintf(name, sizeof name, "%.*s", (int)colon, line);
        snprintf(value, sizeof value, "%.*s", (int)(end - colon - 2), line + colon + 2);
        MHD_add_response_header(response, name, value);
        line += end + strspn(line + end, "\r\n");
    }
    enum MHD_Result r = MHD_queue_response(request->connection, status, response);
    MHD_destroy_response(response);
    return r;
}

static sigset_t ending(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    return signals;
}

void http_block_signals(void)
{
    sigset_t signals = ending();
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

void http_wait_for_signal(void)
{
    sigset_t signals = ending();
    int got = 0;
    sigwait(&signals, &got);
}
