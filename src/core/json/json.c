/*
 * json.c - the canonical form of a JSON text.
 *
 * Model:      the text is checked (json/strict.h), parsed by yajl into a tree of nodes in one
 *             array, linked by `next` (1), each object's members sorted as it ends (2),
 *             and the tree written out (3).
 *
 * The canonical form, completely:
 *             - no white space
 *             - object members in the order of their names' bytes (unescaped UTF-8; a
 *               prefix comes first)
 *             - strings and names in quotes, as UTF-8; only `"` and `\` are escaped, as
 *               \" and \\, and the bytes below 0x20, as \u00xx in lower-case hex
 *             - numbers by their literal text: 1, 1.0 and 1e0 are three numbers, since
 *               servers tell them apart
 *             - true, false, null
 *             - a member or element that an excluded pointer names is left out
 *
 * No canonical form (the caller then takes the exact bytes):
 *             - anything that is not JSON (RFC 8259): empty, truncated, trailing bytes, a
 *               byte order mark, invalid UTF-8
 *             - an object with two members of one name: servers differ in which counts.
 *               Also inside an excluded subtree
 *             - a lone surrogate escape: it has no UTF-8, and servers differ in how they
 *               treat it
 *             - more than the limits in json.h
 *
 * Invariants: JSON-1 two texts that a server could treat differently never get the same form.
 *             JSON-2 the form of a form is itself.
 *             JSON-3 time is O(n log n) in the text, for every text: no hash tables, a
 *                merge sort, and each pointer test is a binary search.
 *             JSON-4 memory is bounded by the text: 4 n for yajl, 2 n for strings, 56 bytes per
 *                value, and the output.
 *
 * Why not yajl alone: it accepts \v and \f as white space, accepts overlong and surrogate
 * UTF-8, turns "\ud800" into "?", and crashes when an allocation fails. strict.h
 * refuses the first three before yajl sees them; events.h gives it memory that cannot
 * run out.
 *
 * Callers:    fingerprint.c. Pure.
 * Not here:   reading values; comparing numbers; Unicode normalisation (two
 *             forms are two strings).
 */
#include "core/json/json.h"

#include "core/err.h"
#include "core/json/events.h"
#include "core/json/flat.h"
#include "core/json/pointer.h"
#include "core/json/strict.h"
#include "core/span.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- 1. the tree */

#define NONE UINT32_MAX

static_assert(ONCE_JSON_LEN_MAX < UINT32_MAX, "offsets into the text are 32 bits");
static_assert(ONCE_JSON_VALUE_COUNT_MAX < NONE, "indexes of nodes are 32 bits");

/* A value and, in an object, its name. Bytes are in `strings`. */
struct node {
    uint8_t kind; /* enum once_json_event, of a value */
    bool excluded;
    bool named;
    uint32_t name_at, name_len;
    uint32_t at, len; /* STRING, unescaped; NUMBER */
    uint32_t first;   /* ARRAY, OBJECT: its first child, or NONE */
    uint32_t next;    /* its sibling in the order of the output, or NONE */
};

/* A container that has not ended yet. */
struct level {
    uint32_t node;
    uint32_t last; /* its last child so far, or NONE */
    uint32_t count;
    uint32_t name_at, name_len; /* OBJECT: of the member that comes next */
    struct once_json_scope scope;
};

struct tree {
    struct node *nodes;
    size_t count, cap;
    struct once_buf strings; /* never longer than the text */
    struct level levels[ONCE_JSON_DEPTH_MAX];
    size_t depth;
    once_span pointers[ONCE_JSON_EXCLUDE_COUNT_MAX];
    size_t pointer_count;
    once_result result; /* ONCE_OK: if the parser was stopped, the text has no canonical form */
};

static once_span string_at(const struct tree *tree, uint32_t at, uint32_t len)
{
    return (once_span){ len > 0 ? tree->strings.ptr + at : NULL, len };
}

/* Copies the bytes; false: out of memory. */
static bool keep_bytes(struct tree *tree, once_span bytes, uint32_t *at, uint32_t *len)
{
    *at = (uint32_t)tree->strings.len;
    *len = (uint32_t)bytes.len;
    once_buf_add(&tree->strings, bytes);
    assert(tree->strings.result != ONCE_LIMIT); /* an unescaped text is never longer */
    if (tree->strings.result != ONCE_OK)
        tree->result = ONCE_NO_MEMORY;
    return tree->result == ONCE_OK;
}

/* Makes room for one more node; false: the limit is reached, or memory ran out. */
static bool grow_nodes(struct tree *tree)
{
    if (tree->count < tree->cap)
        return true;
    if (tree->count == ONCE_JSON_VALUE_COUNT_MAX)
        return false;
    size_t cap = tree->cap == 0 ? 64 : tree->cap * 2;
    if (cap > ONCE_JSON_VALUE_COUNT_MAX)
        cap = ONCE_JSON_VALUE_COUNT_MAX;
    struct node *nodes = realloc(tree->nodes, cap * sizeof *nodes);
    if (nodes == NULL) {
        tree->result = ONCE_NO_MEMORY;
        return false;
    }
    tree->nodes = nodes;
    tree->cap = cap;
    return true;
}

/* Appends the node to its siblings, with its name; marks it if it is excluded. *inner is
 * the scope for its children. */
static void link_node(struct tree *tree, uint32_t index, struct once_json_scope *inner)
{
    struct level *parent = &tree->levels[tree->depth - 1];
    struct node *node = &tree->nodes[index];
    char number[12];
    once_span name;
    if (tree->nodes[parent->node].kind == ONCE_JSON_OBJECT) {
        node->named = true;
        node->name_at = parent->name_at;
        node->name_len = parent->name_len;
        name = string_at(tree, node->name_at, node->name_len);
    } else {
        name = once_span_of(number, (size_t)snprintf(number, sizeof number, "%u", parent->count));
    }
    node->excluded = once_json_is_excluded(tree->pointers, parent->scope, name, inner);
    if (parent->last == NONE)
        tree->nodes[parent->node].first = index;
    else
        tree->nodes[parent->last].next = index;
    parent->last = index;
    parent->count++;
}

static bool add_value(struct tree *tree, enum once_json_event kind, once_span bytes)
{
    if (!grow_nodes(tree))
        return false;
    uint32_t index = (uint32_t)tree->count;
    struct node *node = &tree->nodes[index];
    *node = (struct node){ .kind = (uint8_t)kind, .first = NONE, .next = NONE };
    if (!keep_bytes(tree, bytes, &node->at, &node->len))
        return false;
    tree->count++;
    struct once_json_scope inner = { 0, tree->pointer_count, 1 };
    if (tree->depth > 0)
        link_node(tree, index, &inner);
    if (kind == ONCE_JSON_ARRAY || kind == ONCE_JSON_OBJECT) {
        if (tree->depth == ONCE_JSON_DEPTH_MAX)
            return false;
        tree->levels[tree->depth++] = (struct level){ .node = index, .last = NONE, .scope = inner };
    }
    return true;
}

/* ---------------------------------------------------------------- 2. members in order */

static int name_order(const struct tree *tree, uint32_t a, uint32_t b)
{
    const struct node *x = &tree->nodes[a], *y = &tree->nodes[b];
    return once_span_order(string_at(tree, x->name_at, x->name_len), string_at(tree, y->name_at, y->name_len));
}

/* Merges neighbouring runs of run_len nodes; returns the new head. *merges: how many
 * pairs there were, 1 when the list is sorted. */
static uint32_t merge_runs(struct tree *tree, uint32_t head, size_t run_len, size_t *merges)
{
    uint32_t sorted = NONE, *link = &sorted, right = head;
    *merges = 0;
    while (right != NONE) {
        uint32_t left = right;
        size_t left_count = 0, right_count = run_len;
        for (; left_count < run_len && right != NONE; left_count++)
            right = tree->nodes[right].next;
        while (left_count > 0 || (right_count > 0 && right != NONE)) {
            bool has_right = right_count > 0 && right != NONE;
            bool take_right = left_count == 0 || (has_right && name_order(tree, right, left) < 0);
            uint32_t *from = take_right ? &right : &left;
            size_t *from_count = take_right ? &right_count : &left_count;
            uint32_t taken = *from;
            *from = tree->nodes[taken].next;
            (*from_count)--;
            *link = taken;
            link = &tree->nodes[taken].next;
        }
        ++*merges;
    }
    *link = NONE;
    return sorted;
}

/* Bottom-up merge sort through the links: n log n for every input, no memory, no
 * recursion; qsort() guarantees none of these. False: two members have one name. */
static bool sort_members(struct tree *tree, struct node *object)
{
    size_t merges = 2;
    for (size_t run_len = 1; merges > 1; run_len *= 2)
        object->first = merge_runs(tree, object->first, run_len, &merges);
    for (uint32_t at = object->first; at != NONE && tree->nodes[at].next != NONE; at = tree->nodes[at].next)
        if (name_order(tree, at, tree->nodes[at].next) == 0)
            return false;
    return true;
}

/* ---------------------------------------------------------------- the parser's events */

/* False: the text has no canonical form, or memory ran out. */
static bool on_event(void *arg, enum once_json_event event, once_span bytes)
{
    struct tree *tree = arg;
    struct level *level = tree->depth > 0 ? &tree->levels[tree->depth - 1] : NULL;
    switch (event) {
    case ONCE_JSON_NAME:
        assert(level != NULL);
        return keep_bytes(tree, bytes, &level->name_at, &level->name_len);
    case ONCE_JSON_END:
        assert(level != NULL);
        tree->depth--;
        return tree->nodes[level->node].kind == ONCE_JSON_ARRAY || sort_members(tree, &tree->nodes[level->node]);
    default:
        return add_value(tree, event, bytes);
    }
}

/* Fills the tree; *accepted tells whether the text has a canonical form. */
static once_result parse(once_span text, struct tree *tree, bool *accepted)
{
    once_result r = once_json_parse(text, on_event, tree, NULL);
    *accepted = r == ONCE_OK;
    assert(!*accepted || (tree->result == ONCE_OK && tree->depth == 0 && tree->count > 0));
    return r == ONCE_NO_MEMORY ? r : tree->result;
}

/* ---------------------------------------------------------------- 3. the output */

static void write_string(struct once_buf *out, once_span text)
{
    static const char hex[] = "0123456789abcdef";
    once_buf_add_byte(out, '"');
    size_t begin = 0; /* of the bytes that need no escape */
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        once_buf_add(out, once_span_of(text.ptr + begin, i - begin));
        begin = i + 1;
        if (c >= 0x20)
            once_buf_add(out, once_span_of((const uint8_t[]){ '\\', c }, 2));
        else
            once_buf_add(
                out,
                once_span_of((const uint8_t[]){ '\\', 'u', '0', '0', (uint8_t)hex[c >> 4], (uint8_t)hex[c & 0xf] }, 6));
    }
    if (text.len > begin)
        once_buf_add(out, once_span_of(text.ptr + begin, text.len - begin));
    once_buf_add_byte(out, '"');
}

/* The node's name and value; of a container, its opening bracket. */
static void write_begin(struct once_buf *out, const struct tree *tree, const struct node *node)
{
    static const once_span words[] = {
        [ONCE_JSON_NULL] = ONCE_LIT("null"), [ONCE_JSON_TRUE] = ONCE_LIT("true"), [ONCE_JSON_FALSE] = ONCE_LIT("false"),
        [ONCE_JSON_ARRAY] = ONCE_LIT("["),   [ONCE_JSON_OBJECT] = ONCE_LIT("{"),
    };
    if (node->named) {
        write_string(out, string_at(tree, node->name_at, node->name_len));
        once_buf_add_byte(out, ':');
    }
    if (node->kind == ONCE_JSON_STRING)
        write_string(out, string_at(tree, node->at, node->len));
    else if (node->kind == ONCE_JSON_NUMBER)
        once_buf_add(out, string_at(tree, node->at, node->len));
    else
        once_buf_add(out, words[node->kind]);
}

static void write_end(struct once_buf *out, const struct node *node)
{
    if (node->kind == ONCE_JSON_ARRAY || node->kind == ONCE_JSON_OBJECT)
        once_buf_add_byte(out, node->kind == ONCE_JSON_ARRAY ? ']' : '}');
}

/* `index`, or the first sibling after it that is not excluded, or NONE. */
static uint32_t skip_excluded(const struct tree *tree, uint32_t index)
{
    while (index != NONE && tree->nodes[index].excluded)
        index = tree->nodes[index].next;
    return index;
}

/* Walks the tree depth first: down to the first child, else to the next sibling, else up. */
static void write_tree(struct once_buf *out, const struct tree *tree)
{
    uint32_t above[ONCE_JSON_DEPTH_MAX];
    size_t depth = 0;
    uint32_t index = 0; /* the root was added first */
    for (;;) {
        const struct node *node = &tree->nodes[index];
        write_begin(out, tree, node);
        uint32_t next = skip_excluded(tree, node->first);
        if (next != NONE) {
            assert(depth < ONCE_JSON_DEPTH_MAX);
            above[depth++] = index;
            index = next;
            continue;
        }
        write_end(out, node);
        while ((next = skip_excluded(tree, tree->nodes[index].next)) == NONE) {
            if (depth == 0)
                return;
            index = above[--depth];
            write_end(out, &tree->nodes[index]);
        }
        once_buf_add_byte(out, ',');
        index = next;
    }
}

/* ---------------------------------------------------------------- all together */

static once_result fill(once_span text, struct tree *tree, struct once_buf *out, bool *canonical)
{
    bool accepted = false;
    once_result r = parse(text, tree, &accepted);
    if (r != ONCE_OK || !accepted)
        return r;
    write_tree(out, tree);
    r = out->result;
    if (r == ONCE_OK)
        *canonical = true;
    else
        once_buf_clear(out);
    return r;
}

once_result once_json_canonical(once_span text, const once_span *exclude, size_t exclude_count, struct once_buf *out,
                                bool *canonical, struct once_error *err)
{
    once_buf_clear(out);
    *canonical = exclude_count == 0 && once_json_flat(text, out);
    if (*canonical)
        return ONCE_OK;
    struct tree tree;
    tree.nodes = NULL;
    tree.count = tree.cap = tree.depth = 0;
    tree.result = ONCE_OK;
    tree.pointer_count = exclude_count;
    once_result r = once_json_sort_pointers(exclude, exclude_count, tree.pointers, err);
    if (r != ONCE_OK || text.len > ONCE_JSON_LEN_MAX || !once_json_is_strict(text))
        return r;

    once_buf_init(&tree.strings, text.len);
    r = fill(text, &tree, out, canonical);
    once_buf_release(&tree.strings);
    free(tree.nodes);
    if (r == ONCE_NO_MEMORY)
        return once_fail(err, r, "out of memory for %zu bytes of JSON", text.len);
    if (r == ONCE_LIMIT)
        return once_fail(err, r, "canonical form of %zu bytes of JSON does not fit in %zu", text.len, out->max);
    return r;
}
