-- Erasure: deletes the personal data of a record, keeps what prevents a retry from executing again (docs/sealing.md).
--
-- Apart from this only expiry changes the rows of a record that has ended, and both lock the newest claim's row. Old
-- versions of the rows stay in dead rows until VACUUM, in the server's log, its backups and standbys.

-- Erases names, answers, requests and checkpoints of a record, in all its lives that are still in a slot. A result
-- that had
-- an answer gets PG_BODY_DROPPED.
CREATE FUNCTION once.erase_record(wanted uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    WITH claims AS (
        UPDATE once.claim c SET tenant = '', key = NULL, takeover = (c.takeover & ~PG_FLAG_UUID_KEY) | PG_FLAG_FORGOTTEN
         WHERE c.record = wanted RETURNING c.fence
    ), results AS (   -- a moved result may still be in both slots
        UPDATE once.result r SET headers = NULL, body = NULL, state = r.state | PG_BODY_DROPPED
          FROM claims c WHERE r.fence = c.fence AND (r.headers IS NOT NULL OR r.body IS NOT NULL)
    ), requests AS (
        DELETE FROM once.request q WHERE q.record = wanted
    )
    DELETE FROM once.progress p USING claims c WHERE p.fence = c.fence;
    -- Expiry scans the blocks of a slot once, and this UPDATE may have moved rows to a block that was scanned
    -- (40_expiry.sql).
    INSERT INTO once.leftover (record, fresh)
    SELECT wanted, true WHERE EXISTS (SELECT FROM once.claim c JOIN once.slot s ON s.slot = c.slot
                                 WHERE c.record = wanted AND c.slot > 0 AND s.closed_at IS NOT NULL)
    ON CONFLICT DO NOTHING;
END $$;

-- dropping: the whole record is released, as if nothing had happened. call: as for advance_record.
CREATE FUNCTION once.forget_record(wanted uuid, seen bigint, dropping boolean, actor bytea, reason bytea, call uuid)
RETURNS once.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s   once.stored;
    own bigint;
    n   bigint;
BEGIN
    IF coalesce(length(reason), 0) = 0 THEN
        RAISE EXCEPTION 'forgetting needs a reason' USING ERRCODE = '22023';
    END IF;
    dropping := coalesce(dropping, false);
    IF length(reason) > ONCE_REASON_LEN_MAX OR length(actor) > ONCE_ACTOR_LEN_MAX THEN
        RAISE EXCEPTION 'the reason has % bytes and the actor %, the limits are ONCE_REASON_LEN_MAX and ONCE_ACTOR_LEN_MAX', length(reason),
            length(actor) USING ERRCODE = '54000';
    END IF;
    PERFORM once.lock_ring();
    s := once.lock_newest(wanted);
    n := once.now_ms();
    IF s.fence IS NULL THEN
        RETURN once.answer_of('absent', NULL, n);
    END IF;
    SELECT c.fence INTO own FROM once.claim c WHERE c.record = wanted AND c.nonce = call;
    IF own IS NOT NULL THEN   -- the same call again, after its first answer was lost
        RETURN once.answer_of('done', once.claimed(wanted, own), n);
    END IF;
    IF coalesce(seen, 0) <> 0 AND seen <> s.fence THEN
        RETURN once.answer_of('fenced', s, n);
    END IF;
    IF once.is_gone(s, n) THEN
        dropping := false;   -- the record has expired, but its bytes are still stored
    ELSIF s.state IS NULL AND s.lease_until > n THEN
        RETURN once.answer_of('in progress', s, n);
    ELSIF NOT dropping AND (s.state IS NULL OR s.state = ONCE_STATE_UNKNOWN OR (s.retryable AND s.point IS NOT NULL)) THEN
        RETURN once.answer_of('unknown', s, n);
    END IF;
    IF s.forgotten AND NOT dropping THEN
        RETURN once.answer_of('done', s, n);
    END IF;
    IF dropping THEN
        IF s.state IS NULL AND NOT once.close_claim(s, ONCE_STORED_SUPERSEDED, 0, NULL, NULL) THEN
            s := once.newest(wanted);   -- it finished just now
        END IF;
        s := once.next_claim(s, coalesce(call, gen_random_uuid()), s.takeover, s.attempt, s.created_at, s.lease_ms,
                            s.retention_ms, s.body_retention_ms, s.fingerprint, '', NULL);
        PERFORM once.close_claim(s, PG_RELEASED_RETRYABLE, 0, NULL, NULL);
    END IF;
    PERFORM once.erase_record(wanted);
    INSERT INTO once.audit (at, record, fence, what, actor, reason)
    VALUES (n, wanted, s.fence, CASE WHEN dropping THEN 'dropped' ELSE 'forgotten' END, coalesce(actor, ''), reason);
    RETURN once.answer_of('done', once.claimed(wanted, s.fence), n);
END $$;

CREATE FUNCTION once.forget(tenant text, key text, reason text, dropping boolean DEFAULT false, seen_fence bigint DEFAULT 0)
RETURNS once.answer
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT once.forget_record(once.record_id(convert_to(tenant, 'UTF8'), convert_to(key, 'UTF8')), seen_fence, dropping,
                              convert_to(session_user::text, 'UTF8'), convert_to(reason, 'UTF8'), gen_random_uuid())
$$;
COMMENT ON FUNCTION once.forget(text, text, text, boolean, bigint) IS
    'Erase the personal data of a record: a retry is told that it was done. dropping: a retry EXECUTES AGAIN. Recorded in once.audit';
