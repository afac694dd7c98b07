/*
 * input.c - see api/input.h.
 *
 * json/strict.h checks bytes and strings, json/events.h the grammar; this file keeps the values in one array, linked,
 * and finds members in it.
 */
#include "daemon/api/input.h"

#include "daemon/api/call.h"

#include "core/json/events.h"
#include "core/json/strict.h"
#include "core/span.h"
#include "core/utf8.h"

#include <assert.h>
#include <errno.h>
#include <nettle/base64.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { NONE = UINT32_MAX };

/* Of a value's kind; true and false are both of the kind FALSE. */
static const char *const kind_names[] = {
    [ONCE_JSON_NULL] = "null",     [ONCE_JSON_FALSE] = "true or false", [ONCE_JSON_NUMBER] = "a number",
    [ONCE_JSON_STRING] = "a text", [ONCE_JSON_ARRAY] = "a list",        [ONCE_JSON_OBJECT] = "an object",
};

struct api_value {
    enum once_json_event kind;
    bool truth; /* FALSE */
    bool read;
    once_span name; /* in an object */
    once_span text; /* STRING, NUMBER */
    uint32_t first, next;
};

/* ---------------------------------------------------------------- errors */

/* The member's name, with the names of the objects around it. */
static void name_member(struct api_input *in, once_span name)
{
    size_t at = 0;
    for (int i = 1; i <= in->depth; i++) {
        uint32_t object = i < in->depth ? in->above[i] : in->object;
        at +=
            (size_t)snprintf(in->member + at, sizeof in->member - at, "%.*s.", ONCE_SPAN_ARGS(in->values[object].name));
    }
    snprintf(in->member + at, sizeof in->member - at, "%.*s", (int)(name.len < 60 ? name.len : 60),
             name.len > 0 ? (const char *)name.ptr : "");
}

__attribute__((format(printf, 4, 0))) static bool fail_at(struct api_input *in, once_span name, once_result result,
                                                          const char *format, va_list args)
{
    if (in->result != ONCE_OK)
        return false;
    in->result = result;
    name_member(in, name);
    vsnprintf(in->text, sizeof in->text, format, args);
    return false;
}

__attribute__((format(printf, 4, 5))) static bool fail_span(struct api_input *in, once_span name, once_result result,
                                                            const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_at(in, name, result, format, args);
    va_end(args);
    return false;
}

bool api_input_fail(struct api_input *in, const char *name, once_result result, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_at(in, once_span_str(name), result, format, args);
    va_end(args);
    return false;
}

/* ---------------------------------------------------------------- the values */

/* A container that has not ended yet. */
struct level {
    uint32_t value, last;
    once_span name; /* OBJECT: of its next member */
};

struct parse {
    struct api_input *in;
    struct level levels[API_DEPTH_MAX];
    int depth;
};

static once_span keep(struct api_input *in, once_span bytes)
{
    const uint8_t *at = in->strings.ptr + in->strings.len;
    if (bytes.len == 0)
        return (once_span){ 0 };
    once_buf_add(&in->strings, bytes);
    assert(in->strings.result == ONCE_OK); /* room was made for the whole text */
    return once_span_of(at, bytes.len);
}

static bool add_value(struct parse *parse, enum once_json_event event, once_span bytes)
{
    struct api_input *in = parse->in;
    enum once_json_event kind = event == ONCE_JSON_TRUE ? ONCE_JSON_FALSE : event;
    if (in->count == API_VALUE_COUNT_MAX)
        return fail_span(in, (once_span){ 0 }, ONCE_LIMIT, "there are more than %d values", API_VALUE_COUNT_MAX);
    uint32_t index = in->count++;
    in->values[index] = (struct api_value){
        .kind = kind, .truth = event == ONCE_JSON_TRUE, .text = keep(in, bytes), .first = NONE, .next = NONE
    };
    if (parse->depth > 0) {
        struct level *level = &parse->levels[parse->depth - 1];
        in->values[index].name = level->name;
        *(level->last == NONE ? &in->values[level->value].first : &in->values[level->last].next) = index;
        level->last = index;
    }
    if (kind == ONCE_JSON_ARRAY || kind == ONCE_JSON_OBJECT) {
        if (parse->depth == API_DEPTH_MAX)
            return fail_span(in, in->values[index].name, ONCE_INVALID, "is nested deeper than %d levels",
                             API_DEPTH_MAX);
        parse->levels[parse->depth++] = (struct level){ .value = index, .last = NONE };
    }
    return true;
}

static bool add_name(struct parse *parse, once_span bytes)
{
    struct api_input *in = parse->in;
    struct level *level = &parse->levels[parse->depth - 1];
    level->name = keep(in, bytes);
    for (uint32_t i = in->values[level->value].first; i != NONE; i = in->values[i].next)
        if (once_span_equal(in->values[i].name, level->name))
            return fail_span(in, level->name, ONCE_INVALID, "is repeated");
    return true;
}

static bool on_event(void *arg, enum once_json_event event, once_span bytes)
{
    struct parse *parse = arg;
    if (event == ONCE_JSON_NAME)
        return add_name(parse, bytes);
    if (event != ONCE_JSON_END)
        return add_value(parse, event, bytes);
    assert(parse->depth > 0);
    parse->depth--;
    return true;
}

static void parse_text(struct api_input *in, once_span text)
{
    struct parse parse = { .in = in };
    size_t at = 0;
    once_result r = once_json_parse(text, on_event, &parse, &at);
    if (r == ONCE_NO_MEMORY)
        fail_span(in, (once_span){ 0 }, r, "out of memory for %zu bytes of JSON", text.len);
    else if (r != ONCE_OK)
        fail_span(in, (once_span){ 0 }, ONCE_INVALID, "the body is not JSON: wrong or incomplete at byte %zu", at);
}

/* The length of the valid UTF-8 at its start. */
static size_t valid_len(once_span text)
{
    size_t at = 0;
    uint32_t code;
    for (size_t len; at < text.len && (len = once_utf8_decode(once_span_skip(text, at), &code)) > 0;)
        at += len;
    return at;
}

static void check_text(struct api_input *in, once_span text)
{
    size_t len = valid_len(text);
    if (text.len == 0)
        fail_span(in, (once_span){ 0 }, ONCE_INVALID, "the body is empty; it must be a JSON object");
    else if (len < text.len)
        fail_span(in, (once_span){ 0 }, ONCE_INVALID,
                  "the body is not UTF-8 at byte %zu; send other bytes as NAME_base64", len);
    else if (!once_json_is_strict(text))
        fail_span(in, (once_span){ 0 }, ONCE_INVALID,
                  "the body is not JSON: a text is not closed, or has a raw control character or half a surrogate "
                  "pair, or there is a byte outside of texts that is not ASCII");
}

once_result api_input_parse(struct api_input *in, once_span text)
{
    *in = (struct api_input){ 0 };
    once_buf_init(&in->strings, text.len);
    once_buf_init(&in->decoded, text.len);
    in->values = malloc(API_VALUE_COUNT_MAX * sizeof *in->values);
    if (in->values == NULL || (text.len > 0 && once_buf_reserve(&in->strings, text.len) == NULL))
        fail_span(in, (once_span){ 0 }, ONCE_NO_MEMORY, "out of memory for %zu bytes of JSON", text.len);
    check_text(in, text);
    if (in->result == ONCE_OK)
        parse_text(in, text);
    if (in->result == ONCE_OK && in->values[0].kind != ONCE_JSON_OBJECT)
        fail_span(in, (once_span){ 0 }, ONCE_INVALID, "the body is %s; it must be an object",
                  kind_names[in->values[0].kind]);
    return in->result;
}

void api_input_release(struct api_input *in)
{
    free(in->values);
    once_buf_release(&in->strings);
    once_buf_release(&in->decoded);
    *in = (struct api_input){ 0 };
}

/* ---------------------------------------------------------------- members */

static struct api_value *find(const struct api_input *in, const char *name)
{
    if (in->result != ONCE_OK)
        return NULL;
    once_span wanted = once_span_str(name);
    for (uint32_t i = in->values[in->object].first; i != NONE; i = in->values[i].next)
        if (once_span_equal(in->values[i].name, wanted))
            return &in->values[i];
    return NULL;
}

bool api_input_has(const struct api_input *in, const char *name)
{
    return find(in, name) != NULL;
}

static bool fail_kind(struct api_input *in, const char *name, enum once_json_event wanted, enum once_json_event is)
{
    return api_input_fail(in, name, ONCE_INVALID, "must be %s, is %s", kind_names[wanted], kind_names[is]);
}

/* The member, marked as read, if it is present and of this kind. */
static const struct api_value *get(struct api_input *in, const char *name, enum api_need need,
                                   enum once_json_event kind)
{
    struct api_value *value = find(in, name);
    if (value == NULL) {
        if (need == API_REQUIRED)
            api_input_fail(in, name, ONCE_INVALID, "is missing");
        return NULL;
    }
    value->read = true;
    if (value->kind == kind)
        return value;
    fail_kind(in, name, kind, value->kind);
    return NULL;
}

static bool is_base64(once_span text)
{
    size_t padding = 0;
    while (padding < 2 && padding < text.len && text.ptr[text.len - 1 - padding] == '=')
        padding++;
    for (size_t i = 0; i < text.len - padding; i++) {
        uint8_t c = text.ptr[i];
        bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
        if (!letter && !(c >= '0' && c <= '9') && c != '+' && c != '/')
            return false;
    }
    return text.len % 4 == 0;
}

static bool decode_base64(struct api_input *in, const char *name, once_span text, once_span *out)
{
    struct base64_decode_ctx ctx;
    base64_decode_init(&ctx);
    size_t len = BASE64_DECODE_LENGTH(text.len);
    /* Room for everything that the whole text could decode to, so that earlier spans stay valid. */
    uint8_t *room = once_buf_reserve(&in->decoded, in->decoded.len == 0 ? in->decoded.max : 0);
    if (room == NULL || len > in->decoded.cap - in->decoded.len)
        return api_input_fail(in, name, ONCE_NO_MEMORY, "out of memory for %zu bytes", len);
    if (!is_base64(text) || !base64_decode_update(&ctx, &len, room, text.len, (const char *)text.ptr) ||
        !base64_decode_final(&ctx))
        return api_input_fail(in, name, ONCE_INVALID,
                              "is not base64 (the alphabet with + and /, padded with =, without spaces)");
    *out = once_span_of(room, len);
    in->decoded.len += len;
    return true;
}

bool api_input_bytes(struct api_input *in, const char *name, enum api_need need, once_span *out)
{
    char other[64];
    snprintf(other, sizeof other, "%s_base64", name);
    bool encoded = api_input_has(in, other);
    if (encoded && api_input_has(in, name))
        return api_input_fail(in, other, ONCE_INVALID, "and '%s' exclude each other", name);
    const struct api_value *value = get(in, encoded ? other : name, need, ONCE_JSON_STRING);
    if (value == NULL)
        return false;
    if (encoded && value->text.len > 0)
        return decode_base64(in, other, value->text, out);
    *out = value->text;
    return true;
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        return (c | 0x20) - 'a' + 10;
    return -1;
}

bool api_input_hex(struct api_input *in, const char *name, enum api_need need, uint8_t *out, size_t len)
{
    const struct api_value *value = get(in, name, need, ONCE_JSON_STRING);
    if (value == NULL)
        return false;
    bool good = value->text.len == 2 * len;
    for (size_t i = 0; good && i < len; i++) {
        int high = hex_digit(value->text.ptr[2 * i]), low = hex_digit(value->text.ptr[2 * i + 1]);
        good = high >= 0 && low >= 0;
        out[i] = (uint8_t)(good ? high << 4 | low : 0);
    }
    return good || api_input_fail(in, name, ONCE_INVALID, "must be %zu hex digits", 2 * len);
}

/* Digits only: 1.0 and 1e3 are whole numbers to some and not to others. */
static bool is_digits(once_span text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
    return text.len > 0 && text.len <= 20;
}

static bool read_uint(once_span text, uint64_t *out)
{
    uint64_t value = 0;
    if (!is_digits(text))
        return false;
    for (size_t i = 0; i < text.len; i++)
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text.ptr[i] - '0'), &value))
            return false;
    *out = value;
    return true;
}

bool api_input_uint(struct api_input *in, const char *name, enum api_need need, uint64_t *out)
{
    const struct api_value *value = get(in, name, need, ONCE_JSON_NUMBER);
    if (value == NULL)
        return false;
    return read_uint(value->text, out) || api_input_fail(in, name, ONCE_INVALID,
                                                         "must be a whole number from 0 to %llu, written without point "
                                                         "and exponent",
                                                         (unsigned long long)UINT64_MAX);
}

bool api_input_int(struct api_input *in, const char *name, int64_t min, int64_t max, int64_t *out)
{
    const struct api_value *value = get(in, name, API_OPTIONAL, ONCE_JSON_NUMBER);
    if (value == NULL)
        return false;
    once_span digits = value->text;
    bool negative = digits.ptr[0] == '-';
    if (negative)
        digits = once_span_skip(digits, 1);
    uint64_t magnitude = 0;
    bool good = read_uint(digits, &magnitude) && magnitude <= INT64_MAX;
    int64_t number = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    if (!good || number < min || number > max)
        return api_input_fail(in, name, ONCE_INVALID,
                              "must be a whole number from %lld to %lld, written without point and exponent",
                              (long long)min, (long long)max);
    *out = number;
    return true;
}

bool api_input_bool(struct api_input *in, const char *name, bool *out)
{
    const struct api_value *value = get(in, name, API_OPTIONAL, ONCE_JSON_FALSE);
    if (value != NULL)
        *out = value->truth;
    return value != NULL;
}

bool api_input_word(struct api_input *in, const char *name, enum api_need need, const char *const *words, size_t count,
                    size_t *out)
{
    const struct api_value *value = get(in, name, need, ONCE_JSON_STRING);
    if (value == NULL)
        return false;
    struct once_buf list;
    once_buf_init(&list, 200);
    for (size_t i = 0; i < count; i++) {
        if (once_span_equal(value->text, once_span_str(words[i]))) {
            once_buf_release(&list);
            *out = i;
            return true;
        }
        once_buf_addf(&list, "%s%s", i == 0 ? "" : ", ", words[i]);
    }
    api_input_fail(in, name, ONCE_INVALID, "must be one of: %.*s", ONCE_SPAN_ARGS(once_buf_span(&list)));
    once_buf_release(&list);
    return false;
}

bool api_input_is(struct api_input *in, const char *name, const char *text)
{
    struct api_value *value = find(in, name);
    if (value == NULL || value->kind != ONCE_JSON_STRING || !once_span_equal(value->text, once_span_str(text)))
        return false;
    value->read = true;
    return true;
}

/* Writes `count` texts from `first` on to `out`; false: an error was recorded. */
static bool read_texts(struct api_input *in, const char *name, uint32_t first, size_t max, once_span *out,
                       size_t *count)
{
    for (uint32_t i = first; i != NONE; i = in->values[i].next) {
        if (in->values[i].kind != ONCE_JSON_STRING)
            return api_input_fail(in, name, ONCE_INVALID, "has %s in it; all of its values must be texts",
                                  kind_names[in->values[i].kind]);
        if (*count == max)
            return api_input_fail(in, name, ONCE_LIMIT, "has more than %zu texts", max);
        out[(*count)++] = in->values[i].text;
    }
    return true;
}

static bool read_rows(struct api_input *in, const char *name, uint32_t first, size_t width, size_t max, once_span *out,
                      size_t *count)
{
    for (uint32_t i = first; i != NONE; i = in->values[i].next) {
        size_t before = *count;
        if (in->values[i].kind != ONCE_JSON_ARRAY)
            return api_input_fail(in, name, ONCE_INVALID, "has %s in it; all of its values must be lists of %zu texts",
                                  kind_names[in->values[i].kind], width);
        if (!read_texts(in, name, in->values[i].first, max, out, count))
            return false;
        if (*count - before != width)
            return api_input_fail(in, name, ONCE_INVALID, "has a list of %zu texts; each must have %zu",
                                  *count - before, width);
    }
    return true;
}

bool api_input_texts(struct api_input *in, const char *name, size_t width, size_t max, once_span **out, size_t *count)
{
    const struct api_value *value = get(in, name, API_OPTIONAL, ONCE_JSON_ARRAY);
    *out = NULL;
    *count = 0;
    if (value == NULL)
        return false;
    size_t texts_max = width > 0 ? max * width : max;
    once_span *texts = malloc((texts_max + 1) * sizeof *texts);
    if (texts == NULL)
        return api_input_fail(in, name, ONCE_NO_MEMORY, "out of memory");
    *out = texts;
    return width > 0 ? read_rows(in, name, value->first, width, texts_max, texts, count)
                     : read_texts(in, name, value->first, texts_max, texts, count);
}

/* ---------------------------------------------------------------- objects, the end */

bool api_input_enter(struct api_input *in, const char *name)
{
    const struct api_value *value = get(in, name, API_OPTIONAL, ONCE_JSON_OBJECT);
    if (value == NULL)
        return false;
    assert(in->depth < API_DEPTH_MAX - 1);
    in->above[in->depth++] = in->object;
    in->object = (uint32_t)(value - in->values);
    return true;
}

static void check_read(struct api_input *in)
{
    for (uint32_t i = in->result == ONCE_OK ? in->values[in->object].first : NONE; i != NONE; i = in->values[i].next)
        if (!in->values[i].read)
            fail_span(in, in->values[i].name, ONCE_INVALID, "is not a known member");
}

void api_input_leave(struct api_input *in)
{
    assert(in->depth > 0);
    check_read(in);
    in->object = in->above[--in->depth];
}

once_result api_input_end(struct api_input *in)
{
    assert(in->depth == 0);
    check_read(in);
    return in->result;
}

bool api_call_accept(struct api_call *call, struct api_input *in)
{
    enum api_problem problem = API_PROBLEM_INVALID;
    if (api_input_end(in) == ONCE_OK)
        return true;
    if (in->result == ONCE_LIMIT)
        problem = API_PROBLEM_LIMIT;
    else if (in->result == ONCE_NO_MEMORY)
        problem = API_PROBLEM_NO_MEMORY;
    if (in->member[0] == '\0')
        api_answer_problem(&call->answer, problem, NULL, "%s", in->text);
    else
        api_answer_problem(&call->answer, problem, in->member, "member '%s' %s", in->member, in->text);
    return false;
}
