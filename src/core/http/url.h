/*
 * url.h - a URL as messages and logs may show it, without secrets.
 *
 * A refused URL often contains a user and password, a token in its query, or a password with an unescaped character.
 * So messages leave out everything that may be one of these: the text before the last '@', the text after a '?' or '#',
 * and any text with a '=' that is not a URL.
 */
#ifndef ONCE_CORE_HTTP_URL_H
#define ONCE_CORE_HTTP_URL_H

#define ONCE_URL_SHOWN_LEN 200 /* with its NUL; a longer text is cut */

/* "https://h/path", "https://...@h/path", "https://h/path?...", "https://..." */
void once_url_shown(const char *url, char out[ONCE_URL_SHOWN_LEN]);

/* The scheme alone: "redis://...", "redis:..."; "..." without a scheme. */
void once_url_scheme(const char *url, char out[ONCE_URL_SHOWN_LEN]);

#endif
