-- What a completer of flows looks at: records that are running, or failed and may be retried, whose newest claim is among
-- the first `span` fences before `before` that have any, newest first. What is finished is passed over where it lies: its result says so. `next` is
-- where to go on after that row; the last row has no record, and 0 there at the end.

CREATE FUNCTION once.unfinished(before bigint, span bigint)
RETURNS TABLE (next bigint, answer once.answer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off AS $$
DECLARE
    now_ms bigint := once.now_ms();
    top    bigint;
    low    bigint;
    width  bigint := 16 * span;
    s      once.stored;
    row    record;
BEGIN
    PERFORM once.hold_ring();
    SELECT least(before, last_value + 16) INTO top FROM once.fence;
    -- What expired left no rows: wider and wider steps down to the first that is there, and back (as in once.loose).
    WHILE top - width > 1 AND NOT EXISTS (SELECT FROM once.claim c WHERE c.fence >= top - width AND c.fence < top) LOOP
        top := top - width;
        width := width * 2;
    END LOOP;
    WHILE width > 16 * span LOOP
        width := width / 2;
        IF NOT EXISTS (SELECT FROM once.claim c WHERE c.fence >= top - width AND c.fence < top) THEN
            top := top - width;
        END IF;
    END LOOP;
    low := greatest(top - 16 * span, 1);
    FOR row IN
        SELECT c.record, c.fence FROM once.claim c LEFT JOIN once.result r ON r.fence = c.fence AND r.slot = c.slot
         WHERE c.fence >= low AND c.fence < top AND (r.fence IS NULL OR r.state & 31 = 19)
         ORDER BY c.fence DESC
    LOOP
        s := once.newest(row.record);
        CONTINUE WHEN s.fence <> row.fence OR once.is_gone(s, now_ms);
        next := row.fence;
        answer := once.answer_of('found', s, now_ms);
        answer.headers := NULL;
        answer.body := NULL;
        answer.checkpoint := NULL;
        RETURN NEXT;
    END LOOP;
    answer := NULL;
    next := CASE WHEN low <= 1 THEN 0 ELSE low END;
    RETURN NEXT;
END $$;
