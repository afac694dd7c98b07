-- The fence inside a worker's own transaction: a worker that was wrongly thought dead loses its effect, not only its
-- record (K3).

CREATE FUNCTION once.guard(record uuid, fence bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
SET jit = off AS $$
DECLARE
    s once.stored;
    n bigint;
BEGIN
    PERFORM once.need_grant(guard.record, guard.fence);
    PERFORM once.need_read_committed();
    PERFORM once.lock_ring();
    -- A takeover, an advance or a verdict locks this row FOR UPDATE: so none of them happens between here and the end
    -- of the
    -- transaction. In slot 0 expiry may delete the row; then nothing is locked.
    SELECT c.* INTO s FROM once.claimed(guard.record, guard.fence) c;
    PERFORM 1 FROM once.claim c WHERE c.record = s.record AND c.claim_no = s.claim_no AND c.slot = s.slot FOR KEY SHARE;
    s := once.newest(guard.record);   -- in a new statement: a change that was waited for is visible now
    n := once.now_ms();
    IF once.is_gone(s, n) THEN
        RAISE EXCEPTION 'fenced: the record of grant % is gone', guard.fence
            USING ERRCODE = 'ONC01', HINT = 'Roll back; the key is like new.';
    ELSIF s.fence IS DISTINCT FROM guard.fence THEN
        RAISE EXCEPTION 'fenced: grant % is not the newest any more, % is', guard.fence, s.fence
            USING ERRCODE = 'ONC01', HINT = 'Roll back; answer from the stored record.';
    ELSIF s.state IS NOT NULL THEN
        RAISE EXCEPTION 'fenced: the record of grant % has ended', guard.fence
            USING ERRCODE = 'ONC01', HINT = 'Roll back; answer from the stored record.';
    END IF;
END $$;
COMMENT ON FUNCTION once.guard(uuid, bigint) IS
    'Fails the transaction with SQLSTATE ONC01 unless this grant is the newest of a running record, and keeps it so until '
    'the transaction ends: a stale worker''s effect is rolled back, not just its outcome refused';
