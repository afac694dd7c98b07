/* message_id.c - see message_id.h. */
#include "messages/message_id.h"

#include "core/json/pointer.h"
#include "core/mac.h"
#include "core/span.h"
#include "messages/brokers/headers.h"

#include <stdio.h>
#include <stdlib.h>
#include <yajl/yajl_tree.h>

const char *message_id_parse(const char *text, struct message_id_rule *rule)
{
    once_span sorted;
    *rule = (struct message_id_rule){ .from = MESSAGE_ID_NATIVE };
    if (strcmp(text, "header") == 0)
        return NULL;
    if (strncmp(text, "header:", 7) == 0) {
        rule->from = MESSAGE_ID_HEADER;
        rule->name = once_span_str(text + 7);
        return text[7] != '\0' && strpbrk(text + 7, " :\r\n") == NULL ? NULL : "not a header name";
    }
    if (strcmp(text, "position") == 0) {
        rule->from = MESSAGE_ID_POSITION;
        return NULL;
    }
    if (strncmp(text, "json:", 5) == 0) {
        rule->from = MESSAGE_ID_JSON;
        rule->name = once_span_str(text + 5);
        return text[5] == '/' && once_json_sort_pointers(&rule->name, 1, &sorted, NULL) == ONCE_OK
                   ? NULL
                   : "not a JSON Pointer to a member";
    }
    return "not one of header, header:NAME, position, json:POINTER";
}

static bool find_header(once_span lines, once_span wanted, once_span *value)
{
    once_span name;
    while (headers_next(&lines, &name, value))
        if (once_span_equal_nocase(name, wanted))
            return value->len > 0;
    return false;
}

/* ------------------------------------------------------------------ natural keys */

/* Compares one token of a JSON Pointer, with "~1" and "~0" decoded, with a member's name. */
static bool is_member(once_span token, const char *name)
{
    for (size_t i = 0; i < token.len; i++, name++) {
        uint8_t c = token.ptr[i];
        if (c == '~')
            c = token.ptr[++i] == '1' ? '/' : '~'; /* message_id_parse() has checked it */
        if (*name == '\0' || (uint8_t)*name != c)
            return false;
    }
    return *name == '\0';
}

static yajl_val step_into(yajl_val at, once_span token)
{
    if (YAJL_IS_OBJECT(at)) {
        for (size_t i = 0; i < at->u.object.len; i++)
            if (is_member(token, at->u.object.keys[i]))
                return at->u.object.values[i];
    } else if (YAJL_IS_ARRAY(at) && token.len > 0 && token.len < 8 && (token.ptr[0] != '0' || token.len == 1)) {
        size_t index = 0;
        for (size_t i = 0; i < token.len; i++) {
            if (token.ptr[i] < '0' || token.ptr[i] > '9')
                return NULL;
            index = index * 10 + (size_t)(token.ptr[i] - '0');
        }
        if (index < at->u.array.len)
            return at->u.array.values[index];
    }
    return NULL;
}

/* The library frees a tree by recursion: a deeply nested payload could overflow the stack on every delivery. */
static bool is_too_deep(once_span text)
{
    enum { DEEPEST = 128 };
    size_t depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < text.len && depth <= DEEPEST; i++) {
        uint8_t c = text.ptr[i];
        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '[' || c == '{'))
            depth++;
        else if (!quoted && (c == ']' || c == '}') && depth > 0)
            depth--;
    }
    return depth > DEEPEST;
}

/* Copies a string's bytes, or a number as written, into `out`, which is as long as the payload. */
static bool find_in_json(once_span payload, once_span pointer, char **out)
{
    enum { TEXT_MAX = 16 << 20 };
    char error[64];
    *out = NULL;
    if (payload.len > TEXT_MAX || is_too_deep(payload) ||
        memchr(payload.ptr != NULL ? payload.ptr : (const uint8_t *)"", '\0', payload.len))
        return false;
    char *text = strndup((const char *)(payload.ptr != NULL ? payload.ptr : (const uint8_t *)""), payload.len);
    yajl_val tree = text != NULL ? yajl_tree_parse(text, error, sizeof error) : NULL, at = tree;
    for (once_span left = once_span_skip(pointer, 1), token; at != NULL;) {
        bool more = once_span_cut(left, '/', &token, &left);
        at = step_into(at, token);
        if (!more)
            break;
    }
    const char *found = at == NULL           ? NULL
                        : YAJL_IS_STRING(at) ? at->u.string
                        : YAJL_IS_NUMBER(at) ? at->u.number.r
                                             : NULL;
    if (found != NULL && found[0] != '\0')
        *out = strdup(found);
    yajl_tree_free(tree);
    free(text);
    return *out != NULL;
}

/* ------------------------------------------------------------------ the id */

static void set_id(once_span found, char id[ONCE_KEY_LEN_MAX + 1], size_t *len)
{
    if (found.len <= ONCE_KEY_LEN_MAX) {
        memcpy(id, found.ptr, found.len);
        id[found.len] = '\0';
        *len = found.len;
        return;
    }
    uint8_t digest[ONCE_MAC_LEN];
    once_sha256(found, digest);
    *len = (size_t)snprintf(id, ONCE_KEY_LEN_MAX + 1, "sha256:");
    for (size_t i = 0; i < sizeof digest; i++)
        *len += (size_t)snprintf(id + *len, 3, "%02x", digest[i]);
}

static int hex(uint8_t c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

static bool set_decoded(once_span found, char id[ONCE_KEY_LEN_MAX + 1], size_t *len)
{
    size_t n = 0;
    for (size_t i = 0; i < found.len; i++) {
        uint8_t c = found.ptr[i];
        if (c == '%' && i + 2 < found.len && hex(found.ptr[i + 1]) >= 0 && hex(found.ptr[i + 2]) >= 0) {
            c = (uint8_t)(hex(found.ptr[i + 1]) << 4 | hex(found.ptr[i + 2]));
            i += 2;
        }
        if (n == ONCE_KEY_LEN_MAX)
            return false;
        id[n++] = (char)c;
    }
    id[n] = '\0';
    *len = n;
    return n > 0;
}

static bool apply(const struct message_id_rule *rule, const struct incoming *m, char id[ONCE_KEY_LEN_MAX + 1],
                  size_t *len)
{
    once_span found = { NULL, 0 };
    char *text = NULL;
    switch (rule->from) {
    case MESSAGE_ID_NATIVE:
        found = m->broker_id;
        break;
    case MESSAGE_ID_HEADER:
        if (!find_header(m->message.headers, rule->name, &found))
            return false;
        break;
    case MESSAGE_ID_POSITION:
        found = once_span_str(m->position);
        break;
    case MESSAGE_ID_JSON:
        if (find_in_json(m->message.payload, rule->name, &text))
            found = once_span_str(text);
        break;
    }
    if (found.len > 0)
        set_id(found, id, len);
    free(text);
    return found.len > 0;
}

bool message_id_find(const struct message_id_rule *rules, size_t count, const struct incoming *m,
                     char id[ONCE_KEY_LEN_MAX + 1], size_t *len, bool *dead)
{
    once_span found;
    *dead =
        find_header(m->message.headers, once_span_str(MESSAGE_ID_DEAD_HEADER), &found) && set_decoded(found, id, len);
    if (*dead)
        return true;
    for (size_t i = 0; i < count; i++)
        if (apply(&rules[i], m, id, len))
            return true;
    return false;
}
