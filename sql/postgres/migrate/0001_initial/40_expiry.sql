-- Expiry: the ring turns, slots are emptied by TRUNCATE. No row is deleted for having
-- expired, except in slot 0, where what outlives the ring was moved.
--
-- K7: only what is finished and past its retention goes; everything else in a slot is moved
-- to slot 0 first. Finished records are moved in batches beside the traffic (their result is
-- there, so no finish can come in between); the few unfinished ones, and the TRUNCATE, under
-- the ring's exclusive lock, which waits for nobody longer than its lock_timeout.

-- Moves at most `most` finished records that are still wanted out of a slot. Returns how many.
CREATE FUNCTION once.move_finished(from_slot smallint, most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms bigint := once.now_ms();
    moved  integer;
BEGIN
    WITH wanted AS (
        SELECT c.record FROM once.claim c
          JOIN once.result r ON r.fence = c.fence AND r.slot = c.slot
         WHERE c.slot = from_slot AND r.state & 15 IN (2, 3, 4)
           AND (r.state & 15 = 4 OR c.retention_ms < 0 OR
                r.finished_at + coalesce(c.retention_ms, 86400000) > now_ms)
           AND NOT EXISTS (SELECT FROM once.claim o WHERE o.record = c.record AND o.fence > c.fence)
         LIMIT most
           FOR UPDATE OF c SKIP LOCKED
    ), claims AS (
        DELETE FROM once.claim c USING wanted w WHERE c.record = w.record AND c.slot = from_slot RETURNING c.*
    ), results AS (
        DELETE FROM once.result r USING claims c WHERE r.fence = c.fence AND r.slot = from_slot RETURNING r.*
    ), progresses AS (
        DELETE FROM once.progress p USING claims c WHERE p.fence = c.fence AND p.slot = from_slot RETURNING p.*
    ), a AS (
        INSERT INTO once.claim (record, nonce, fence, claimed_at, turn, slot, takeover, attempt, created_at, lease_ms,
                                retention_ms, fingerprint, tenant, key)
        SELECT record, nonce, fence, claimed_at, turn, 0, takeover, attempt, created_at, lease_ms, retention_ms,
               fingerprint, tenant, key FROM claims
    ), b AS (
        INSERT INTO once.result (fence, finished_at, status, slot, state, headers, body)
        SELECT fence, finished_at, status, 0, state, headers, body FROM results
    ), d AS (
        INSERT INTO once.progress (fence, slot, lease_until, point, points, checkpoint)
        SELECT fence, 0, lease_until, point, points, checkpoint FROM progresses
    )
    SELECT count(*) INTO moved FROM wanted;
    RETURN moved;
END $$;

-- Under the exclusive lock: moves what is unfinished and empties the slot for good.
CREATE FUNCTION once.empty_slot(gone smallint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    removed bigint;
BEGIN
    IF once.move_finished(gone, 10000) > 0 THEN
        RAISE EXCEPTION 'slot % still holds records to be moved', gone USING ERRCODE = '55000';
    END IF;
    INSERT INTO once.claim (record, nonce, fence, claimed_at, turn, slot, takeover, attempt, created_at, lease_ms,
                            retention_ms, fingerprint, tenant, key)
    SELECT c.record, c.nonce, c.fence, c.claimed_at, c.turn, 0, c.takeover, c.attempt, c.created_at, c.lease_ms,
           c.retention_ms, c.fingerprint, c.tenant, c.key
      FROM once.claim c
     WHERE c.slot = gone AND NOT EXISTS (SELECT FROM once.result r WHERE r.fence = c.fence AND r.slot = c.slot);
    INSERT INTO once.progress (fence, slot, lease_until, point, points, checkpoint)
    SELECT p.fence, 0, p.lease_until, p.point, p.points, p.checkpoint
      FROM once.progress p JOIN once.claim c ON c.fence = p.fence AND c.slot = 0
     WHERE p.slot = gone;
    EXECUTE format('SELECT count(*) FROM ONLY once.claim_%s', gone) INTO removed;
    EXECUTE format('TRUNCATE once.claim_%s, once.result_%s, once.progress_%s', gone, gone, gone);
    UPDATE once.slot SET closed_at = NULL WHERE slot = gone;
    RETURN removed;
END $$;

-- One bounded step of upkeep. `removed` counts claims; `more` asks for another step soon.
CREATE FUNCTION once.expire(budget integer DEFAULT 1000, OUT removed bigint, OUT more boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    now_ms bigint := once.now_ms();
    ring   once.ring;
    next   smallint;
    oldest smallint;
BEGIN
    removed := 0;
    more := false;
    IF NOT pg_try_advisory_xact_lock(8031154) THEN   -- one at a time is enough
        RETURN;
    END IF;
    SELECT * INTO ring FROM once.ring;
    next := ring.current % ring.slots + 1;
    -- A slot is out of use when it was closed a full turn of the others ago.
    SELECT s.slot INTO oldest FROM once.slot s
     WHERE s.closed_at IS NOT NULL AND s.closed_at + (ring.slots - 2) * ring.period_ms <= now_ms
     ORDER BY s.closed_at LIMIT 1;
    IF oldest IS NOT NULL THEN
        more := true;
        IF once.move_finished(oldest, budget) > 0 THEN
            RETURN;
        END IF;
        PERFORM pg_advisory_xact_lock(8031153);
        removed := once.empty_slot(oldest);
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
    -- Slot 0: what outlived the ring goes row by row.
    WITH due AS (
        SELECT c.record FROM once.claim c
          JOIN once.result r ON r.fence = c.fence AND r.slot = c.slot
         WHERE c.slot = 0 AND (r.state & 15 = 5 OR (r.state & 15 IN (2, 3) AND coalesce(c.retention_ms, 86400000) >= 0
               AND r.finished_at + coalesce(c.retention_ms, 86400000) <= now_ms))
           AND NOT EXISTS (SELECT FROM once.claim o WHERE o.record = c.record AND o.fence > c.fence)
         LIMIT budget
           FOR UPDATE OF c SKIP LOCKED
    ), claims AS (
        DELETE FROM once.claim c USING due d WHERE c.record = d.record AND c.slot = 0 RETURNING c.fence, c.record
    ), results AS (
        DELETE FROM once.result r USING claims c WHERE r.fence = c.fence AND r.slot = 0
    ), progresses AS (
        DELETE FROM once.progress p USING claims c WHERE p.fence = c.fence AND p.slot = 0
    )
    SELECT count(*) INTO removed FROM due;
    more := removed = budget;
EXCEPTION
    WHEN lock_not_available THEN   -- a long transaction is in the way; another time
        removed := 0;
        more := false;
END $$;
COMMENT ON FUNCTION once.expire(integer) IS
    'One bounded step of upkeep: turn the ring, empty what is out of use. Run it every few seconds';
