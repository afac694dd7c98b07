-- Expiry: the ring rotates, and TRUNCATE empties old slots. Expired rows are deleted one by one only in slot 0, which
-- keeps
-- the records that outlive the ring.
--
-- K7: only finished records past their retention are removed; all others are moved to slot 0 first. An old slot gets no
-- new lives, so it is scanned beside the traffic, a bounded number of records at a time (once.slot.blocks says how
-- far),
-- and finished records that are still kept are moved. The few unfinished ones are moved under the ring's exclusive
-- lock,
-- together with the TRUNCATE: how long that takes does not depend on the size of the slot, and it waits for other
-- transactions no longer than its lock_timeout.
--
-- Every claim of a new key searches the closed slots, which is most of a ring's cost. So a slot in which everything has
-- expired is emptied early (once.sweep_early), and nothing has to be moved. A slot with any other record waits until it
-- is old enough.
--
-- A new claim of an existing record locks its newest claim's row. So two statements choose the records that are moved
-- or
-- deleted beside the traffic: the first locks the claims that were newest when it began, the second keeps those that
-- still are. With one statement, a claim made in between would lose its earlier ones.
--
-- For headers and bodies with a shorter retention than their record (claim.body_retention_ms) the clock decides what
-- readers see (once.answer_of). Their space is freed with their slot: a record that is moved to slot 0 after that time
-- leaves them behind. Only bodies that were moved before it are dropped row by row, in slot 0 (once.drop_bodies).
--
-- Rotating and emptying also write the ring's row, for transactions with an older snapshot
-- (once.lock_ring).

-- Copies to the ring's row which slots are in use. Under the exclusive lock.
CREATE FUNCTION once.note_slots() RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    UPDATE once.ring SET closed = ARRAY(SELECT s.slot FROM once.slot s WHERE s.closed_at IS NOT NULL ORDER BY s.slot),
                         since = ARRAY(SELECT s.since FROM once.slot s WHERE s.slot > 0 ORDER BY s.slot)
$$;

-- The cost of a step must not depend on the size of the slot. The statistics of a new slot are wrong, so plans are
-- pinned to
-- index scans.

-- Moves the present lives of these records from a slot to slot 0. No other transaction may change them meanwhile. But a
-- finish takes no lock and may still see the claims where they were: so copies of their results stay there until the
-- slot
-- is emptied, and its index goes on to decide which finish closes a claim (K3, K5).
CREATE FUNCTION once.move_lives(from_slot smallint, records uuid[], now_ms bigint) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
    WITH claims AS (
        DELETE FROM once.claim c
         WHERE c.slot = from_slot AND c.record = ANY (records)
           AND c.fence >= (SELECT max(o.fence) FROM once.claim o WHERE o.record = c.record AND o.created_at IS NULL)
        RETURNING c.*
    ), results AS (
        SELECT r.*, coalesce(r.state & PG_STATE_MASK IN (ONCE_STATE_SUCCEEDED, ONCE_STATE_FAILED) AND (r.headers IS NOT NULL OR r.body IS NOT NULL) AND
                             r.finished_at + c.body_retention_ms <= now_ms, false) AS body_expired
          FROM once.result r JOIN claims c ON r.fence = c.fence AND r.slot = from_slot
    ), progresses AS (
        DELETE FROM once.progress p USING claims c WHERE p.fence = c.fence AND p.slot = from_slot RETURNING p.*
    ), requests AS (
        DELETE FROM once.request q USING claims c
         WHERE q.record = c.record AND q.fence = c.fence AND q.slot = from_slot RETURNING q.*
    ), moved_requests AS (
        INSERT INTO once.request (record, fence, slot, request) SELECT record, fence, 0, request FROM requests
    ), moved_claims AS (
        INSERT INTO once.claim (record, nonce, fence, claimed_at, claim_no, slot, takeover, attempt, created_at, lease_ms,
                                retention_ms, body_retention_ms, fingerprint, tenant, key)
        SELECT record, nonce, fence, claimed_at, claim_no, 0, takeover, attempt, created_at, lease_ms, retention_ms,
               body_retention_ms, fingerprint, tenant, key FROM claims
    ), moved_results AS (
        INSERT INTO once.result (fence, finished_at, status, slot, state, headers, body)
        SELECT fence, finished_at, status, 0, CASE WHEN body_expired THEN state | PG_BODY_DROPPED ELSE state END,
               CASE WHEN NOT body_expired THEN headers END, CASE WHEN NOT body_expired THEN body END FROM results
    )
    INSERT INTO once.progress (fence, slot, lease_until, point, points, calls, checkpoint)
    SELECT fence, 0, lease_until, point, points, calls, checkpoint FROM progresses
$$;

-- The state of these records, by their newest claims. `here`: that claim is in this slot; `gone`: finished and past its
-- retention; `retryable`: another claim may follow; `body_expired`: headers and body have expired and are still stored.
CREATE FUNCTION once.scan_records(of_slot smallint, records uuid[])
RETURNS TABLE (record uuid, fence bigint, here boolean, finished boolean, gone boolean, retryable boolean, body_expired boolean)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    now_ms bigint := once.now_ms();
BEGIN
    RETURN QUERY
        SELECT w.record, (x.s).fence, (x.s).slot = of_slot, (x.s).state IS NOT NULL, once.is_gone(x.s, now_ms),
               coalesce((x.s).state = ONCE_STATE_FAILED AND (x.s).retryable, false),
               (x.s).body_retention_ms IS NOT NULL AND ((x.s).headers IS NOT NULL OR (x.s).body IS NOT NULL) AND
               once.is_tombstone(x.s, now_ms)
          FROM unnest(records) AS w (record)
         CROSS JOIN LATERAL (SELECT s FROM once.stored s WHERE s.record = w.record ORDER BY s.fence DESC LIMIT 1) x;
END $$;

-- Most claims of an old slot have a final outcome and are past their retention, or were released. This scans claims and
-- results block by block, in the order of the disk, counts those (`over`), and returns the records of all other rows,
-- of superseded claims too: their newest claim may be in an earlier block. `until`: when all of these expire, if known.
--
-- Fences grow in the order of the disk, so the results of a few blocks of claims are next to each other: they are
-- read as
-- one range and hashed (scan_near). If fences are far apart (a much later claim in a block with room) that range could
-- be the whole slot: then each result is searched for (scan_far). Each slot has its own statements, so that plans are
-- kept: making them costs as much as scanning a thousand rows.
DO $do$
DECLARE
    spans text := '';
    looks text := '';
    kind  record;
BEGIN
    FOR slot IN 1..6 LOOP
        spans := spans || format($template$
        WHEN %1$s THEN
            SELECT min(c.fence), max(c.fence), count(*) INTO low, high, rows FROM once.claim_%1$s c
             WHERE c.ctid >= first AND c.ctid < after;$template$, slot);
        looks := looks || format($template$
        WHEN %1$s THEN
            SELECT count(*) FILTER (WHERE w.over), array_agg(DISTINCT w.record) FILTER (WHERE NOT w.over),
                   CASE WHEN bool_and(w.ends IS NOT NULL) FILTER (WHERE NOT w.over) THEN max(w.ends) FILTER (WHERE NOT w.over) END
              INTO over, others, until
              FROM (SELECT e.record, e.ends, coalesce(e.released OR e.ends <= now_ms, false) AS over
                      FROM (SELECT c.record, r.state & PG_STATE_MASK = ONCE_STORED_RELEASED AS released,
                                   CASE WHEN r.state & PG_RETRYABLE = 0 AND r.state & PG_STATE_MASK IN (ONCE_STATE_SUCCEEDED, ONCE_STATE_FAILED) AND coalesce(c.retention_ms, 0) >= 0
                                        THEN r.finished_at + coalesce(c.retention_ms, ONCE_RETENTION_MS_DEFAULT) END AS ends
                              FROM once.claim_%1$s c
                              LEFT JOIN once.result_%1$s r ON r.fence = c.fence AND r.fence BETWEEN low AND high
                             WHERE c.ctid >= first AND c.ctid < after) e) w;$template$, slot);
    END LOOP;
    FOR kind IN VALUES ('near', 'off', 'on'), ('far', 'on', 'off') LOOP
        EXECUTE format($template$
CREATE FUNCTION once.scan_%s(of_slot smallint, first tid, after tid, low bigint, high bigint, now_ms bigint,
                             OUT over bigint, OUT others uuid[], OUT until bigint)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_mergejoin = off SET enable_nestloop = %s SET enable_hashjoin = %s SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    CASE of_slot%s
    END CASE;
END $$ $template$, kind.column1, kind.column2, kind.column3, looks);
    END LOOP;
    EXECUTE format($template$
CREATE FUNCTION once.scan_blocks(of_slot smallint, first_block bigint, end_block bigint,
                                  OUT over bigint, OUT others uuid[], OUT until bigint)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    first tid := ('(' || first_block || ',0)')::tid;
    after tid := ('(' || end_block || ',0)')::tid;
    seen  record;
    low   bigint;
    high  bigint;
    rows  bigint;
BEGIN
    CASE of_slot%s
    END CASE;
    IF (high - low) / PG_FENCE_STEP > 8 * rows THEN
        seen := once.scan_far(of_slot, first, after, low, high, once.now_ms());
    ELSE
        seen := once.scan_near(of_slot, first, after, low, high, once.now_ms());
    END IF;
    over := seen.over;
    others := seen.others;
    until := seen.until;
END $$ $template$, spans);
END $do$;

-- Locks these claims, except those that another transaction has locked. Returns the records whose newest claim is
-- locked now.
CREATE FUNCTION once.lock_still_newest(of_slot smallint, records uuid[], fences bigint[]) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    locked bigint[];
BEGIN
    locked := ARRAY(SELECT c.fence FROM once.claim c
                     WHERE c.slot = of_slot AND c.record = ANY (records) AND c.fence = ANY (fences)
                     ORDER BY c.record FOR UPDATE SKIP LOCKED);
    RETURN ARRAY(SELECT u.record FROM unnest(records, fences) AS u (record, fence)
                  WHERE u.fence = ANY (locked)
                    AND NOT EXISTS (SELECT FROM once.claim o WHERE o.record = u.record AND o.fence > u.fence));
END $$;

-- Deletes the claims of these records, which are locked. Their results stay until the slot is emptied, so that its
-- index
-- goes on to decide which finish closes a claim.
CREATE FUNCTION once.drop_lives(of_slot smallint, records uuid[]) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
    WITH claims AS (
        DELETE FROM once.claim c WHERE c.slot = of_slot AND c.record = ANY (records) RETURNING c.fence
    ), requests AS (
        DELETE FROM once.request q WHERE q.slot = of_slot AND q.record = ANY (records)
    )
    DELETE FROM once.progress p USING claims c WHERE p.fence = c.fence AND p.slot = of_slot
$$;

-- How many blocks the claims of a slot take.
CREATE FUNCTION once.blocks_of(of_slot smallint) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_relation_size(format('once.claim_%s', of_slot)) / current_setting('block_size')::bigint
$$;

-- Names the file of a slot's claims, unlike that of any other server or database. VACUUM FULL makes another file, and
-- so
-- does restoring a dump: there the number of scanned blocks means nothing.
CREATE FUNCTION once.file_of(of_slot smallint) RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%s/%s/%s', c.system_identifier, d.oid, pg_relation_filenode(format('once.claim_%s', of_slot)))
      FROM pg_control_system() c, pg_database d WHERE d.datname = current_database()
$$;

-- The next `most` records that were forgotten in closed slots: moves those of this slot that are finished and still
-- kept,
-- and leaves unfinished or locked ones for once.empty_slot(). A whole tenant may be forgotten at once: moving all under
-- the exclusive lock would take too long. Returns whether none was left.
CREATE FUNCTION once.sweep_forgotten(of_slot smallint, most integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    looked   uuid[] := ARRAY(SELECT l.record FROM once.leftover l WHERE l.fresh LIMIT most);
    left_    uuid[];
    finished uuid[];
    fences   bigint[];
    moved    uuid[] := '{}';
BEGIN
    IF looked = '{}' THEN
        RETURN true;
    END IF;
    SELECT array_agg(w.record), array_agg(w.record) FILTER (WHERE w.finished AND NOT w.gone),
           array_agg(w.fence) FILTER (WHERE w.finished AND NOT w.gone)
      INTO left_, finished, fences
      FROM once.scan_records(of_slot, looked) w WHERE w.here AND (NOT w.gone OR w.retryable);
    IF finished IS NOT NULL THEN
        moved := once.lock_still_newest(of_slot, finished, fences);
        PERFORM once.move_lives(of_slot, moved, once.now_ms());
    END IF;
    UPDATE once.leftover l SET fresh = false WHERE l.record = ANY (left_) AND l.record <> ALL (moved);
    DELETE FROM once.leftover l WHERE l.record = ANY (looked) AND l.fresh;
    RETURN false;
END $$;

-- Scans about the next `most` records of an old slot: moves those that are finished and still kept, and adds
-- unfinished or
-- locked ones to once.leftover. Expired records are only counted: they get no other claim here, since a new life begins
-- in the current slot. Only a retryable failure might, from a transaction that read the clock before the end of its
-- retention, or after the clock was set back: so it is deleted. Returns whether nothing was left to scan.
CREATE FUNCTION once.sweep_slot(of_slot smallint, most integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    done     bigint;
    step     bigint := greatest(1, most / 64);   -- a block has about 64 claims
    over     bigint;
    others   uuid[];
    finished uuid[];
    fences   bigint[];
    open     uuid[];
    moved    uuid[] := '{}';
    ended    uuid[];   -- expired retryable failures
    ends     bigint[];
    dropped  uuid[] := '{}';
BEGIN
    SELECT s.blocks INTO done FROM once.slot s WHERE s.slot = of_slot;
    IF done >= once.blocks_of(of_slot) THEN
        RETURN once.sweep_forgotten(of_slot, most);
    END IF;
    SELECT w.over, w.others INTO over, others FROM once.scan_blocks(of_slot, done, done + step) w;
    IF others IS NOT NULL THEN
        SELECT array_agg(w.record) FILTER (WHERE w.here AND NOT w.gone AND w.finished),
               array_agg(w.fence) FILTER (WHERE w.here AND NOT w.gone AND w.finished),
               array_agg(w.record) FILTER (WHERE w.here AND NOT w.gone AND NOT w.finished),
               array_agg(w.record) FILTER (WHERE w.here AND w.gone AND w.retryable),
               array_agg(w.fence) FILTER (WHERE w.here AND w.gone AND w.retryable)
          INTO finished, fences, open, ended, ends
          FROM once.scan_records(of_slot, others) w;
        IF finished IS NOT NULL THEN
            moved := once.lock_still_newest(of_slot, finished, fences);
            PERFORM once.move_lives(of_slot, moved, once.now_ms());
        END IF;
        IF ended IS NOT NULL THEN
            dropped := once.lock_still_newest(of_slot, ended, ends);
            PERFORM once.drop_lives(of_slot, dropped);
        END IF;
        INSERT INTO once.leftover (record)
        SELECT l FROM unnest(finished || open || ended) l WHERE l <> ALL (moved || dropped) ON CONFLICT DO NOTHING;
    END IF;
    UPDATE once.slot SET blocks = least(done + step, once.blocks_of(of_slot)), swept = swept + over + cardinality(dropped),
                         swept_at = once.now_ms(), file = once.file_of(of_slot)
     WHERE slot = of_slot;
    RETURN false;
END $$;

-- Scans about the next `most` records of a closed slot before it is old, as long as all of them have expired. If one
-- has
-- not, the scan stops there until it may have. Nothing is moved: expired records get no other claim (retryable failures
-- do not count as expired here), and with forgotten records in once.leftover the slot waits until it is old. Returns
-- whether all of the slot has expired; NULL: not now.
CREATE FUNCTION once.sweep_early(of_slot smallint, most integer, period_ms bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    done bigint;
    size bigint := once.blocks_of(of_slot);
    step bigint := greatest(1, most / 64);
    now_ms bigint := once.now_ms();
    seen record;
BEGIN
    SELECT s.blocks INTO done FROM once.slot s WHERE s.slot = of_slot;
    IF done >= size AND NOT EXISTS (SELECT FROM once.leftover) THEN
        RETURN true;
    END IF;
    IF done < size THEN
        SELECT w.over, w.others, w.until INTO seen FROM once.scan_blocks(of_slot, done, done + step) w;
        IF seen.others IS NULL THEN
            UPDATE once.slot SET blocks = least(done + step, size), swept = swept + seen.over, swept_at = once.now_ms(),
                                 file = once.file_of(of_slot)
             WHERE slot = of_slot;
            RETURN false;
        END IF;
        UPDATE once.slot SET look_from = coalesce(seen.until, now_ms + period_ms / 2) WHERE slot = of_slot;
    ELSE
        UPDATE once.slot SET look_from = now_ms + period_ms / 2 WHERE slot = of_slot;
    END IF;
    RETURN NULL;
END $$;

-- Under the exclusive lock, after the whole slot was scanned: moves the leftover records that are still kept, and
-- empties
-- the slot. Returns how many records that removed.
CREATE FUNCTION once.empty_slot(gone smallint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    removed bigint;
    name    text;
BEGIN
    IF EXISTS (SELECT FROM once.slot s WHERE s.slot = gone AND s.blocks < once.blocks_of(gone)) THEN
        RAISE EXCEPTION 'slot % was not scanned', gone;
    END IF;
    SELECT s.swept INTO removed FROM once.slot s WHERE s.slot = gone;
    IF EXISTS (SELECT FROM once.leftover) THEN
        PERFORM once.move_lives(gone, (
            SELECT array_agg(l.record) FROM once.leftover l
             CROSS JOIN LATERAL once.newest(l.record) n
             WHERE n.slot = gone AND NOT once.is_gone(n, once.now_ms())), once.now_ms());
        removed := removed + (SELECT count(*) FROM once.leftover l, LATERAL once.newest(l.record) n WHERE n.slot = gone);
    END IF;
    -- All claims wait for this, and TRUNCATE syncs every new index: so empty tables are left out.
    FOREACH name IN ARRAY ARRAY['claim', 'result', 'progress', 'request'] LOOP
        name := format('once.%I', name || '_' || gone);
        IF pg_relation_size(name) > 0 THEN
            EXECUTE 'TRUNCATE ' || name;
        END IF;
    END LOOP;
    DELETE FROM once.leftover;
    -- `since`: the fast path must refuse finishes of claims that were moved from here.
    UPDATE once.slot SET closed_at = NULL, since = nextval('once.fence'), blocks = 0, swept = 0, look_from = 0
     WHERE slot = gone;
    PERFORM once.note_slots();
    RETURN removed;
END $$;

-- Drops the headers and bodies of these records in slot 0 that are past their own retention. Their states stay.
CREATE FUNCTION once.drop_bodies(records uuid[], now_ms bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    dropped bigint;
BEGIN
    UPDATE once.result r SET headers = NULL, body = NULL, state = r.state | PG_BODY_DROPPED
      FROM once.claim c
     WHERE c.slot = 0 AND c.record = ANY (records) AND r.slot = 0 AND r.fence = c.fence AND r.state & PG_STATE_MASK IN (ONCE_STATE_SUCCEEDED, ONCE_STATE_FAILED)
       AND (r.headers IS NOT NULL OR r.body IS NOT NULL) AND r.finished_at + c.body_retention_ms <= now_ms;
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END $$;

-- The next records of slot 0 to scan, in the order of their ids.
CREATE FUNCTION once.next_outliving(most integer) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashagg = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    after uuid := (SELECT s.swept_to FROM once.slot s WHERE s.slot = 0);
BEGIN
    RETURN ARRAY(SELECT c.record FROM once.claim c WHERE c.slot = 0 AND c.record > after
                  GROUP BY c.record ORDER BY c.record LIMIT most);
END $$;

-- Slot 0: deletes expired records row by row. Scans the next `most` records, and begins again at the end.
CREATE FUNCTION once.delete_due(most integer, OUT deleted integer, OUT dropped bigint)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    last    uuid;
    looked  integer;
    records uuid[];
    fences  bigint[];
    body_expired  uuid[];   -- with an expired body, perhaps still stored
BEGIN
    deleted := 0;
    dropped := 0;
    SELECT (array_agg(w.record ORDER BY w.record DESC))[1], count(*),
           array_agg(w.record) FILTER (WHERE w.here AND w.gone), array_agg(w.fence) FILTER (WHERE w.here AND w.gone),
           array_agg(w.record) FILTER (WHERE w.here AND w.body_expired AND NOT w.gone)
      INTO last, looked, records, fences, body_expired
      FROM once.scan_records(0::smallint, once.next_outliving(most)) w;
    UPDATE once.slot SET swept_to = CASE WHEN looked < most THEN '00000000-0000-0000-0000-000000000000' ELSE last END
     WHERE slot = 0 AND swept_to IS DISTINCT FROM CASE WHEN looked < most THEN '00000000-0000-0000-0000-000000000000' ELSE last END;
    IF body_expired IS NOT NULL THEN
        dropped := once.drop_bodies(body_expired, once.now_ms());
    END IF;
    IF records IS NOT NULL THEN
        records := once.lock_still_newest(0::smallint, records, fences);
        PERFORM once.delete_claims(0::smallint, records);
        deleted := cardinality(records);
    END IF;
END $$;

-- One bounded step of upkeep. `removed` counts deleted records; `more` asks for another step soon.
CREATE FUNCTION once.expire(budget integer DEFAULT ONCE_EXPIRE_BUDGET_DEFAULT, OUT removed bigint, OUT more boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    now_ms bigint;
    ring   once.ring;
    next   smallint;
    oldest record;
    early  boolean;
    due    record;
BEGIN
    removed := 0;
    more := false;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION 'once.expire needs READ COMMITTED' USING ERRCODE = '25001';
    END IF;
    IF budget IS NULL OR budget NOT BETWEEN 1 AND ONCE_EXPIRE_BUDGET_MAX THEN
        RAISE EXCEPTION 'budget % is not between 1 and ONCE_EXPIRE_BUDGET_MAX', budget USING ERRCODE = '22023';
    END IF;
    IF NOT pg_try_advisory_xact_lock(PG_LOCK_EXPIRE) THEN   -- one at a time is enough
        RETURN;
    END IF;
    now_ms := once.now_ms();
    SELECT * INTO ring FROM once.ring;
    next := ring.current % ring.slots + 1;
    -- A slot is old when all other slots have been current since it was closed.
    SELECT s.slot, s.closed_at + (ring.slots - 2) * ring.period_ms <= now_ms AS out_of_use, s.look_from INTO oldest
      FROM once.slot s WHERE s.slot > 0 AND s.closed_at IS NOT NULL ORDER BY s.closed_at, s.slot LIMIT 1;
    -- A scan that was begun starts again if the clock was set back (expired records may not be any more), if another
    -- slot is the
    -- oldest now (once.leftover belongs to one slot), or if the table was rewritten (its rows are in other blocks).
    -- The lock
    -- prevents a rewrite from here on.
    IF oldest.slot IS NOT NULL THEN
        EXECUTE format('LOCK TABLE once.claim_%s IN ACCESS SHARE MODE', oldest.slot);
    END IF;
    UPDATE once.slot s SET blocks = 0, swept = 0, look_from = 0
     WHERE s.slot > 0 AND s.blocks > 0 AND (s.slot <> oldest.slot OR s.swept_at > now_ms OR s.file <> once.file_of(s.slot));
    IF oldest.out_of_use THEN
        more := true;
        -- All transactions must search slot 0 before anything is moved there.
        IF EXISTS (SELECT FROM once.slot s WHERE s.slot = 0 AND s.closed_at IS NULL) THEN
            PERFORM pg_advisory_xact_lock(PG_LOCK_RING);
            UPDATE once.slot SET closed_at = 0 WHERE slot = 0;
            PERFORM once.note_slots();
            RETURN;
        END IF;
        IF once.sweep_slot(oldest.slot, budget) THEN
            PERFORM pg_advisory_xact_lock(PG_LOCK_RING);
            IF once.sweep_slot(oldest.slot, budget) THEN -- a new claim may have added a block
                removed := once.empty_slot(oldest.slot);
            END IF;
        END IF;
        RETURN;
    END IF;
    IF now_ms >= ring.opened_at + ring.period_ms AND
       NOT EXISTS (SELECT FROM once.slot s WHERE s.slot = next AND s.closed_at IS NOT NULL) AND
       EXISTS (SELECT FROM once.claim c WHERE c.slot = ring.current) THEN
        PERFORM pg_advisory_xact_lock(PG_LOCK_RING);
        UPDATE once.ring SET current = next, opened_at = now_ms;
        UPDATE once.slot SET closed_at = now_ms WHERE slot = ring.current;
        PERFORM once.note_slots();
        more := true;
        RETURN;
    END IF;
    IF oldest.look_from <= now_ms THEN
        early := once.sweep_early(oldest.slot, budget, ring.period_ms);
        IF early THEN
            PERFORM pg_advisory_xact_lock(PG_LOCK_RING);
            IF once.sweep_early(oldest.slot, budget, ring.period_ms) THEN
                removed := once.empty_slot(oldest.slot);
            END IF;
        END IF;
        more := early IS NOT NULL;
        IF more THEN
            RETURN;
        END IF;
    END IF;
    SELECT d.deleted, d.dropped INTO due FROM once.delete_due(budget) d;
    removed := due.deleted + once.inbox_forget(budget);
    more := removed > 0 OR due.dropped > 0;
EXCEPTION
    WHEN lock_not_available THEN   -- a long transaction holds a lock; try again later
        removed := 0;
        more := false;
END $$;
COMMENT ON FUNCTION once.expire(integer) IS
    'One bounded step of upkeep: rotate the ring, empty what is out of use. Run it every few seconds';
