/*
 * url.h - a URL for a message to people.
 *
 * Messages end in logs, and a URL that is refused is often one with a user and password in it, or with a token in its
 * query, or with a character in the password that had to be escaped and was not. So nothing is told that may be any
 * of these: not what is before the last '@', not what is behind a '?' or '#', nothing of what is no URL and has a '='
 * in it.
 */
#ifndef ONCE_CORE_HTTP_URL_H
#define ONCE_CORE_HTTP_URL_H

#define ONCE_URL_SHOWN_LEN 200 /* with its NUL; what is longer is cut */

/* "https://h/path", "https://...@h/path", "https://h/path?...", "https://..." */
void once_url_shown(const char *url, char out[ONCE_URL_SHOWN_LEN]);

/* The scheme alone: "redis://...", "redis:..."; "..." where there is none. */
void once_url_scheme(const char *url, char out[ONCE_URL_SHOWN_LEN]);

#endif
