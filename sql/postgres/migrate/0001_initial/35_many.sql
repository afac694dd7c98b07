-- Group commit: what a daemon calls with all that has queued.
--
-- One statement inserts everything that is fresh, in the order in which it was given: by
-- record, against deadlocks; finishes by fence. What it did not insert is read in a new
-- statement, which sees what was there; most of that only needs an answer (replay, in progress, ...), the rest is decided one by
-- one by the functions above. Plans are pinned to index probes: a batch is small, the tables
-- are not, and their statistics may be of yesterday.
--
-- The first row of an answer is for all that went as usual, in arrays: a row of its own for
-- each of them would cost more than the work. The caller knows what it asked for, so what it
-- gets is the fences and the time. Each further row has n, the position of another operation,
-- and its answer.

CREATE FUNCTION once.claim_many(records uuid[], tenants bytea[], keys bytea[], fingerprints bytea[],
                                leases bigint[], retentions bigint[], takeovers integer[], nonces uuid[])
RETURNS TABLE (n integer, at bigint, granted uuid[], fences bigint[], answer once.answer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET enable_hashjoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    current smallint;
    live    smallint[];   -- slots that may have rows
    known   uuid[];       -- records that are there
    rest_of integer[] := '{}';   -- positions
    g       integer := 1;
    rest    record;
BEGIN
    PERFORM once.hold_ring();
    at := once.now_ms();
    SELECT r.current, ARRAY(SELECT s.slot FROM once.slot s WHERE s.closed_at IS NOT NULL OR s.slot = r.current)
      INTO current, live FROM once.ring r;
    -- What is there is not even tried: a batch of replays writes nothing, not even a fence.
    known := ARRAY(SELECT o.record FROM once.claim o WHERE o.record = ANY (records) AND o.slot = ANY (live));
    -- In the current slot a record begins with turn 1, so its index decides.
    WITH inserted AS (
        INSERT INTO once.claim (record, nonce, fence, claimed_at, turn, slot, takeover, lease_ms, retention_ms,
                                fingerprint, tenant, key)
        SELECT a.record, a.nonce, nextval('once.fence') + current, at, 1, current, a.takeover,
               nullif(a.lease_ms, 60000), nullif(a.retention_ms, 86400000), a.fingerprint, a.tenant, a.key
          FROM (SELECT unnest(records) AS record, unnest(tenants) AS tenant, unnest(keys) AS key,
                       unnest(fingerprints) AS fingerprint, unnest(leases) AS lease_ms,
                       unnest(retentions) AS retention_ms, unnest(takeovers) AS takeover, unnest(nonces) AS nonce
                OFFSET 0) a
         WHERE a.record <> ALL (known)
        ON CONFLICT (record, turn, slot) DO NOTHING
        RETURNING record, fence
    )
    SELECT coalesce(array_agg(w.record), '{}'), coalesce(array_agg(w.fence), '{}') INTO granted, fences
      FROM inserted w;
    RETURN NEXT;
    IF cardinality(granted) = cardinality(records) THEN
        RETURN;
    END IF;
    -- Both are in order. Where a caller's are not, its own grant is among the others too, and
    -- found by its nonce.
    FOR i IN 1 .. cardinality(records) LOOP
        IF records[i] = granted[g] THEN
            g := g + 1;
        ELSE
            rest_of := rest_of || i;
        END IF;
    END LOOP;
    granted := NULL;
    fences := NULL;
    FOR rest IN
        SELECT u.i, CASE WHEN r.arm IS NOT NULL
                         THEN once.answer_of(r.arm, CASE WHEN r.arm <> 'mismatch' THEN x.s END, at) END AS answer
          FROM (SELECT o.i, records[o.i] AS record, fingerprints[o.i] AS fingerprint, nonces[o.i] AS nonce
                  FROM unnest(rest_of) AS o (i) OFFSET 0) u
          LEFT JOIN LATERAL (SELECT s FROM once.stored s WHERE s.record = u.record AND s.slot = ANY (live)
                              ORDER BY s.fence DESC LIMIT 1) x ON true
         CROSS JOIN LATERAL (SELECT CASE WHEN once.is_gone(x.s, at) THEN NULL
                                         WHEN (x.s).fingerprint <> u.fingerprint THEN 'mismatch'
                                         WHEN (x.s).state = 4 THEN 'unknown'
                                         WHEN (x.s).state IN (2, 3) AND NOT (x.s).retryable THEN 'replay'
                                         WHEN (x.s).state IS NULL AND (x.s).nonce <> u.nonce AND
                                              (x.s).lease_until > at THEN 'in progress'
                                    END AS arm OFFSET 0) r
    LOOP
        n := rest.i;
        answer := rest.answer;
        IF answer.arm IS NULL THEN
            answer := once.claim_record(records[n], tenants[n], keys[n], fingerprints[n], leases[n], retentions[n],
                                        takeovers[n], nonces[n]);
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

CREATE FUNCTION once.finish_many(records uuid[], held bigint[], states integer[], statuses integer[],
                                 headers bytea[], bodies bytea[], again boolean)
RETURNS TABLE (n integer, done bigint[], times bigint[], seen bigint[], retentions bigint[], answer once.answer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET enable_hashjoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    now_ms bigint;
    others integer[] := '{}';
    d      integer := 1;
BEGIN
    PERFORM once.hold_ring();
    now_ms := once.now_ms();
    -- A fence names the slot that its claim was made in. What is in slot 0 is closed one by one
    -- (once.close_turn).
    WITH claims AS MATERIALIZED (
        SELECT u.*, c.slot, greatest(now_ms, c.claimed_at) AS finished_at, c.retention_ms
          FROM (SELECT unnest(records) AS record, unnest(held) AS fence, unnest(states) AS state,
                       unnest(statuses) AS status, unnest(headers) AS headers, unnest(bodies) AS body OFFSET 0) u
          JOIN once.claim c ON c.record = u.record AND c.slot = (u.fence & 15)::smallint AND c.fence = u.fence
                             AND c.slot > 0
    ), inserted AS (
        INSERT INTO once.result (fence, finished_at, status, slot, state, headers, body)
        SELECT c.fence, c.finished_at, c.status, c.slot, c.state, nullif(c.headers, ''), nullif(c.body, '')
          FROM claims c
        ON CONFLICT (fence, slot) DO NOTHING
        RETURNING fence, finished_at
    )
    SELECT i.fences, i.times, c.fences, c.retentions INTO done, times, seen, retentions
      FROM (SELECT coalesce(array_agg(w.fence), '{}') AS fences, coalesce(array_agg(w.finished_at), '{}') AS times
              FROM inserted w) i,
           (SELECT array_agg(c.fence) AS fences, array_agg(coalesce(c.retention_ms, 86400000)) AS retentions
              FROM claims c) c;
    RETURN NEXT;
    IF cardinality(done) = cardinality(held) THEN
        RETURN;
    END IF;
    FOR i IN 1 .. cardinality(held) LOOP
        IF held[i] = done[d] THEN
            d := d + 1;
        ELSE
            others := others || i;
        END IF;
    END LOOP;
    done := NULL;
    times := NULL;
    seen := NULL;
    retentions := NULL;
    FOREACH n IN ARRAY others LOOP
        answer := once.finish_record(records[n], held[n], states[n], statuses[n], headers[n], bodies[n], again);
        RETURN NEXT;
    END LOOP;
END $$;
