-- Taking over exactly what was seen: for those who finish what others left behind.
--
-- A compare-and-set on the record's newest claim: it never begins a life and never replays
-- (a completer that could do either would execute again what was done). What may be done is
-- what the claim that is taken over said, not the taker (ADR 7).

-- again: it was sent before and its answer was lost. An escalation makes no grant: then
-- `unknown` under the fence that was seen is what it left.
CREATE FUNCTION once.take_over_record(wanted uuid, seen bigint, new_lease_ms bigint, new_nonce uuid, again boolean)
RETURNS once.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s       once.stored;
    n       bigint;
    probing boolean;
BEGIN
    PERFORM once.hold_ring();
    s := once.lock_newest(wanted);
    n := once.now_ms();
    IF once.is_gone(s, n) THEN
        RETURN once.answer_of('absent', NULL, n);
    END IF;
    IF s.state IS NULL AND s.nonce = new_nonce THEN   -- the same call again, its first answer lost
        INSERT INTO once.progress AS p (fence, slot, lease_until) VALUES (s.fence, s.slot, n + s.lease_ms)
        ON CONFLICT (fence, slot) DO UPDATE SET lease_until = excluded.lease_until;
        RETURN once.answer_of(CASE WHEN s.probing THEN 'probe' ELSE 'execute' END, once.newest(wanted), n);
    END IF;
    IF s.fence IS DISTINCT FROM seen THEN
        RETURN once.fenced(wanted, n);
    END IF;
    IF s.state = 4 AND again THEN
        RETURN once.answer_of('unknown', s, n);
    END IF;
    IF NOT (coalesce(s.state = 3 AND s.retryable, false) OR (s.state IS NULL AND s.lease_until <= n)) THEN
        RETURN once.fenced(wanted, n);
    END IF;
    IF s.state IS NULL THEN
        -- Its holder may be finishing just now, without a lock: one of us closes the turn.
        IF NOT once.close_turn(s, CASE s.takeover WHEN 1 THEN 4 ELSE 6 END, 0, NULL, NULL) THEN
            RETURN once.fenced(wanted, n);
        END IF;
        IF s.takeover = 1 THEN
            RETURN once.answer_of('unknown', once.newest(wanted), n);
        END IF;
    END IF;
    probing := s.state IS NULL AND s.takeover = 3;
    RETURN once.answer_of(CASE WHEN probing THEN 'probe' ELSE 'execute' END,
                          once.next_turn(s, new_nonce, s.takeover + CASE WHEN probing THEN 16 ELSE 0 END,
                                         s.attempt + 1, s.created_at,
                                         coalesce(nullif(new_lease_ms, 0), s.lease_ms)::int, s.retention_ms,
                                         s.fingerprint, s.tenant, s.key), n);
END $$;

CREATE FUNCTION once.take_over(record uuid, fence bigint, lease interval DEFAULT NULL,
                               nonce uuid DEFAULT gen_random_uuid())
RETURNS once.answer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    lease_ms bigint := (extract(epoch FROM lease) * 1000)::bigint;
BEGIN
    IF lease_ms NOT BETWEEN 1 AND 86400000 THEN
        RAISE EXCEPTION 'lease % is not between 1 ms and 24 hours', lease USING ERRCODE = '22023';
    END IF;
    IF nonce IS NULL THEN
        RAISE EXCEPTION 'nonce is NULL; leave it out to have one made' USING ERRCODE = '22023';
    END IF;
    RETURN once.take_over_record(record, fence, coalesce(lease_ms, 0), nonce, false);
END $$;
COMMENT ON FUNCTION once.take_over(uuid, bigint, interval, uuid) IS
    'Take over an abandoned record just as it was seen. arm: execute | probe | unknown (escalated) | fenced (it is not '
    'as it was seen) | absent';

-- Attempts that nobody has finished: running, or failed and retryable, of the first `span` fences after
-- `after` that have any, in the order of fences. The last row has no record: `fence` is then how far this looked,
-- `due` the time, `newest` the last fence that was given; transactions that were under way have numbers from
-- `horizon` up to below `edge`: fences are not committed in their order.
CREATE FUNCTION once.loose(after bigint, span bigint)
RETURNS TABLE (record uuid, fence bigint, due bigint, failed boolean, newest bigint, horizon bigint, edge bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off AS $$
DECLARE
    low   bigint := after;
    width bigint := 16 * span;
BEGIN
    PERFORM once.hold_ring();
    SELECT q.last_value + 15 INTO newest FROM once.fence q;
    -- What expired long ago left no rows: wider and wider steps up to the first that is there, and back.
    WHILE low + width < newest AND NOT EXISTS (SELECT FROM once.claim c WHERE c.fence > low AND c.fence <= low + width) LOOP
        low := low + width;
        width := width * 2;
    END LOOP;
    WHILE width > 16 * span LOOP
        width := width / 2;
        IF NOT EXISTS (SELECT FROM once.claim c WHERE c.fence > low AND c.fence <= low + width) THEN
            low := low + width;
        END IF;
    END LOOP;
    RETURN QUERY
    SELECT c.record, c.fence,
           CASE WHEN r.state IS NULL THEN coalesce(p.lease_until, c.claimed_at + coalesce(c.lease_ms, 60000)) ELSE 0 END,
           r.state IS NOT NULL, NULL::bigint, NULL::bigint, NULL::bigint
      FROM once.claim c
      LEFT JOIN LATERAL (SELECT w.state FROM once.result w WHERE w.fence = c.fence AND w.slot = c.slot OFFSET 0) r ON true
      LEFT JOIN LATERAL (SELECT w.lease_until FROM once.progress w WHERE w.fence = c.fence AND w.slot = c.slot
                         OFFSET 0) p ON r.state IS NULL
     WHERE c.fence > low AND c.fence <= low + width AND (r.state IS NULL OR r.state & 31 = 19)
     ORDER BY c.fence;
    record := NULL;
    fence := least(low + width, newest);
    due := once.now_ms();
    failed := NULL;
    horizon := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
    edge := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
    RETURN NEXT;
END $$;

-- These records as they are, in this order and without their bodies; arm 'absent' where one is gone.
CREATE FUNCTION once.look_many(records uuid[]) RETURNS TABLE (n bigint, answer once.answer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms bigint := once.now_ms();
    s      once.stored;
BEGIN
    PERFORM once.hold_ring();
    FOR i IN 1 .. cardinality(records) LOOP
        s := once.newest(records[i]);
        n := i;
        answer := CASE WHEN once.is_gone(s, now_ms) THEN once.answer_of('absent', NULL, now_ms)
                       ELSE once.answer_of('found', s, now_ms) END;
        answer.headers := NULL;
        answer.body := NULL;
        answer.checkpoint := NULL;
        RETURN NEXT;
    END LOOP;
END $$;
