-- For the completer of flows: records that are running, or failed and retryable, whose newest claim is among the
-- first `span`
-- fences before `before` that have rows, newest first (once.unfinished_attempts finds them). `next` is where to go on
-- after
-- that row; the last row has no record, and `next` is 0 at the end.

CREATE FUNCTION once.unfinished(before bigint, span bigint)
RETURNS TABLE (next bigint, answer once.answer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
    now_ms bigint := once.now_ms();
    low    bigint;
    s      once.stored;
    hit    record;
BEGIN
    FOR hit IN SELECT l.record, l.fence FROM once.unfinished_attempts(before, span, true) l ORDER BY l.record IS NULL, l.fence DESC LOOP
        IF hit.record IS NULL THEN
            low := hit.fence;
            EXIT;
        END IF;
        s := once.newest(hit.record);
        CONTINUE WHEN s.fence <> hit.fence OR once.is_gone(s, now_ms);
        next := hit.fence;
        answer := once.answer_listed(s, now_ms);
        RETURN NEXT;
    END LOOP;
    answer := NULL;
    next := CASE WHEN low <= 0 THEN 0 ELSE low + 1 END;
    RETURN NEXT;
END $$;
