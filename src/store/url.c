/* url.c - see store/url.h. */
#include "store/url.h"

#include "core/buf.h"
#include "core/err.h"
#include "core/span.h"
#include "store/store.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_SCHEME "sqlite:"

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static const char *home(void)
{
    const char *dir = environment("HOME");
    if (dir != NULL)
        return dir;
    const struct passwd *user = getpwuid(getuid());
    return user != NULL ? user->pw_dir : NULL;
}

/* mkdir -p, with mode 0700 as the XDG specification asks for. */
static once_result make_directory(char *path, struct once_error *err)
{
    for (char *at = path + 1;; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char was = *at;
        *at = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST && errno != EROFS)
            return once_fail(err, ONCE_UNAVAILABLE, "cannot make directory '%s': %s", path, strerror(errno));
        *at = was;
        if (was == '\0')
            return ONCE_OK;
    }
}

static once_result default_directory(char out[PATH_MAX], struct once_error *err)
{
    const char *state = environment("XDG_STATE_HOME");
    const char *dir = home();
    int n;
    if (state != NULL && state[0] == '/') /* the specification: ignore a relative one */
        n = snprintf(out, PATH_MAX, "%s/once", state);
    else if (dir != NULL && dir[0] == '/')
        n = snprintf(out, PATH_MAX, "%s/.local/state/once", dir);
    else
        return once_fail(err, ONCE_UNAVAILABLE, "no home directory to keep a store in; use --store URL");
    if (n < 0 || n >= PATH_MAX)
        return once_fail(err, ONCE_UNAVAILABLE, "the path of the state directory is too long; use --store URL");
    return ONCE_OK;
}

once_result once_state_directory(const char *sub, bool create, char out[PATH_MAX], struct once_error *err)
{
    char dir[PATH_MAX];
    once_result r = default_directory(dir, err);
    if (r != ONCE_OK)
        return r;
    int n = snprintf(out, PATH_MAX, "%s/%s", dir, sub);
    if (n < 0 || n >= PATH_MAX)
        return once_fail(err, ONCE_INVALID, "the path of the state directory is too long");
    return create ? make_directory(out, err) : ONCE_OK;
}

static once_result write_url(struct once_buf *url, char out[ONCE_URL_LEN_MAX + 1], struct once_error *err)
{
    once_result r = url->result;
    if (r == ONCE_OK) {
        memcpy(out, url->ptr, url->len);
        out[url->len] = '\0';
    } else {
        once_fail(err, ONCE_INVALID, "store URL is longer than %d bytes", ONCE_URL_LEN_MAX);
    }
    once_buf_release(url);
    return r == ONCE_OK ? ONCE_OK : ONCE_INVALID;
}

static once_result default_url(bool create, struct once_buf *url, struct once_error *err)
{
    char dir[PATH_MAX];
    once_result r = default_directory(dir, err);
    if (r == ONCE_OK && create)
        r = make_directory(dir, err);
    if (r == ONCE_OK)
        once_buf_addf(url, DEFAULT_SCHEME "%s/once.db", dir);
    return r;
}

/* "fault+sqlite:x.db" -> "fault+sqlite:/here/x.db" */
static once_result absolute_url(const char *given, struct once_buf *url, struct once_error *err)
{
    static const char scheme[] = "sqlite:";
    const char *at = strstr(given, scheme);
    const char *path = at != NULL ? at + strlen(scheme) : NULL;
    if (path == NULL || path[0] == '/' || path[0] == '\0' || path[0] == '?') {
        once_buf_add(url, once_span_str(given));
        return ONCE_OK;
    }
    char here[PATH_MAX];
    if (getcwd(here, sizeof here) == NULL)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot tell the working directory for '%s': %s", given,
                         strerror(errno));
    once_buf_add(url, once_span_of(given, (size_t)(path - given)));
    once_buf_addf(url, "%s/%s", here, path);
    return ONCE_OK;
}

once_result once_store_url(const char *given, bool create, char out[ONCE_URL_LEN_MAX + 1], struct once_error *err)
{
    struct once_buf url;
    once_buf_init(&url, ONCE_URL_LEN_MAX);
    if (given == NULL)
        given = environment("ONCE_STORE");
    once_result r = given != NULL ? absolute_url(given, &url, err) : default_url(create, &url, err);
    if (r != ONCE_OK) {
        once_buf_release(&url);
        return r;
    }
    r = write_url(&url, out, err);
    return r == ONCE_OK ? once_store_url_check(out, NULL, err) : r;
}

const char *once_store_default_missing(const char *given, const char *url)
{
    if (given != NULL || environment("ONCE_STORE") != NULL)
        return NULL;
    const char *path = url + strlen(DEFAULT_SCHEME);
    return access(path, F_OK) != 0 && errno == ENOENT ? path : NULL;
}
