/* header.c - see header.h. */
#include "core/http/header.h"

#include "core/span.h"

#include <strings.h>

/* ------------------------------------------------------------------ names */

bool once_header_is(once_span name, const char *wanted)
{
    return once_span_equal_nocase(name, once_span_str(wanted));
}

bool once_header_is_listed(once_span name, once_span names)
{
    for (once_span one; names.len > 0;) {
        once_span_cut(names, '\n', &one, &names);
        if (once_span_equal_nocase(one, name))
            return true;
    }
    return false;
}

bool once_header_is_token(once_span name)
{
    for (size_t i = 0; i < name.len; i++)
        if (name.ptr[i] <= 0x20 || name.ptr[i] >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", name.ptr[i]) != NULL)
            return false;
    return name.len > 0;
}

static bool is_one_of(once_span name, const char *const *names)
{
    for (; *names != NULL; names++)
        if (once_header_is(name, *names))
            return true;
    return false;
}

bool once_header_is_secret(once_span name)
{
    static const char *const names[] = {
        "authorization",
        "proxy-authorization",
        "proxy-authenticate",
        "www-authenticate",
        "authentication-info",
        "cookie",
        "cookie2",
        "set-cookie",
        "set-cookie2",
        "api-key",
        "apikey",
        "x-api-key",
        "x-api-token",
        "x-access-token",
        "x-auth-key",
        "x-auth-token",
        "x-auth-request-access-token",
        "x-token",
        "x-shopify-access-token",
        "ocp-apim-subscription-key",
        "cf-access-jwt-assertion",
        "x-amzn-oidc-data",
        "x-authorization",
        "x-amz-security-token",
        "x-goog-iap-jwt-assertion",
        "x-csrf-token",
        "x-xsrf-token",
        "x-session-token",
        "x-forwarded-access-token",
        "x-forwarded-client-cert",
        "x-ssl-client-cert",
        "x-client-cert",
        "client-cert",
        "x-vault-token",
        "private-token",
        "dpop",
        NULL,
    };
    return is_one_of(name, names);
}

const char *const *once_header_credentials(void)
{
    static const char *const names[] = {
        "Authorization",
        "Proxy-Authorization",
        "Cookie",
        "Api-Key",
        "Apikey",
        "X-Api-Key",
        "X-Api-Token",
        "X-Access-Token",
        "X-Auth-Key",
        "X-Auth-Token",
        "X-Auth-Request-Access-Token",
        "X-Token",
        "X-Shopify-Access-Token",
        "Ocp-Apim-Subscription-Key",
        "Cf-Access-Jwt-Assertion",
        "X-Amzn-Oidc-Data",
        "X-Authorization",
        "X-Amz-Security-Token",
        "X-Goog-Iap-Jwt-Assertion",
        "X-Session-Token",
        "X-Forwarded-Access-Token",
        "X-Forwarded-Client-Cert",
        "X-SSL-Client-Cert",
        "X-Client-Cert",
        "Client-Cert",
        "X-Vault-Token",
        "Private-Token",
        "X-Forwarded-User", /* set by a proxy that authenticates before the gateway */
        "X-Forwarded-Email",
        "X-Auth-Request-User",
        "X-Amzn-Oidc-Identity",
        NULL,
    };
    return names;
}

bool once_header_is_of_one_hop(once_span name)
{
    static const char *const names[] = {
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",
        "expect",
        "date",
        "via",
        "once-key",
        "once-record",
        "once-fence",
        "once-attempt",
        "forwarded",
        "range",
        "http2-settings",
        "once-checkpoint",
        "once-recovery-point",
        NULL,
    };
    return is_one_of(name, names);
}

/* ------------------------------------------------------------------ lines */

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

bool once_header_line(once_span *lines, once_span *name, once_span *value)
{
    for (once_span line; lines->len > 0;) {
        once_span_cut(*lines, '\n', &line, lines);
        if (!once_span_cut(line, ':', name, value) || name->len == 0)
            continue;
        while (value->len > 0 && is_blank(value->ptr[0]))
            *value = once_span_skip(*value, 1);
        while (value->len > 0 && is_blank(value->ptr[value->len - 1]))
            value->len--;
        return true;
    }
    return false;
}

bool once_header_find(once_span lines, const char *wanted, once_span *value)
{
    once_span name;
    while (once_header_line(&lines, &name, value))
        if (once_header_is(name, wanted))
            return true;
    *value = once_span_of(NULL, 0);
    return false;
}

void once_header_add(struct once_buf *lines, once_span name, once_span value)
{
    once_buf_add(lines, name);
    once_buf_add(lines, ONCE_LIT(": "));
    once_buf_add(lines, value);
    once_buf_add(lines, ONCE_LIT("\r\n"));
}

bool once_retry_after_seconds(once_span value, int64_t max_ms, int64_t *wait_ms)
{
    int64_t seconds = 0;
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] < '0' || value.ptr[i] > '9')
            return false;
        if (seconds <= max_ms) /* more would only be cut to max_ms */
            seconds = seconds * 10 + (value.ptr[i] - '0');
    }
    *wait_ms = seconds >= max_ms / 1000 ? max_ms : seconds * 1000;
    return value.len > 0;
}
