-- Expiry: the ring turns, slots are emptied by TRUNCATE. No row is deleted for having
-- expired, except in slot 0, where what outlives the ring was moved.
--
-- K7: only what is finished and past its retention goes; everything else in a slot is moved
-- to slot 0 first. A slot that is out of use gets no new lives, so it is gone through beside the
-- traffic, a bounded number of records at a time (once.slot.swept_to says how far): finished
-- records that are still wanted are moved. The few that are unfinished are moved under the ring's
-- exclusive lock, with the TRUNCATE: its length does not depend on that of the slot, and it waits
-- for nobody longer than its lock_timeout.
--
-- A closed slot is looked into by every fresh claim, which is most of what a ring costs. So one of which all is over goes
-- before its time (once.sweep_early): then nothing is moved at all. Where something in it lives, it waits until it is out of use.
--
-- Who begins a turn of an existing record locks its newest claim's row. So what is moved or
-- deleted beside the traffic is chosen in two statements: the first locks the rows that were
-- newest when it began, the second keeps those that still are, and now stay so. In one
-- statement a turn that was begun in between would lose its earlier ones.
--
-- Headers and bodies that are not kept as long as their records (claim.body_retention_ms) are gone for readers by the
-- clock (once.answer_of). Their space goes with their slot: what is moved to slot 0 after their time leaves them behind. Only
-- of what was moved before its time they are dropped row by row, in slot 0 (once.drop_bodies).
--
-- Turning and emptying also write the ring's row, for transactions with an older snapshot
-- (once.lock_ring).

-- Tells everybody which slots are in use. Under the exclusive lock.
CREATE FUNCTION once.note_slots() RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    UPDATE once.ring SET closed = ARRAY(SELECT s.slot FROM once.slot s WHERE s.closed_at IS NOT NULL ORDER BY s.slot),
                         since = ARRAY(SELECT s.since FROM once.slot s WHERE s.slot > 0 ORDER BY s.slot)
$$;

-- A step must cost what its records cost, not what the slot has: statistics of a slot that was
-- just filled say nothing, so its plans are told to go by index.

-- Moves what a slot has of the present lives of these records to slot 0. Nobody else may
-- change them meanwhile. But a finish that takes no lock may still see them where they were:
-- their results also stay there, as they were, until the slot is emptied, so that its index goes on to decide
-- who closed a turn (K3, K5).
CREATE FUNCTION once.move_lives(from_slot smallint, records uuid[], now_ms bigint) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
    WITH claims AS (
        DELETE FROM once.claim c
         WHERE c.slot = from_slot AND c.record = ANY (records)
           AND c.fence >= (SELECT max(o.fence) FROM once.claim o WHERE o.record = c.record AND o.created_at IS NULL)
        RETURNING c.*
    ), results AS (
        SELECT r.*, coalesce(r.state & 15 IN (2, 3) AND (r.headers IS NOT NULL OR r.body IS NOT NULL) AND
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
        SELECT fence, finished_at, status, 0, CASE WHEN body_expired THEN state | 32 ELSE state END,
               CASE WHEN NOT body_expired THEN headers END, CASE WHEN NOT body_expired THEN body END FROM results
    )
    INSERT INTO once.progress (fence, slot, lease_until, point, points, calls, checkpoint)
    SELECT fence, 0, lease_until, point, points, calls, checkpoint FROM progresses
$$;

-- What became of these records, by their newest claims: `gone` is finished and past its
-- retention; `here`: the newest claim is in this slot; `retryable`: another turn may follow; `body_expired`: its
-- headers and body are past theirs and still there.
CREATE FUNCTION once.scan_records(of_slot smallint, records uuid[])
RETURNS TABLE (record uuid, fence bigint, here boolean, finished boolean, gone boolean, retryable boolean, body_expired boolean)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    now_ms bigint := once.now_ms();
BEGIN
    RETURN QUERY
        SELECT w.record, (x.s).fence, (x.s).slot = of_slot, (x.s).state IS NOT NULL, once.is_gone(x.s, now_ms),
               coalesce((x.s).state = 3 AND (x.s).retryable, false),
               (x.s).body_retention_ms IS NOT NULL AND ((x.s).headers IS NOT NULL OR (x.s).body IS NOT NULL) AND
               once.is_tombstone(x.s, now_ms)
          FROM unnest(records) AS w (record)
         CROSS JOIN LATERAL (SELECT s FROM once.stored s WHERE s.record = w.record ORDER BY s.fence DESC LIMIT 1) x;
END $$;

-- Most of a slot that is out of use are lives that are over: a turn that ended for good, past its
-- retention or released. One look at the row and its result tells, block by block, in the order
-- of the disk. Counts them, and names the records of all other rows, of turns that were superseded too:
-- their newest may be in a block that was looked at before. `until`: when all of those are over, where that is known.
--
-- Fences grow in the order of the disk, and results are found by fence. So those of a few blocks are next to each other:
-- they are read in one go and hashed (scan_near). Where fences are far apart (a turn that was begun much later, in a
-- block with room) that could be all of the slot: there each is searched for (scan_far). Each slot has its own
-- statements, whose plans are kept: making them costs as much as looking at a thousand rows.
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
                      FROM (SELECT c.record, r.state & 15 = 5 AS released,
                                   CASE WHEN r.state & 16 = 0 AND r.state & 15 IN (2, 3) AND coalesce(c.retention_ms, 0) >= 0
                                        THEN r.finished_at + coalesce(c.retention_ms, 86400000) END AS ends
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
    IF (high - low) / 16 > 8 * rows THEN
        seen := once.scan_far(of_slot, first, after, low, high, once.now_ms());
    ELSE
        seen := once.scan_near(of_slot, first, after, low, high, once.now_ms());
    END IF;
    over := seen.over;
    others := seen.others;
    until := seen.until;
END $$ $template$, spans);
END $do$;

-- Locks those claims that nobody else holds just now. Returns the records of which they are still
-- the newest, and now stay so.
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

-- The claims of these records, which are locked. Their results stay until the slot is emptied, so
-- that its index goes on to decide who closed a turn.
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

-- The file that the claims of a slot are in, unlike that of any other server or database. VACUUM FULL makes another, and so does restoring
-- a dump: what was looked at is known by its place, which says nothing there.
CREATE FUNCTION once.file_of(of_slot smallint) RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%s/%s/%s', c.system_identifier, d.oid, pg_relation_filenode(format('once.claim_%s', of_slot)))
      FROM pg_control_system() c, pg_database d WHERE d.datname = current_database()
$$;

-- Of what was forgotten in closed slots, the next `most` records: those of this one that are finished and still wanted
-- are moved; what is not finished, or locked just now, is left for when the slot is emptied. A whole tenant may be forgotten
-- at once: under the exclusive lock that would be long. Returns whether none was left.
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

-- Goes through the next `most` records or so of a slot that is out of use: moves what is finished and
-- still wanted, and writes down in once.leftover what has to be looked at again: unfinished, or
-- locked just now. What is past its retention is counted: it gets no other turn here, for a new life
-- begins in the current slot. Only a retryable failure might: who looked at the clock before its end,
-- or whose clock is set back. So that is taken away. Returns whether none was left.
CREATE FUNCTION once.sweep_slot(of_slot smallint, most integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    done     bigint;
    step     bigint := greatest(1, most / 64);   -- about so many are in a block
    over     bigint;
    others   uuid[];
    finished uuid[];
    fences   bigint[];
    open     uuid[];
    moved    uuid[] := '{}';
    ended    uuid[];   -- retryable, and gone
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

-- Goes through the next `most` records or so of a closed slot before it is out of use, as long as all of them are over. Where
-- one is not, that is looked at again when it may be. Nothing is moved or written down: what is over gets no other turn (a
-- retryable failure is not over here), and what was forgotten and is in once.leftover waits until the slot is out of use. Returns
-- whether all of it is over; NULL: not now.
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

-- Under the exclusive lock, after all of it was gone through: moves what was left over and is
-- still wanted, and empties the slot for good. Returns how many records went with it.
CREATE FUNCTION once.empty_slot(gone smallint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    removed bigint;
    name    text;
BEGIN
    IF EXISTS (SELECT FROM once.slot s WHERE s.slot = gone AND s.blocks < once.blocks_of(gone)) THEN
        RAISE EXCEPTION 'slot % was not gone through', gone;
    END IF;
    SELECT s.swept INTO removed FROM once.slot s WHERE s.slot = gone;
    IF EXISTS (SELECT FROM once.leftover) THEN
        PERFORM once.move_lives(gone, (
            SELECT array_agg(l.record) FROM once.leftover l
             CROSS JOIN LATERAL once.newest(l.record) n
             WHERE n.slot = gone AND NOT once.is_gone(n, once.now_ms())), once.now_ms());
        removed := removed + (SELECT count(*) FROM once.leftover l, LATERAL once.newest(l.record) n WHERE n.slot = gone);
    END IF;
    -- Everybody waits, and each index that is made anew is synced: not those of tables that have nothing.
    FOREACH name IN ARRAY ARRAY['claim', 'result', 'progress', 'request'] LOOP
        name := format('once.%I', name || '_' || gone);
        IF pg_relation_size(name) > 0 THEN
            EXECUTE 'TRUNCATE ' || name;
        END IF;
    END LOOP;
    DELETE FROM once.leftover;
    -- A holder of one that was moved must not find its slot here any more.
    UPDATE once.slot SET closed_at = NULL, since = nextval('once.fence'), blocks = 0, swept = 0, look_from = 0
     WHERE slot = gone;
    PERFORM once.note_slots();
    RETURN removed;
END $$;

-- Of these records in slot 0, the headers and bodies that are past their own retention. How each ended stays.
CREATE FUNCTION once.drop_bodies(records uuid[], now_ms bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    dropped bigint;
BEGIN
    UPDATE once.result r SET headers = NULL, body = NULL, state = r.state | 32
      FROM once.claim c
     WHERE c.slot = 0 AND c.record = ANY (records) AND r.slot = 0 AND r.fence = c.fence AND r.state & 15 IN (2, 3)
       AND (r.headers IS NOT NULL OR r.body IS NOT NULL) AND r.finished_at + c.body_retention_ms <= now_ms;
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END $$;

-- The next records of slot 0, in their order.
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

-- Slot 0: what outlived the ring goes row by row. Goes through the next `most` records, and around.
CREATE FUNCTION once.delete_due(most integer, OUT deleted integer, OUT dropped bigint)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    last    uuid;
    looked  integer;
    records uuid[];
    fences  bigint[];
    body_expired  uuid[];   -- perhaps with something left to drop
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

-- One bounded step of upkeep. `removed` counts records whose space was given back; `more` asks
-- for another step soon.
CREATE FUNCTION once.expire(budget integer DEFAULT 1000, OUT removed bigint, OUT more boolean)
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
    IF budget IS NULL OR budget NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'budget % is not between 1 and 10000', budget USING ERRCODE = '22023';
    END IF;
    IF NOT pg_try_advisory_xact_lock(8031154) THEN   -- one at a time is enough
        RETURN;
    END IF;
    now_ms := once.now_ms();
    SELECT * INTO ring FROM once.ring;
    next := ring.current % ring.slots + 1;
    -- A slot is out of use when it was closed a full turn of the others ago.
    SELECT s.slot, s.closed_at + (ring.slots - 2) * ring.period_ms <= now_ms AS out_of_use, s.look_from INTO oldest
      FROM once.slot s WHERE s.slot > 0 AND s.closed_at IS NOT NULL ORDER BY s.closed_at, s.slot LIMIT 1;
    -- By a clock that was set back what was over may not be, and another slot may be the oldest; once.leftover is one slot's; and a
    -- table that was written anew has its rows elsewhere. So what was begun begins anew. From here on nobody writes it anew.
    IF oldest.slot IS NOT NULL THEN
        EXECUTE format('LOCK TABLE once.claim_%s IN ACCESS SHARE MODE', oldest.slot);
    END IF;
    UPDATE once.slot s SET blocks = 0, swept = 0, look_from = 0
     WHERE s.slot > 0 AND s.blocks > 0 AND (s.slot <> oldest.slot OR s.swept_at > now_ms OR s.file <> once.file_of(s.slot));
    IF oldest.out_of_use THEN
        more := true;
        -- Before anything is moved there everybody must know to look there.
        IF EXISTS (SELECT FROM once.slot s WHERE s.slot = 0 AND s.closed_at IS NULL) THEN
            PERFORM pg_advisory_xact_lock(8031153);
            UPDATE once.slot SET closed_at = 0 WHERE slot = 0;
            PERFORM once.note_slots();
            RETURN;
        END IF;
        IF once.sweep_slot(oldest.slot, budget) THEN
            PERFORM pg_advisory_xact_lock(8031153);
            IF once.sweep_slot(oldest.slot, budget) THEN -- a turn may have begun a block
                removed := once.empty_slot(oldest.slot);
            END IF;
        END IF;
        RETURN;
    END IF;
    IF now_ms >= ring.opened_at + ring.period_ms AND
       NOT EXISTS (SELECT FROM once.slot s WHERE s.slot = next AND s.closed_at IS NOT NULL) AND
       EXISTS (SELECT FROM once.claim c WHERE c.slot = ring.current) THEN
        PERFORM pg_advisory_xact_lock(8031153);
        UPDATE once.ring SET current = next, opened_at = now_ms;
        UPDATE once.slot SET closed_at = now_ms WHERE slot = ring.current;
        PERFORM once.note_slots();
        more := true;
        RETURN;
    END IF;
    IF oldest.look_from <= now_ms THEN
        early := once.sweep_early(oldest.slot, budget, ring.period_ms);
        IF early THEN
            PERFORM pg_advisory_xact_lock(8031153);
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
    WHEN lock_not_available THEN   -- a long transaction is in the way; another time
        removed := 0;
        more := false;
END $$;
COMMENT ON FUNCTION once.expire(integer) IS
    'One bounded step of upkeep: rotate the ring, empty what is out of use. Run it every few seconds';
