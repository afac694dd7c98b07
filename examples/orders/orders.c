/*
 * orders.c - a shop's HTTP service: POST /orders with an Idempotency-Key, and its completer.
 *
 * The flow itself is in place_order.c. This file runs it for each request and turns the reply into an
 * HTTP answer. `orders --complete` runs the completer, which continues abandoned orders.
 */
#include "http.h"
#include "place_order.h"

#include <curl/curl.h>
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: orders [OPTION]...\n"
    "A shop that takes orders: POST /orders {\"item\": \"tea\", \"cents\": 2500}, with an Idempotency-Key.\n"
    "\n"
    "  --db WHERE        an SQLite file, or postgresql://... (orders.db)\n"
    "  --provider URL    who charges cards (http://127.0.0.1:9100)\n"
    "  --listen PORT     on 127.0.0.1 (9000)\n"
    "  --threads N       that serve requests, each with its connection to the database (4); 0: one per client\n"
    "  --callee KIND     idempotent, probeable, probeable-by-url or opaque: what the provider does with keys, and\n"
    "                    who asks it: a function here, or the library (idempotent)\n"
    "  --intent          record the intent to charge before charging\n"
    "  --lease MS        of a request being worked on (30000)\n"
    "  --backoff MS      before a second try (1000)\n"
    "  --timeout MS      for the provider's answer (10000)\n"
    "  --attempts N      tries of a completer before it gives up (20)\n"
    "  --crashes N       attempts that may crash (5)\n"
    "  --complete        serve nothing: finish what was left unfinished, until a signal\n"
    "  --sweep           the same, once over all orders\n"
    "  --help\n";

static struct {
    const char *db, *provider;
    long port, threads, timeout_ms;
    bool complete, sweep;
} options = { "orders.db", "http://127.0.0.1:9100", 9000, 4, 10000, false, false };

/* ---------------------------------------------------------------- a thread's connection */

static pthread_key_t shop_key;

static void drop_shop(void *shop)
{
    shop_close(shop);
}

static struct shop *this_threads_shop(char error[200])
{
    struct shop *shop = pthread_getspecific(shop_key);
    if (shop == NULL) {
        shop = shop_open(options.db, error);
        pthread_setspecific(shop_key, shop);
    }
    return shop;
}

/* ---------------------------------------------------------------- POST /orders */

static enum MHD_Result problem(struct http_request *request, unsigned status, const char *more, const char *title)
{
    char headers[300], body[500];
    snprintf(headers, sizeof headers, "Content-Type: application/problem+json\r\n%s", more);
    int len = snprintf(body, sizeof body, "{\"title\": \"%s\", \"status\": %u}\n", title, status);
    return http_answer(request, status, headers, body, (size_t)len);
}

static enum MHD_Result replay(struct http_request *request, const struct once_record *record, bool executed)
{
    char headers[1000];
    snprintf(headers, sizeof headers, "%s%.*s", executed ? "" : "Idempotency-Replayed: true\r\n",
             (int)record->headers.len, (const char *)record->headers.ptr);
    return http_answer(request, (unsigned)record->status, headers, record->body.ptr, record->body.len);
}

/* The reply of the flow as an HTTP answer. */
static enum MHD_Result answer(struct http_request *request, const struct once_reply *reply,
                              const struct once_flow_report *report)
{
    char later[60];
    snprintf(later, sizeof later, "Retry-After: %lld\r\n", (long long)(reply->retry_after_ms + 999) / 1000);
    switch (reply->arm) {
    case ONCE_ARM_REPLAY:
        if (reply->record.retryable)
            return problem(request, 503, "Retry-After: 1\r\n", "Not now; ask again under the same key");
        return replay(request, &reply->record, report->executed && !report->fenced);
    case ONCE_ARM_IN_PROGRESS:
        return problem(request, 409, later, "This order is being worked on");
    case ONCE_ARM_MISMATCH:
        return problem(request, 422, "", "This key was used for another order");
    case ONCE_ARM_UNKNOWN:
        return problem(request, 502, "Idempotency-Outcome: unknown\r\n",
                       "It is not known whether this was charged; somebody will look");
    default:
        return problem(request, 503, "Retry-After: 1\r\n", "Ask again under the same key");
    }
}

static enum MHD_Result post_order(struct http_request *request, const char *key, size_t key_len)
{
    struct once_flow_report report = { .executed = false };
    struct once_reply reply;
    struct once_error err = { .text = "" };
    struct context context = { this_threads_shop(err.text), options.provider, options.timeout_ms };
    if (context.shop == NULL) {
        fprintf(stderr, "orders: %s\n", err.text);
        return problem(request, 503, "Retry-After: 1\r\n", "The database is not there");
    }
    struct once_flow_input input = { .key = { (const uint8_t *)key, key_len },
                                     .request = { (const uint8_t *)request->body, request->len } };
    once_result r = once_flow_run(&place_order, context.shop->flows, &input, &context, &report, &reply, &err);
    if (report.fenced)
        fprintf(stderr, "orders: %s: fenced, answered from the record\n", key);
    if (r != ONCE_OK || report.reason[0] != '\0')
        fprintf(stderr, "orders: %s: %s\n", key, r != ONCE_OK ? err.text : report.reason);
    enum MHD_Result answered = r == ONCE_OK
                                   ? answer(request, &reply, &report)
                                   : problem(request, 503, "Retry-After: 1\r\n", "Ask again under the same key");
    once_reply_release(&reply);
    return answered;
}

static enum MHD_Result handle(void *arg, struct http_request *request)
{
    (void)arg;
    const char *field = MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, "Idempotency-Key");
    char key[ONCE_KEY_LEN_MAX + 1];
    size_t key_len = 0;
    struct once_error err;
    if (strcmp(request->path, "/orders") != 0 || strcmp(request->method, "POST") != 0)
        return problem(request, 404, "", "POST /orders is all there is");
    if (field == NULL)
        return problem(request, 400, "", "An order needs an Idempotency-Key");
    if (once_key_parse((once_span){ (const uint8_t *)field, strlen(field) }, ONCE_KEY_LENIENT, key, &key_len, &err) !=
        ONCE_OK)
        return problem(request, 400, "", "The Idempotency-Key is none");
    return post_order(request, key, key_len);
}

static int serve(void)
{
    struct MHD_Daemon *daemon = http_listen((uint16_t)options.port, (unsigned)options.threads, handle, NULL);
    if (daemon == NULL) {
        fprintf(stderr, "orders: cannot listen on port %ld: %m\n", options.port);
        return 1;
    }
    printf("orders: listening on http://127.0.0.1:%ld\n", options.port);
    fflush(stdout);
    http_wait_for_signal();
    MHD_stop_daemon(daemon);
    return 0;
}

/* ---------------------------------------------------------------- the completer */

static bool has_signal(void *arg)
{
    (void)arg;
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1;
}

static void tell(void *arg, once_result result, const struct once_flow_step_report *swept, const struct once_error *err)
{
    (void)arg;
    if (result != ONCE_OK)
        fprintf(stderr, "orders: completer: %s\n", err->text);
    if (swept->stuck > 0)
        fprintf(stderr, "orders: %u cannot go on: %s\n", swept->stuck, swept->reason);
    if (swept->taken + swept->missed > 0)
        printf("orders: took over %u: %u ended, %u postponed, %u unknown; %u were somebody else's\n", swept->taken,
               swept->ended, swept->postponed, swept->escalated, swept->missed);
    fflush(stdout);
}

/* One round of the completer. */
static int sweep(struct context *context)
{
    struct once_flow_round round = { .before = 0 };
    struct once_flow_step_report swept = { .more = true };
    struct once_error err = { .text = "" };
    uint32_t looked = 0;
    while (swept.more) {
        once_result r = once_flow_complete(&place_order, context->shop->flows, context, &round, &swept, &err);
        tell(context, r, &swept, &err);
        if (r != ONCE_OK)
            return 1;
        looked += swept.looked;
    }
    printf("orders: looked at %u unfinished\n", looked);
    return 0;
}

static int complete(void)
{
    char error[200] = "";
    struct context context = { shop_open(options.db, error), options.provider, options.timeout_ms };
    if (context.shop == NULL) {
        fprintf(stderr, "orders: %s\n", error);
        return 1;
    }
    int status = 0;
    if (options.sweep)
        status = sweep(&context);
    else
        once_flow_complete_until(&place_order, context.shop->flows, &context, 200, has_signal, tell);
    shop_close(context.shop);
    return status;
}

/* ---------------------------------------------------------------- the program */

static long number(const char *text, const char *what, long least, long most)
{
    char *end = NULL;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno != 0 || *text == '\0' || *end != '\0' || n < least || n > most) {
        fprintf(stderr, "orders: --%s takes a number from %ld to %ld, not '%s'\n", what, least, most, text);
        exit(64);
    }
    return n;
}

static void read_options(int argc, char **argv)
{
    static const struct option all[] = {
        { "db", 1, NULL, 'd' },       { "provider", 1, NULL, 'p' }, { "listen", 1, NULL, 'l' },
        { "threads", 1, NULL, 'n' },  { "callee", 1, NULL, 'k' },   { "intent", 0, NULL, 'i' },
        { "lease", 1, NULL, 'e' },    { "backoff", 1, NULL, 'b' },  { "timeout", 1, NULL, 't' },
        { "crashes", 1, NULL, 'c' },  { "complete", 0, NULL, 'C' }, { "sweep", 0, NULL, 's' },
        { "attempts", 1, NULL, 'a' }, { "help", 0, NULL, 'h' },     { NULL, 0, NULL, 0 },
    };
    const char *callee = "idempotent";
    bool intent = false;
    for (int c; (c = getopt_long(argc, argv, "", all, NULL)) != -1;) {
        switch (c) {
        case 'd':
            options.db = optarg;
            break;
        case 'p':
            options.provider = optarg;
            break;
        case 'l':
            options.port = number(optarg, "listen", 1, 65535);
            break;
        case 'n':
            options.threads = number(optarg, "threads", 0, 100);
            break;
        case 'k':
            callee = optarg;
            break;
        case 'i':
            intent = true;
            break;
        case 'e':
            place_order.lease_ms = number(optarg, "lease", 1, 86400000);
            break;
        case 'b':
            place_order.backoff_ms = number(optarg, "backoff", 1, 86400000);
            break;
        case 't':
            options.timeout_ms = number(optarg, "timeout", 1, 86400000);
            break;
        case 'c':
            place_order.crashes_max = (uint32_t)number(optarg, "crashes", 1, 255);
            break;
        case 'a':
            place_order.attempts_max = (uint32_t)number(optarg, "attempts", 1, 1000);
            break;
        case 'C':
            options.complete = true;
            break;
        case 's':
            options.complete = options.sweep = true;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            exit(64);
        }
    }
    if (optind < argc || !place_order_callee(callee, intent)) {
        fputs(usage, stderr);
        exit(64);
    }
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    http_block_signals();
    curl_global_init(CURL_GLOBAL_DEFAULT);
    pthread_key_create(&shop_key, drop_shop);
    int status = options.complete ? complete() : serve();
    curl_global_cleanup();
    return status;
}
