/*
 * compare.c - walks the records and compares each with the other side's charge.
 *
 * The listing goes from the newest claim to the oldest, page by page. A record that is claimed
 * again meanwhile moves to the front and is missed: it is running or young then and needs no
 * report, but its charge would seem to have no record. Therefore charges without a matching
 * record are looked up again: by key if the keys are our own and they are few; else by listing
 * the newest claims again, back to before the pass that missed them. This is repeated as long
 * as it finds records: a record is missed only if it is claimed again during each pass.
 *
 * Differences are only stored here; reconcile/report.c reads each record again before it
 * prints them.
 */
#include "reconcile/reconcile.h"

#include "core/err.h"
#include "core/span.h"
#include "os/crash_point.h"
#include "program/record_out.h"
#include "reconcile/fetch.h"

#include <inttypes.h>

enum {
    LOOKUP_MAX = 1000, /* charges; for more, listing again is faster */
    TAIL_PASSES = 3,
    TAIL_OVERLAP_MS = 60000, /* fences are assigned before their claims commit */
};

void reconcile_match(const struct reconcile *r, const struct once_record *record, struct reconcile_match *match)
{
    match->key = record->key;
    if (r->call.len > 0) {
        once_child_key(r->once, &record->grant, r->call, match->child);
        match->key = once_span_of(match->child, ONCE_CHILD_KEY_LEN);
    }
}

enum reconcile_kind reconcile_judge_all(const struct reconcile *r, const struct once_record *record,
                                        const struct reconcile_charge *charge, char text[RECONCILE_TEXT_LEN])
{
    enum reconcile_kind kind = reconcile_judge(&r->rules, record, charge);
    text[0] = '\0';
    if (kind == RECONCILE_EQUAL && record != NULL && charge->theirs == RECONCILE_DONE && r->terms.value_count > 0)
        kind = reconcile_terms_compare(&r->terms, record, charge->values, text, RECONCILE_TEXT_LEN);
    return kind;
}

static int fail_join(const struct reconcile *r, const struct once_error *err)
{
    return once_cli_error(&r->cli, err, "compare");
}

static bool is_in_window(const struct reconcile *r, once_time time)
{
    return time >= r->since && time < r->until;
}

/* True for kinds that the report prints, after reading the record again. */
static bool is_shown(const struct reconcile *r, enum reconcile_kind kind)
{
    return kind <= RECONCILE_NOT_ASKED || (r->all && kind != RECONCILE_EQUAL);
}

static int note(struct reconcile *r, enum reconcile_kind kind, const struct once_record *record, once_span match,
                once_span said)
{
    struct reconcile_finding finding = { .kind = kind, .match = match, .said = said };
    struct once_error err;
    if (record != NULL)
        finding.record = *record;
    if (!is_shown(r, kind)) {
        r->counts.of[kind]++;
        return ONCE_EXIT_OK;
    }
    return reconcile_join_report(r->join, &finding, &err) == ONCE_OK ? ONCE_EXIT_OK : fail_join(r, &err);
}

/* Records that can only be judged with their stored answers. */
struct waiting {
    struct reconcile_fetch items[RECONCILE_FETCH_MAX];
    size_t count;
};

static int judge_waiting(struct reconcile *r, struct waiting *waiting)
{
    int exit = reconcile_fetch(r, waiting->items, waiting->count);
    for (size_t i = 0; i < waiting->count; i++) {
        struct reconcile_fetch *item = &waiting->items[i];
        if (exit == ONCE_EXIT_OK)
            exit = note(r, item->kind, item->record, item->match.key, once_span_str(item->text));
        free((void *)(uintptr_t)item->charge.values.ptr);
    }
    waiting->count = 0;
    return exit;
}

/* `record` must stay valid until it was judged. */
static int wait_for_answer(struct reconcile *r, struct waiting *waiting, const struct once_record *record,
                           const struct reconcile_charge *charge)
{
    struct reconcile_fetch *item = &waiting->items[waiting->count];
    *item = (struct reconcile_fetch){ .record = record, .charge = *charge };
    item->charge.said = item->charge.answer =
        (once_span){ NULL, 0 }; /* only the report needs them, and reads them again */
    uint8_t *values = malloc(charge->values.len + 1);
    if (values == NULL)
        return once_cli_fail(&r->cli, ONCE_EXIT_OS, "out of memory");
    if (charge->values.len > 0)
        memcpy(values, charge->values.ptr, charge->values.len);
    item->charge.values.ptr = values;
    reconcile_match(r, record, &item->match);
    waiting->count++;
    return waiting->count == RECONCILE_FETCH_MAX ? judge_waiting(r, waiting) : ONCE_EXIT_OK;
}

static int judge_record(struct reconcile *r, const struct once_record *record, once_span match,
                        const struct reconcile_charge *charge, struct waiting *waiting)
{
    char text[RECONCILE_TEXT_LEN] = "";
    enum reconcile_kind kind = reconcile_judge(&r->rules, record, charge);
    r->counts.records++;
    r->counts.known += charge->theirs != RECONCILE_ABSENT;
    if (kind == RECONCILE_EQUAL && charge->theirs == RECONCILE_DONE && r->terms.needs_body)
        return wait_for_answer(r, waiting, record, charge);
    kind = reconcile_judge_all(r, record, charge, text);
    return note(r, kind, record, match, once_span_str(text));
}

/* ---------------------------------------------------------------- an export */

/* `again`: a later pass, which judges only records whose charge is unmatched so far. */
static int take_record(struct reconcile *r, const struct once_record *record, bool again, struct waiting *waiting)
{
    struct reconcile_match match;
    struct reconcile_charge charge;
    struct once_error err;
    bool met = false;
    reconcile_match(r, record, &match);
    if (reconcile_join_find(r->join, match.key, &charge, &met, &err) != ONCE_OK)
        return fail_join(r, &err);
    if (charge.theirs == RECONCILE_ABSENT ? again || !is_in_window(r, record->created_at) : again && met)
        return ONCE_EXIT_OK;
    bool there = charge.theirs != RECONCILE_ABSENT;
    int exit = judge_record(r, record, match.key, &charge, waiting);
    if (exit == ONCE_EXIT_OK && there && reconcile_join_match(r->join, match.key, &err) != ONCE_OK)
        exit = fail_join(r, &err);
    return exit;
}

/* ---------------------------------------------------------------- asking */

/* Parses the answer of a command or a URL. */
static once_result read_answer(const struct reconcile *r, once_span text, struct reconcile_charge *charge,
                               struct once_buf *memory, struct once_buf *values, struct once_error *err)
{
    static const struct {
        once_span word;
        enum reconcile_theirs theirs;
    } words[] = { { ONCE_LIT("done"), RECONCILE_DONE },
                  { ONCE_LIT("not-done"), RECONCILE_NOT_DONE },
                  { ONCE_LIT("undecided"), RECONCILE_UNDECIDED },
                  { ONCE_LIT("absent"), RECONCILE_ABSENT } };
    struct reconcile_fields fields = { .value[RECONCILE_FIELD_ANSWER] = r->terms.answer_whole ? text : ONCE_LIT("") };
    once_span trimmed = text;
    while (trimmed.len > 0 && strchr(" \t\r\n", trimmed.ptr[trimmed.len - 1]) != NULL)
        trimmed.len--;
    for (size_t i = 0; r->command != NULL && i < sizeof words / sizeof *words; i++)
        if (once_span_equal(trimmed, words[i].word)) {
            *charge = (struct reconcile_charge){ .theirs = words[i].theirs,
                                                 .lines = words[i].theirs != RECONCILE_ABSENT,
                                                 .dones = words[i].theirs == RECONCILE_DONE };
            return ONCE_OK;
        }
    bool picks = r->command != NULL || r->terms.value_count > 0;
    for (int i = 0; i < RECONCILE_FIELD_VALUE; i++)
        picks |= r->terms.names[i].len > 0;
    once_result result = picks ? reconcile_terms_pick(&r->terms, text, &fields, memory, err) : ONCE_OK;
    return result == ONCE_OK ? reconcile_terms_read(&r->terms, &fields, charge, values, err) : result;
}

static int answered(struct reconcile *r, const struct reconcile_question *question, const char *error, bool absent,
                    once_span text)
{
    struct reconcile_charge charge = { .theirs = RECONCILE_ABSENT };
    struct once_buf memory, values;
    struct once_error err;
    once_buf_init(&memory, 2 * RECONCILE_ANSWER_LEN_MAX);
    once_buf_init(&values, 2 * RECONCILE_ANSWER_LEN_MAX);
    if (error == NULL && !absent && read_answer(r, text, &charge, &memory, &values, &err) != ONCE_OK) {
        once_error_prefix(&err, "its answer is not valid");
        error = err.text;
    }
    int exit;
    r->counts.lines++;
    reconcile_show(r, "keys asked about", r->counts.lines);
    if (error != NULL) {
        r->counts.records++;
        exit = note(r, RECONCILE_NOT_ASKED, question->record, question->match.key, once_span_str(error));
    } else if (charge.theirs != RECONCILE_ABSENT &&
               reconcile_join_add(r->join, question->match.key, &charge, &err) != ONCE_OK) {
        exit = fail_join(r, &err);
    } else {
        static struct waiting alone;
        exit = judge_record(r, question->record, question->match.key, &charge, &alone);
        if (exit == ONCE_EXIT_OK)
            exit = judge_waiting(r, &alone);
    }
    once_buf_release(&memory);
    once_buf_release(&values);
    return exit;
}

/* Running and young records are not asked about: the answer would not change the verdict. */
static bool is_worth_asking(const struct reconcile *r, const struct once_record *record)
{
    const struct reconcile_charge nothing = { .theirs = RECONCILE_UNDECIDED };
    enum reconcile_kind kind = reconcile_judge(&r->rules, record, &nothing);
    return kind == RECONCILE_PENDING || kind == RECONCILE_UNKNOWN;
}

/* A forgotten record has no key to compare. If the other side has a charge of it, the lookup by key finds it. */
static bool is_nameless(const struct reconcile *r, const struct once_record *record)
{
    return r->call.len == 0 && record->forgotten && record->key.len == 0;
}

static int ask_page(struct reconcile *r, const struct once_page *page)
{
    struct reconcile_question *questions = calloc(page->count + 1, sizeof *questions);
    size_t count = 0;
    int exit = ONCE_EXIT_OK;
    if (questions == NULL)
        return once_cli_fail(&r->cli, ONCE_EXIT_OS, "out of memory");
    for (size_t i = 0; exit == ONCE_EXIT_OK && i < page->count; i++) {
        const struct once_record *record = &page->records[i];
        if (!is_in_window(r, record->created_at) || is_nameless(r, record) ||
            (r->cli.tenant_given && !once_span_equal(record->tenant, r->cli.tenant)))
            continue;
        struct reconcile_question *question = &questions[count];
        reconcile_match(r, record, &question->match);
        question->record = record;
        if (is_worth_asking(r, record))
            count++;
        else
            exit = judge_record(r, record, question->match.key,
                                &(struct reconcile_charge){ .theirs = RECONCILE_ABSENT }, NULL);
    }
    if (exit == ONCE_EXIT_OK && count > 0)
        exit = r->command != NULL ? reconcile_exec(r, questions, count, answered)
                                  : reconcile_url(r, questions, count, answered);
    free(questions);
    return exit;
}

/* ---------------------------------------------------------------- pages */

static int take_page(struct reconcile *r, const struct once_page *page, bool again)
{
    int exit = ONCE_EXIT_OK;
    for (size_t i = 0; r->call.len == 0 && i < page->count; i++)
        if (page->records[i].key.len == 0 && !page->records[i].forgotten)
            return once_cli_fail(&r->cli, ONCE_EXIT_USAGE,
                                 "this store does not keep the texts of keys (keytext=off), so its records cannot be "
                                 "matched by key; child keys can: --call NAME");
    if (r->from == NULL)
        return ask_page(r, page);
    static struct waiting waiting; /* static: 40 KiB are too large for the stack */
    for (size_t i = 0; exit == ONCE_EXIT_OK && i < page->count; i++)
        if ((!r->cli.tenant_given || once_span_equal(page->records[i].tenant, r->cli.tenant)) &&
            !is_nameless(r, &page->records[i]))
            exit = take_record(r, &page->records[i], again, &waiting);
    int rest = judge_waiting(r, &waiting);
    return exit == ONCE_EXIT_OK ? rest : exit;
}

/* Walks from the newest claim back to the first before `from` (0: all). */
static int walk(struct reconcile *r, once_time from, bool again)
{
    struct once_filter filter = { .limit = ONCE_LIST_LIMIT_MAX };
    int exit = ONCE_EXIT_OK;
    do {
        struct once_page page;
        struct once_error err;
        if (once_list(r->once, &filter, &page, &err) != ONCE_OK)
            return once_cli_error(&r->cli, &err, "list the records");
        exit = take_page(r, &page, again);
        bool past = page.count > 0 && page.records[page.count - 1].claimed_at < from;
        filter.before = past ? 0 : page.next;
        once_page_release(&page);
        reconcile_show(r, "records compared", r->counts.records);
        ONCE_CRASH_POINT("reconcile.page");
    } while (exit == ONCE_EXIT_OK && filter.before != 0 && !reconcile_is_interrupted(r));
    return exit;
}

/* ---------------------------------------------------------------- charges without a record */

/* Finds the next unmatched charge that is done. *key is a copy; empty after the last. */
static int next_unmet(struct reconcile *r, struct once_buf *key, struct reconcile_charge *charge)
{
    for (;;) {
        once_span found;
        struct once_error err;
        if (reconcile_join_next_unmatched(r->join, once_buf_span(key), &found, charge, &err) != ONCE_OK)
            return fail_join(r, &err);
        once_buf_clear(key);
        once_buf_add(key, found);
        if (key->result != ONCE_OK)
            return once_cli_fail(&r->cli, ONCE_EXIT_OS, "out of memory");
        if (found.len == 0 || charge->theirs == RECONCILE_DONE || reconcile_is_interrupted(r))
            return ONCE_EXIT_OK;
    }
}

/* Looks up a record by the key of a charge. */
static int look_up_charge(struct reconcile *r, once_span key)
{
    struct once_reply reply;
    struct once_error err;
    if (key.len > ONCE_KEY_LEN_MAX)
        return ONCE_EXIT_OK;
    if (once_lookup(r->once, r->cli.tenant, key, &reply, &err) != ONCE_OK)
        return once_cli_error(&r->cli, &err, "read a record");
    if (reply.record.forgotten) { /* the lookup knows its names, which were erased */
        reply.record.tenant = r->cli.tenant;
        reply.record.key = key;
    }
    static struct waiting waiting;
    int exit = reply.arm == ONCE_ARM_FOUND ? take_record(r, &reply.record, true, &waiting) : ONCE_EXIT_OK;
    if (exit == ONCE_EXIT_OK)
        exit = judge_waiting(r, &waiting);
    once_reply_release(&reply);
    return exit;
}

/* Looks up the first LOOKUP_MAX unmatched charges; *key is empty when there are no more. */
static int look_up_some(struct reconcile *r, struct once_buf *key)
{
    struct reconcile_charge charge;
    once_buf_clear(key);
    int exit = next_unmet(r, key, &charge);
    for (uint64_t n = 0; n < LOOKUP_MAX && exit == ONCE_EXIT_OK && key->len > 0 && r->interrupted == 0; n++) {
        exit = look_up_charge(r, once_buf_span(key));
        reconcile_show(r, "charges looked for again", n);
        if (exit == ONCE_EXIT_OK)
            exit = next_unmet(r, key, &charge);
    }
    return exit;
}

static int look_again(struct reconcile *r, once_time walked_at, struct once_buf *key)
{
    struct reconcile_charge charge;
    int exit = ONCE_EXIT_OK;
    if (r->call.len == 0) {
        exit = look_up_some(r, key);
        if (exit != ONCE_EXIT_OK || key->len == 0)
            return exit;
    }
    for (int pass = 0; pass < TAIL_PASSES && exit == ONCE_EXIT_OK && r->interrupted == 0; pass++) {
        once_buf_clear(key);
        exit = next_unmet(r, key, &charge);
        if (exit != ONCE_EXIT_OK || key->len == 0)
            return exit;
        once_time from = walked_at - TAIL_OVERLAP_MS;
        uint64_t met = r->counts.records;
        exit = once_record_now(&r->cli, r->once, &walked_at);
        if (exit == ONCE_EXIT_OK)
            exit = walk(r, from, true);
        if (r->counts.records == met)
            return exit; /* no record was found in this pass */
    }
    return exit;
}

static int note_unmet(struct reconcile *r, struct once_buf *key)
{
    once_buf_clear(key);
    for (;;) {
        struct reconcile_charge charge;
        struct once_error err;
        once_span found;
        if (reconcile_join_next_unmatched(r->join, once_buf_span(key), &found, &charge, &err) != ONCE_OK)
            return fail_join(r, &err);
        if (found.len == 0 || reconcile_is_interrupted(r))
            return ONCE_EXIT_OK;
        enum reconcile_kind kind = reconcile_judge(&r->rules, NULL, &charge);
        if (kind == RECONCILE_NO_RECORD && charge.at != 0 && !is_in_window(r, charge.at)) {
            r->counts.outside++;
        } else {
            int exit = note(r, kind, NULL, found, (once_span){ NULL, 0 });
            if (exit != ONCE_EXIT_OK)
                return exit;
        }
        once_buf_clear(key);
        once_buf_add(key, found);
        if (key->result != ONCE_OK)
            return once_cli_fail(&r->cli, ONCE_EXIT_OS, "out of memory");
    }
}

int reconcile_compare(struct reconcile *r)
{
    once_time began = r->rules.as_of;
    int exit = once_record_now(&r->cli, r->once, &began);
    if (exit == ONCE_EXIT_OK)
        exit = walk(r, r->from == NULL ? r->since - TAIL_OVERLAP_MS : 0, false);
    if (r->from == NULL || exit != ONCE_EXIT_OK || r->interrupted != 0)
        return exit;
    struct once_buf key;
    once_buf_init(&key, 2 << 20);
    exit = look_again(r, began, &key);
    if (exit == ONCE_EXIT_OK && r->interrupted == 0)
        exit = note_unmet(r, &key);
    once_buf_release(&key);
    return exit;
}
