/*
 * api_server.c - the HTTP listener over a store, without the daemon around it.
 *
 *     api_server STORE [NAME=VALUE]...   listen, any_address, host, connection_max, request_ms,
 *                                        answer_ms, drain_ms, bytes_max, queue_len, poll
 *
 * Prints the address, then serves until SIGTERM or SIGINT. With poll=1 the store's handle is as
 * the daemon's: completions wait for a loop.
 */
#include "core/duration.h"
#include "core/span.h"
#include "daemon/api/api.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static bool set_number(const char *word, const char *name, uint64_t *out)
{
    struct once_error err;
    size_t len = strlen(name);
    return strncmp(word, name, len) == 0 && word[len] == '=' &&
           once_size_parse(once_span_str(word + len + 1), out, &err) == ONCE_OK;
}

static bool set_option(const char *word, struct once_api_options *api, struct once_options *options)
{
    uint64_t n = 0;
    if (strncmp(word, "listen=", 7) == 0)
        api->listen = word + 7;
    else if (strcmp(word, "any_address=1") == 0)
        api->any_address = true;
    else if (strcmp(word, "poll=1") == 0)
        options->poll = true;
    else if (strncmp(word, "host=", 5) == 0) {
        static const char *hosts[1];
        hosts[0] = word + 5;
        api->hosts = hosts;
        api->host_count = 1;
    } else if (set_number(word, "connection_max", &n))
        api->connection_max = (uint32_t)n;
    else if (set_number(word, "request_ms", &n))
        api->request_ms = (uint32_t)n;
    else if (set_number(word, "answer_ms", &n))
        api->answer_ms = (uint32_t)n;
    else if (set_number(word, "drain_ms", &n))
        api->drain_ms = (uint32_t)n;
    else if (set_number(word, "bytes_max", &n))
        api->bytes_max = n;
    else if (set_number(word, "queue_len", &n))
        options->queue_len = (uint32_t)n;
    else
        return false;
    return true;
}

static int fail(const char *text)
{
    fprintf(stderr, "api_server: %s\n", text);
    return 1;
}

static void wait_for(const sigset_t *ends, struct once *once)
{
    struct pollfd ready[] = { { .fd = signalfd(-1, ends, SFD_CLOEXEC), .events = POLLIN },
                              { .fd = once_eventfd(once), .events = POLLIN } };
    while (ready[0].revents == 0) {
        (void)poll(ready, 2, -1);
        once_dispatch(once, 100);
    }
    close(ready[0].fd);
}

int main(int argc, char **argv)
{
    struct once_api_options api_options = { .listen = "127.0.0.1:0" };
    struct once_options options = { 0 };
    struct once *once = NULL;
    struct once_api *api = NULL;
    struct once_error err;
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL); /* before there are threads: all of them inherit it */
    for (int i = 2; i < argc; i++)
        if (!set_option(argv[i], &api_options, &options))
            return fail(argv[i]);
    if (argc < 2)
        return fail("usage: api_server STORE [NAME=VALUE]...");
    if (once_open(argv[1], &options, &once, &err) != ONCE_OK)
        return fail(err.text);
    api_options.once = once;
    if (once_api_start(&api_options, &api, &err) != ONCE_OK) {
        once_close(once);
        return fail(err.text);
    }
    printf("%s\n", once_api_address(api));
    fflush(stdout);
    wait_for(&ends, once);
    once_api_stop(api);
    once_close(once);
    return 0;
}
