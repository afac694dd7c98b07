-- Expiry: the ring turns, slots are emptied by TRUNCATE. No row is deleted for having
-- expired, except in slot 0, where what outlives the ring was moved.
--
-- K7: only what is finished and past its retention goes; everything else in a slot is moved
-- to slot 0 first. Finished records are moved in batches beside the traffic; the few
-- unfinished ones, and the TRUNCATE, under the ring's exclusive lock, which waits for nobody
-- longer than its lock_timeout.
--
-- Who begins a turn of an existing record locks its newest claim's row. So what is moved or
-- deleted beside the traffic is chosen in two statements: the first locks the rows that were
-- newest when it began, the second keeps those that still are, and now stay so. In one
-- statement a turn that was begun in between would lose its earlier ones.
--
-- Whole slots are gone through claim by claim, each result by its key (LATERAL): left to itself,
-- a planner without statistics, or one that hopes for a LIMIT, goes through all claims for each
-- result.
--
-- Turning and emptying also write the ring's row, for transactions with an older snapshot
-- (once.hold_ring).

-- Moves what a slot has of the present lives of these records to slot 0. Nobody else may
-- change them meanwhile. But a finish that takes no lock may still see them where they were:
-- their results also stay there until the slot is emptied, so that its index goes on to decide
-- who closed a turn (K3, K5).
CREATE FUNCTION once.move_lives(from_slot smallint, records uuid[]) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH claims AS (
        DELETE FROM once.claim c
         WHERE c.slot = from_slot AND c.record = ANY (records)
           AND c.fence >= (SELECT max(o.fence) FROM once.claim o WHERE o.record = c.record AND o.created_at IS NULL)
        RETURNING c.*
    ), results AS (
        SELECT r.* FROM once.result r JOIN claims c ON r.fence = c.fence AND r.slot = from_slot
    ), progresses AS (
        DELETE FROM once.progress p USING claims c WHERE p.fence = c.fence AND p.slot = from_slot RETURNING p.*
    ), requests AS (
        DELETE FROM once.request q USING claims c
         WHERE q.record = c.record AND q.fence = c.fence AND q.slot = from_slot RETURNING q.*
    ), moved_requests AS (
        INSERT INTO once.request (record, fence, slot, request) SELECT record, fence, 0, request FROM requests
    ), moved_claims AS (
        INSERT INTO once.claim (record, nonce, fence, claimed_at, turn, slot, takeover, attempt, created_at, lease_ms,
                                retention_ms, fingerprint, tenant, key)
        SELECT record, nonce, fence, claimed_at, turn, 0, takeover, attempt, created_at, lease_ms, retention_ms,
               fingerprint, tenant, key FROM claims
    ), moved_results AS (
        INSERT INTO once.result (fence, finished_at, status, slot, state, headers, body)
        SELECT fence, finished_at, status, 0, state, headers, body FROM results
    )
    INSERT INTO once.progress (fence, slot, lease_until, point, points, calls, checkpoint)
    SELECT fence, 0, lease_until, point, points, calls, checkpoint FROM progresses
$$;

-- Which of these are still the newest claims of their records?
CREATE FUNCTION once.still_newest(records uuid[], fences bigint[]) RETURNS uuid[]
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(u.record), '{}') FROM unnest(records, fences) AS u (record, fence)
     WHERE NOT EXISTS (SELECT FROM once.claim o WHERE o.record = u.record AND o.fence > u.fence)
$$;

-- Moves at most `most` finished records that are still wanted out of a slot. Returns how many
-- were looked at: 0 means that none is left, or that the rest is locked just now.
CREATE FUNCTION once.move_finished(from_slot smallint, most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms  bigint := once.now_ms();
    records uuid[];
    fences  bigint[];
BEGIN
    SELECT array_agg(w.record), array_agg(w.fence) INTO records, fences FROM (
        SELECT c.record, c.fence FROM once.claim c
         CROSS JOIN LATERAL (SELECT w.state, w.finished_at FROM once.result w
                              WHERE w.fence = c.fence AND w.slot = from_slot OFFSET 0) r
         WHERE c.slot = from_slot AND r.state & 15 IN (2, 3, 4)
           AND (r.state & 15 = 4 OR c.retention_ms < 0 OR
                r.finished_at + coalesce(c.retention_ms, 86400000) > now_ms)
           AND NOT EXISTS (SELECT FROM once.claim o WHERE o.record = c.record AND o.fence > c.fence)
         LIMIT most
           FOR UPDATE OF c SKIP LOCKED) w;
    IF records IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM once.move_lives(from_slot, once.still_newest(records, fences));
    RETURN cardinality(records);
END $$;

-- Under the exclusive lock: moves what is unfinished and empties the slot for good. Returns
-- how many records went with it; NULL: there is something to be moved first.
CREATE FUNCTION once.empty_slot(gone smallint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    removed bigint;
BEGIN
    IF once.move_finished(gone, 1) > 0 THEN
        RETURN NULL;
    END IF;
    PERFORM once.move_lives(gone, (
        SELECT array_agg(c.record) FROM once.claim c
         WHERE c.slot = gone AND NOT EXISTS (SELECT FROM once.result r WHERE r.fence = c.fence AND r.slot = gone)));
    SELECT count(*) INTO removed FROM once.claim c
     WHERE c.slot = gone AND NOT EXISTS (SELECT FROM once.claim o WHERE o.record = c.record AND o.fence > c.fence);
    EXECUTE format('TRUNCATE once.claim_%s, once.result_%s, once.progress_%s, once.request_%s', gone, gone, gone,
                   gone);
    UPDATE once.slot SET closed_at = NULL WHERE slot = gone;
    UPDATE once.ring SET current = current;
    RETURN removed;
END $$;

-- Slot 0: what outlived the ring goes row by row.
CREATE FUNCTION once.delete_due(most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms  bigint := once.now_ms();
    records uuid[];
    fences  bigint[];
BEGIN
    SELECT array_agg(d.record), array_agg(d.fence) INTO records, fences FROM (
        SELECT c.record, c.fence FROM once.claim c
         CROSS JOIN LATERAL (SELECT w.state, w.finished_at FROM once.result w
                              WHERE w.fence = c.fence AND w.slot = 0 OFFSET 0) r
         WHERE c.slot = 0
           AND (r.state & 15 = 5 OR (r.state & 15 IN (2, 3) AND coalesce(c.retention_ms, 86400000) >= 0
               AND r.finished_at + coalesce(c.retention_ms, 86400000) <= now_ms))
           AND NOT EXISTS (SELECT FROM once.claim o WHERE o.record = c.record AND o.fence > c.fence)
         LIMIT most
           FOR UPDATE OF c SKIP LOCKED) d;
    IF records IS NULL THEN
        RETURN 0;
    END IF;
    records := once.still_newest(records, fences);
    PERFORM once.delete_claims(0::smallint, records);
    RETURN cardinality(records);
END $$;

-- One bounded step of upkeep. `removed` counts records whose space was given back; `more` asks
-- for another step soon.
CREATE FUNCTION once.expire(budget integer DEFAULT 1000, OUT removed bigint, OUT more boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    now_ms bigint;
    ring   once.ring;
    next   smallint;
    oldest smallint;
BEGIN
    removed := 0;
    more := false;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION 'once.expire needs READ COMMITTED' USING ERRCODE = '25001';
    END IF;
    IF NOT pg_try_advisory_xact_lock(8031154) THEN   -- one at a time is enough
        RETURN;
    END IF;
    now_ms := once.now_ms();
    SELECT * INTO ring FROM once.ring;
    next := ring.current % ring.slots + 1;
    -- A slot is out of use when it was closed a full turn of the others ago.
    SELECT s.slot INTO oldest FROM once.slot s
     WHERE s.slot > 0 AND s.closed_at IS NOT NULL AND s.closed_at + (ring.slots - 2) * ring.period_ms <= now_ms
     ORDER BY s.closed_at, s.slot LIMIT 1;
    IF oldest IS NOT NULL THEN
        more := true;
        -- Before anything is moved there everybody must know to look there.
        IF EXISTS (SELECT FROM once.slot s WHERE s.slot = 0 AND s.closed_at IS NULL) THEN
            PERFORM pg_advisory_xact_lock(8031153);
            UPDATE once.slot SET closed_at = 0 WHERE slot = 0;
            UPDATE once.ring r SET current = r.current;
            RETURN;
        END IF;
        IF once.move_finished(oldest, budget) > 0 THEN
            RETURN;
        END IF;
        PERFORM pg_advisory_xact_lock(8031153);
        removed := coalesce(once.empty_slot(oldest), 0);
        RETURN;
    END IF;
    IF now_ms >= ring.opened_at + ring.period_ms AND
       NOT EXISTS (SELECT FROM once.slot s WHERE s.slot = next AND s.closed_at IS NOT NULL) AND
       EXISTS (SELECT FROM once.claim c WHERE c.slot = ring.current) THEN
        PERFORM pg_advisory_xact_lock(8031153);
        UPDATE once.ring SET current = next, opened_at = now_ms;
        UPDATE once.slot SET closed_at = now_ms WHERE slot = ring.current;
        more := true;
        RETURN;
    END IF;
    removed := once.delete_due(budget);
    more := removed = budget;
EXCEPTION
    WHEN lock_not_available THEN   -- a long transaction is in the way; another time
        removed := 0;
        more := false;
END $$;
COMMENT ON FUNCTION once.expire(integer) IS
    'One bounded step of upkeep: turn the ring, empty what is out of use. Run it every few seconds';
