-- Reading many records: listings, histories, checks, counts. A call reads a range of fences, so that it looks at a
-- bounded
-- number of rows; fences are PG_FENCE_STEP apart.

-- Records among the `span` fences before `before`, newest first. `next` is where to go on
-- after that row; the last row has no record, and `next` is 0 at the end.
CREATE FUNCTION once.list(before bigint, span bigint)
RETURNS TABLE (next bigint, answer once.answer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms bigint := once.now_ms();
    top    bigint;
    low    bigint;
    s      once.stored;
    row    record;
BEGIN
    PERFORM once.lock_ring();
    SELECT least(before, last_value + PG_FENCE_STEP) INTO top FROM once.fence;
    low := greatest(top - PG_FENCE_STEP * span, 1);
    FOR row IN
        SELECT c.record, c.fence FROM once.claim c
         WHERE c.fence >= low AND c.fence < top
           AND NOT EXISTS (SELECT FROM once.claim o WHERE o.record = c.record AND o.fence > c.fence)
         ORDER BY c.fence DESC
    LOOP
        s := once.newest(row.record);
        CONTINUE WHEN once.is_gone(s, now_ms);
        next := row.fence;
        answer := once.answer_listed(s, now_ms);
        RETURN NEXT;
    END LOOP;
    answer := NULL;
    next := CASE WHEN low <= 1 THEN 0 ELSE low END;
    RETURN NEXT;
END $$;

-- The same for unknown records only, by their index: the next `span` of them. One statement searches for all their
-- claims:
-- blocks that autovacuum has not summarised yet in the BRIN index are read once, not once for each.
CREATE FUNCTION once.list_unknown(before bigint, span bigint)
RETURNS TABLE (next bigint, answer once.answer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    now_ms bigint := once.now_ms();
    fences bigint[];
    s      once.stored;
    row    record;
BEGIN
    PERFORM once.lock_ring();
    fences := ARRAY(SELECT r.fence FROM once.result r WHERE r.state & PG_STATE_MASK = ONCE_STATE_UNKNOWN AND r.fence < before
                     ORDER BY r.fence DESC LIMIT span);
    FOR row IN SELECT c.record, c.fence FROM once.claim c WHERE c.fence = ANY (fences) ORDER BY c.fence DESC LOOP
        s := once.newest(row.record);
        CONTINUE WHEN (s).fence IS DISTINCT FROM row.fence;   -- resolved since, and perhaps claimed again
        next := row.fence;
        answer := once.answer_listed(s, now_ms);
        RETURN NEXT;
    END LOOP;
    answer := NULL;
    next := CASE WHEN cardinality(fences) < span THEN 0 ELSE fences[span] END;
    RETURN NEXT;
END $$;

-- Verdicts are kept for ever; attempts are shown of the record's present life only (K8).
CREATE FUNCTION once.history(wanted uuid)
RETURNS TABLE (at bigint, what text, fence bigint, attempt integer, state integer, status integer, actor bytea,
               reason bytea)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    life bigint;   -- its first fence
BEGIN
    PERFORM once.lock_ring();
    IF NOT once.is_gone(once.newest(wanted), once.now_ms()) THEN
        SELECT max(c.fence) INTO life FROM once.claim c WHERE c.record = wanted AND c.created_at IS NULL;
    END IF;
    RETURN QUERY
    SELECT a.at, a.what, a.fence, 0, 0, 0, a.actor, a.reason FROM once.audit a WHERE a.record = wanted
    UNION ALL
    SELECT c.claimed_at, CASE WHEN c.takeover & PG_FLAG_PROBING <> 0 THEN 'claimed to probe' ELSE 'claimed' END, c.fence,
           coalesce(c.attempt, 1), ONCE_STATE_RUNNING, 0, ''::bytea, ''::bytea
      FROM once.claim c
     WHERE c.record = wanted AND c.fence >= life
       AND NOT EXISTS (SELECT FROM once.audit a WHERE a.record = wanted AND a.fence = c.fence AND a.what <> 'forgotten')
    UNION ALL
    SELECT r.finished_at,
           CASE r.state & PG_STATE_MASK WHEN ONCE_STORED_RELEASED THEN 'released'
                             WHEN ONCE_STORED_SUPERSEDED THEN CASE WHEN p.lease_until = c.claimed_at THEN 'released' ELSE 'superseded' END
                             ELSE 'finished' END,
           c.fence, coalesce(c.attempt, 1), CASE WHEN r.state & PG_STATE_MASK IN (ONCE_STORED_RELEASED, ONCE_STORED_SUPERSEDED) THEN 0 ELSE r.state & PG_STATE_MASK END, r.status,
           ''::bytea, ''::bytea
      FROM once.claim c JOIN once.result r ON r.fence = c.fence AND r.slot = c.slot
      LEFT JOIN once.progress p ON p.fence = c.fence AND p.slot = c.slot
     WHERE c.record = wanted AND c.fence >= life
       AND NOT EXISTS (SELECT FROM once.audit a WHERE a.record = wanted AND a.fence = c.fence AND a.what <> 'forgotten')
     ORDER BY 1, 3, 5
     LIMIT ONCE_HISTORY_LEN_MAX;
END $$;

-- Checks the invariants that rows can show, for the `span` fences after `after`.
CREATE FUNCTION once.check_rows(after bigint, span bigint)
RETURNS TABLE (invariant text, fence bigint, problem text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT once.lock_ring();
    WITH c AS MATERIALIZED (
        SELECT * FROM once.claim c WHERE c.fence > after AND c.fence <= after + PG_FENCE_STEP * span
    )
    SELECT 'K9', c.fence, 'the record id is not that of its tenant and key' FROM c
     WHERE c.key IS NOT NULL AND c.record <> once.record_id(c.tenant,
           CASE WHEN c.takeover & PG_FLAG_UUID_KEY <> 0 THEN convert_to(encode(c.key, 'hex')::uuid::text, 'UTF8') ELSE c.key END)
    UNION ALL
    SELECT 'K1', c.fence, 'two claims of one number: also ' || o.fence FROM c
      JOIN once.claim o ON o.record = c.record AND o.claim_no = c.claim_no AND o.fence > c.fence AND o.slot = c.slot
    UNION ALL
    SELECT 'K1', c.fence, 'still running, but its record went on at ' || o.fence FROM c
      JOIN once.claim o ON o.record = c.record AND o.fence > c.fence
     WHERE NOT EXISTS (SELECT FROM once.result r WHERE r.fence = c.fence AND r.slot = c.slot)
    UNION ALL
    SELECT 'K2', c.fence, 'claim ' || c.claim_no || ' comes after a later one with a smaller fence' FROM c
      JOIN once.claim o ON o.record = c.record AND o.slot = c.slot AND o.claim_no > c.claim_no AND o.fence < c.fence
    UNION ALL
    SELECT 'K2', c.fence, 'a fence that the sequence has not given' FROM c WHERE c.fence > (SELECT last_value + PG_SLOT_MASK FROM once.fence)
    UNION ALL
    SELECT 'K5', c.fence, 'closed in ' || count(DISTINCT (r.finished_at, r.status, r.state & PG_END_MASK)) || ' ways' FROM c
      JOIN once.result r ON r.fence = c.fence   -- a moved result may still be in both slots, with its body in one
     GROUP BY c.fence HAVING count(DISTINCT (r.finished_at, r.status, r.state & PG_END_MASK)) > 1
    UNION ALL
    SELECT 'clock', c.fence, 'finished before it was claimed' FROM c JOIN once.result r ON r.fence = c.fence
     WHERE r.finished_at < c.claimed_at
    UNION ALL
    SELECT 'K8', c.fence, 'its body is to be kept for ' || c.body_retention_ms || ' ms, the record for less' FROM c
     WHERE c.body_retention_ms <= 0 OR (c.retention_ms IS DISTINCT FROM ONCE_NEVER AND
                                         c.body_retention_ms > coalesce(c.retention_ms, ONCE_RETENTION_MS_DEFAULT))
    UNION ALL
    SELECT 'format', c.fence, 'an impossible state ' || r.state FROM c JOIN once.result r ON r.fence = c.fence
     WHERE r.state & PG_STATE_MASK NOT BETWEEN ONCE_STATE_SUCCEEDED AND ONCE_STORED_SUPERSEDED OR (r.state & PG_RETRYABLE <> 0 AND r.state & PG_STATE_MASK NOT IN (ONCE_STATE_FAILED, ONCE_STORED_RELEASED))
        OR (r.state & PG_UNDELIVERED <> 0 AND r.state & PG_RETRYABLE = 0)
$$;

CREATE FUNCTION once.check_counts(after bigint, span bigint, OUT attempts bigint, OUT records bigint, OUT next bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT once.lock_ring();
    SELECT count(*),
           count(*) FILTER (WHERE NOT EXISTS (SELECT FROM once.claim o WHERE o.record = c.record AND o.fence > c.fence)
                              AND NOT once.is_gone(once.newest(c.record), once.now_ms())),
           CASE WHEN after + PG_FENCE_STEP * span >= (SELECT last_value + PG_SLOT_MASK FROM once.fence) THEN 0 ELSE after + PG_FENCE_STEP * span END
      FROM once.claim c WHERE c.fence > after AND c.fence <= after + PG_FENCE_STEP * span
$$;

CREATE FUNCTION once.check_orphans() RETURNS TABLE (invariant text, fence bigint, problem text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_nestloop = off SET jit = off AS $$
    SELECT once.lock_ring();
    SELECT 'K7', r.fence, 'a result row without its claim' FROM once.result r
     WHERE NOT EXISTS (SELECT FROM once.claim c WHERE c.fence = r.fence AND c.slot IN (r.slot, 0))
       AND NOT EXISTS (SELECT FROM once.slot s, once.ring g   -- moved claims leave copies of their results until the
                                                              -- TRUNCATE
                        WHERE s.slot = r.slot AND s.slot > 0 AND s.closed_at + (g.slots - 2) * g.period_ms <= once.now_ms())
    UNION ALL
    SELECT 'K7', p.fence, 'a progress row without its claim' FROM once.progress p
     WHERE NOT EXISTS (SELECT FROM once.claim c WHERE c.fence = p.fence AND c.slot = p.slot)
    UNION ALL
    SELECT 'K7', q.fence, 'a request row without its claim' FROM once.request q
     WHERE NOT EXISTS (SELECT FROM once.claim c WHERE c.record = q.record AND c.fence = q.fence AND c.slot = q.slot)
     LIMIT 1000
$$;

-- An estimate of the number of attempts in a slot. Every scrape of the metrics asks for it: so in a slot of more than
-- 128
-- blocks (about 8,000 attempts) 128 blocks are counted, in eight places, and the result is scaled up.
CREATE FUNCTION once.estimated_rows(of_slot integer) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    blocks  bigint := once.blocks_of(of_slot::smallint);
    counted bigint := 0;
    first   bigint;
    rows    bigint;
BEGIN
    IF blocks = 0 THEN
        RETURN 0;
    ELSIF blocks <= 128 OR current_setting('server_version_num')::integer < 140000 THEN   -- older versions read a
                                                                                          -- range of blocks from the
                                                                                          -- first block of the table
                                                                                          -- on
        EXECUTE format('SELECT count(*) FROM once.claim_%s', of_slot) INTO counted;
        RETURN counted;
    END IF;
    FOR place IN 0..7 LOOP   -- a statement each: a range of blocks that comes from a join is read from the first
                             -- block of the table on
        first := place * (blocks - 16) / 7;
        EXECUTE format('SELECT count(*) FROM once.claim_%s c WHERE c.ctid >= $1 AND c.ctid < $2', of_slot) INTO rows
          USING ('(' || first || ',0)')::tid, ('(' || first + 16 || ',0)')::tid;
        counted := counted + rows;
    END LOOP;
    RETURN counted * blocks / 128;
END $$;

CREATE FUNCTION once.counts(OUT attempts bigint, OUT bytes bigint, OUT now_ms bigint, OUT last_fence bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT once.lock_ring();
    SELECT (SELECT sum(once.estimated_rows(s.slot))::bigint FROM once.slot s),
           (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
             JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'once'
            WHERE c.relkind = 'r' AND c.relname ~ '^(claim|result|progress|request)_'),
           once.now_ms(), (SELECT last_value FROM once.fence)
$$;
