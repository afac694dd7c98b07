-- Once on PostgreSQL (13 or newer, no extension): schema, roles, tables.
--
-- A record is the chain of its claims. A claim is inserted when it is granted and closed by inserting
-- its result, each at most once: unique indexes decide every race (K1, K3, K5), in READ COMMITTED, without
-- locks on the hot path. A finish inserts the claim's result; a takeover has to insert one, too
-- ('superseded'), before the next claim. A life of a record begins with a claim whose created_at is NULL:
-- the first, or the first after the record expired or was released. All claims of a life are in one slot.
--
-- Claims and results are in a ring of tables (partitions by slot). All new lives begin in the current slot,
-- so its unique index decides between claims of a new key; older slots are searched first. TRUNCATE empties
-- an old slot (40_expiry.sql): expiry deletes no rows. Slot 0 keeps the records that outlive the ring.

CREATE SCHEMA once;
COMMENT ON SCHEMA once IS 'Once: retry safety. Use the functions; docs/sql.md describes them';

-- Roles belong to the cluster: another database may have made them, or be making them now (then CREATE ROLE waits,
-- and fails with duplicate_object).
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['once_app', 'once_ops'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', name);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
    IF NOT pg_has_role('once_ops', 'once_app', 'MEMBER') THEN
        GRANT once_app TO once_ops;
    END IF;
END $$;
REVOKE ALL ON SCHEMA once FROM PUBLIC;
GRANT USAGE ON SCHEMA once TO once_app;

-- The migrations applied to this database. The store's version is the number of the last one.
CREATE TABLE once.migration (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    checksum   text NOT NULL,           -- of its text: an applied migration is never edited
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- The store's id and secret. The pads are the secret as HMAC uses it.
CREATE TABLE once.store (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    store_id   uuid NOT NULL,
    secret     bytea NOT NULL CHECK (length(secret) = 32),
    inner_pad  bytea NOT NULL CHECK (length(inner_pad) = 64),
    outer_pad  bytea NOT NULL CHECK (length(outer_pad) = 64),
    test_clock boolean NOT NULL DEFAULT false   -- honour the setting once.now_ms
);

-- The ring: which slot takes new lives, since when, for how long.
CREATE TABLE once.ring (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    current   smallint NOT NULL,
    opened_at bigint NOT NULL,
    period_ms bigint NOT NULL CHECK (period_ms > 0),
    slots     smallint NOT NULL CHECK (slots BETWEEN 3 AND 6),
    closed    smallint[] NOT NULL DEFAULT '{}',             -- copied from once.slot, so that one row has it all
    since     bigint[] NOT NULL DEFAULT '{0,0,0,0,0,0}'     -- copied likewise, for slots 1 to 6
);

-- Slot 0 is closed as soon as it has rows. A search for a record reads the current slot and the closed ones.
CREATE TABLE once.slot (
    slot      smallint PRIMARY KEY,
    closed_at bigint,                   -- NULL: empty, or current
    since     bigint NOT NULL DEFAULT 0, -- all claims made here since it was last emptied have larger fences
    swept_to  uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000', -- slot 0: expiry has scanned the records
                                                                            -- up to this one
    blocks    bigint NOT NULL DEFAULT 0, -- the others: expiry has scanned so many blocks of its claims
    file      text NOT NULL DEFAULT '',  -- and of this file (once.file_of): in a rewritten table the rows are in
                                         -- other blocks
    swept     bigint NOT NULL DEFAULT 0, -- how many expired lives the scan has found
    swept_at  bigint NOT NULL DEFAULT 0, -- when the scan read the last block
    look_from bigint NOT NULL DEFAULT 0  -- when once.sweep_early may scan it again
);

-- Records of the slot being emptied that expiry has to look at once more.
CREATE TABLE once.leftover (
    record uuid PRIMARY KEY,
    fresh  boolean NOT NULL DEFAULT false   -- forgotten since the scan (38_forget.sql): perhaps many, and most can be
                                            -- moved before the slot is locked
);
CREATE INDEX leftover_fresh ON once.leftover (record) WHERE fresh;

-- One sequence for the whole store, without a cache: a later grant has a larger fence (K2).
-- A fence is its value plus the slot that the claim was made in, so that a finish reads one slot only.
CREATE SEQUENCE once.fence AS bigint INCREMENT BY PG_FENCE_STEP MINVALUE PG_FENCE_STEP CACHE 1;

CREATE TABLE once.claim (
    record       uuid NOT NULL,          -- HMAC of tenant and key
    nonce        uuid NOT NULL,          -- names the call: repeated with the same nonce, it gets the same grant
    fence        bigint NOT NULL,
    claimed_at   bigint NOT NULL,        -- milliseconds, the database's clock
    claim_no         integer NOT NULL,       -- counts the record's claims in this slot
    slot         smallint NOT NULL,
    takeover     smallint NOT NULL,      -- enum once_takeover (PG_TAKEOVER_MASK) + PG_FLAG_... + the number of the
                                         -- route
                                         -- (once.route; 0: none) times PG_ROUTE_UNIT: src/store/format.h
    attempt      integer,                -- NULL: 1
    created_at   bigint,                 -- time of the life's first claim; NULL: this is the first
    lease_ms     integer,                -- NULL: 60 s
    retention_ms bigint,                 -- NULL: 24 h; -1: never expires
    body_retention_ms bigint,            -- of the result's headers and body; NULL: as long as the record
    fingerprint  bytea NOT NULL,         -- 32 bytes
    tenant       bytea NOT NULL,         -- up to 255 bytes
    key          bytea,                  -- up to 255 bytes; NULL: key texts are not kept
    PRIMARY KEY (record, claim_no, slot)
) PARTITION BY LIST (slot);

-- Routes: names for people that say what a claim is about, stored as small numbers. A name keeps its number for ever.
-- ONCE_ROUTE_OTHER stands for all names that came when there was no number left.
CREATE TABLE once.route (
    id   smallint PRIMARY KEY CHECK (id BETWEEN 1 AND ONCE_ROUTE_COUNT_MAX),
    name text NOT NULL UNIQUE CHECK (name ~ '^[!-~]{1,ONCE_ROUTE_LEN_MAX}$')
);

CREATE TABLE once.result (
    fence       bigint NOT NULL,         -- of the claim that it closes
    finished_at bigint NOT NULL,
    status      integer NOT NULL,
    slot        smallint NOT NULL,
    state       smallint NOT NULL,       -- enum once_state or ONCE_STORED_... (PG_STATE_MASK) + PG_RETRYABLE +
                                         -- PG_BODY_DROPPED + PG_UNDELIVERED: src/store/format.h
    headers     bytea,
    body        bytea
) PARTITION BY LIST (slot);              -- each slot has its own unique index (fence): a primary key would have to
                                         -- include the slot

-- Only for grants whose lease was renewed, or that passed a recovery point.
CREATE TABLE once.progress (
    fence       bigint NOT NULL,
    slot        smallint NOT NULL,
    lease_until bigint NOT NULL,
    point       text,
    points      text[],                  -- all points passed, in order
    calls       uuid[],                  -- the call that passed each
    checkpoint  bytea,
    PRIMARY KEY (fence, slot)
) PARTITION BY LIST (slot);

CREATE TABLE once.audit (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     bigint NOT NULL,
    record uuid NOT NULL,
    fence  bigint NOT NULL,
    what   text NOT NULL,
    actor  bytea NOT NULL CHECK (length(actor) <= ONCE_ACTOR_LEN_MAX),
    reason bytea NOT NULL CHECK (length(reason) BETWEEN 1 AND ONCE_REASON_LEN_MAX)
);
CREATE INDEX audit_record ON once.audit (record);

-- The tables of slot 0 and of the ring. Rows are appended in the order of fences, so a few block ranges of a BRIN index
-- find the claims around a fence.
DO $$
DECLARE
    n int;
BEGIN
    FOR n IN 0..6 LOOP
        EXECUTE format('CREATE TABLE once.claim_%s PARTITION OF once.claim FOR VALUES IN (%s)', n, n);
        EXECUTE format('CREATE TABLE once.result_%s PARTITION OF once.result FOR VALUES IN (%s)', n, n);
        EXECUTE format('CREATE TABLE once.progress_%s PARTITION OF once.progress FOR VALUES IN (%s)', n, n);
        EXECUTE format('CREATE UNIQUE INDEX result_%s_fence ON once.result_%s (fence)', n, n);
        EXECUTE format('ALTER TABLE once.result_%s REPLICA IDENTITY USING INDEX result_%s_fence', n, n);
        EXECUTE format('CREATE INDEX result_%s_unknown ON once.result_%s (fence) WHERE state & PG_STATE_MASK = ONCE_STATE_UNKNOWN', n, n);
        EXECUTE format('CREATE INDEX claim_%s_fence ON once.claim_%s USING brin (fence) WITH (pages_per_range = 16)',
                       n, n);
        INSERT INTO once.slot (slot) VALUES (n);
    END LOOP;
END $$;
