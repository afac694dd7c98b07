/*
 * reconcile.h - one run of `once reconcile`: its options and its state.
 *
 * "The other side" is the service that the records are compared with; a charge is its entry for
 * one key. reconcile.c calls, in this order: reconcile/export.c (reads a whole export),
 * reconcile/compare.c (compares the records with it page by page; or asks about each record,
 * through reconcile/exec.c or reconcile/url.c), reconcile/report.c (reads every differing record
 * again, resolves, prints). reconcile/join.c keeps the data between these steps, on disk.
 * reconcile/terms.c interprets the other side's values, reconcile/judge.c decides.
 *
 * The export is read before the records: a record is older than its charge, so every charge in
 * the export has its record by then.
 */
#ifndef ONCE_RECONCILE_RECONCILE_H
#define ONCE_RECONCILE_RECONCILE_H

#include "os/signals.h"
#include "program/cli.h"
#include "reconcile/join.h"
#include "reconcile/terms.h"

/* Bounds, with their reasons. */
enum {
    RECONCILE_JOBS_DEFAULT = 4, /* low, to spare the other side's server */
    RECONCILE_JOBS_MAX = 64,
    RECONCILE_TIMEOUT_MS_DEFAULT = 30000,
    RECONCILE_TIMEOUT_MS_MAX = 600000,
    RECONCILE_GRACE_MS_DEFAULT = 300000, /* for long requests and differing clocks */
    RECONCILE_ANSWER_LEN_MAX = 1 << 20,  /* of the answer of a command or a URL */
    RECONCILE_HEADER_COUNT_MAX = 32,
    RECONCILE_BAD_LINES_MAX = 20, /* reported, then it stops */
    RECONCILE_TEXT_LEN = 300,     /* of the remark on a finding */
};

enum reconcile_format { RECONCILE_BY_NAME, RECONCILE_CSV, RECONCILE_JSONL };

struct reconcile_counts {
    uint64_t lines;                     /* lines of the export, or answers */
    uint64_t records;                   /* compared */
    uint64_t of[RECONCILE_KIND_COUNT];  /* by kind */
    uint64_t outside;                   /* charges without a record, outside of --since and --until */
    uint64_t no_key;                    /* charges without a key that were skipped */
    uint64_t known;                     /* our keys that the other side knew */
    uint64_t planned, resolved, missed; /* --resolve: without --apply, done, refused */
};

struct reconcile {
    struct once_cli cli;
    /* the other side */
    const char *from, *command, *url; /* exactly one is not NULL */
    enum reconcile_format format;
    uint8_t separator;
    bool no_header, skip_no_key;
    char *headers[RECONCILE_HEADER_COUNT_MAX];
    size_t header_count;
    uint64_t jobs;
    int64_t timeout_ms;
    struct reconcile_terms terms;
    /* ours */
    once_span call; /* empty: the charges have our own keys */
    once_time since, until;
    struct reconcile_rules rules;
    once_time complete_until; /* 0: not given */
    /* what to do */
    bool resolve, apply, dry_run, all;
    int32_t status; /* that retries get, --status */
    bool status_given;
    once_span reason;
    /* state of the run */
    struct once *once;
    struct reconcile_join *join;
    struct once_signals signals;
    int interrupted; /* by this signal; 0: no */
    struct reconcile_counts counts;
    bool terminal;      /* show the progress */
    once_time shown_at; /* monotonic */
    bool shown;         /* the progress line is visible */
    bool doubtful;      /* the answer to a resolve was lost */
};

/* Runs it, after the options were checked; returns an exit code. */
int reconcile_run(struct reconcile *r);

/* Each returns 0 or an exit code after a message; also 0 when interrupted. */
int reconcile_export_read(struct reconcile *r);
int reconcile_compare(struct reconcile *r);
int reconcile_report(struct reconcile *r);

/* True after a signal such as Ctrl-C. */
bool reconcile_is_interrupted(struct reconcile *r);
/* Shows the progress on a terminal, a few times a second. `doing` NULL: clears it. */
void reconcile_show(struct reconcile *r, const char *doing, uint64_t count);

/* The other side's key of a record. Must not be copied: `key` may point to `child`. */
struct reconcile_match {
    once_span key; /* empty: our own key is needed, but the store does not keep it */
    char child[ONCE_CHILD_KEY_LEN + 1];
};
void reconcile_match(const struct reconcile *r, const struct once_record *record, struct reconcile_match *match);

/* The verdict on a record, including its values, which need its body if terms.needs_body.
 * `text` explains NOT_ASKED and VALUE. */
enum reconcile_kind reconcile_judge_all(const struct reconcile *r, const struct once_record *record,
                                        const struct reconcile_charge *charge, char text[RECONCILE_TEXT_LEN]);

/* ---------------------------------------------------------------- asking */

struct reconcile_question {
    struct reconcile_match match;
    const struct once_record *record;
};

/* Takes an answer. `error`: NULL, or why there is no answer; `absent`: the other side does not know
 * the key; else `text` is the answer, at most RECONCILE_ANSWER_LEN_MAX bytes. 0 or an exit code. */
typedef int reconcile_answered_fn(struct reconcile *r, const struct reconcile_question *question, const char *error,
                                  bool absent, once_span text);

/* Ask about each, several at a time; 0 (also when interrupted) or an exit code after a message. */
int reconcile_exec(struct reconcile *r, const struct reconcile_question *questions, size_t count,
                   reconcile_answered_fn *answered);
int reconcile_url(struct reconcile *r, const struct reconcile_question *questions, size_t count,
                  reconcile_answered_fn *answered);
/* The error in a --url, or NULL. */
const char *reconcile_url_fault(const char *url);

#endif
