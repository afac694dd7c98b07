/* terms.c - see reconcile/terms.h. */
#include "reconcile/terms.h"

#include "core/err.h"
#include "core/span.h"
#include "reconcile/when.h"

#include <assert.h>
#include <inttypes.h>

static const once_span STATUS = ONCE_LIT("status");
static const uint32_t NOT_THERE = UINT32_MAX;

enum { SHOWN_LEN_MAX = 60 }; /* of a value in a message */

static int shown_len(once_span text)
{
    return (int)(text.len < SHOWN_LEN_MAX ? text.len : SHOWN_LEN_MAX);
}

#define SHOWN(s) shown_len(s), (const char *)((s).ptr != NULL ? (s).ptr : (const uint8_t *)"")

bool reconcile_terms_add_value(struct reconcile_terms *terms, once_span text)
{
    once_span column, ours;
    if (terms->value_count == RECONCILE_VALUE_COUNT_MAX || !once_span_cut(text, '=', &column, &ours))
        return false;
    bool is_pointer = ours.len > 0 && ours.ptr[0] == '/' && reconcile_json_is_name(ours);
    if (column.len == 0 || (!is_pointer && !once_span_equal(ours, STATUS)))
        return false;
    terms->needs_body |= is_pointer;
    terms->names[RECONCILE_FIELD_VALUE + terms->value_count] = column;
    terms->ours[terms->value_count++] = ours;
    return true;
}

static bool has_word(once_span list, once_span word)
{
    once_span rest = list, one;
    for (bool more = list.len > 0; more;) {
        more = once_span_cut(rest, ',', &one, &rest);
        if (once_span_equal(one, word))
            return true;
    }
    return false;
}

bool reconcile_terms_outcome(const struct reconcile_terms *terms, once_span word, enum reconcile_theirs *theirs)
{
    for (int rest = 0; rest < 2; rest++)
        for (enum reconcile_theirs t = RECONCILE_DONE; t <= RECONCILE_UNDECIDED; t++)
            if (has_word(terms->words[t], rest ? ONCE_LIT("*") : word)) {
                *theirs = t;
                return true;
            }
    return false;
}

once_result reconcile_terms_pick(const struct reconcile_terms *terms, once_span text, struct reconcile_fields *fields,
                                 struct once_buf *memory, struct once_error *err)
{
    struct reconcile_pick picks[RECONCILE_FIELD_COUNT];
    int field_of[RECONCILE_FIELD_COUNT];
    size_t count = 0;
    *fields = (struct reconcile_fields){ 0 };
    for (int i = 0; i < RECONCILE_FIELD_COUNT; i++)
        if (terms->names[i].len > 0) {
            field_of[count] = i;
            picks[count++] = (struct reconcile_pick){ .name = terms->names[i] };
        }
    once_result r = reconcile_json_pick(text, picks, count, memory, err);
    for (size_t i = 0; r == ONCE_OK && i < count; i++) {
        if (picks[i].composite)
            return once_fail(err, ONCE_INVALID, "'%.*s' is a list or an object", SHOWN(picks[i].name));
        fields->there[field_of[i]] = picks[i].found;
        fields->value[field_of[i]] = picks[i].value;
    }
    if (r == ONCE_OK && terms->answer_whole) {
        fields->there[RECONCILE_FIELD_ANSWER] = true;
        fields->value[RECONCILE_FIELD_ANSWER] = text;
    }
    return r;
}

static once_result read_outcome(const struct reconcile_terms *terms, const struct reconcile_fields *fields,
                                struct reconcile_charge *charge, struct once_error *err)
{
    charge->theirs = RECONCILE_DONE;
    if (terms->names[RECONCILE_FIELD_OUTCOME].len == 0)
        return ONCE_OK; /* every charge is done */
    if (!fields->there[RECONCILE_FIELD_OUTCOME])
        return once_fail(err, ONCE_INVALID, "'%.*s' is missing", SHOWN(terms->names[RECONCILE_FIELD_OUTCOME]));
    charge->said = fields->value[RECONCILE_FIELD_OUTCOME];
    if (!reconcile_terms_outcome(terms, charge->said, &charge->theirs))
        return once_fail(err, ONCE_INVALID, "'%.*s' is '%.*s', which is not in --done, --not-done or --undecided",
                         SHOWN(terms->names[RECONCILE_FIELD_OUTCOME]), SHOWN(charge->said));
    return ONCE_OK;
}

once_result reconcile_terms_read(const struct reconcile_terms *terms, const struct reconcile_fields *fields,
                                 struct reconcile_charge *charge, struct once_buf *memory, struct once_error *err)
{
    *charge = (struct reconcile_charge){ .lines = 1 };
    once_result r = read_outcome(terms, fields, charge, err);
    if (r != ONCE_OK)
        return r;
    charge->dones = charge->theirs == RECONCILE_DONE;
    once_span time = fields->value[RECONCILE_FIELD_TIME];
    if (fields->there[RECONCILE_FIELD_TIME] && time.len > 0) {
        char seconds[32]; /* some exports have plain seconds */
        bool plain = time.ptr[0] >= '0' && time.ptr[0] <= '9' && memchr(time.ptr, '-', time.len) == NULL;
        int n = plain ? snprintf(seconds, sizeof seconds, "@%.*s", SHOWN(time)) : 0;
        once_span text = plain && n < (int)sizeof seconds ? once_span_of(seconds, (size_t)n) : time;
        if (!once_when_parse(text, &charge->at))
            return once_fail(err, ONCE_INVALID, "'%.*s' is '%.*s', which is not a time with a zone",
                             SHOWN(terms->names[RECONCILE_FIELD_TIME]), SHOWN(time));
    }
    charge->answer = fields->value[RECONCILE_FIELD_ANSWER];
    size_t at = memory->len;
    for (size_t i = 0; i < terms->value_count; i++) {
        bool there = fields->there[RECONCILE_FIELD_VALUE + i];
        once_span value = fields->value[RECONCILE_FIELD_VALUE + i];
        once_buf_add_u32(memory, there ? (uint32_t)value.len : NOT_THERE);
        if (there)
            once_buf_add(memory, value);
    }
    if (memory->result != ONCE_OK)
        return once_fail(err, memory->result, "its values are too long");
    if (memory->len > at)
        charge->values = once_span_of(memory->ptr + at, memory->len - at);
    return ONCE_OK;
}

/* ---------------------------------------------------------------- values */

static bool take_value(once_span *values, bool *there, once_span *value)
{
    if (values->len < 4)
        return false;
    const uint8_t *p = values->ptr;
    uint32_t len = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    *values = once_span_skip(*values, 4);
    *there = len != NOT_THERE;
    if (!*there)
        len = 0;
    assert(len <= values->len); /* we wrote it */
    *value = once_span_of(values->ptr, len);
    *values = once_span_skip(*values, len);
    return true;
}

struct decimal {
    bool negative;
    once_span whole, fraction; /* without leading and trailing zeros */
};

/* Plain decimals only: "1e2" is compared as text. */
static bool parse_decimal(once_span text, struct decimal *d)
{
    *d = (struct decimal){ .negative = text.len > 0 && text.ptr[0] == '-' };
    if (d->negative)
        text = once_span_skip(text, 1);
    bool dot = once_span_cut(text, '.', &d->whole, &d->fraction);
    if (d->whole.len == 0 || (dot && d->fraction.len == 0))
        return false;
    for (size_t i = 0; i < text.len; i++)
        if ((text.ptr[i] < '0' || text.ptr[i] > '9') && i != d->whole.len)
            return false;
    while (d->whole.len > 0 && d->whole.ptr[0] == '0')
        d->whole = once_span_skip(d->whole, 1);
    while (d->fraction.len > 0 && d->fraction.ptr[d->fraction.len - 1] == '0')
        d->fraction.len--;
    if (d->whole.len == 0 && d->fraction.len == 0)
        d->negative = false;
    return true;
}

/* Equal as text or as decimal numbers: 25, 25.0 and 25.00 are equal. */
static bool are_equal(once_span a, once_span b)
{
    struct decimal x, y;
    if (once_span_equal(a, b))
        return true;
    return parse_decimal(a, &x) && parse_decimal(b, &y) && x.negative == y.negative &&
           once_span_equal(x.whole, y.whole) && once_span_equal(x.fraction, y.fraction);
}

static enum reconcile_kind compare_one(once_span name, const struct reconcile_pick *ours, bool there, once_span value,
                                       char *text, size_t text_len)
{
    if (ours->found && there && are_equal(ours->value, value))
        return RECONCILE_EQUAL;
    if (!ours->found && !there)
        return RECONCILE_EQUAL;
    snprintf(text, text_len, "%.*s: here %s%.*s, there %s%.*s", SHOWN(name), ours->found ? "" : "none",
             SHOWN(ours->value), there ? "" : "none", SHOWN(value));
    return RECONCILE_VALUE;
}

enum reconcile_kind reconcile_terms_compare(const struct reconcile_terms *terms, const struct once_record *record,
                                            once_span values, char *text, size_t text_len)
{
    struct reconcile_pick picks[RECONCILE_VALUE_COUNT_MAX];
    struct once_buf memory;
    struct once_error err;
    size_t count = 0;
    if (terms->needs_body && record->body_dropped) {
        snprintf(text, text_len, "%s",
                 record->body_expired  ? "the stored answer has expired"
                 : record->body_sealed ? "the stored answer is sealed, and its key is not available"
                                       : "the answer was not stored");
        return RECONCILE_NOT_ASKED;
    }
    for (size_t i = 0; i < terms->value_count; i++)
        if (!once_span_equal(terms->ours[i], STATUS))
            picks[count++] = (struct reconcile_pick){ .name = terms->ours[i] };
    once_buf_init(&memory, record->body.len);
    if (count > 0 && reconcile_json_pick(record->body, picks, count, &memory, &err) != ONCE_OK) {
        snprintf(text, text_len, "our answer cannot be compared: %s", err.text);
        once_buf_release(&memory);
        return RECONCILE_NOT_ASKED;
    }
    char status[12];
    int status_len = snprintf(status, sizeof status, "%" PRId32, record->status);
    const struct reconcile_pick of_status = { .found = true, .value = once_span_of(status, (size_t)status_len) };
    enum reconcile_kind kind = RECONCILE_EQUAL;
    once_span value;
    bool there;
    for (size_t i = 0, at = 0; kind == RECONCILE_EQUAL && take_value(&values, &there, &value); i++) {
        const struct reconcile_pick *ours = once_span_equal(terms->ours[i], STATUS) ? &of_status : &picks[at++];
        kind = compare_one(terms->names[RECONCILE_FIELD_VALUE + i], ours, there, value, text, text_len);
    }
    once_buf_release(&memory);
    return kind;
}
