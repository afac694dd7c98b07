/* config.c - see serve/config.h. */
#include "serve/config.h"

#include "core/duration.h"
#include "core/span.h"

#include <ctype.h>

bool once_serve_config_is_plain(const char *path)
{
    for (const char *p = path; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f || *p == '$')
            return false;
    return path[0] != '\0';
}

bool once_serve_config_has_keys(const char *method)
{
    static const char *const known[] = { "POST", "PATCH", "PUT", "DELETE" };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(method, known[i]) == 0)
            return true;
    return false;
}

static void add(struct once_buf *out, const char *text)
{
    once_buf_add(out, once_span_str(text));
}

/* "PATH" between quotes. */
static void add_path(struct once_buf *out, const char *dir, const char *name)
{
    const char *const parts[] = { dir, name };
    once_buf_add_byte(out, '"');
    for (size_t i = 0; i < 2; i++)
        for (const char *p = parts[i]; *p != '\0'; p++) {
            if (*p == '"' || *p == '\\')
                once_buf_add_byte(out, '\\');
            once_buf_add_byte(out, (uint8_t)*p);
        }
    once_buf_add_byte(out, '"');
}

static void add_process(const struct once_serve_config *config, struct once_buf *out)
{
    add(out, "# The processes: `once serve` starts and watches the master, its workers serve.\n"
             "daemon off;\n");
    if (config->user != NULL)
        once_buf_addf(out, "user %s %s;\n", config->user, config->group);
    if (config->workers > 0)
        once_buf_addf(out, "worker_processes %u;\n", config->workers);
    else
        add(out, "worker_processes auto;\n");
    once_buf_addf(out, "worker_rlimit_nofile %u;\n", config->files_max);
    add(out, "pid ");
    add_path(out, config->pid_file, "");
    add(out, ";\nerror_log stderr warn;\n\n"
             "# The module: claims a key before a request is passed on, stores the answer, replays it.\n"
             "load_module ");
    add_path(out, config->module, "");
    /* A proxied connection needs two descriptors. */
    once_buf_addf(out, ";\n\nevents {\n    worker_connections %u;\n}\n\n", config->files_max / 2);
}

static void add_logs(const struct once_serve_config *config, struct once_buf *out)
{
    if (!config->log_requests) {
        add(out, "    access_log off;\n");
        return;
    }
    /* No nginx variable has both date and milliseconds, so two are joined; once serve starts nginx with TZ=UTC. */
    add(out, "    # One line per request: time (UTC), client, request line, status, result ('executed', 'replayed',\n"
             "    # ...: docs/observability.md), and the hash by which 'once keys show --record' finds it.\n"
             "    map \"$time_iso8601 $msec\" $logged_at {\n"
             "        \"~^(?<second>[0-9T:-]+)[+]00:00 [0-9]+(?<fraction>[.][0-9]+)$\" \"$second${fraction}Z\";\n"
             "        default $time_iso8601;\n"
             "    }\n"
             "    log_format requests '$logged_at $remote_addr \"$request\" $status $once_status key=$once_key_hash';\n"
             "    access_log /dev/stderr requests;\n");
}

static void add_bodies(const struct once_serve_config *config, struct once_buf *out)
{
    static const char *const kinds[] = { "client_body", "proxy", "fastcgi", "uwsgi", "scgi" };
    add(out, "\n    # Bodies that do not fit into memory. (The last three are not used, but nginx makes them.)\n");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char name[16];
        snprintf(name, sizeof name, "/%s", kinds[i]);
        once_buf_addf(out, "    %s_temp_path ", kinds[i]);
        add_path(out, config->temp_dir, name);
        add(out, ";\n");
    }
    add(out, "    client_max_body_size 64m;\n");
}

static void add_upstream(const struct once_serve_config *config, struct once_buf *out)
{
    add(out, "\n    # Your service. Connections to it are kept; its own timeout for idle ones should be longer\n"
             "    # than this one: a request that meets a closing connection ends unknown.\n"
             "    upstream service {\n");
    once_buf_addf(out, "        server %s max_fails=0;\n", config->upstream->server);
    add(out, "        keepalive 64;\n"
             "        keepalive_timeout 4s;\n"
             "    }\n"
             "    map $http_host $host_asked_for {\n"
             "        \"\" $host;\n"
             "        default $http_host;\n"
             "    }\n");
}

static void add_listen(const struct once_serve_config *config, struct once_buf *out)
{
    once_buf_addf(out, "        listen %s%s;\n", config->listen->text, config->tls_cert != NULL ? " ssl http2" : "");
    if (config->tls_cert == NULL)
        return;
    add(out, "        ssl_certificate ");
    add_path(out, config->tls_cert, "");
    add(out, ";\n        ssl_certificate_key ");
    add_path(out, config->tls_key, "");
    add(out, ";\n        ssl_protocols TLSv1.2 TLSv1.3;\n"
             "        ssl_session_cache shared:tls:10m;\n");
}

static void add_duration(struct once_buf *out, const char *indent, const char *directive, int64_t ms)
{
    char text[ONCE_DURATION_TEXT_LEN];
    if (ms == ONCE_SERVE_CONFIG_DEFAULT)
        return;
    once_duration_format(ms, text);
    once_buf_addf(out, "%s%s %s;\n", indent, directive, text);
}

static void add_tenant(const struct once_serve_config *config, struct once_buf *out)
{
    if (config->policy->tenant_header == NULL) {
        add(out, "        once_tenant -;          # one tenant: all clients share the keys\n");
        return;
    }
    add(out, "        # The tenant, which owns the key. A client that can set this header chooses its tenant:\n"
             "        # a proxy before this gateway must check or set it.\n"
             "        once_tenant $http_");
    for (const char *p = config->policy->tenant_header; *p != '\0'; p++)
        once_buf_add_byte(out, (uint8_t)(*p == '-' ? '_' : tolower((unsigned char)*p)));
    add(out, ";\n");
}

/* The parts of a request that must be equal in a retry. */
static void add_fingerprint(const struct once_serve_policy *policy, struct once_buf *out)
{
    bool guarded = once_serve_policy_is_guarded(policy);
    if (!guarded && policy->credentials.count == 0 && policy->exclude.count == 0)
        return;
    if (guarded || policy->credentials.count > 0)
        add(out, "        # The service does not see a retry: one with other credentials, or without any, counts as\n"
                 "        # another request and is refused (422). Only a keyed hash of them is stored.\n");
    add(out, "        once_fingerprint");
    if (guarded)
        add(out, " credentials");
    for (size_t i = 0; i < policy->credentials.count; i++)
        once_buf_addf(out, " credential=%s", policy->credentials.at[i]);
    for (size_t i = 0; i < policy->exclude.count; i++) {
        once_buf_add_byte(out, ' ');
        add_path(out, "exclude=", policy->exclude.at[i]);
    }
    add(out, ";\n");
}

/* A directive and its arguments; nothing if there are no arguments. */
static void add_words(struct once_buf *out, const char *directive, const struct once_serve_words *words)
{
    if (words->count == 0)
        return;
    once_buf_addf(out, "        %s", directive);
    for (size_t i = 0; i < words->count; i++)
        once_buf_addf(out, " %s", words->at[i]);
    add(out, ";\n");
}

static const struct {
    const char *name, *variable;
} placeholders[] = { { "{key}", "$once_key" }, { "{client-key}", "$once_client_key" } };

/* The index of the placeholder that `text` begins with, or -1. */
static int placeholder_at(const char *text)
{
    for (int i = 0; i < (int)(sizeof placeholders / sizeof *placeholders); i++)
        if (strncmp(text, placeholders[i].name, strlen(placeholders[i].name)) == 0)
            return i;
    return -1;
}

bool once_serve_config_is_probe(const char *path)
{
    size_t count = 0;
    if (path[0] != '/' || strlen(path) > 1000)
        return false;
    while (*path != '\0') {
        int which = placeholder_at(path);
        if (which < 0 && !isalnum((unsigned char)*path) && strchr("/-._~?&=%:@!+,", *path) == NULL)
            return false;
        count += which >= 0;
        path += which >= 0 ? strlen(placeholders[which].name) : 1;
    }
    return count > 0;
}

static void add_probe(const char *path, struct once_buf *out)
{
    add(out, "        once_probe \"");
    while (*path != '\0') {
        int which = placeholder_at(path);
        if (which < 0) {
            once_buf_add_byte(out, (uint8_t)*path++);
            continue;
        }
        const char *next = path + strlen(placeholders[which].name);
        bool joined = isalnum((unsigned char)*next) || *next == '_'; /* would be read as part of the variable's name */
        once_buf_addf(out, joined ? "${%s}" : "$%s", placeholders[which].variable + 1);
        path = next;
    }
    add(out, "\";    # the service answers here whether a request took effect\n");
}

/* In the server block, so that they also apply to the location of the policy document. */
static void add_once(const struct once_serve_config *config, struct once_buf *out)
{
    static const char indent[] = "        ";
    const struct once_serve_policy *policy = config->policy;
    add(out, "\n        # A request with an Idempotency-Key is executed once; retries get the same answer.\n");
    add(out, config->required ? "        once required;          # without a key: 400\n"
                              : "        once on;                # without a key: forwarded unchanged\n");
    add_tenant(config, out);
    add_fingerprint(policy, out);
    add_words(out, "once_methods", &policy->methods);
    if (policy->takeover != NULL)
        once_buf_addf(out, "        once_takeover %s;\n", policy->takeover);
    if (policy->probe != NULL)
        add_probe(policy->probe, out);
    add_words(out, "once_final", &policy->final);
    add_words(out, "once_replay_headers default", &policy->replay_headers);
    if (policy->max_response != NULL)
        once_buf_addf(out, "        once_max_response %s;\n", policy->max_response);
    if (config->intent)
        add(out, "        once_intent on;         # claims store an intent\n");
    if (config->complete)
        once_buf_addf(out, "        once_complete service%s header=Host;    # the daemon completes abandoned records\n",
                      config->complete_identity ? " identity" : "");
    if (config->trace != NULL)
        once_buf_addf(out, "        once_trace %s;          # spans go to the daemon, which exports them\n",
                      config->trace);
    add_duration(out, indent, "once_lease", config->lease_ms);
    add_duration(out, indent, "once_retention", config->retention_ms);
    add_duration(out, indent, "once_body_retention", config->body_retention_ms);
    if (config->no_key_time)
        add(out, "        once_key_time off;      # accept UUIDv7 keys of any age\n");
    add_duration(out, indent, "once_wait", config->wait_ms);
    add(out, "\n        # These rules as a document for clients.\n"
             "        location = /.well-known/idempotency {\n"
             "            once_policy;\n"
             "        }\n");
}

static void add_proxy(const struct once_serve_config *config, struct once_buf *out)
{
    once_buf_addf(out, "            proxy_pass %s://service;\n", config->upstream->tls ? "https" : "http");
    add(out, "            proxy_http_version 1.1;\n"
             "            proxy_set_header Connection \"\";\n"
             "            proxy_set_header Host $host_asked_for;\n"
             "            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n"
             "            proxy_set_header X-Forwarded-Proto $scheme;\n"
             "            proxy_next_upstream off;          # never send a request twice\n"
             "            proxy_ignore_client_abort on;     # a client that left does not stop the work\n");
    add_duration(out, "            ", "proxy_read_timeout", config->timeout_ms);
    add_duration(out, "            ", "proxy_send_timeout", config->timeout_ms);
    if (!config->upstream->tls)
        return;
    once_buf_addf(out, "            proxy_ssl_name %s;\n", config->upstream->host);
    add(out, "            proxy_ssl_server_name on;\n"
             "            proxy_ssl_verify on;\n"
             "            proxy_ssl_verify_depth 4;\n"
             "            proxy_ssl_trusted_certificate ");
    add_path(out, config->ca_file, "");
    add(out, ";\n");
}

void once_serve_config_write(const struct once_serve_config *config, struct once_buf *out)
{
    add(out, ONCE_SERVE_CONFIG_MARK);
    once_buf_addf(out, "# %s%s -> %s\n\n", config->tls_cert != NULL ? "https://" : "http://", config->listen->text,
                  config->upstream->url);
    add_process(config, out);
    add(out, "http {\n");
    add_logs(config, out);
    add(out, "    server_tokens off;\n");
    add_bodies(config, out);
    add_upstream(config, out);
    add(out, "\n    # The daemon that owns the store: `once daemon`.\n    once_daemon ");
    add_path(out, config->socket, "");
    add(out, ";\n\n    server {\n");
    add_listen(config, out);
    add_once(config, out);
    add(out, "\n        location / {\n");
    add_proxy(config, out);
    add(out, "        }\n    }\n}\n");
}
