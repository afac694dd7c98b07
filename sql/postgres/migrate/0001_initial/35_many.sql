-- Group commit: what a daemon calls with all that has queued.
--
-- One statement inserts everything that is fresh, in the order of its records against
-- deadlocks. What it did not insert is read in a new statement, which sees what was there;
-- most of that only needs an answer (replay, in progress, ...), the rest is decided one by
-- one by the functions above. Plans are pinned to index probes: a batch is small, the tables
-- are not, and their statistics may be of yesterday.

CREATE FUNCTION once.claim_many(records uuid[], tenants bytea[], keys bytea[], fingerprints bytea[],
                                leases bigint[], retentions bigint[], takeovers integer[], nonces uuid[])
RETURNS TABLE (n integer, answer once.answer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET enable_hashjoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    now_ms  bigint;
    current smallint;
    granted bigint[];   -- positions in the batch
    fences  bigint[];
    rest    record;
BEGIN
    PERFORM once.hold_ring();
    now_ms := once.now_ms();
    SELECT r.current INTO current FROM once.ring r;
    WITH asked AS MATERIALIZED (
        SELECT u.* FROM unnest(records, tenants, keys, fingerprints, leases, retentions, takeovers, nonces)
                   WITH ORDINALITY AS u (record, tenant, key, fingerprint, lease_ms, retention_ms, takeover, nonce, i)
         WHERE NOT EXISTS (SELECT FROM once.claim o WHERE o.record = u.record)
         ORDER BY u.record, u.i
    ), inserted AS (
        INSERT INTO once.claim (record, nonce, fence, claimed_at, turn, slot, takeover, lease_ms, retention_ms,
                                fingerprint, tenant, key)
        SELECT a.record, a.nonce, nextval('once.fence'), now_ms, 1, current, a.takeover,
               nullif(a.lease_ms, 60000), nullif(a.retention_ms, 86400000), a.fingerprint, a.tenant, a.key
          FROM asked a
        ON CONFLICT (record, turn, slot) DO NOTHING
        RETURNING record, fence
    )
    -- Of several claims of one record the first was inserted.
    SELECT array_agg(array_position(records, w.record)), array_agg(w.fence) INTO granted, fences FROM inserted w;
    -- The caller knows all but the fence and the time.
    RETURN QUERY
        SELECT g.i::integer, ROW('execute', records[g.i], g.fence, 1, 'running', false, NULL, NULL, NULL, false, NULL,
                                 NULL, NULL, NULL, now_ms, now_ms, now_ms + leases[g.i], true, NULL, NULL, NULL, NULL,
                                 NULL, NULL)::once.answer
          FROM unnest(granted, fences) AS g (i, fence);
    IF cardinality(granted) = cardinality(records) THEN
        RETURN;
    END IF;
    FOR rest IN
        SELECT u.i, CASE WHEN r.arm IS NOT NULL
                         THEN once.answer_of(r.arm, CASE WHEN r.arm <> 'mismatch' THEN r.s END, now_ms) END AS answer
          FROM unnest(records, fingerprints, nonces) WITH ORDINALITY AS u (record, fingerprint, nonce, i)
         CROSS JOIN LATERAL (SELECT once.newest(u.record) AS s OFFSET 0) x
         CROSS JOIN LATERAL (SELECT x.s, CASE WHEN once.is_gone(x.s, now_ms) THEN NULL
                                              WHEN (x.s).fingerprint <> u.fingerprint THEN 'mismatch'
                                              WHEN (x.s).state = 4 THEN 'unknown'
                                              WHEN (x.s).state IN (2, 3) AND NOT (x.s).retryable THEN 'replay'
                                              WHEN (x.s).state IS NULL AND (x.s).nonce <> u.nonce AND
                                                   (x.s).lease_until > now_ms THEN 'in progress'
                                         END AS arm) r
         WHERE u.i <> ALL (coalesce(granted, '{}'))
         ORDER BY u.record, u.i
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

CREATE FUNCTION once.finish_many(records uuid[], fences bigint[], states integer[], statuses integer[],
                                 headers bytea[], bodies bytea[], again boolean)
RETURNS TABLE (n integer, answer once.answer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET enable_hashjoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    now_ms     bigint;
    done       bigint[];
    retentions bigint[];
    times      bigint[];
    rest       bigint;
BEGIN
    PERFORM once.hold_ring();
    now_ms := once.now_ms();
    WITH held AS MATERIALIZED (
        SELECT DISTINCT ON (u.fence) u.*, c.slot, coalesce(c.retention_ms, 86400000) AS retention_ms,
               greatest(now_ms, c.claimed_at) AS finished_at
          FROM unnest(records, fences, states, statuses, headers, bodies)
               WITH ORDINALITY AS u (record, fence, state, status, headers, body, i)
          JOIN once.claim c ON c.record = u.record AND c.fence = u.fence
         ORDER BY u.fence, u.i
    ), inserted AS (
        INSERT INTO once.result (fence, finished_at, status, slot, state, headers, body)
        SELECT h.fence, h.finished_at, h.status, h.slot, h.state, nullif(h.headers, ''), nullif(h.body, '')
          FROM held h
        ON CONFLICT (fence, slot) DO NOTHING
        RETURNING fence
    )
    SELECT array_agg(h.i), array_agg(h.retention_ms), array_agg(h.finished_at) INTO done, retentions, times
      FROM inserted w JOIN held h ON h.fence = w.fence;
    RETURN QUERY
        SELECT d.i::integer, ROW('done', records[d.i], fences[d.i], NULL,
                                 CASE states[d.i] & 15 WHEN 2 THEN 'succeeded' WHEN 3 THEN 'failed' ELSE 'unknown' END,
                                 states[d.i] & 16 <> 0, statuses[d.i], NULL, NULL, states[d.i] & 32 <> 0, NULL, NULL,
                                 NULL, NULL, NULL, NULL, NULL, false, d.finished_at,
                                 CASE WHEN d.retention_ms >= 0 AND states[d.i] & 15 <> 4
                                      THEN d.finished_at + d.retention_ms END,
                                 d.retention_ms, NULL, NULL, NULL)::once.answer
          FROM unnest(done, retentions, times) AS d (i, retention_ms, finished_at);
    IF cardinality(done) = cardinality(records) THEN
        RETURN;
    END IF;
    FOR rest IN SELECT i FROM generate_subscripts(records, 1) i
                 WHERE i <> ALL (coalesce(done, '{}')) ORDER BY records[i], i LOOP
        n := rest;
        answer := once.finish_record(records[rest], fences[rest], states[rest], statuses[rest], headers[rest],
                                     bodies[rest], again);
        RETURN NEXT;
    END LOOP;
END $$;
