/* kafka_conf.c - see kafka_conf.h. */
#include "messages/brokers/kafka_conf.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"

#include <errno.h>
#include <stdio.h>

static const char shape[] = "it is not kafka://HOST[:PORT][,HOST[:PORT]...][/TOPIC]";

bool kafka_topic_is_legal(once_span topic)
{
    for (size_t i = 0; i < topic.len; i++) {
        uint8_t c = topic.ptr[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
              c == '-'))
            return false;
    }
    return topic.len > 0 && topic.len <= KAFKA_TOPIC_LEN_MAX && !once_span_equal(topic, ONCE_LIT(".")) &&
           !once_span_equal(topic, ONCE_LIT(".."));
}

/* HOST, HOST:PORT, [IPV6]:PORT. Refuses only text that would be misread; the resolver judges names. */
static bool is_host(once_span text)
{
    once_span host = text, port = ONCE_LIT("1");
    bool brackets = text.len > 0 && text.ptr[0] == '[';
    if (brackets) {
        if (!once_span_cut(once_span_skip(text, 1), ']', &host, &port))
            return false;
        if (port.len > 0 && (port.ptr[0] != ':' || port.len == 1))
            return false;
        port = port.len > 0 ? once_span_skip(port, 1) : ONCE_LIT("1");
    } else if (!once_span_cut(text, ':', &host, &port)) {
        port = ONCE_LIT("1");
    }
    uint32_t number = 0;
    for (size_t i = 0; i < port.len; i++)
        if (port.ptr[i] < '0' || port.ptr[i] > '9' || (number = number * 10 + (port.ptr[i] - '0')) > 65535)
            return false;
    return host.len > 0 && number > 0;
}

const char *kafka_url_parse(const char *url, struct kafka_url *out)
{
    once_span all = once_span_str(url), hosts, topic, one;
    *out = (struct kafka_url){ .tls = once_span_starts(all, ONCE_LIT("kafkas://")) };
    if (!out->tls && !once_span_starts(all, ONCE_LIT("kafka://")))
        return shape;
    for (size_t i = 0; i < all.len; i++)
        if (all.ptr[i] <= ' ' || all.ptr[i] >= 0x7f || all.ptr[i] == '?' || all.ptr[i] == '#')
            return shape;
    all = once_span_skip(all, out->tls ? 9 : 8);
    if (memchr(all.ptr, '@', all.len) != NULL)
        return "other users can see a login in a URL; use --kafka-config instead";
    bool has_topic = once_span_cut(all, '/', &hosts, &topic);
    if (has_topic && !kafka_topic_is_legal(topic))
        return "its topic is not valid in Kafka: up to 249 of a-z A-Z 0-9 . _ -";
    if (hosts.len > KAFKA_HOSTS_LEN_MAX)
        return "it is too long";
    snprintf(out->hosts, sizeof out->hosts, "%.*s", ONCE_SPAN_ARGS(hosts));
    snprintf(out->topic, sizeof out->topic, "%.*s", ONCE_SPAN_ARGS(topic));
    for (bool more = true; more;) {
        more = once_span_cut(hosts, ',', &one, &hosts);
        if (!is_host(one))
            return shape;
    }
    return NULL;
}

bool kafka_setting_is_allowed(once_span name)
{
    static const char *const names[] = {
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "sasl.kerberos.service.name",
        "sasl.kerberos.principal",
        "sasl.kerberos.keytab",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.token.endpoint.url",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.crl.location",
        "ssl.cipher.suites",
        "ssl.curves.list",
        "ssl.sigalgs.list",
        "client.id",
        "client.rack",
        "broker.address.family",
        "socket.keepalive.enable",
        "linger.ms",
        "batch.size",
        "batch.num.messages",
        "compression.codec",
        "compression.type",
        "compression.level",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (once_span_equal(name, once_span_str(names[i])))
            return true;
    return false;
}

static char *trim(char *text)
{
    while (*text == ' ' || *text == '\t')
        text++;
    for (size_t len = strlen(text); len > 0 && strchr(" \t\r\n", text[len - 1]) != NULL; len--)
        text[len - 1] = '\0';
    return text;
}

static once_result read_line(char *line, kafka_setting_fn *each, void *arg, struct once_error *err)
{
    char *name = trim(line);
    if (*name == '\0' || *name == '#')
        return ONCE_OK;
    char *equals = strchr(name, '=');
    if (equals == NULL)
        return once_fail(err, ONCE_INVALID, "it is not NAME=VALUE");
    *equals = '\0';
    name = trim(name);
    if (!kafka_setting_is_allowed(once_span_str(name)))
        return once_fail(err, ONCE_INVALID, "'%.100s' cannot be set here; once-relay(1) lists the settings that can",
                         name);
    return each(arg, name, trim(equals + 1), err);
}

once_result kafka_conf_read(const char *file, kafka_setting_fn *each, void *arg, struct once_error *err)
{
    enum { LINES_MAX = 1000 };
    char line[4096];
    FILE *f = fopen(file, "re");
    if (f == NULL)
        return once_fail(err, ONCE_INVALID, "--kafka-config '%s': %s", file, strerror(errno));
    once_result r = ONCE_OK;
    int number = 0;
    while (r == ONCE_OK && fgets(line, sizeof line, f) != NULL) {
        number++;
        if (number > LINES_MAX || (strlen(line) == sizeof line - 1 && line[sizeof line - 2] != '\n'))
            r = once_fail(err, ONCE_INVALID, "it is too long");
        else
            r = read_line(line, each, arg, err);
    }
    if (r == ONCE_OK && ferror(f))
        r = once_fail(err, ONCE_INVALID, "it cannot be read");
    fclose(f);
    if (r != ONCE_OK)
        once_error_prefix(err, "--kafka-config '%s', line %d", file, number);
    return r;
}
