/* url.c - see url.h. */
#include "core/http/url.h"

#include <stdio.h>
#include <string.h>

enum { SCHEME_LEN_MAX = 32 };

/* The length of the scheme with its ':' and slashes; 0: there is no scheme. */
static size_t scheme_len(const char *url)
{
    size_t len = strspn(url, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.");
    if (len == 0 || len > SCHEME_LEN_MAX || url[len] != ':')
        return 0;
    return len + (strncmp(url + len, "://", 3) == 0 ? 3 : 1);
}

void once_url_scheme(const char *url, char out[ONCE_URL_SHOWN_LEN])
{
    snprintf(out, ONCE_URL_SHOWN_LEN, "%.*s...", (int)scheme_len(url), url);
}

void once_url_shown(const char *url, char out[ONCE_URL_SHOWN_LEN])
{
    size_t scheme = scheme_len(url);
    const char *at = strrchr(url, '@'), *query = strpbrk(url, "?#");
    if (scheme == 0 && strpbrk(url, "= ") != NULL) { /* host=h password=p */
        snprintf(out, ONCE_URL_SHOWN_LEN, "...");
        return;
    }
    if (scheme > 0 && url[scheme - 1] == ':' && at != NULL)
        scheme = 0;                                /* u:p@h */
    if (at != NULL && query != NULL && query < at) /* the '@' may be part of the password or of the query */
        snprintf(out, ONCE_URL_SHOWN_LEN, "%.*s...", (int)scheme, url);
    else if (at != NULL)
        snprintf(out, ONCE_URL_SHOWN_LEN, "%.*s...%.*s%s", (int)scheme, url, (int)strcspn(at, "?#"), at,
                 query != NULL ? "?..." : "");
    else
        snprintf(out, ONCE_URL_SHOWN_LEN, "%.*s%s", (int)strcspn(url, "?#"), url, query != NULL ? "?..." : "");
}
