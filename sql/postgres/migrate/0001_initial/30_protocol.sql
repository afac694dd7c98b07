-- The protocol (docs/design.md section 4): claim, extend, advance, finish, release, look up, resolve.
--
-- Each function first locks the ring, then reads the record's newest claim. A change that must not run beside another
-- one of the same record locks that claim's row and reads again in a new statement. A claim of a new key and a plain
-- finish take no row lock: a unique index decides them.

-- A record as stored, or an answer about it.
CREATE TYPE once.answer AS (
    arm            text,     -- execute, probe, replay, mismatch, in progress, unknown, expired, done, fenced, found,
                             -- absent
    record         uuid,
    fence          bigint,
    attempt        integer,
    state          text,     -- running, succeeded, failed, unknown
    retryable      boolean,
    status         integer,
    headers        bytea,
    body           bytea,
    body_dropped   boolean,
    recovery_point text,
    checkpoint     bytea,
    retry_after_ms bigint,
    takeover       text,
    created_at     bigint,
    claimed_at     bigint,
    lease_until    bigint,
    lease_live     boolean,
    finished_at    bigint,
    expires_at     bigint,   -- NULL: never, or not finished
    retention_ms   bigint,   -- -1: never
    fingerprint    bytea,
    tenant         bytea,
    key            bytea,
    request        bytea,    -- only from once.take_over and once.lookup_with_request
    body_retention_ms bigint, -- NULL: headers and body are kept as long as the record
    body_expired   boolean,  -- headers and body are past their own retention: a tombstone
    forgotten      boolean,  -- by once.forget: the answer is not kept
    route          text,     -- of the newest claim; NULL: none, and in a replay
    undelivered    boolean   -- retryable, and no client was told this outcome
);

-- A claim with its result and progress.
CREATE VIEW once.stored AS
    SELECT c.record, c.nonce, c.fence, c.claimed_at, c.claim_no, c.slot, (c.takeover & PG_TAKEOVER_MASK)::smallint AS takeover,
           coalesce(c.attempt, 1) AS attempt, coalesce(c.created_at, c.claimed_at) AS created_at,
           coalesce(c.lease_ms, ONCE_LEASE_MS_DEFAULT) AS lease_ms, coalesce(c.retention_ms, ONCE_RETENTION_MS_DEFAULT) AS retention_ms,
           c.body_retention_ms, c.fingerprint, c.tenant,
           CASE WHEN c.takeover & PG_FLAG_UUID_KEY <> 0 THEN convert_to(encode(c.key, 'hex')::uuid::text, 'UTF8') ELSE c.key END AS key,
           c.takeover & PG_FLAG_PROBING <> 0 AS probing, c.takeover & PG_FLAG_FORGOTTEN <> 0 AS forgotten, (c.takeover >> PG_ROUTE_SHIFT)::smallint AS route,
           (r.state & PG_STATE_MASK)::smallint AS state, r.state & PG_RETRYABLE <> 0 AS retryable, r.state & PG_BODY_DROPPED <> 0 AS body_dropped,
           r.state & PG_UNDELIVERED <> 0 AS undelivered,
           r.status, r.finished_at, r.headers, r.body,
           coalesce(p.lease_until, c.claimed_at + coalesce(c.lease_ms, ONCE_LEASE_MS_DEFAULT)) AS lease_until, p.point, p.points,
           p.calls, p.checkpoint
      FROM once.claim c
      LEFT JOIN once.result r ON r.fence = c.fence AND r.slot = c.slot
      LEFT JOIN once.progress p ON p.fence = c.fence AND p.slot = c.slot;

-- PL/pgSQL keeps its plans for the session, while a function in SQL is planned at every call. enable_seqscan is off
-- so that
-- kept plans stay good when the tables have grown.
CREATE FUNCTION once.newest(wanted uuid) RETURNS once.stored
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    stored once.stored;
BEGIN
    SELECT s.* INTO stored FROM once.stored s WHERE s.record = wanted ORDER BY s.fence DESC LIMIT 1;
    RETURN stored;
END $$;

-- The claim with this fence, newest or not.
CREATE FUNCTION once.claimed(wanted uuid, held bigint) RETURNS once.stored
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    stored once.stored;
BEGIN
    SELECT s.* INTO stored FROM once.stored s WHERE s.record = wanted AND s.fence = held;
    RETURN stored;
END $$;

-- K8: finished, and its retention is over. Running and unknown never expire.
CREATE FUNCTION once.is_gone(s once.stored, now_ms bigint) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (s).fence IS NULL OR coalesce((s).state = ONCE_STORED_RELEASED, false) OR
           coalesce((s).state IN (ONCE_STATE_SUCCEEDED, ONCE_STATE_FAILED) AND (s).retention_ms >= 0 AND (s).finished_at + (s).retention_ms <= now_ms,
                    false);
END $$;

-- K8 for headers and body: finished, and their own retention is over. Those of an unknown record are kept.
CREATE FUNCTION once.is_tombstone(s once.stored, now_ms bigint) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN coalesce((s).state IN (ONCE_STATE_SUCCEEDED, ONCE_STATE_FAILED) AND (s).finished_at + (s).body_retention_ms <= now_ms, false);
END $$;

-- Whether the time in a key (born; NULL: not checked) is outside the window of a record with this retention. As
-- once_key_is_outside() in src/core/key.h, which says why: the skew is 5 minutes, or half the retention if that is
-- less.
CREATE FUNCTION once.is_outside(born bigint, retention_ms bigint, now_ms bigint) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN born IS NOT NULL AND retention_ms >= 0 AND
           (born - now_ms > least(ONCE_KEY_SKEW_MS_MAX, retention_ms / 2) OR
            now_ms - born >= retention_ms - least(ONCE_KEY_SKEW_MS_MAX, retention_ms / 2));
END $$;

CREATE FUNCTION once.answer_of(arm text, s once.stored, now_ms bigint) RETURNS once.answer
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a once.answer;
BEGIN
    a.arm := arm;
    IF s.fence IS NULL THEN
        RETURN a;
    END IF;
    a.record := s.record;
    a.fence := s.fence;
    a.attempt := s.attempt;
    a.state := CASE s.state WHEN ONCE_STATE_SUCCEEDED THEN 'succeeded' WHEN ONCE_STATE_FAILED THEN 'failed'
                            WHEN ONCE_STATE_UNKNOWN THEN 'unknown' WHEN ONCE_STORED_RELEASED THEN 'failed'
                            WHEN ONCE_STORED_SUPERSEDED THEN 'unknown' ELSE 'running' END;
    a.retryable := coalesce(s.retryable, false);
    a.undelivered := coalesce(s.undelivered, false);
    a.status := s.status;
    a.headers := s.headers;
    a.body := s.body;
    a.body_dropped := coalesce(s.body_dropped, false);
    a.body_retention_ms := s.body_retention_ms;
    a.body_expired := s.body_retention_ms IS NOT NULL AND once.is_tombstone(s, now_ms);
    IF a.body_expired THEN   -- whether or not expiry has dropped them
        a.headers := NULL;
        a.body := NULL;
        a.body_dropped := true;
    END IF;
    a.recovery_point := s.point;
    a.checkpoint := s.checkpoint;
    a.takeover := CASE s.takeover WHEN ONCE_TAKEOVER_RERUN THEN 'rerun' WHEN ONCE_TAKEOVER_PROBE THEN 'probe'
                             WHEN ONCE_TAKEOVER_COMPLETER THEN 'completer' ELSE 'escalate' END;
    a.created_at := s.created_at;
    a.claimed_at := s.claimed_at;
    IF s.state IS NULL THEN
        a.lease_until := s.lease_until;
        a.lease_live := s.lease_until > now_ms;
        a.retry_after_ms := greatest(s.lease_until - now_ms, 0);
    ELSE
        a.finished_at := s.finished_at;
        IF s.state = ONCE_STORED_RELEASED THEN
            a.expires_at := s.finished_at;
        ELSIF s.state IN (ONCE_STATE_SUCCEEDED, ONCE_STATE_FAILED) AND s.retention_ms >= 0 THEN
            a.expires_at := s.finished_at + s.retention_ms;
        END IF;
    END IF;
    a.retention_ms := s.retention_ms;
    a.fingerprint := s.fingerprint;
    a.tenant := s.tenant;
    a.key := s.key;
    IF s.route > 0 THEN
        a.route := once.route_name(s.route);
    END IF;
    a.forgotten := s.forgotten;
    RETURN a;
END $$;

-- The answer of a listing: without headers, body and checkpoint.
CREATE FUNCTION once.answer_listed(s once.stored, now_ms bigint) RETURNS once.answer
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    s.headers := NULL;
    s.body := NULL;
    s.checkpoint := NULL;
    RETURN once.answer_of('found', s, now_ms);
END $$;

-- Reads the newest claim, locks its row, and reads again until both are the same: from then on no other transaction
-- changes this record. NULL fence: it has no rows. For a record that has ended an old snapshot is good enough: its
-- claim
-- stays closed, and of two next claims a unique index refuses one with 40001.
CREATE FUNCTION once.lock_newest(wanted uuid) RETURNS once.stored
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    s once.stored;
BEGIN
    LOOP
        s := once.newest(wanted);
        IF s.fence IS NULL THEN
            RETURN s;
        END IF;
        PERFORM 1 FROM once.claim c WHERE c.record = s.record AND c.claim_no = s.claim_no AND c.slot = s.slot FOR UPDATE;
        IF FOUND AND (once.newest(wanted)).fence = s.fence THEN
            s := once.newest(wanted);
            IF s.state IS NULL THEN
                PERFORM once.need_read_committed();
            END IF;
            RETURN s;
        END IF;
    END LOOP;
END $$;

-- Closes a claim; false if it is closed already. Waits for a transaction that is closing it. A clock that was set back
-- must not make a negative age. In slot 0 expiry deletes rows, results too, at any time: there the claim's row is
-- locked
-- first, and a missing one counts as closed.
CREATE FUNCTION once.close_claim(s once.stored, state integer, status integer, headers bytea, body bytea)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    IF s.slot = 0 THEN
        PERFORM 1 FROM once.claim c WHERE c.record = s.record AND c.claim_no = s.claim_no AND c.slot = 0 FOR KEY SHARE;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
    END IF;
    INSERT INTO once.result (fence, finished_at, status, slot, state, headers, body)
    VALUES (s.fence, greatest(once.now_ms(), s.claimed_at), status, s.slot, state, nullif(headers, ''),
            nullif(body, ''))
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;

-- Inserts the next claim of a record whose newest claim is locked. A new life (new_created_at is NULL) begins in the
-- current
-- slot with claim_no 1. The last life is deleted with its slot; slot 0 is never emptied, so there it is deleted now.
CREATE FUNCTION once.next_claim(s once.stored, new_nonce uuid, new_takeover integer, new_attempt integer,
                               new_created_at bigint, new_lease_ms integer, new_retention_ms bigint,
                               new_body_retention_ms bigint, new_fingerprint bytea, new_tenant bytea, new_key bytea)
RETURNS once.stored
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    new_fence bigint;
    new_slot  smallint := s.slot;
    n         bigint := once.now_ms();
BEGIN
    IF new_created_at IS NULL THEN
        SELECT r.current INTO new_slot FROM once.ring r;
    END IF;
    new_fence := nextval('once.fence') + new_slot;
    INSERT INTO once.claim (record, nonce, fence, claimed_at, claim_no, slot, takeover, attempt, created_at, lease_ms,
                            retention_ms, body_retention_ms, fingerprint, tenant, key)
    VALUES (s.record, new_nonce, new_fence, n, CASE WHEN new_slot = s.slot THEN s.claim_no + 1 ELSE 1 END, new_slot,
            new_takeover, new_attempt, new_created_at, new_lease_ms, new_retention_ms, new_body_retention_ms,
            new_fingerprint, new_tenant, new_key)
    ON CONFLICT (record, claim_no, slot) DO NOTHING;
    IF NOT FOUND THEN   -- only possible from an old snapshot: the row is locked
        RAISE EXCEPTION 'record % was claimed again since this transaction began', s.record USING ERRCODE = '40001';
    END IF;
    IF new_created_at IS NULL THEN
        IF s.slot = 0 THEN
            PERFORM once.delete_claims(0::smallint, ARRAY[s.record]);
        END IF;
    ELSIF s.point IS NOT NULL THEN
        INSERT INTO once.progress (fence, slot, lease_until, point, points, calls, checkpoint)
        VALUES (new_fence, new_slot, n + new_lease_ms, s.point, s.points, s.calls, s.checkpoint);
    END IF;
    RETURN once.claimed(s.record, new_fence);
END $$;

-- Deletes all rows of these records in a slot.
CREATE FUNCTION once.delete_claims(of_slot smallint, records uuid[]) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
    WITH gone AS (
        DELETE FROM once.claim c WHERE c.slot = of_slot AND c.record = ANY (records) RETURNING c.fence
    ), results AS (
        DELETE FROM once.result r USING gone g WHERE r.fence = g.fence AND r.slot = of_slot
    ), requests AS (
        DELETE FROM once.request q WHERE q.slot = of_slot AND q.record = ANY (records)
    )
    DELETE FROM once.progress p USING gone g WHERE p.fence = g.fence AND p.slot = of_slot
$$;

-- The bounds of tenant, key and fingerprint, each with its own message. (As CHECKs of the table they would have to be
-- prepared by every statement.)
CREATE FUNCTION once.fits(tenant bytea, key bytea, fingerprint bytea) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF length(fingerprint) IS DISTINCT FROM 32 THEN
        RAISE EXCEPTION 'fingerprint has % bytes, not 32', coalesce(length(fingerprint), 0) USING ERRCODE = '22023';
    ELSIF coalesce(length(tenant), ONCE_TENANT_LEN_MAX + 1) > ONCE_TENANT_LEN_MAX THEN
        RAISE EXCEPTION 'tenant is % bytes long, the limit is ONCE_TENANT_LEN_MAX', length(tenant) USING ERRCODE = '22023';
    ELSIF length(key) NOT BETWEEN 1 AND ONCE_KEY_LEN_MAX THEN
        RAISE EXCEPTION 'key has % bytes, not 1 to ONCE_KEY_LEN_MAX', length(key) USING ERRCODE = '22023';
    END IF;
    RETURN true;
END $$;

-- Claims a new key in the current slot; false if the key has a record. Waits for a transaction that is claiming it.
CREATE FUNCTION once.claim_fresh(wanted uuid, tenant bytea, key bytea, fingerprint bytea, lease_ms bigint,
                                 retention_ms bigint, takeover integer, nonce uuid, body_retention_ms bigint)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    INSERT INTO once.claim (record, nonce, fence, claimed_at, claim_no, slot, takeover, lease_ms, retention_ms,
                            body_retention_ms, fingerprint, tenant, key)
    SELECT wanted, claim_fresh.nonce, nextval('once.fence') + r.current, once.now_ms(), 1, r.current, claim_fresh.takeover,
           nullif(claim_fresh.lease_ms, ONCE_LEASE_MS_DEFAULT), nullif(claim_fresh.retention_ms, ONCE_RETENTION_MS_DEFAULT), claim_fresh.body_retention_ms,
           claim_fresh.fingerprint, claim_fresh.tenant, claim_fresh.key
      FROM once.ring r
     WHERE NOT EXISTS (SELECT FROM once.claim o WHERE o.record = wanted)
    ON CONFLICT (record, claim_no, slot) DO NOTHING;
    RETURN FOUND;
END $$;

-- A claim, with all arms. born: the time in the key, if it is to be checked.
CREATE FUNCTION once.claim_record(wanted uuid, tenant bytea, key bytea, fingerprint bytea, lease_ms bigint,
                                  retention_ms bigint, takeover integer, nonce uuid,
                                  body_retention_ms bigint DEFAULT NULL, born bigint DEFAULT NULL)
RETURNS once.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s   once.stored;
    a   once.answer;
    n   bigint;
    arm text;
    unsent boolean;
BEGIN
    PERFORM once.fits(tenant, key, fingerprint);
    PERFORM once.lock_ring();
    FOR tries IN 1..10 LOOP
        s := once.newest(wanted);
        n := once.now_ms();
        IF born IS NOT NULL AND once.is_gone(s, n) AND once.is_outside(born, retention_ms, n) THEN
            RETURN once.answer_of('expired', NULL, n);
        END IF;
        IF s.fence IS NULL THEN
            CONTINUE WHEN NOT once.claim_fresh(wanted, tenant, key, fingerprint, lease_ms, retention_ms, takeover,
                                               nonce, body_retention_ms);
            RETURN once.answer_of('execute', once.newest(wanted), n);
        END IF;
        IF NOT once.is_gone(s, n) THEN
            IF s.fingerprint <> fingerprint THEN
                RETURN once.answer_of('mismatch', NULL, n);
            END IF;
            IF s.state = ONCE_STATE_UNKNOWN THEN
                RETURN once.answer_of('unknown', s, n);
            END IF;
            IF s.state IN (ONCE_STATE_SUCCEEDED, ONCE_STATE_FAILED) AND NOT s.retryable THEN
                RETURN once.answer_of('replay', s, n);
            END IF;
            IF s.state IS NULL AND s.nonce <> nonce AND s.lease_until > n THEN
                RETURN once.answer_of('in progress', s, n);
            END IF;
        END IF;
        -- The record is about to change: lock it.
        CONTINUE WHEN (once.lock_newest(wanted)).fence IS DISTINCT FROM s.fence;
        s := once.newest(wanted);
        n := once.now_ms();
        IF once.is_gone(s, n) THEN
            CONTINUE WHEN once.is_outside(born, retention_ms, n);   -- it expired just now
            RETURN once.answer_of('execute', once.next_claim(s, nonce, takeover, 1, NULL, lease_ms::int, retention_ms,
                                                            body_retention_ms, fingerprint, tenant, key), n);
        END IF;
        IF s.state = ONCE_STATE_FAILED AND s.retryable THEN
            RETURN once.answer_of('execute', once.next_claim(s, nonce, takeover, s.attempt + 1, s.created_at,
                                                            lease_ms::int, retention_ms, body_retention_ms,
                                                            fingerprint, tenant, key),
                                   n);
        END IF;
        CONTINUE WHEN s.state IS NOT NULL;
        IF s.nonce = nonce THEN   -- the same call again, after its first answer was lost
            INSERT INTO once.progress AS p (fence, slot, lease_until) VALUES (s.fence, s.slot, n + s.lease_ms)
            ON CONFLICT (fence, slot) DO UPDATE SET lease_until = excluded.lease_until;
            RETURN once.answer_of(CASE WHEN s.probing THEN 'probe' ELSE 'execute' END, once.newest(wanted), n);
        END IF;
        CONTINUE WHEN s.lease_until > n;
        unsent := once.is_unsent(s);
        -- Both claims leave an abandoned record to a completer, which calls once.take_over.
        IF takeover & PG_TAKEOVER_MASK = ONCE_TAKEOVER_COMPLETER AND s.takeover = ONCE_TAKEOVER_COMPLETER AND NOT unsent THEN
            a := once.answer_of('in progress', s, n);
            a.retry_after_ms := ONCE_COMPLETER_PAUSE_MS;
            RETURN a;
        END IF;
        IF takeover & PG_TAKEOVER_MASK IN (ONCE_TAKEOVER_ESCALATE, ONCE_TAKEOVER_COMPLETER) AND NOT unsent THEN
            CONTINUE WHEN NOT once.close_claim(s, ONCE_STATE_UNKNOWN, 0, NULL, NULL);
            RETURN once.answer_of('unknown', once.newest(wanted), n);
        END IF;
        CONTINUE WHEN NOT once.close_claim(s, ONCE_STORED_SUPERSEDED, 0, NULL, NULL);
        arm := CASE WHEN takeover & PG_TAKEOVER_MASK = ONCE_TAKEOVER_PROBE AND NOT unsent THEN 'probe' ELSE 'execute' END;
        RETURN once.answer_of(arm, once.next_claim(s, nonce, once.next_takeover(takeover, unsent),
                                                  s.attempt + 1, s.created_at, lease_ms::int, retention_ms,
                                                  body_retention_ms, fingerprint, tenant, key), n);
    END LOOP;
    RAISE EXCEPTION 'record % changes faster than it can be claimed', wanted USING ERRCODE = '40001';
END $$;

-- The answer to a caller that is not the holder any more: the stored record, unless it has expired (K8), or belongs to
-- another operation by now: another request (K6), or a later life of the key (K5).
CREATE FUNCTION once.fenced(wanted uuid, held bigint, n bigint) RETURNS once.answer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s   once.stored := once.newest(wanted);
    own once.stored := once.claimed(wanted, held);
BEGIN
    IF once.is_gone(s, n) OR own.fence IS NULL OR own.created_at <> s.created_at OR own.fingerprint <> s.fingerprint THEN
        RETURN once.answer_of('fenced', NULL, n);
    END IF;
    RETURN once.answer_of('fenced', s, n);
END $$;

CREATE FUNCTION once.extend_record(wanted uuid, held bigint, lease_ms bigint) RETURNS once.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s once.stored;
    n bigint;
BEGIN
    PERFORM once.lock_ring();
    s := once.lock_newest(wanted);
    n := once.now_ms();
    IF s.fence IS DISTINCT FROM held OR s.state IS NOT NULL THEN
        RETURN once.fenced(wanted, held, n);
    END IF;
    INSERT INTO once.progress AS p (fence, slot, lease_until)
    VALUES (s.fence, s.slot, n + coalesce(nullif(lease_ms, 0), s.lease_ms))
    ON CONFLICT (fence, slot) DO UPDATE SET lease_until = excluded.lease_until;
    RETURN once.answer_of('done', once.newest(wanted), n);
END $$;

-- `call` names this call: repeated after its answer was lost, it finds that it was done, even if the holder has gone on
-- since.
CREATE FUNCTION once.advance_record(wanted uuid, held bigint, new_point text, new_checkpoint bytea, call uuid)
RETURNS once.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s once.stored;
    n bigint;
BEGIN
    IF new_point IS NULL OR new_point !~ '^[!-~]{1,ONCE_POINT_LEN_MAX}$' THEN
        RAISE EXCEPTION 'recovery point ''%'' is not 1 to ONCE_POINT_LEN_MAX visible characters', new_point USING ERRCODE = '22023';
    END IF;
    IF length(new_checkpoint) > ONCE_CHECKPOINT_LEN_MAX +
       (CASE WHEN substr(new_checkpoint, 1, 7) = E'\\x9b6f6e63650d0a' THEN ONCE_SEALED_MORE ELSE 0 END) THEN
        RAISE EXCEPTION 'checkpoint is % bytes long, the limit is ONCE_CHECKPOINT_LEN_MAX', length(new_checkpoint)
            USING ERRCODE = '54000';
    END IF;
    PERFORM once.lock_ring();
    s := once.lock_newest(wanted);
    n := once.now_ms();
    IF EXISTS (SELECT FROM once.claimed(wanted, held) a WHERE a.points[array_position(a.calls, call)] = new_point) THEN
        RETURN once.answer_of('done', once.claimed(wanted, held), n);
    END IF;
    IF s.fence IS DISTINCT FROM held OR s.state IS NOT NULL THEN
        RETURN once.fenced(wanted, held, n);
    END IF;
    IF s.point IS NOT DISTINCT FROM new_point THEN   -- the same point again, with another checkpoint
        s.calls[cardinality(s.calls)] := call;
    ELSIF new_point = ANY (s.points) THEN   -- K11
        RAISE EXCEPTION 'recovery point ''%'' was passed before; now at ''%''', new_point, s.point
            USING ERRCODE = '22023';
    ELSIF cardinality(s.points) >= ONCE_POINT_COUNT_MAX THEN
        RAISE EXCEPTION 'record passed ONCE_POINT_COUNT_MAX recovery points, the limit' USING ERRCODE = '54000';
    ELSE
        s.points := array_append(s.points, new_point);
        s.calls := array_append(s.calls, call);
    END IF;
    INSERT INTO once.progress AS p (fence, slot, lease_until, point, points, calls, checkpoint)
    VALUES (s.fence, s.slot, n + s.lease_ms, new_point, s.points, s.calls, coalesce(new_checkpoint, ''))
    ON CONFLICT (fence, slot) DO UPDATE
       SET lease_until = excluded.lease_until, point = excluded.point, points = excluded.points,
           calls = excluded.calls, checkpoint = excluded.checkpoint;
    RETURN once.answer_of('done', once.newest(wanted), n);
END $$;

-- Whether this outcome is the one that is stored.
CREATE FUNCTION once.is_outcome(s once.stored, new_state integer, new_status integer, new_headers bytea,
                                new_body bytea)
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN coalesce((s).state + CASE WHEN (s).retryable THEN PG_RETRYABLE ELSE 0 END +
                    CASE WHEN (s).body_dropped THEN PG_BODY_DROPPED ELSE 0 END +
                    CASE WHEN (s).undelivered THEN PG_UNDELIVERED ELSE 0 END = new_state AND (s).status = new_status AND
                    (s).headers IS NOT DISTINCT FROM nullif(new_headers, '') AND
                    (s).body IS NOT DISTINCT FROM nullif(new_body, ''), false);
END $$;

-- new_state as in once.result. again: it was sent before and its answer was lost; then it is
-- done if its own claim has this outcome, whatever came after it.
CREATE FUNCTION once.finish_record(wanted uuid, held bigint, new_state integer, new_status integer,
                                   new_headers bytea, new_body bytea, again boolean)
RETURNS once.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s   once.stored;
    own once.stored;
    n   bigint;
BEGIN
    PERFORM once.lock_ring();
    n := once.now_ms();
    own := once.claimed(wanted, held);
    IF own.fence IS NOT NULL AND once.close_claim(own, new_state, new_status, new_headers, new_body) THEN
        RETURN once.answer_of('done', once.claimed(wanted, held), n);
    END IF;
    s := once.newest(wanted);   -- in a new statement: a concurrent change is visible now
    own := once.claimed(wanted, held);
    -- A tombstone never matches, whether or not expiry has dropped its body.
    IF (s.fence = held OR (again AND NOT once.is_gone(own, n))) AND NOT once.is_tombstone(own, n) AND
       once.is_outcome(own, new_state, new_status, new_headers, new_body) THEN
        RETURN once.answer_of('done', own, n);
    END IF;
    RETURN once.fenced(wanted, held, n);
END $$;

-- Whether this claim took over a running one that may have sent something.
CREATE FUNCTION once.is_in_doubt(wanted uuid, held bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    RETURN EXISTS (SELECT FROM once.claim c WHERE c.record = wanted AND c.fence = held AND c.takeover & PG_FLAG_DOUBT <> 0);
END $$;

-- Releases such a claim. That says nothing about the claim before it, so the record stays abandoned: running, and its
-- lease
-- ends at the time of its claim, which no real lease does.
CREATE FUNCTION once.abandon_record(wanted uuid, held bigint, again boolean) RETURNS once.answer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s   once.stored := once.lock_newest(wanted);
    own once.stored := once.claimed(wanted, held);
    n   bigint := once.now_ms();
BEGIN
    IF s.fence = held AND s.state IS NULL THEN
        INSERT INTO once.progress AS p (fence, slot, lease_until) VALUES (s.fence, s.slot, s.claimed_at)
        ON CONFLICT (fence, slot) DO UPDATE SET lease_until = excluded.lease_until;
        RETURN once.answer_of('done', NULL, n);
    END IF;
    IF again AND own.state = ONCE_STORED_SUPERSEDED AND own.lease_until = own.claimed_at THEN
        RETURN once.answer_of('done', NULL, n);
    END IF;
    RETURN once.fenced(wanted, held, n);
END $$;

-- Releases a claim: this attempt was definitely not executed. A first attempt frees the key, unless it passed a
-- recovery
-- point, whose local writes are committed (K11; the mark once:sending does not count). Otherwise the record becomes
-- failed and retryable.
CREATE FUNCTION once.release_record(wanted uuid, held bigint, again boolean) RETURNS once.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s       once.stored;
    own     once.stored;
    n       bigint;
    left_as integer;
BEGIN
    PERFORM once.lock_ring();
    n := once.now_ms();
    IF once.is_in_doubt(wanted, held) THEN
        RETURN once.abandon_record(wanted, held, again);
    END IF;
    own := once.claimed(wanted, held);
    left_as := CASE WHEN own.attempt = 1 AND coalesce(own.points = ARRAY['once:sending'], true) THEN PG_RELEASED_RETRYABLE
                    ELSE PG_FAILED_RETRYABLE END;
    IF own.fence IS NOT NULL AND once.close_claim(own, left_as, 0, NULL, NULL) THEN
        RETURN once.answer_of('done', NULL, n);
    END IF;
    s := once.newest(wanted);
    own := once.claimed(wanted, held);
    IF (s.fence = held OR again) AND once.is_outcome(own, left_as, 0, NULL, NULL) THEN
        RETURN once.answer_of('done', NULL, n);
    END IF;
    RETURN once.fenced(wanted, held, n);
END $$;

CREATE FUNCTION once.lookup_record(wanted uuid) RETURNS once.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s once.stored;
    n bigint;
BEGIN
    PERFORM once.lock_ring();
    s := once.newest(wanted);
    n := once.now_ms();
    IF once.is_gone(s, n) THEN
        RETURN once.answer_of('absent', NULL, n);
    END IF;
    RETURN once.answer_of('found', s, n);
END $$;

-- verdict: enum once_verdict; new_state and the rest are the outcome of ONCE_VERDICT_DONE. call: as for advance_record.
CREATE FUNCTION once.resolve_record(wanted uuid, seen bigint, verdict integer, new_state integer,
                                    new_status integer, new_headers bytea, new_body bytea, actor bytea,
                                    reason bytea, call uuid)
RETURNS once.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s   once.stored;
    own bigint;
    n   bigint;
BEGIN
    IF coalesce(length(reason), 0) = 0 THEN
        RAISE EXCEPTION 'a verdict needs a reason' USING ERRCODE = '22023';
    END IF;
    IF length(reason) > ONCE_REASON_LEN_MAX OR length(actor) > ONCE_ACTOR_LEN_MAX THEN
        RAISE EXCEPTION 'the reason has % bytes and the actor %, the limits are ONCE_REASON_LEN_MAX and ONCE_ACTOR_LEN_MAX', length(reason),
            length(actor) USING ERRCODE = '54000';
    END IF;
    PERFORM once.lock_ring();
    s := once.lock_newest(wanted);
    n := once.now_ms();
    SELECT c.fence INTO own FROM once.claim c WHERE c.record = wanted AND c.nonce = call;
    IF own IS NOT NULL THEN   -- the same verdict again, after its first answer was lost
        RETURN once.answer_of('done', once.claimed(wanted, own), n);
    END IF;
    IF once.is_gone(s, n) THEN
        RETURN once.answer_of('absent', NULL, n);
    END IF;
    IF coalesce(seen, 0) <> 0 AND seen <> s.fence THEN
        RETURN once.answer_of('fenced', s, n);
    END IF;
    IF s.state IN (ONCE_STATE_SUCCEEDED, ONCE_STATE_FAILED) THEN
        RETURN once.answer_of('replay', s, n);
    END IF;
    IF s.state IS NULL AND s.lease_until > n THEN
        RETURN once.answer_of('in progress', s, n);
    END IF;
    IF s.state IS NULL AND NOT once.close_claim(s, ONCE_STORED_SUPERSEDED, 0, NULL, NULL) THEN
        s := once.newest(wanted);   -- it finished just now
        IF once.is_gone(s, n) THEN
            RETURN once.answer_of('absent', NULL, n);
        ELSIF s.state <> ONCE_STATE_UNKNOWN THEN
            RETURN once.answer_of('replay', s, n);
        END IF;
    END IF;
    -- A verdict is its own grant: its fence shuts out a holder that was wrongly thought dead.
    s := once.next_claim(s, coalesce(call, gen_random_uuid()), s.takeover + PG_ROUTE_UNIT * s.route, s.attempt, s.created_at, s.lease_ms,
                        s.retention_ms, s.body_retention_ms, s.fingerprint, s.tenant, s.key);
    PERFORM once.close_claim(s, CASE verdict WHEN ONCE_VERDICT_DONE THEN new_state WHEN ONCE_VERDICT_NOT_DONE THEN PG_FAILED_RETRYABLE
                                            ELSE PG_RELEASED_RETRYABLE END,
                            CASE verdict WHEN ONCE_VERDICT_DONE THEN new_status ELSE 0 END,
                            CASE verdict WHEN ONCE_VERDICT_DONE THEN new_headers END,
                            CASE verdict WHEN ONCE_VERDICT_DONE THEN new_body END);
    INSERT INTO once.audit (at, record, fence, what, actor, reason)
    VALUES (n, wanted, s.fence, CASE verdict WHEN ONCE_VERDICT_DONE THEN 'resolved done'
                                             WHEN ONCE_VERDICT_NOT_DONE THEN 'resolved not done' ELSE 'released' END, coalesce(actor, ''), reason);
    RETURN once.answer_of('done', once.claimed(wanted, s.fence), n);
END $$;
