/*
 * reconcile.h - one run of `once reconcile`: what was asked for, and what is under way.
 *
 * reconcile.c reads the options and calls, in this order: reconcile/export.c (an export, all
 * of it), reconcile/compare.c (the records, page by page, against it; or asks about each,
 * through reconcile/exec.c or reconcile/url.c), reconcile/report.c (looks at every difference
 * once more, resolves, prints). What is kept between is in reconcile/join.c, on disk. What
 * words mean is in reconcile/terms.c, what they amount to in reconcile/judge.c.
 *
 * The export is read before the records: a record is older than its charge, so every charge
 * in the export had its record by then.
 */
#ifndef ONCE_RECONCILE_RECONCILE_H
#define ONCE_RECONCILE_RECONCILE_H

#include "os/signals.h"
#include "program/cli.h"
#include "reconcile/join.h"
#include "reconcile/terms.h"

/* Bounds, with their reasons. */
enum {
    RECONCILE_JOBS_DEFAULT = 4, /* somebody else's server: gently */
    RECONCILE_JOBS_MAX = 64,
    RECONCILE_TIMEOUT_MS_DEFAULT = 30000,
    RECONCILE_TIMEOUT_MS_MAX = 600000,
    RECONCILE_GRACE_MS_DEFAULT = 300000, /* longer than a request may take, and clocks differ */
    RECONCILE_ANSWER_LEN_MAX = 1 << 20,  /* of a command or a URL */
    RECONCILE_HEADER_COUNT_MAX = 32,
    RECONCILE_BAD_LINES_MAX = 20, /* named, then it stops */
    RECONCILE_TEXT_LEN = 300,     /* of a remark on a finding */
};

enum reconcile_format { RECONCILE_BY_NAME, RECONCILE_CSV, RECONCILE_JSONL };

struct reconcile_counts {
    uint64_t lines;                     /* of the export, or answers */
    uint64_t records;                   /* looked at */
    uint64_t of[RECONCILE_KIND_COUNT];  /* by kind */
    uint64_t outside;                   /* charges without a record, outside of --since and --until */
    uint64_t no_key;                    /* charges without a key that were skipped */
    uint64_t known;                     /* keys of ours that the other side knew */
    uint64_t planned, resolved, missed; /* --resolve: would do, did, something was in the way */
};

struct reconcile {
    struct once_cli cli;
    /* the other side */
    const char *from, *command, *url; /* one of them */
    enum reconcile_format format;
    uint8_t separator;
    bool no_header, skip_no_key;
    char *headers[RECONCILE_HEADER_COUNT_MAX];
    size_t header_count;
    uint64_t jobs;
    int64_t timeout_ms;
    struct reconcile_terms terms;
    /* ours */
    once_span call; /* empty: it knows our own keys */
    once_time since, until;
    struct reconcile_rules rules;
    once_time complete_until; /* 0: nobody vouches for it */
    /* what to do */
    bool resolve, apply, dry_run, all;
    int32_t status; /* that further tries get, --status */
    bool status_given;
    once_span reason;
    /* under way */
    struct once *once;
    struct reconcile_join *join;
    struct once_signals signals;
    int interrupted; /* the signal */
    struct reconcile_counts counts;
    bool terminal;      /* show how far we are */
    once_time shown_at; /* monotonic */
    bool shown;         /* something is on the terminal's line */
    bool doubtful;      /* a resolution may have happened, or not */
};

/* The whole run, after the options were read and checked: an exit code. */
int reconcile_run(struct reconcile *r);

/* Each returns 0 or an exit code after a message; also 0 when interrupted. */
int reconcile_export_read(struct reconcile *r);
int reconcile_compare(struct reconcile *r);
int reconcile_report(struct reconcile *r);

/* Did somebody press Ctrl-C? */
bool reconcile_is_interrupted(struct reconcile *r);
/* On a terminal, now and then: how far we are. `doing` NULL: clear it. */
void reconcile_show(struct reconcile *r, const char *doing, uint64_t count);

/* The key that the other side knows: of a record. It may not be copied. */
struct reconcile_match {
    once_span key; /* empty where ours is wanted and not kept as text */
    char child[ONCE_CHILD_KEY_LEN + 1];
};
void reconcile_match(const struct reconcile *r, const struct once_record *record, struct reconcile_match *match);

/* The verdict on a record, values compared as well: that needs its body, if terms.needs_body.
 * `text` says more about NOT_ASKED and VALUE. */
enum reconcile_kind reconcile_judge_all(const struct reconcile *r, const struct once_record *record,
                                        const struct reconcile_charge *charge, char text[RECONCILE_TEXT_LEN]);

/* ---------------------------------------------------------------- asking */

struct reconcile_question {
    struct reconcile_match match;
    const struct once_record *record;
};

/* An answer. `error` is NULL, or says why there is none; `absent`: the other side does not know
 * the key; else it said `text`, at most RECONCILE_ANSWER_LEN_MAX bytes. 0 or an exit code. */
typedef int reconcile_answered_fn(struct reconcile *r, const struct reconcile_question *question, const char *error,
                                  bool absent, once_span text);

/* Ask about each, some at a time; 0 (also when interrupted) or an exit code after a message. */
int reconcile_exec(struct reconcile *r, const struct reconcile_question *questions, size_t count,
                   reconcile_answered_fn *answered);
int reconcile_url(struct reconcile *r, const struct reconcile_question *questions, size_t count,
                  reconcile_answered_fn *answered);
/* Is it a URL that can be asked? NULL, or what is wrong with it. */
const char *reconcile_url_fault(const char *url);

#endif
