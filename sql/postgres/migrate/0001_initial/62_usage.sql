-- Quota usage among the `span` fences after `after`: records that are not past their retention, and the bytes stored
-- with
-- them, a row per tenant. The last row has no tenant; `next` is where to go on, `final` the last fence that counts
-- (`last`,
-- or the newest if that is 0), `now_ms` the time. Reads no bodies: a TOAST pointer has the length. Forgotten records
-- have
-- no tenant any more: they must not count for the tenant with the empty name.
CREATE FUNCTION once.usage(after bigint, last bigint, span bigint)
RETURNS TABLE (tenant bytea, records bigint, bytes bigint, next bigint, final bigint, now_ms bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off AS $$
DECLARE
    low    bigint := after;
    high   bigint;
    width  bigint := PG_FENCE_STEP * span;
    top    bigint;
BEGIN
    PERFORM once.lock_ring();
    now_ms := once.now_ms();
    SELECT CASE WHEN last > 0 THEN last ELSE q.last_value + PG_SLOT_MASK END INTO top FROM once.fence q;
    -- As in once.unfinished_attempts(): doubles the step over gaps without rows, then halves it.
    WHILE low + width < top AND NOT EXISTS (SELECT FROM once.claim c WHERE c.fence > low AND c.fence <= low + width) LOOP
        low := low + width;
        width := width * 2;
    END LOOP;
    WHILE width > PG_FENCE_STEP * span LOOP
        width := width / 2;
        IF NOT EXISTS (SELECT FROM once.claim c WHERE c.fence > low AND c.fence <= low + width) THEN
            low := low + width;
        END IF;
    END LOOP;
    high := least(low + width, top);
    RETURN QUERY
    SELECT c.tenant,
           count(*) FILTER (WHERE CASE
               WHEN r.state IS NULL THEN true
               WHEN r.state & PG_STATE_MASK IN (ONCE_STORED_RELEASED, ONCE_STORED_SUPERSEDED) THEN false
               WHEN r.state & PG_STATE_MASK IN (ONCE_STATE_SUCCEEDED, ONCE_STATE_FAILED) AND coalesce(c.retention_ms, ONCE_RETENTION_MS_DEFAULT) >= 0
                    AND r.finished_at + coalesce(c.retention_ms, ONCE_RETENTION_MS_DEFAULT) <= now_ms THEN false
               WHEN r.state & PG_END_MASK IN (ONCE_STATE_SUCCEEDED, ONCE_STATE_FAILED) THEN true
               ELSE NOT EXISTS (SELECT FROM once.claim o WHERE o.record = c.record AND o.fence > c.fence) END),
           coalesce(sum(CASE
               WHEN r.state & PG_STATE_MASK = ONCE_STORED_RELEASED OR (r.state & PG_STATE_MASK IN (ONCE_STATE_SUCCEEDED, ONCE_STATE_FAILED) AND coalesce(c.retention_ms, ONCE_RETENTION_MS_DEFAULT) >= 0
                    AND r.finished_at + coalesce(c.retention_ms, ONCE_RETENTION_MS_DEFAULT) <= now_ms) THEN 0
               ELSE coalesce(r.len, 0) + coalesce(p.len, 0) + coalesce(q.len, 0) END), 0)::bigint,
           NULL::bigint, NULL::bigint, NULL::bigint
      FROM once.claim c
      LEFT JOIN LATERAL (SELECT w.state, w.finished_at,
                                coalesce(octet_length(w.headers), 0) + coalesce(octet_length(w.body), 0) AS len
                           FROM once.result w WHERE w.fence = c.fence AND w.slot = c.slot OFFSET 0) r ON true
      LEFT JOIN LATERAL (SELECT octet_length(w.checkpoint) AS len FROM once.progress w
                          WHERE w.fence = c.fence AND w.slot = c.slot OFFSET 0) p ON true
      LEFT JOIN LATERAL (SELECT octet_length(w.request) AS len FROM once.request w
                          WHERE w.record = c.record AND w.fence = c.fence AND w.slot = c.slot OFFSET 0) q ON r.state IS NULL
     WHERE c.fence > low AND c.fence <= high AND c.takeover & PG_FLAG_FORGOTTEN = 0
     GROUP BY c.tenant;
    tenant := NULL;
    records := NULL;
    bytes := NULL;
    next := high;
    final := top;
    RETURN NEXT;
END $$;
