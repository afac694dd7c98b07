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
