-- Takeover of an abandoned record just as it was seen: for completers.
--
-- A compare-and-set on the record's newest claim: it never begins a life and never replays (a completer that could do
-- either would execute again what was done). The claim that is taken over decides what the taker may do (ADR 7).

-- Whether nothing was sent: a holder with intent records a point before it sends. Without one, the record may be
-- executed
-- under every takeover policy.
CREATE FUNCTION once.is_unsent(s once.stored) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
    RETURN s.state IS NULL AND s.point IS NULL AND EXISTS (
        SELECT FROM once.claim c
         WHERE c.record = s.record AND c.claim_no = s.claim_no AND c.slot = s.slot AND c.takeover & PG_FLAG_INTENT <> 0);
END $$;

-- once.claim.takeover of a claim after one whose lease ended. If that one may have sent something, a later claim's
-- missing
-- mark does not prove the contrary: so the intent is dropped, and PG_FLAG_DOUBT is set for a release.
CREATE FUNCTION once.next_takeover(takeover integer, unsent boolean) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN unsent THEN takeover
                ELSE (takeover & ~PG_FLAGS) + CASE WHEN takeover & PG_TAKEOVER_MASK IN (ONCE_TAKEOVER_PROBE, ONCE_TAKEOVER_COMPLETER)
                                                THEN PG_FLAG_PROBING ELSE 0 END + PG_FLAG_DOUBT END
$$;

-- The stored request of this claim's life.
CREATE FUNCTION once.request_of(s once.stored) RETURNS bytea
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
    RETURN (SELECT q.request FROM once.request q
             WHERE q.record = s.record AND q.slot = s.slot AND q.fence <= s.fence
               AND q.fence >= (SELECT max(c.fence) FROM once.claim c WHERE c.record = s.record AND c.created_at IS NULL)
             ORDER BY q.fence DESC LIMIT 1);
END $$;

-- A claim that stores its request; the latest request counts.
CREATE FUNCTION once.claim_with_request(wanted uuid, tenant bytea, key bytea, fingerprint bytea, lease_ms bigint,
                                        retention_ms bigint, takeover integer, nonce uuid, request bytea,
                                        body_retention_ms bigint DEFAULT NULL, born bigint DEFAULT NULL)
RETURNS once.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a once.answer := once.claim_record(wanted, tenant, key, fingerprint, lease_ms, retention_ms, takeover, nonce,
                                       body_retention_ms, born);
    s once.stored;
BEGIN
    IF a.arm IN ('execute', 'probe') THEN
        s := once.claimed(wanted, a.fence);
        INSERT INTO once.request (record, fence, slot, request)
        VALUES (wanted, s.fence, s.slot, claim_with_request.request)
        ON CONFLICT ON CONSTRAINT request_pkey DO NOTHING;   -- the same claim again, after its answer was lost
    END IF;
    RETURN a;
END $$;

CREATE FUNCTION once.lookup_with_request(wanted uuid) RETURNS once.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a once.answer := once.lookup_record(wanted);
BEGIN
    IF a.arm = 'found' THEN
        a.request := once.request_of(once.claimed(wanted, a.fence));
    END IF;
    RETURN a;
END $$;

-- Deletes at most `most` requests of records that will not be executed again.
CREATE FUNCTION once.drop_requests(most integer) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    dropped bigint;
BEGIN
    PERFORM once.lock_ring();
    DELETE FROM once.request q USING (
        SELECT w.record, w.fence, w.slot FROM once.request w
         CROSS JOIN LATERAL (SELECT c.fence FROM once.claim c WHERE c.record = w.record AND c.slot = w.slot
                              ORDER BY c.claim_no DESC LIMIT 1) c
         CROSS JOIN LATERAL (SELECT x.state FROM once.result x WHERE x.fence = c.fence AND x.slot = w.slot OFFSET 0) r
         WHERE r.state & PG_END_MASK IN (ONCE_STATE_SUCCEEDED, ONCE_STATE_FAILED, PG_RELEASED_RETRYABLE)
         LIMIT most) d
     WHERE q.record = d.record AND q.fence = d.fence AND q.slot = d.slot;
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END $$;

-- again: it was sent before and its answer was lost. An escalation makes no grant: then the state unknown under the
-- fence
-- that was seen shows that it was done.
CREATE FUNCTION once.take_over_record(wanted uuid, seen bigint, new_lease_ms bigint, intent boolean, new_nonce uuid,
                                      again boolean)
RETURNS once.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s      once.stored;
    a      once.answer;
    n      bigint;
    unsent boolean := true;   -- a retryable failure left nothing unsure
BEGIN
    PERFORM once.lock_ring();
    s := once.lock_newest(wanted);
    n := once.now_ms();
    IF once.is_gone(s, n) THEN
        RETURN once.answer_of('absent', NULL, n);
    END IF;
    IF s.state IS NULL AND s.nonce = new_nonce THEN   -- the same call again, its first answer lost
        INSERT INTO once.progress AS p (fence, slot, lease_until) VALUES (s.fence, s.slot, n + s.lease_ms)
        ON CONFLICT (fence, slot) DO UPDATE SET lease_until = excluded.lease_until;
        a := once.answer_of(CASE WHEN s.probing THEN 'probe' ELSE 'execute' END, once.newest(wanted), n);
        a.request := once.request_of(s);
        RETURN a;
    END IF;
    IF s.fence IS DISTINCT FROM seen THEN
        RETURN once.fenced(wanted, seen, n);
    END IF;
    IF s.state = ONCE_STATE_UNKNOWN AND again THEN
        RETURN once.answer_of('unknown', s, n);
    END IF;
    IF NOT (coalesce(s.state = ONCE_STATE_FAILED AND s.retryable, false) OR (s.state IS NULL AND s.lease_until <= n)) THEN
        RETURN once.fenced(wanted, seen, n);
    END IF;
    IF s.state IS NULL THEN
        unsent := once.is_unsent(s);
        -- Its holder may be finishing now, without a lock: only one of the two closes the claim.
        IF NOT once.close_claim(s, CASE WHEN s.takeover = ONCE_TAKEOVER_ESCALATE AND NOT unsent THEN ONCE_STATE_UNKNOWN
                                       ELSE ONCE_STORED_SUPERSEDED END, 0, NULL, NULL) THEN
            RETURN once.fenced(wanted, seen, n);
        END IF;
        IF s.takeover = ONCE_TAKEOVER_ESCALATE AND NOT unsent THEN
            RETURN once.answer_of('unknown', once.newest(wanted), n);
        END IF;
    END IF;
    a := once.answer_of(CASE WHEN s.takeover IN (ONCE_TAKEOVER_PROBE, ONCE_TAKEOVER_COMPLETER) AND NOT unsent THEN 'probe' ELSE 'execute' END,
                        once.next_claim(s, new_nonce,
                                       once.next_takeover(s.takeover + PG_ROUTE_UNIT * s.route + CASE WHEN intent THEN PG_FLAG_INTENT ELSE 0 END, unsent),
                                       s.attempt + 1, s.created_at,
                                       coalesce(nullif(new_lease_ms, 0), s.lease_ms)::int, s.retention_ms,
                                       s.body_retention_ms, s.fingerprint, s.tenant, s.key), n);
    a.request := once.request_of(once.claimed(wanted, a.fence));
    RETURN a;
END $$;

CREATE FUNCTION once.take_over(record uuid, fence bigint, lease interval DEFAULT NULL,
                               nonce uuid DEFAULT gen_random_uuid(), intent boolean DEFAULT false)
RETURNS once.answer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    lease_ms bigint := (extract(epoch FROM lease) * 1000)::bigint;
BEGIN
    PERFORM once.need_grant(record, fence);
    IF lease_ms NOT BETWEEN 1 AND ONCE_LEASE_MS_MAX THEN
        RAISE EXCEPTION 'lease % is not between 1 ms and 24 hours', lease USING ERRCODE = '22023';
    END IF;
    IF nonce IS NULL THEN
        RAISE EXCEPTION 'nonce is NULL; leave it out to have one made' USING ERRCODE = '22023';
    END IF;
    RETURN once.take_over_record(record, fence, coalesce(lease_ms, 0), coalesce(intent, false), nonce, false);
END $$;
COMMENT ON FUNCTION once.take_over(uuid, bigint, interval, uuid, boolean) IS
    'Take over an abandoned record just as it was seen. arm: execute | probe | unknown (escalated) | fenced (it is not '
    'as it was seen) | absent';

-- Unfinished attempts: running, or failed and retryable, of the first `span` fences after `after` that have rows
-- (`down`:
-- before it), in the order of fences. The last row has no record: `fence` is how far this has looked, `due` the time,
-- `newest` the last fence that was given; transactions running now have numbers from `horizon` up to below `edge`, and
-- may still commit smaller fences.
CREATE FUNCTION once.unfinished_attempts(after bigint, span bigint, down boolean DEFAULT false)
RETURNS TABLE (record uuid, fence bigint, due bigint, failed boolean, newest bigint, horizon bigint, edge bigint,
               stored boolean)   -- may have a stored request
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off AS $$
DECLARE
    low   bigint := after;
    high  bigint;
    width bigint := PG_FENCE_STEP * span;
BEGIN
    PERFORM once.lock_ring();
    SELECT q.last_value + PG_SLOT_MASK INTO newest FROM once.fence q;
    -- Expired records leave gaps without rows: doubles the step to find the first row, then halves it again.
    IF down THEN
        high := least(after - 1, newest);
        WHILE high > width AND NOT EXISTS (SELECT FROM once.claim c WHERE c.fence > high - width AND c.fence <= high) LOOP
            high := high - width;
            width := width * 2;
        END LOOP;
        WHILE width > PG_FENCE_STEP * span LOOP
            width := width / 2;
            IF NOT EXISTS (SELECT FROM once.claim c WHERE c.fence > high - width AND c.fence <= high) THEN
                high := high - width;
            END IF;
        END LOOP;
        low := greatest(high - width, 0);
    ELSE
        WHILE low + width < newest AND NOT EXISTS (SELECT FROM once.claim c WHERE c.fence > low AND c.fence <= low + width) LOOP
            low := low + width;
            width := width * 2;
        END LOOP;
        WHILE width > PG_FENCE_STEP * span LOOP
            width := width / 2;
            IF NOT EXISTS (SELECT FROM once.claim c WHERE c.fence > low AND c.fence <= low + width) THEN
                low := low + width;
            END IF;
        END LOOP;
        high := low + width;
    END IF;
    RETURN QUERY
    SELECT c.record, c.fence,
           CASE WHEN r.state IS NULL THEN coalesce(p.lease_until, c.claimed_at + coalesce(c.lease_ms, ONCE_LEASE_MS_DEFAULT)) ELSE 0 END,
           r.state IS NOT NULL, NULL::bigint, NULL::bigint, NULL::bigint,
           EXISTS (SELECT FROM once.request q WHERE q.record = c.record AND q.slot = c.slot)
      FROM once.claim c
      LEFT JOIN LATERAL (SELECT w.state FROM once.result w WHERE w.fence = c.fence AND w.slot = c.slot OFFSET 0) r ON true
      LEFT JOIN LATERAL (SELECT w.lease_until FROM once.progress w WHERE w.fence = c.fence AND w.slot = c.slot
                         OFFSET 0) p ON r.state IS NULL
     WHERE c.fence > low AND c.fence <= high AND (r.state IS NULL OR r.state & PG_END_MASK = PG_FAILED_RETRYABLE)
     ORDER BY c.fence;
    record := NULL;
    fence := CASE WHEN down THEN low ELSE least(high, newest) END;
    due := once.now_ms();
    failed := NULL;
    stored := NULL;
    horizon := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
    edge := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
    RETURN NEXT;
END $$;

-- These records as they are now, in this order, without bodies; arm 'absent' if one does not exist any more.
CREATE FUNCTION once.lookup_many(records uuid[]) RETURNS TABLE (n bigint, answer once.answer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms bigint := once.now_ms();
    s      once.stored;
BEGIN
    PERFORM once.lock_ring();
    FOR i IN 1 .. cardinality(records) LOOP
        s := once.newest(records[i]);
        n := i;
        answer := CASE WHEN once.is_gone(s, now_ms) THEN once.answer_of('absent', NULL, now_ms)
                       ELSE once.answer_listed(s, now_ms) END;
        IF answer.arm = 'found' AND once.request_of(s) IS NOT NULL THEN
            answer.request := '';   -- there is one
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;
