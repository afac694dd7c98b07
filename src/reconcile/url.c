/*
 * url.c - asks about keys with an HTTP GET for each, several at a time.
 *
 * "{key}" in the URL is replaced by the key, percent-encoded. It may be anywhere after the host,
 * so that a key cannot change the host; libcurl does not resolve dots, so that a key cannot change
 * the path. Redirects are not followed.
 *
 * 2xx: the other side knows the key, and the body has the outcome. 404: it does not know the
 * key. Any other status is an error.
 */
#include "reconcile/reconcile.h"

#include "core/span.h"

#include "http/curl.h"

static const char placeholder[] = "{key}";

struct get {
    const struct reconcile_question *question; /* NULL: free */
    CURL *curl;
    struct once_buf body;
    bool too_long;
    char error[CURL_ERROR_SIZE];
};

struct fetch {
    struct reconcile *r;
    CURLM *multi;
    struct curl_slist *headers;
    struct get all[RECONCILE_JOBS_MAX];
    size_t busy;
    reconcile_answered_fn *answered;
};

const char *reconcile_url_fault(const char *url)
{
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return "it does not begin with http:// or https://";
    const char *host = strstr(url, "://") + 3;
    const char *path = strpbrk(host, "/?#");
    const char *at = strstr(url, placeholder);
    if (strlen(url) > ONCE_URL_LEN_MAX)
        return "it is too long";
    if (at == NULL)
        return "{key} is missing";
    if (path == NULL || at < path)
        return "{key} is not after the host";
    return NULL;
}

/* NULL: out of memory. */
static char *make_url(CURL *curl, const char *pattern, once_span key)
{
    struct once_buf url;
    char *escaped = curl_easy_escape(curl, (const char *)key.ptr, (int)key.len);
    once_buf_init(&url, 64 << 10); /* escaping may triple a key, and {key} may occur several times */
    for (const char *at; escaped != NULL && (at = strstr(pattern, placeholder)) != NULL;
         pattern = at + strlen(placeholder)) {
        once_buf_add(&url, once_span_of(pattern, (size_t)(at - pattern)));
        once_buf_add(&url, once_span_str(escaped));
    }
    once_buf_add(&url, once_span_str(pattern));
    once_buf_add_byte(&url, '\0');
    curl_free(escaped);
    if (escaped != NULL && url.result == ONCE_OK)
        return (char *)url.ptr;
    once_buf_release(&url);
    return NULL;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg)
{
    struct get *get = arg;
    once_buf_add(&get->body, once_span_of(bytes, size * count));
    get->too_long = get->body.result != ONCE_OK;
    return get->too_long ? 0 : size * count;
}

static bool prepare(struct fetch *fetch, struct get *get, const char *url)
{
    CURL *curl = get->curl;
    bool ok = http_setup(curl, &(struct http_setup){ .url = url,
                                                     .method = ONCE_LIT("GET"),
                                                     .headers = fetch->headers,
                                                     .timeout_ms = fetch->r->timeout_ms,
                                                     .connect_ms = fetch->r->timeout_ms,
                                                     .user_agent = "once-reconcile",
                                                     .path_as_is = true,
                                                     .error = get->error });
#define SET(option, value) ok = ok && curl_easy_setopt(curl, option, value) == CURLE_OK
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, get);
    SET(CURLOPT_PRIVATE, get);
#undef SET
    return ok;
}

static int start(struct fetch *fetch, struct get *get, const struct reconcile_question *question)
{
    if (get->curl == NULL)
        get->curl = curl_easy_init();
    char *url = get->curl != NULL ? make_url(get->curl, fetch->r->url, question->match.key) : NULL;
    get->error[0] = '\0';
    get->too_long = false;
    once_buf_init(&get->body, RECONCILE_ANSWER_LEN_MAX);
    bool ok = url != NULL && prepare(fetch, get, url) && curl_multi_add_handle(fetch->multi, get->curl) == CURLM_OK;
    free(url); /* libcurl has its copy */
    if (!ok)
        return once_cli_fail(&fetch->r->cli, ONCE_EXIT_OS, "cannot prepare a request: out of memory");
    get->question = question;
    fetch->busy++;
    return ONCE_EXIT_OK;
}

static int finish(struct fetch *fetch, struct get *get, CURLcode code)
{
    long status = 0;
    char text[RECONCILE_TEXT_LEN];
    const char *error = text;
    curl_easy_getinfo(get->curl, CURLINFO_RESPONSE_CODE, &status);
    if (get->too_long)
        snprintf(text, sizeof text, "its answer is longer than 1 MiB");
    else if (code != CURLE_OK)
        snprintf(text, sizeof text, "%s", get->error[0] != '\0' ? get->error : curl_easy_strerror(code));
    else if (status != 404 && (status < 200 || status > 299))
        snprintf(text, sizeof text, "it answered with status %ld", status);
    else
        error = NULL;
    int exit = fetch->answered(fetch->r, get->question, error, status == 404, once_buf_span(&get->body));
    curl_multi_remove_handle(fetch->multi, get->curl);
    once_buf_release(&get->body);
    get->question = NULL;
    fetch->busy--;
    return exit;
}

static int turn(struct fetch *fetch)
{
    struct curl_waitfd signals = { .fd = fetch->r->signals.fd, .events = CURL_WAIT_POLLIN };
    int running;
    CURLcode code = CURLE_OK;
    if (curl_multi_perform(fetch->multi, &running) != CURLM_OK)
        return once_cli_fail(&fetch->r->cli, ONCE_EXIT_OS, "libcurl cannot continue the requests");
    for (struct get *get; (get = http_multi_ended(fetch->multi, &code)) != NULL;) {
        int exit = finish(fetch, get, code);
        if (exit != ONCE_EXIT_OK)
            return exit;
    }
    if (running > 0)
        curl_multi_poll(fetch->multi, &signals, 1, 1000, NULL);
    return ONCE_EXIT_OK;
}

static int ask_all(struct fetch *fetch, const struct reconcile_question *questions, size_t count)
{
    size_t asked = 0;
    int exit = ONCE_EXIT_OK;
    while (exit == ONCE_EXIT_OK && !reconcile_is_interrupted(fetch->r)) {
        for (size_t i = 0; i < fetch->r->jobs && asked < count && exit == ONCE_EXIT_OK; i++)
            if (fetch->all[i].question == NULL)
                exit = start(fetch, &fetch->all[i], &questions[asked++]);
        if (fetch->busy == 0)
            break;
        if (exit == ONCE_EXIT_OK)
            exit = turn(fetch);
    }
    return exit;
}

int reconcile_url(struct reconcile *r, const struct reconcile_question *questions, size_t count,
                  reconcile_answered_fn *answered)
{
    if (!http_curl_init())
        return once_cli_fail(&r->cli, ONCE_EXIT_OS, "cannot initialise libcurl");
    struct fetch fetch = { .r = r, .multi = curl_multi_init(), .answered = answered };
    int exit = fetch.multi == NULL ? once_cli_fail(&r->cli, ONCE_EXIT_OS, "out of memory") : ONCE_EXIT_OK;
    for (size_t i = 0; i < r->header_count && exit == ONCE_EXIT_OK; i++) {
        struct curl_slist *longer = curl_slist_append(fetch.headers, r->headers[i]);
        if (longer == NULL)
            exit = once_cli_fail(&r->cli, ONCE_EXIT_OS, "out of memory");
        else
            fetch.headers = longer;
    }
    if (exit == ONCE_EXIT_OK)
        exit = ask_all(&fetch, questions, count);
    for (size_t i = 0; i < RECONCILE_JOBS_MAX; i++) {
        if (fetch.all[i].question != NULL) {
            curl_multi_remove_handle(fetch.multi, fetch.all[i].curl);
            once_buf_release(&fetch.all[i].body);
        }
        curl_easy_cleanup(fetch.all[i].curl);
    }
    curl_slist_free_all(fetch.headers);
    curl_multi_cleanup(fetch.multi);
    return exit;
}
