/*
 * statement.h - the statements of batches. They are prepared on a direct connection; through a pooler they are sent as
 * text.
 */
#ifndef ONCE_STORE_POSTGRES_STATEMENT_H
#define ONCE_STORE_POSTGRES_STATEMENT_H

enum pg_statement {
    PG_STATEMENT_BEGIN,
    PG_STATEMENT_CLAIMS,
    PG_STATEMENT_FINISHES,
    PG_STATEMENT_FAST_BATCH,
    PG_STATEMENT_REPLAYS,
    PG_STATEMENT_COMMIT,
    PG_STATEMENTS
};

struct pg_statement_text {
    const char *name, *sql;
};

extern const struct pg_statement_text pg_statement_texts[PG_STATEMENTS];

#endif
