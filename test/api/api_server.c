/*
 * api_server.c - the HTTP listener over a store, without the daemon around it.
 *
 *     api_server STORE [NAME=VALUE]...   listen, any_address, host, connection_max, request_ms,
 *                                        answer_ms, drain_ms, bytes_max, queue_len
 *
 * Prints the address, then serves until SIGTERM or SIGINT.
 */
#include "core/duration.h"
#include "core/span.h"
#include "daemon/api.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int main(int argc, char **argv)
{
    struct once_api_options api_options = { .listen = "127.0.0.1:0" };
    struct once_options options = { 0 };
    struct once *once = NULL;
    struct once_api *api = NULL;
    struct once_error err;
    sigset_t ends;
    int signal_number;
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
    sigwait(&ends, &signal_number);
    once_api_stop(api);
    once_close(once);
    return 0;
}
