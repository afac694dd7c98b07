/* auth.c - see console/auth.h. */
#include "daemon/console/auth.h"

#include "core/err.h"
#include "core/span.h"
#include "core/utf8.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/memops.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BURST = 10, IDLE_MS = 60 * 60 * 1000, SESSION_MS = 12 * 60 * 60 * 1000 };

/* ---------------------------------------------------------------- secrets */

static void make_secret(char out[CONSOLE_SECRET_LEN + 1])
{
    uint8_t bytes[CONSOLE_SECRET_LEN / 2];
    once_os_random(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    explicit_bzero(bytes, sizeof bytes);
}

static void new_one_time(struct console_auth *auth)
{
    make_secret(auth->one_time);
    once_sha256(once_span_str(auth->one_time), auth->token);
}

static once_result read_token(const char *path, char *text, size_t size, size_t *len, struct once_error *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return once_fail(err, ONCE_INVALID, "cannot read the console's token from '%.200s': %s", path, strerror(error));
    }
    ssize_t n = read(fd, text, size);
    close(fd);
    if ((st.st_mode & 077) != 0)
        return once_fail(err, ONCE_INVALID, "'%.200s' can be read by others: chmod 600 it", path);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' '))
        n--;
    if (n < CONSOLE_TOKEN_LEN_MIN || n > CONSOLE_TOKEN_LEN_MAX)
        return once_fail(err, ONCE_INVALID, "'%.200s' must hold a token of %d to %d bytes", path, CONSOLE_TOKEN_LEN_MIN,
                         CONSOLE_TOKEN_LEN_MAX);
    *len = (size_t)n;
    return ONCE_OK;
}

once_result console_auth_init(struct console_auth *auth, const char *token_file, struct once_error *err)
{
    char text[CONSOLE_TOKEN_LEN_MAX + 16];
    size_t len = 0;
    *auth = (struct console_auth){ .tries = BURST, .refilled = once_os_monotonic_ms() };
    if (token_file == NULL) {
        new_one_time(auth);
    } else {
        once_result r = read_token(token_file, text, sizeof text, &len, err);
        if (r != ONCE_OK)
            return r;
        once_sha256(once_span_of(text, len), auth->token);
        explicit_bzero(text, sizeof text);
    }
    pthread_mutex_init(&auth->lock, NULL);
    return ONCE_OK;
}

void console_auth_release(struct console_auth *auth)
{
    pthread_mutex_destroy(&auth->lock);
    explicit_bzero(auth, sizeof *auth);
}

void console_auth_name_cookie(struct console_auth *auth, const char *address)
{
    const char *port = strrchr(address, ':');
    snprintf(auth->cookie_name, sizeof auth->cookie_name, "once_console_%s",
             address[0] != '/' && port != NULL ? port + 1 : "socket");
}

void console_auth_token(struct console_auth *auth, char out[CONSOLE_SECRET_LEN + 1])
{
    pthread_mutex_lock(&auth->lock);
    memcpy(out, auth->one_time, CONSOLE_SECRET_LEN + 1);
    pthread_mutex_unlock(&auth->lock);
}

/* ---------------------------------------------------------------- names */

/* What would not be seen, or would turn around what stands beside it. */
static bool is_hidden(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || c >= 0xe0000;
}

bool console_auth_is_name(once_span name)
{
    if (name.len == 0 || name.len > CONSOLE_NAME_LEN_MAX)
        return false;
    while (name.len > 0) {
        uint32_t code = 0;
        size_t len = once_utf8_decode(name, &code);
        if (len == 0 || is_hidden(code))
            return false;
        name = once_span_skip(name, len);
    }
    return true;
}

/* ---------------------------------------------------------------- sessions */

static bool is_over(const struct console_session *s, once_time now)
{
    return s->born == 0 || now - s->born > SESSION_MS || now - s->seen > IDLE_MS;
}

/* A free one, or that which was idle longest. */
static struct console_session *choose_slot(struct console_auth *auth, once_time now)
{
    struct console_session *oldest = &auth->sessions[0];
    for (size_t i = 0; i < CONSOLE_SESSIONS_MAX; i++) {
        struct console_session *s = &auth->sessions[i];
        if (is_over(s, now))
            return s;
        if (s->turn < oldest->turn)
            oldest = s;
    }
    return oldest;
}

/* CONSOLE-AUTH-3 */
static bool may_try(struct console_auth *auth, once_time now)
{
    auth->tries += (double)(now - auth->refilled) / 1000;
    auth->refilled = now;
    if (auth->tries > BURST)
        auth->tries = BURST;
    return auth->tries >= 1;
}

enum console_login console_auth_login(struct console_auth *auth, once_span token, once_span name, char header[200],
                                      char csrf[CONSOLE_SECRET_LEN + 1])
{
    uint8_t hash[ONCE_MAC_LEN];
    char secret[CONSOLE_SECRET_LEN + 1];
    once_time now = once_os_monotonic_ms();
    enum console_login answer = CONSOLE_LOGIN_OK;
    once_sha256(token, hash);
    pthread_mutex_lock(&auth->lock);
    if (!may_try(auth, now)) {
        answer = CONSOLE_LOGIN_TOO_MANY;
    } else if (!memeql_sec(hash, auth->token, sizeof hash)) {
        auth->tries -= 1;
        answer = CONSOLE_LOGIN_WRONG;
    } else {
        struct console_session *s = choose_slot(auth, now);
        *s = (struct console_session){ .born = now, .seen = now, .turn = ++auth->turns };
        memcpy(s->name, name.ptr, name.len);
        make_secret(secret);
        make_secret(csrf);
        once_sha256(once_span_str(secret), s->cookie);
        once_sha256(once_span_str(csrf), s->csrf);
        snprintf(header, 200, "%s=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%d", auth->cookie_name, secret,
                 SESSION_MS / 1000);
        if (auth->one_time[0] != '\0')
            new_one_time(auth); /* CONSOLE-AUTH-2 */
    }
    pthread_mutex_unlock(&auth->lock);
    return answer;
}

/* The value of our cookie among those of a header. */
static bool find_cookie(const struct console_auth *auth, const char *header, once_span *value)
{
    once_span rest = once_span_str(header), item, name;
    while (rest.len > 0) {
        once_span_cut(rest, ';', &item, &rest);
        while (item.len > 0 && (item.ptr[0] == ' ' || item.ptr[0] == '\t'))
            item = once_span_skip(item, 1);
        if (once_span_cut(item, '=', &name, value) && once_span_equal(name, once_span_str(auth->cookie_name)))
            return true;
    }
    return false;
}

/* With the lock. All of them are compared, whichever it is. */
static struct console_session *find_session(struct console_auth *auth, const char *cookie, once_time now)
{
    uint8_t hash[ONCE_MAC_LEN];
    once_span value;
    struct console_session *found = NULL;
    if (cookie == NULL || !find_cookie(auth, cookie, &value) || value.len != CONSOLE_SECRET_LEN)
        return NULL;
    once_sha256(value, hash);
    for (size_t i = 0; i < CONSOLE_SESSIONS_MAX; i++) {
        bool same = memeql_sec(hash, auth->sessions[i].cookie, sizeof hash);
        if (same && !is_over(&auth->sessions[i], now))
            found = &auth->sessions[i];
    }
    return found;
}

bool console_auth_check(struct console_auth *auth, const char *cookie, const char *csrf,
                        char name[CONSOLE_NAME_LEN_MAX + 1])
{
    uint8_t hash[ONCE_MAC_LEN];
    once_time now = once_os_monotonic_ms();
    once_sha256(once_span_str(csrf), hash);
    pthread_mutex_lock(&auth->lock);
    struct console_session *s = find_session(auth, cookie, now);
    bool good = s != NULL && csrf != NULL && memeql_sec(hash, s->csrf, sizeof hash);
    if (good) {
        s->seen = now;
        s->turn = ++auth->turns;
        memcpy(name, s->name, sizeof s->name);
    }
    pthread_mutex_unlock(&auth->lock);
    return good;
}

void console_auth_logout(struct console_auth *auth, const char *cookie, char header[200])
{
    pthread_mutex_lock(&auth->lock);
    struct console_session *s = find_session(auth, cookie, once_os_monotonic_ms());
    if (s != NULL)
        *s = (struct console_session){ 0 };
    snprintf(header, 200, "%s=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0", auth->cookie_name);
    pthread_mutex_unlock(&auth->lock);
}
