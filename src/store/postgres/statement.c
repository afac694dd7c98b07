/* statement.c - see postgres/statement.h. */
#include "store/postgres/statement.h"

const struct pg_statement_text pg_statement_texts[PG_STATEMENTS] = {
    [PG_STATEMENT_BEGIN] = { "once_begin", "BEGIN ISOLATION LEVEL READ COMMITTED" },
    [PG_STATEMENT_CLAIMS] = { "once_claims",
                              "SELECT m.n, m.at, m.granted, m.fences, (m.answer).* "
                              "FROM once.claim_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11 = 1) m" },
    [PG_STATEMENT_FINISHES] = { "once_finishes", "SELECT m.n, m.at, m.done, m.odd, m.times, m.retentions, (m.answer).* "
                                                 "FROM once.finish_many($1, $2, $3, $4, $5, $6, $7 = 1) m" },
    [PG_STATEMENT_FAST_BATCH] = { "once_fast_batch",
                                  "SELECT at, fences FROM once.fast_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, "
                                  "$11, $12, $13, $14)" },
    [PG_STATEMENT_REPLAYS] = { "once_replays", "SELECT * FROM once.fast_replays($1, $2)" },
    [PG_STATEMENT_COMMIT] = { "once_commit", "COMMIT" },
};
