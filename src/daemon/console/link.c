/* link.c - see console/link.h. */
#include "daemon/console/link.h"

#include "core/buf.h"
#include "core/span.h"

#include <string.h>

static const char placeholder[] = "{key_hash}";

enum { PLACEHOLDER_LEN = sizeof placeholder - 1, HASH_LEN = 32 };

#define DIGITS "0123456789"
#define HEX DIGITS "abcdefABCDEF"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* LINK-1: every character of a URL as RFC 3986 has it, or the placeholder. */
static bool is_legal(const char *url)
{
    for (;;) {
        url += strspn(url, LETTERS DIGITS "-._~:/?#[]@!$&'()*+,;=");
        if (*url == '\0')
            return true;
        if (strncmp(url, placeholder, PLACEHOLDER_LEN) == 0)
            url += PLACEHOLDER_LEN;
        else if (*url == '%' && strspn(url + 1, HEX) >= 2)
            url += 3;
        else
            return false;
    }
}

const char *console_link_fault(const char *url)
{
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return "it does not begin with http:// or https://";
    if (strlen(url) > CONSOLE_LINK_LEN_MAX)
        return "it is longer than 2000 bytes";
    if (!is_legal(url))
        return "it has something that cannot stand in a URL: but for {key_hash}, write it as %XX";
    const char *host = strstr(url, "://") + 3, *hash = strstr(url, placeholder);
    size_t host_len = strcspn(host, "/?#");
    if (host_len == 0 || host[0] == ':')
        return "it has no host";
    if (memchr(host, '@', host_len) != NULL)
        return "a user or password is in it: everybody who is signed in would see that";
    if (hash == NULL)
        return "{key_hash} is missing, which stands for the key hash";
    if (hash < host + host_len)
        return "{key_hash} is not behind the host";
    return NULL;
}

void console_link_put(struct once_json *json, const char *name, const char *url, const uint8_t record[16])
{
    struct once_buf link;
    once_buf_init(&link, CONSOLE_LINK_LEN_MAX / PLACEHOLDER_LEN * HASH_LEN + CONSOLE_LINK_LEN_MAX);
    for (const char *at; (at = strstr(url, placeholder)) != NULL; url = at + PLACEHOLDER_LEN) {
        once_buf_add(&link, once_span_of(url, (size_t)(at - url)));
        for (int i = 0; i < 16; i++)
            once_buf_addf(&link, "%02x", record[i]);
    }
    once_buf_add(&link, once_span_str(url));
    once_buf_add_byte(&link, '\0');
    if (link.result == ONCE_OK) /* else the page is without it */
        once_json_text(json, name, (const char *)link.ptr);
    once_buf_release(&link);
}
