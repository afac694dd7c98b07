/* send_args.c - the command line of `once send`. */
#include "client/saved.h"
#include "core/duration.h"
#include "core/span.h"
#include "send/send.h"

#include <strings.h>

/* clang-format off */
static const char help[] =
    "usage: once send METHOD URL [OPTIONS]\n"
    "       once send --resume [ID] [OPTIONS]\n"
    "       once send --list [--json]\n"
    "       once send --forget ID\n"
    "\n"
    "Saves a request with a key, sends it, and sends it again until there is a final answer:\n"
    "after failed connections, timeouts, 408, 425, 429, 5xx, and while it is in progress.\n"
    "Prints the answer. The server must honour the key; see once-send(1).\n"
    "\n"
    "  --header, -H LINE  a header, 'Name: value'; '@FILE': one per line of FILE; '-' for\n"
    "                     standard input\n"
    "  --data, -d DATA    the body: a text, '@FILE', or '-' for standard input, up to 16M; its\n"
    "                     type, unless a header says so: application/x-www-form-urlencoded\n"
    "  --key K            the key; default: a new UUIDv7\n"
    "  --header-name N    the key's header; default: Idempotency-Key\n"
    "  --header-format F  sf: \"K\", as the IETF draft has it, default in Idempotency-Key;\n"
    "                     bare: K, default in any other header\n"
    "  --tries N          at most this many requests; default 20\n"
    "  --max-time DUR     for all tries, pauses included; default 5m\n"
    "  --timeout DUR      for each request and its answer; default 60s\n"
    "  --connect-timeout DUR   part of --timeout, for the connection; default 10s\n"
    "  --backoff DUR      the longest first pause, doubled each time up to 30s; default 250ms\n"
    "  --output, -o FILE  write the answer there, when it is complete\n"
    "  --include, -i      print the answer's status line and headers as well\n"
    "  --max-answer SIZE  the largest body of an answer; default 16M\n"
    "  --cacert FILE      trust these certificates instead of the system's\n"
    "  --cert FILE        the client's certificate (PEM), with its key if that is in the file\n"
    "  --cert-key FILE    the key of that certificate\n"
    "  --proxy URL        instead of http_proxy, https_proxy and no_proxy\n"
    "  --resume           send a pending request again: the one with this ID or key, or the\n"
    "                     only one\n"
    "  --max-age DUR      refuse to resume a request that is older than this: the server may\n"
    "                     have forgotten its key; default 24h; 'never' refuses nothing\n"
    "  --save-secrets     save credentials as well; otherwise headers like Authorization and\n"
    "                     X-Api-Key are not saved, and must be given again with --resume\n"
    "  --trace            send a traceparent, the same with every try and resumption: under\n"
    "                     $TRACEPARENT, if it is valid, else of a new trace\n"
    OTLP_HELP
    "                     Implies --trace; the span is sent with the final answer\n"
    "  --list             list the pending requests; --json: one JSON object per line\n"
    "  --forget           remove the pending request with this ID; the server is not asked\n"
    "  --state DIR        the folder of pending requests; default: once/send in\n"
    "                     $XDG_STATE_HOME or ~/.local/state\n"
    "  --json             with --list\n"
    ONCE_CLI_HELP_QUIET
    ONCE_CLI_HELP_HELP
    "\n"
    "exit:\n"
    "  0    a final answer: 2xx, 303 or 304\n"
    "  22   a final answer with another status (as curl --fail); redirects are not followed\n"
    "  1    --resume, --forget: there is no such request\n"
    "  60   the server's certificate is not trusted (as curl); nothing was sent\n"
    "  63   a final answer that is larger than --max-answer (as curl)\n"
    "  64   usage     65   the key was used for another request (422)\n"
    "  69   not reached: nothing was sent; or the request could not be saved\n"
    "  70   the outcome is unknown to the server; or the saved request is damaged, or too old\n"
    "       to resume\n"
    "  71   no memory      74   the answer could not be written: --resume prints it again\n"
    "  75   gave up, or in progress: use --resume; or another process is sending it\n"
    "\n"
    "example: once send POST https://pay.example/charges -H 'Content-Type: application/json' \\\n"
    "             -H @credentials -d @charge.json -o receipt.json || once send --list\n";
/* clang-format on */

enum {
    OPTION_KEY = ONCE_CLI_OWN,
    OPTION_HEADER_NAME,
    OPTION_HEADER_FORMAT,
    OPTION_TRIES,
    OPTION_MAX_TIME,
    OPTION_TIMEOUT,
    OPTION_CONNECT_TIMEOUT,
    OPTION_BACKOFF,
    OPTION_MAX_ANSWER,
    OPTION_CACERT,
    OPTION_CERT,
    OPTION_CERT_KEY,
    OPTION_PROXY,
    OPTION_RESUME,
    OPTION_MAX_AGE,
    OPTION_SAVE_SECRETS,
    OPTION_LIST,
    OPTION_FORGET,
    OPTION_STATE,
    OPTION_TRACE,
    OPTION_OTLP, /* the first option of otlp_setup.h */
};

static const struct option options[] = {
    ONCE_CLI_OPTION_HELP,
    ONCE_CLI_OPTION_QUIET,
    ONCE_CLI_OPTION_JSON,
    { "header", required_argument, NULL, 'H' },
    { "data", required_argument, NULL, 'd' },
    { "output", required_argument, NULL, 'o' },
    { "include", no_argument, NULL, 'i' },
    { "key", required_argument, NULL, OPTION_KEY },
    { "header-name", required_argument, NULL, OPTION_HEADER_NAME },
    { "header-format", required_argument, NULL, OPTION_HEADER_FORMAT },
    { "tries", required_argument, NULL, OPTION_TRIES },
    { "max-time", required_argument, NULL, OPTION_MAX_TIME },
    { "timeout", required_argument, NULL, OPTION_TIMEOUT },
    { "connect-timeout", required_argument, NULL, OPTION_CONNECT_TIMEOUT },
    { "backoff", required_argument, NULL, OPTION_BACKOFF },
    { "max-answer", required_argument, NULL, OPTION_MAX_ANSWER },
    { "cacert", required_argument, NULL, OPTION_CACERT },
    { "cert", required_argument, NULL, OPTION_CERT },
    { "cert-key", required_argument, NULL, OPTION_CERT_KEY },
    { "proxy", required_argument, NULL, OPTION_PROXY },
    { "resume", no_argument, NULL, OPTION_RESUME },
    { "max-age", required_argument, NULL, OPTION_MAX_AGE },
    { "save-secrets", no_argument, NULL, OPTION_SAVE_SECRETS },
    { "list", no_argument, NULL, OPTION_LIST },
    { "forget", no_argument, NULL, OPTION_FORGET },
    { "state", required_argument, NULL, OPTION_STATE },
    { "trace", no_argument, NULL, OPTION_TRACE },
    OTLP_OPTIONS(OPTION_OTLP),
    { 0 },
};

static bool add_header(struct send *s, once_span line)
{
    once_span name, value;
    struct once_error err;
    if (s->header_count == ONCE_CLIENT_HEADER_COUNT_MAX) {
        once_cli_usage(&s->cli, "--header: more than %d", ONCE_CLIENT_HEADER_COUNT_MAX);
        return false;
    }
    if (client_header_check(line, ONCE_LIT(""), &name, &value, &err) != ONCE_OK) {
        once_cli_usage(&s->cli, "--header: %s", err.text);
        return false;
    }
    s->offsets[s->header_count++] = s->header_text.len;
    once_buf_add(&s->header_text, line);
    s->offsets[s->header_count] = s->header_text.len;
    if (s->header_text.result == ONCE_OK)
        return true;
    once_cli_usage(&s->cli, "--header: more than %d bytes", ONCE_CLIENT_HEADERS_LEN_MAX);
    return false;
}

static bool parse_header(struct send *s)
{
    struct once_buf text;
    if (optarg[0] != '@' && strcmp(optarg, "-") != 0)
        return add_header(s, once_span_str(optarg));
    if (!once_cli_bytes(&s->cli, "--header", &text))
        return false;
    once_span left = once_buf_span(&text), line;
    bool ok = true;
    while (ok && left.len > 0) {
        once_span_cut(left, '\n', &line, &left);
        if (line.len > 0 && line.ptr[line.len - 1] == '\r')
            line.len--;
        ok = line.len == 0 || add_header(s, line);
    }
    once_buf_release(&text);
    return ok;
}

static bool parse_data(struct send *s)
{
    if (s->has_body) {
        once_cli_usage(&s->cli, "--data may be given only once");
        return false;
    }
    s->has_body = true;
    return once_cli_bytes(&s->cli, "--data", &s->body);
}

static bool parse_format(struct send *s)
{
    if (strcmp(optarg, "sf") == 0)
        s->options.format = ONCE_CLIENT_FORMAT_SF;
    else if (strcmp(optarg, "bare") == 0)
        s->options.format = ONCE_CLIENT_FORMAT_BARE;
    else {
        once_cli_usage(&s->cli, "--header-format: '%.60s' is neither sf nor bare", optarg);
        return false;
    }
    return true;
}

static bool parse_time(struct send *s, const char *option, int64_t *ms)
{
    if (!once_cli_duration(&s->cli, option, false, ms))
        return false;
    if (*ms > 0 && *ms <= ONCE_CLIENT_TIME_MS_MAX)
        return true;
    once_cli_usage(&s->cli, "%s: from 1ms to 24h", option);
    return false;
}

static bool parse_size(struct send *s)
{
    uint64_t size = 0;
    struct once_error err = { .text = "" };
    if (once_size_parse(once_span_str(optarg), &size, &err) == ONCE_OK && size > 0 &&
        size <= ONCE_CLIENT_ANSWER_LEN_MAX) {
        s->options.answer_len_max = size;
        return true;
    }
    once_cli_usage(&s->cli, "--max-answer: '%.60s' is not a size from 1 to 1G", optarg);
    return false;
}

static bool parse_request_option(struct send *s, int option)
{
    s->of_request = true;
    switch (option) {
    case 'd':
        return parse_data(s);
    case OPTION_KEY:
        return once_cli_key_option(&s->cli, &s->request.key);
    case OPTION_HEADER_NAME:
        s->options.key_header = optarg;
        return true;
    case OPTION_HEADER_FORMAT:
        return parse_format(s);
    default:
        s->options.save_secrets = true;
        return true;
    }
}

static bool parse_option(struct send *s, int option)
{
    uint64_t number = 0;
    switch (option) {
    case 'H':
        return parse_header(s);
    case 'o':
        s->output = optarg;
        return true;
    case 'i':
        return s->include = true;
    case OPTION_TRIES:
        if (!once_cli_number(&s->cli, "--tries", 1, ONCE_CLIENT_TRIES_MAX, &number))
            return false;
        s->options.tries = (unsigned)number;
        return true;
    case OPTION_MAX_TIME:
        return parse_time(s, "--max-time", &s->options.max_time_ms);
    case OPTION_TIMEOUT:
        return parse_time(s, "--timeout", &s->options.try_ms);
    case OPTION_CONNECT_TIMEOUT:
        return parse_time(s, "--connect-timeout", &s->options.connect_ms);
    case OPTION_BACKOFF:
        return parse_time(s, "--backoff", &s->options.backoff_ms);
    case OPTION_MAX_ANSWER:
        return parse_size(s);
    case OPTION_CACERT:
        s->options.ca_file = optarg;
        return true;
    case OPTION_CERT:
        s->options.cert_file = optarg;
        return true;
    case OPTION_CERT_KEY:
        s->options.cert_key_file = optarg;
        return true;
    case OPTION_PROXY:
        s->options.proxy = optarg;
        return true;
    case OPTION_MAX_AGE:
        return once_cli_duration(&s->cli, "--max-age", true, &s->max_age_ms);
    case OPTION_STATE:
        s->state = optarg;
        return true;
    case OPTION_TRACE:
        return s->trace = true;
    case OPTION_OTLP + OTLP_OPTION_URL:
    case OPTION_OTLP + OTLP_OPTION_HEADER:
        s->trace = true;
        return otlp_setup_option(&s->otlp, (enum otlp_option)(option - OPTION_OTLP));
    case OPTION_RESUME:
    case OPTION_LIST:
    case OPTION_FORGET:
        s->modes++;
        s->mode = option == OPTION_RESUME ? SEND_RESUME : option == OPTION_LIST ? SEND_LIST : SEND_FORGET;
        return true;
    default:
        return parse_request_option(s, option);
    }
}

static bool refuse(struct send *s, const char *what)
{
    s->cli.exit = once_cli_usage(&s->cli, "%s", what);
    return false;
}

static bool parse_arguments(struct send *s, int argc, char **argv)
{
    int count = argc - optind;
    static const int most[] = { [SEND_NEW] = 2, [SEND_RESUME] = 1, [SEND_LIST] = 0, [SEND_FORGET] = 1 };
    if (s->modes > 1)
        return refuse(s, "--resume, --list and --forget exclude each other");
    if (s->cli.json && s->mode != SEND_LIST)
        return refuse(s, "--json goes with --list only");
    if (s->of_request && s->mode != SEND_NEW)
        return refuse(s, "a saved request is sent unchanged: --resume takes no key, key header or body");
    if (s->header_count > 0 && s->mode > SEND_RESUME)
        return refuse(s, "--header needs a request");
    if (count > most[s->mode])
        return refuse(s, "too many arguments");
    if (s->mode == SEND_NEW && count < 1)
        return refuse(s, "METHOD and URL are missing: once send POST https://...");
    if (s->mode == SEND_NEW && strstr(argv[optind], "://") != NULL)
        return refuse(s, "METHOD is missing: once send POST https://...");
    if (s->mode == SEND_NEW && strpbrk(argv[optind], "abcdefghijklmnopqrstuvwxyz") != NULL)
        return refuse(s, "METHOD must be in capitals: POST, PUT, PATCH, DELETE");
    if (s->mode == SEND_NEW && count < 2)
        return refuse(s, "URL is missing");
    if (s->mode == SEND_FORGET && count < 1)
        return refuse(s, "ID is missing: 'once send --list' shows them");
    if (s->mode == SEND_NEW) {
        s->request.method = once_span_str(argv[optind]);
        s->request.url = argv[optind + 1];
    } else if (count > 0) {
        s->id = argv[optind];
    }
    return true;
}

bool send_parse(struct send *s, int argc, char **argv)
{
    s->cli.help = help;
    s->cli.letters = "H:d:o:i";
    for (int c; (c = once_cli_next(&s->cli, argc, argv, "", options)) != -1;) {
        if (c == '?')
            return false;
        s->cli.exit = ONCE_EXIT_USAGE;
        if (!parse_option(s, c))
            return false;
    }
    if (!parse_arguments(s, argc, argv) || !otlp_setup_check(&s->otlp))
        return false;
    if (s->trace && s->mode == SEND_NEW && !send_trace_begin(s, add_header))
        return false;
    bool typed = false;
    for (size_t i = 0; i < s->header_count; i++)
        typed = typed || strncasecmp((const char *)s->header_text.ptr + s->offsets[i], "content-type:", 13) == 0;
    if (s->has_body && !typed && !add_header(s, ONCE_LIT("Content-Type: application/x-www-form-urlencoded")))
        return false;
    for (size_t i = 0; i < s->header_count; i++)
        s->headers[i] = once_span_of(s->header_text.ptr + s->offsets[i], s->offsets[i + 1] - s->offsets[i]);
    s->request.headers = s->headers;
    s->request.header_count = s->header_count;
    s->request.body = once_buf_span(&s->body);
    return true;
}
