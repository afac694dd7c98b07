/* text.c - see text.h. */
#include "program/text.h"

#include "core/duration.h"
#include "core/span.h"
#include "core/utf8.h"

#include <assert.h>

static_assert(ONCE_TEXT_TIME_LEN >= ONCE_DURATION_TEXT_LEN, "a duration fits");

/* Visible code points that do not change the order of the text around them. */
static bool is_plain(uint32_t code)
{
    if (code < 0xa0)
        return code >= 0x20 && code < 0x7f;
    bool direction = (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
                     (code >= 0x2060 && code <= 0x206f) || code == 0xfeff;
    return !direction && code != 0xad && (code & 0xfffe) != 0xfffe;
}

static size_t escape_byte(struct once_buf *out, uint8_t byte)
{
    const char *names[] = { ['\n'] = "\\n", ['\r'] = "\\r", ['\t'] = "\\t", ['\\'] = "\\\\" };
    if (byte < sizeof names / sizeof *names && names[byte] != NULL) {
        once_buf_addf(out, "%s", names[byte]);
        return 2;
    }
    once_buf_addf(out, "\\x%02x", byte);
    return 4;
}

size_t once_text_escape(struct once_buf *out, once_span bytes)
{
    size_t columns = 0;
    while (bytes.len > 0) {
        uint32_t code;
        size_t len = once_utf8_decode(bytes, &code);
        if (len > 0 && code != '\\' && is_plain(code)) {
            once_buf_add(out, once_span_of(bytes.ptr, len));
            columns++;
        } else {
            len = 1;
            columns += escape_byte(out, bytes.ptr[0]);
        }
        bytes = once_span_skip(bytes, len);
    }
    return columns;
}

static bool is_shell_safe(uint8_t byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
           (byte != 0 && strchr("-_./:@%+,=", byte) != NULL);
}

static bool is_visible(once_span bytes)
{
    while (bytes.len > 0) {
        uint32_t code;
        size_t len = once_utf8_decode(bytes, &code);
        if (len == 0 || !is_plain(code))
            return false;
        bytes = once_span_skip(bytes, len);
    }
    return true;
}

static void quote_plain(struct once_buf *out, once_span bytes)
{
    once_buf_add_byte(out, '\'');
    for (size_t i = 0; i < bytes.len; i++) {
        if (bytes.ptr[i] == '\'')
            once_buf_addf(out, "'\\''");
        else
            once_buf_add_byte(out, bytes.ptr[i]);
    }
    once_buf_add_byte(out, '\'');
}

void once_text_quote(struct once_buf *out, once_span bytes)
{
    size_t safe = 0;
    while (safe < bytes.len && is_shell_safe(bytes.ptr[safe]))
        safe++;
    if (bytes.len > 0 && safe == bytes.len) {
        once_buf_add(out, bytes);
    } else if (is_visible(bytes)) {
        quote_plain(out, bytes);
    } else {
        /* $'...' needs bash, zsh, ksh or POSIX 2024; older shells cannot write such a word. */
        once_buf_addf(out, "$'");
        for (size_t i = 0; i < bytes.len; i++) {
            if (is_shell_safe(bytes.ptr[i]))
                once_buf_add_byte(out, bytes.ptr[i]);
            else
                once_buf_addf(out, "\\x%02x", bytes.ptr[i]);
        }
        once_buf_addf(out, "'");
    }
}

void once_text_hex(struct once_buf *out, once_span bytes)
{
    for (size_t i = 0; i < bytes.len; i++)
        once_buf_addf(out, "%02x", bytes.ptr[i]);
}

void once_text_local(once_time time, char out[ONCE_TEXT_TIME_LEN])
{
    time_t seconds = (time_t)(time / 1000);
    struct tm parts;
    if (time == ONCE_NEVER)
        snprintf(out, ONCE_TEXT_TIME_LEN, "never");
    else if (localtime_r(&seconds, &parts) == NULL ||
             strftime(out, ONCE_TEXT_TIME_LEN, "%Y-%m-%d %H:%M:%S %z", &parts) == 0)
        snprintf(out, ONCE_TEXT_TIME_LEN, "@%lld ms", (long long)time);
}

void once_text_about(int64_t ms, char out[ONCE_TEXT_TIME_LEN])
{
    static const struct {
        int64_t from, unit;
    } steps[] = { { 86400000, 3600000 }, { 3600000, 60000 }, { 1000, 1000 }, { 0, 1 } };
    if (ms < 0)
        ms = 0;
    for (size_t i = 0;; i++) {
        if (ms >= steps[i].from) {
            once_duration_format(ms - ms % steps[i].unit, out);
            return;
        }
    }
}

void once_text_store(struct once_buf *out, const char *url)
{
    const char *authority = strstr(url, "://"), *at = strrchr(url, '@'), *query = strchr(url, '?');
    const char *colon = authority != NULL ? strchr(authority + 3, ':') : NULL;
    if (at != NULL && colon != NULL && colon < at && (query == NULL || colon < query))
        once_buf_addf(out, "%.*s:***%.*s", (int)(colon - url), url,
                      query != NULL && query < at ? 0 : (int)strcspn(at, "?"), at);
    else
        once_buf_addf(out, "%.*s", (int)strcspn(url, "?"), url);
}
