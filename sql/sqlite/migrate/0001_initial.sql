-- The embedded store. Never edited once released: later changes are later files.
--
-- The protocol needs three tables: a claim per grant, at most one result per claim, and its progress (only if its
-- lease was
-- renewed or it passed a recovery point). The fence
-- is the claim's row id, from one sequence for the whole store, so it grows across
-- expiry and re-creation (K2) and appends at the end of each table: no random pages.
-- A record is the chain of its claims; the newest is found through the key index.

-- Values of the store: 'schema' (integer), 'store_id' (16 bytes), 'secret' (32 bytes) and its 'secret_sum', 'seal:ID'
-- (the
-- keys that it was sealed with). Tables whose damage could stay unnoticed have checksums (XXH64).
CREATE TABLE once_meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- The store's clock, one row per boot of the machine (docs/internals/clock.md):
-- now = wall_ms + (steady clock - steady_ms), so a step of the wall clock changes nothing.
CREATE TABLE once_boot (
    seq       INTEGER PRIMARY KEY,
    boot_id   BLOB NOT NULL UNIQUE CHECK (length(boot_id) = 16),
    wall_ms   INTEGER NOT NULL,
    steady_ms INTEGER NOT NULL,
    sum       INTEGER NOT NULL
) STRICT;

CREATE TABLE once_claim (
    fence               INTEGER PRIMARY KEY CHECK (fence > 0),
    record              BLOB NOT NULL CHECK (length(record) = 16),
    prev                INTEGER NOT NULL,  -- fence of the attempt before; 0: the first of this life of the key
    attempt             INTEGER NOT NULL CHECK (attempt > 0),
    flags               INTEGER NOT NULL,  -- SQLITE_FLAG_..., and its route (once_route, or ONCE_ROUTE_OTHER) from
                                           -- SQLITE_ROUTE_SHIFT on: src/store/format.h
    takeover            INTEGER NOT NULL CHECK (takeover BETWEEN ONCE_TAKEOVER_ESCALATE AND ONCE_TAKEOVER_COMPLETER),
    created_at          INTEGER,           -- of the first attempt; NULL: claimed_at
    claimed_at          INTEGER NOT NULL,
    lease_ms            INTEGER NOT NULL,
    boot                INTEGER NOT NULL,  -- once_boot.seq: a lease does not outlive its boot
    retention_ms        INTEGER NOT NULL,  -- -1: never expires
    body_retention_ms   INTEGER NOT NULL,  -- of the outcome's headers and body; 0: as long as the record
    fingerprint_version INTEGER NOT NULL,
    fingerprint         BLOB NOT NULL CHECK (length(fingerprint) = 32),
    nonce               BLOB NOT NULL CHECK (length(nonce) = 16),
    tenant              BLOB NOT NULL CHECK (length(tenant) <= ONCE_TENANT_LEN_MAX),
    key                 BLOB CHECK (length(key) BETWEEN 1 AND ONCE_KEY_LEN_MAX),  -- NULL: key texts are not kept
    sum                 INTEGER NOT NULL   -- XXH64 of all of the above
) STRICT;

-- Routes: names for people that say what a claim is about, as small numbers. A name keeps its number for ever.
CREATE TABLE once_route (
    id   INTEGER PRIMARY KEY CHECK (id BETWEEN 1 AND ONCE_ROUTE_COUNT_MAX),
    name BLOB NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND ONCE_ROUTE_LEN_MAX)
) STRICT;

CREATE TABLE once_progress (
    fence       INTEGER PRIMARY KEY,
    lease_until INTEGER NOT NULL,
    boot        INTEGER NOT NULL,
    point       BLOB,                      -- the recovery point; NULL: none
    points      BLOB,                      -- all passed, a line each: name, space, call
    checkpoint  BLOB,
    sum         INTEGER NOT NULL
) STRICT;

-- Requests of unfinished records, for a completer that may have to send them again. Of the newest attempts only.
CREATE TABLE once_request (
    fence   INTEGER PRIMARY KEY,
    request BLOB NOT NULL,
    sum     INTEGER NOT NULL
) STRICT;

CREATE TABLE once_result (
    fence       INTEGER PRIMARY KEY,
    state       INTEGER NOT NULL CHECK (state BETWEEN ONCE_STATE_SUCCEEDED AND ONCE_STORED_SUPERSEDED),  -- enum
                                                                                                         -- once_state,
                                                                                                         -- or
                                                                                                         -- ONCE_STORED_...
    flags       INTEGER NOT NULL           -- SQLITE_RESULT_...; what is undelivered is retryable
                CHECK (flags IN (0, SQLITE_RESULT_RETRYABLE, SQLITE_RESULT_RETRYABLE | SQLITE_RESULT_UNDELIVERED)),
    status      INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    expires_at  INTEGER,                   -- NULL: never, or a later attempt took over
    body_until  INTEGER,                   -- when headers and body are dropped; NULL: with the record, or already
                                           -- dropped
    outcome     BLOB NOT NULL              -- src/core/outcome.h
) STRICT;

-- To find the results that expire next. Rows are appended at its end as long as there are few different retentions.
CREATE INDEX once_due ON once_result (expires_at) WHERE expires_at IS NOT NULL;
-- To find the headers and bodies that expire next, if they expire before their record.
CREATE INDEX once_body_due ON once_result (body_until) WHERE body_until IS NOT NULL;
-- To list unknown records without a scan.
CREATE INDEX once_unknown ON once_result (fence) WHERE state = ONCE_STATE_UNKNOWN;

-- The key index (src/store/sqlite/index.c): segments cover fences up to closed_to, the
-- tail those up to tail_to; later claims, of a process with the index in RAM, are read from once_claim.
CREATE TABLE once_index (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    closed_to   INTEGER NOT NULL,
    tail_to     INTEGER NOT NULL CHECK (tail_to >= closed_to),
    fence_floor INTEGER NOT NULL           -- no fence up to this one may be given again
) STRICT;
INSERT INTO once_index VALUES (1, 0, 0, 0);

CREATE TABLE once_tail (
    record BLOB NOT NULL PRIMARY KEY,
    fence  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE once_segment (
    first INTEGER PRIMARY KEY,             -- covers the fences first..last
    last  INTEGER NOT NULL,
    count INTEGER NOT NULL,
    dead  INTEGER NOT NULL                 -- entries whose claims were deleted
) STRICT;
CREATE TABLE once_segment_data (
    id      INTEGER PRIMARY KEY,           -- first * 256 + the records' first byte
    entries BLOB NOT NULL                  -- 20 bytes each, sorted: record, fence - first; then XXH64
) STRICT;

-- The last step of each writer, in a slot that it chooses: after a commit whose answer was lost, this tells whether it
-- took effect (K10). `at` is the latest time that the store has seen.
CREATE TABLE once_batch (
    slot   INTEGER PRIMARY KEY CHECK (slot BETWEEN 0 AND 63),
    writer BLOB NOT NULL,
    number INTEGER NOT NULL,
    at     INTEGER NOT NULL
) STRICT;

CREATE TABLE once_audit (
    id     INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    record BLOB NOT NULL,
    fence  INTEGER NOT NULL,               -- of the verdict
    what   TEXT NOT NULL,
    actor  BLOB NOT NULL,
    reason BLOB NOT NULL
) STRICT;
CREATE INDEX once_audit_record ON once_audit (record);

-- The outbox: a message is a row until its sink confirmed it (K12). Commits come one after the other
-- here, so seq is their order. One relay at a time takes messages.
CREATE TABLE once_outbox (
    seq          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL,              -- sent with every publish, always the same
    topic        TEXT NOT NULL,
    message_key  BLOB,                       -- NULL: no order
    content_type TEXT NOT NULL,
    headers      BLOB NOT NULL,              -- lines "name: value", each ended by CR LF
    payload      BLOB NOT NULL,
    created_at   INTEGER NOT NULL,
    due          INTEGER NOT NULL,           -- not tried before this time
    scheduled        INTEGER NOT NULL DEFAULT 0, -- enters the order when it is due
    flight       INTEGER,                    -- fence of the relay that has it in flight
    suspect      INTEGER NOT NULL DEFAULT 0, -- it was in flight when a relay crashed: to be tried alone
    refusals     INTEGER NOT NULL DEFAULT 0,
    delays       INTEGER NOT NULL DEFAULT 0, -- its sink was not reached
    crashes      INTEGER NOT NULL DEFAULT 0, -- of relays that had only this message in flight
    reason       TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX once_outbox_key ON once_outbox (message_key, seq) WHERE message_key IS NOT NULL;
CREATE INDEX once_outbox_flight ON once_outbox (flight) WHERE flight IS NOT NULL;
CREATE INDEX once_outbox_scheduled ON once_outbox (due) WHERE scheduled = 1;

CREATE TABLE once_outbox_relay (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    relay       BLOB NOT NULL,
    fence       INTEGER NOT NULL,
    lease_until INTEGER NOT NULL
) STRICT;
INSERT INTO once_outbox_relay (one, relay, fence, lease_until) VALUES (1, x'', 0, 0);

CREATE TABLE once_outbox_dead (
    id           TEXT PRIMARY KEY,
    seq          INTEGER NOT NULL,
    topic        TEXT NOT NULL,
    message_key  BLOB,
    content_type TEXT NOT NULL,
    headers      BLOB NOT NULL,
    payload      BLOB NOT NULL,
    created_at   INTEGER NOT NULL,
    died_at      INTEGER NOT NULL,
    refusals     INTEGER NOT NULL,
    crashes      INTEGER NOT NULL,
    reason       TEXT NOT NULL
) STRICT;

-- Messages that a consumer has processed (K13), in the transaction of the effect.
CREATE TABLE once_consumer (
    name         BLOB PRIMARY KEY,
    retention_ms INTEGER,                    -- NULL: entries are kept for ever
    redelivery_window_ms   INTEGER                     -- how long the broker may deliver a message again; NULL: not known
) STRICT, WITHOUT ROWID;

CREATE TABLE once_inbox (
    consumer   BLOB NOT NULL,
    message_id BLOB NOT NULL,
    taken_at   INTEGER NOT NULL,
    PRIMARY KEY (consumer, message_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX once_inbox_age ON once_inbox (consumer, taken_at);

-- Messages that `once consume` could not deliver.
CREATE TABLE once_inbox_dead (
    id           TEXT PRIMARY KEY,           -- a UUID derived from consumer, message id and payload: storing a letter twice keeps one
    consumer     BLOB NOT NULL,
    message_id   BLOB NOT NULL,
    source       BLOB NOT NULL,              -- its position at the broker, for people
    topic        BLOB NOT NULL,
    message_key  BLOB NOT NULL,              -- empty: none
    content_type BLOB NOT NULL,
    headers      BLOB NOT NULL,
    payload      BLOB NOT NULL,
    died_at      INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    retry        INTEGER NOT NULL DEFAULT 0, -- an operator wants it delivered
    reason       BLOB NOT NULL
) STRICT;
CREATE INDEX once_inbox_dead_at ON once_inbox_dead (consumer, died_at);
