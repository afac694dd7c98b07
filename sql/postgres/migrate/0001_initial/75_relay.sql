-- The functions of a relay (70_outbox.sql explains the design). Each call is one short transaction in
-- READ COMMITTED; no lock is held while messages are in flight.

-- Moves messages of stalled ordering keys to slot 0.
CREATE FUNCTION once.outbox_move_stalled(lanes integer[], seqs bigint[]) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
    WITH moved AS (
        DELETE FROM once.outbox o USING unnest(lanes, seqs) AS u (lane, seq)
         WHERE o.lane = u.lane AND o.seq = u.seq AND o.slot > 0 RETURNING o.*
    )
    INSERT INTO once.outbox (seq, lane, slot, id, topic, message_key, content_type, headers, payload, created_at)
    SELECT seq, lane, 0, id, topic, message_key, content_type, headers, payload, created_at FROM moved
$$;

-- Lanes whose relay crashed with messages in flight: their ordering keys become suspects.
CREATE FUNCTION once.outbox_suspect(now_ms bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    l once.outbox_lane;
BEGIN
    FOR l IN SELECT * FROM once.outbox_lane WHERE lease_until <= now_ms AND flight <> '{}' FOR UPDATE SKIP LOCKED LOOP
        INSERT INTO once.outbox_stalled AS h (ordering_key, lane, head, due, suspect, reason)
        SELECT DISTINCT ON (1) coalesce('k' || o.message_key, 'm' || o.seq::text), o.lane, o.seq, now_ms, true,
               'a relay went away while this and others were under way'
          FROM once.outbox o WHERE o.lane = l.lane AND o.seq = ANY (l.flight) ORDER BY 1, o.seq
        ON CONFLICT (ordering_key) DO UPDATE
            SET due = now_ms, suspect = true, head = excluded.head,
                crashes = CASE WHEN h.head <> excluded.head THEN 0 ELSE h.crashes END + (h.suspect AND h.head = excluded.head)::integer,
                refusals = CASE WHEN h.head <> excluded.head THEN 0 ELSE h.refusals END,
                delays = CASE WHEN h.head <> excluded.head THEN 0 ELSE h.delays END,
                reason = CASE WHEN h.suspect THEN 'a relay went away while this alone was under way' ELSE excluded.reason END;
        PERFORM once.outbox_move_stalled(array_agg(l.lane::integer), array_agg(f)) FROM unnest(l.flight) f;
        UPDATE once.outbox_lane SET flight = '{}' WHERE lane = l.lane;
    END LOOP;
END $$;

-- Leases lanes with messages to publish, and returns these, in order per ordering key. With `alone`, one
-- suspect and nothing else, if there is one. Its COMMIT waits for durability: all messages that it returns
-- were committed before it, so they are durable too (K12), also if their own commits did not wait for that, and
-- with standbys.
CREATE FUNCTION once.outbox_take(relay uuid, lease_ms bigint, most integer, alone boolean)
RETURNS TABLE (lane integer, fence bigint, seq bigint, id uuid, topic text, message_key text, content_type text,
               headers text, payload bytea, created_at bigint, refusals integer, delays integer, crashes integer, suspect integer,
               age_ms bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    now_ms bigint := once.now_ms();
    lanes  smallint[];
    stalled   smallint[] := '{}';
    per    integer;
    stuck  integer[];
    stucks bigint[];
    chosen once.outbox_stalled;
    first  bigint;
BEGIN
    PERFORM once.outbox_suspect(now_ms);
    IF alone THEN
        SELECT h.* INTO chosen FROM once.outbox_stalled h JOIN once.outbox_lane l ON l.lane = h.lane
         WHERE h.suspect AND h.due <= now_ms AND l.lease_until <= now_ms ORDER BY h.due LIMIT 1 FOR UPDATE OF l SKIP LOCKED;
        IF FOUND THEN
            SELECT o.seq INTO first FROM once.outbox o
             WHERE o.slot = 0 AND coalesce('k' || o.message_key, 'm' || o.seq::text) = chosen.ordering_key ORDER BY o.seq LIMIT 1;
            IF first IS NULL THEN     -- it was published or dropped
                DELETE FROM once.outbox_stalled h WHERE h.ordering_key = chosen.ordering_key;
            END IF;
        END IF;
    END IF;
    IF first IS NULL THEN
        SELECT array_agg(x.lane) INTO lanes FROM (
            SELECT l.lane FROM once.outbox_lane l
             WHERE l.lease_until <= now_ms
               AND (EXISTS (SELECT FROM once.outbox o WHERE o.lane = l.lane AND o.slot > 0 OFFSET 0)
                    OR EXISTS (SELECT FROM once.outbox_stalled h WHERE h.lane = l.lane AND h.due <= now_ms AND NOT h.suspect OFFSET 0))
             ORDER BY l.taken_at, l.lane LIMIT 16 FOR UPDATE SKIP LOCKED) x;
        IF lanes IS NULL THEN
            RETURN;
        END IF;
        per := greatest(most / cardinality(lanes), 1);
        -- Only the holder of a lane makes its ordering keys stalled, and we have the lane locked: no key becomes stalled meanwhile.
        stalled := ARRAY(SELECT DISTINCT h.lane FROM once.outbox_stalled h WHERE h.lane = ANY (lanes));
        IF stalled <> '{}' THEN
            FOR round IN 1..20 LOOP
                -- Messages of stalled ordering keys move to slot 0, and make room for others.
                SELECT array_agg(x.lane::integer), array_agg(x.seq) INTO stuck, stucks
                  FROM unnest(stalled) AS u (lane)
                 CROSS JOIN LATERAL (SELECT o.lane, o.seq, coalesce('k' || o.message_key, 'm' || o.seq::text) AS ordering_key FROM once.outbox o
                                      WHERE o.lane = u.lane AND o.slot > 0 ORDER BY o.seq LIMIT per) x
                  JOIN once.outbox_stalled h ON h.ordering_key = x.ordering_key;
                EXIT WHEN stuck IS NULL;
                PERFORM once.outbox_move_stalled(stuck, stucks);
            END LOOP;
            -- A stalled ordering key without messages: its message was dropped.
            DELETE FROM once.outbox_stalled h USING unnest(stalled) AS u (lane)
             WHERE h.lane = u.lane AND h.due <= now_ms
               AND NOT EXISTS (SELECT FROM once.outbox o WHERE o.slot = 0 AND coalesce('k' || o.message_key, 'm' || o.seq::text) = h.ordering_key);
        END IF;
    END IF;
    -- Chosen, leased and returned in one statement: each row is read once, and every leased lane returns messages.
    RETURN QUERY
        WITH found AS MATERIALIZED (
            SELECT y.* FROM unnest(lanes) AS u (lane)
             CROSS JOIN LATERAL (SELECT o.* FROM once.outbox o WHERE o.lane = u.lane AND o.slot > 0 ORDER BY o.seq LIMIT per) y
             WHERE stalled = '{}' OR NOT EXISTS (SELECT FROM once.outbox_stalled h WHERE h.ordering_key = coalesce('k' || y.message_key, 'm' || y.seq::text))
            UNION ALL
            -- Stalled ordering keys that are due: one message of those that failed last, more of those that have recovered.
            SELECT z.* FROM unnest(stalled) AS u (lane)
             CROSS JOIN LATERAL (SELECT h.ordering_key, h.refusals + h.delays AS failures FROM once.outbox_stalled h
                                  WHERE h.lane = u.lane AND h.due <= now_ms AND NOT h.suspect ORDER BY h.due LIMIT per) k
             CROSS JOIN LATERAL (SELECT o.* FROM once.outbox o
                                  WHERE o.slot = 0 AND coalesce('k' || o.message_key, 'm' || o.seq::text) = k.ordering_key
                                  ORDER BY o.seq LIMIT CASE WHEN k.failures = 0 THEN per ELSE 1 END) z
            UNION ALL
            SELECT o.* FROM once.outbox o WHERE o.lane = chosen.lane AND o.seq = first AND o.slot = 0
        ), batch AS MATERIALIZED (
            -- At most 32 MiB and one message: the relay has a batch in memory. The rest comes later in its lane.
            SELECT x.* FROM (SELECT f.*, sum(length(f.payload)) OVER (ORDER BY f.lane, f.seq) - length(f.payload) AS before FROM found f) x
             WHERE x.before < 33554432
        ), flights AS (
            SELECT b.lane, array_agg(b.seq ORDER BY b.seq) AS seqs FROM batch b GROUP BY b.lane
        ), leased AS (
            UPDATE once.outbox_lane l
               SET fence = l.fence + 1, lease_until = now_ms + lease_ms, taken_at = now_ms, relay = outbox_take.relay, flight = f.seqs
              FROM flights f WHERE l.lane = f.lane RETURNING l.lane, l.fence
        )
        SELECT b.lane::integer, l.fence, b.seq, b.id, b.topic, b.message_key, b.content_type, b.headers, b.payload, b.created_at,
               coalesce(h.refusals, 0), coalesce(h.delays, 0), coalesce(h.crashes, 0), coalesce(h.suspect::integer, 0),
               now_ms - b.created_at
          FROM leased l JOIN batch b ON b.lane = l.lane
          LEFT JOIN once.outbox_stalled h ON b.slot = 0 AND h.ordering_key = coalesce('k' || b.message_key, 'm' || b.seq::text) AND h.head = b.seq
         ORDER BY b.lane, b.seq;
END $$;
COMMENT ON FUNCTION once.outbox_take(uuid, bigint, integer, boolean) IS
    'For a relay: lease lanes and return their next messages';

-- Ordering keys whose first message is gone: their next message is due at once; without one they are not stalled any more.
CREATE FUNCTION once.outbox_unstall(ordering_keys text[], now_ms bigint) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
    UPDATE once.outbox_stalled h SET head = n.seq, due = now_ms, refusals = 0, delays = 0, crashes = 0, suspect = false, reason = ''
      FROM unnest(ordering_keys) AS u (ordering_key)
     CROSS JOIN LATERAL (SELECT o.seq FROM once.outbox o
                          WHERE o.slot = 0 AND coalesce('k' || o.message_key, 'm' || o.seq::text) = u.ordering_key ORDER BY o.seq LIMIT 1) n
     WHERE h.ordering_key = u.ordering_key AND h.head <> n.seq;
    DELETE FROM once.outbox_stalled h USING (SELECT DISTINCT unnest(ordering_keys)) AS u (ordering_key)
     WHERE h.ordering_key = u.ordering_key
       AND NOT EXISTS (SELECT FROM once.outbox o WHERE o.slot = 0 AND coalesce('k' || o.message_key, 'm' || o.seq::text) = u.ordering_key);
$$;

-- Settles a batch, and gives the lanes back. Messages in `done` were confirmed, and are removed whoever reports it. A failure
-- counts only from the present holder of the lane: verdicts as enum outbox_verdict.
CREATE FUNCTION once.outbox_settle(lanes integer[], fences bigint[], done_lanes integer[], done_seqs bigint[], failed_lanes integer[],
                                   failed_seqs bigint[], verdicts integer[], waits_ms bigint[], reasons bytea[])
RETURNS TABLE (removed bigint, heard bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    now_ms bigint := once.now_ms();
    mine   smallint[];
    gone   text[];
    died text[];
BEGIN
    mine := ARRAY(SELECT l.lane FROM once.outbox_lane l JOIN unnest(lanes, fences) AS u (lane, fence) ON l.lane = u.lane AND l.fence = u.fence
                   ORDER BY l.lane FOR UPDATE OF l);
    WITH d AS (
        DELETE FROM once.outbox o USING unnest(done_lanes, done_seqs) AS u (lane, seq) WHERE o.lane = u.lane AND o.seq = u.seq
        RETURNING coalesce('k' || o.message_key, 'm' || o.seq::text) AS ordering_key
    )
    SELECT array_agg(d.ordering_key), count(*) INTO gone, removed FROM d;
    WITH d AS (
        DELETE FROM once.outbox o USING unnest(failed_lanes, failed_seqs, verdicts, reasons) AS u (lane, seq, verdict, reason)
         WHERE o.lane = u.lane AND o.seq = u.seq AND u.verdict IN (OUTBOX_DEAD_REFUSED, OUTBOX_DEAD_CRASHED) AND o.lane = ANY (mine) RETURNING o.*, u.verdict, u.reason AS why
    ), b AS (
        INSERT INTO once.outbox_dead (id, seq, topic, message_key, content_type, headers, payload, created_at, died_at, refusals,
                                      crashes, reason)
        SELECT d.id, d.seq, d.topic, d.message_key, d.content_type, d.headers, d.payload, d.created_at, now_ms,
               coalesce(h.refusals, 0) + (d.verdict = OUTBOX_DEAD_REFUSED)::integer, coalesce(h.crashes, 0), convert_from(d.why, 'UTF8')
          FROM d LEFT JOIN once.outbox_stalled h ON h.ordering_key = coalesce('k' || d.message_key, 'm' || d.seq::text) AND h.head = d.seq
        RETURNING 1
    )
    SELECT array_agg(coalesce('k' || d.message_key, 'm' || d.seq::text)), count(*) INTO died, heard FROM d;
    IF EXISTS (SELECT FROM once.outbox_stalled h JOIN unnest(lanes) AS u (lane) ON h.lane = u.lane) THEN
        PERFORM once.outbox_unstall(gone || died, now_ms);
    END IF;
    INSERT INTO once.outbox_stalled AS h (ordering_key, lane, head, due, refusals, delays, reason)
    SELECT coalesce('k' || o.message_key, 'm' || o.seq::text), o.lane, o.seq, now_ms + u.wait_ms, (u.verdict = OUTBOX_REFUSED)::integer,
           (u.verdict = OUTBOX_UNREACHED)::integer, convert_from(u.reason, 'UTF8')
      FROM unnest(failed_lanes, failed_seqs, verdicts, waits_ms, reasons) AS u (lane, seq, verdict, wait_ms, reason)
      JOIN once.outbox o ON o.lane = u.lane AND o.seq = u.seq
     WHERE o.lane = ANY (mine) AND u.verdict IN (OUTBOX_REFUSED, OUTBOX_UNREACHED)
    ON CONFLICT (ordering_key) DO UPDATE
        SET head = excluded.head, due = excluded.due, reason = excluded.reason, suspect = false,
            crashes = CASE WHEN h.head = excluded.head THEN h.crashes ELSE 0 END,
            refusals = CASE WHEN h.head = excluded.head THEN h.refusals ELSE 0 END + excluded.refusals,
            delays = CASE WHEN h.head = excluded.head THEN h.delays ELSE 0 END + excluded.delays;
    PERFORM once.outbox_move_stalled(array_agg(u.lane), array_agg(u.seq))
       FROM unnest(failed_lanes, failed_seqs, verdicts) AS u (lane, seq, verdict) WHERE u.lane = ANY (mine) AND u.verdict IN (OUTBOX_REFUSED, OUTBOX_UNREACHED);
    heard := heard + (SELECT count(*) FROM unnest(failed_lanes, verdicts) AS u (lane, verdict) WHERE u.lane = ANY (mine) AND u.verdict IN (OUTBOX_REFUSED, OUTBOX_UNREACHED));
    UPDATE once.outbox_lane l SET lease_until = 0, flight = '{}' WHERE l.lane = ANY (mine);
    RETURN NEXT;
END $$;
COMMENT ON FUNCTION once.outbox_settle(integer[], bigint[], integer[], bigint[], integer[], bigint[], integer[], bigint[], bytea[]) IS
    'For a relay: remove confirmed messages, record failures, give the lanes back';

-- A sink is reachable again, or routes changed: messages that only waited for a sink are due.
CREATE FUNCTION once.outbox_retry_now() RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH u AS (UPDATE once.outbox_stalled SET due = 0 WHERE delays > 0 AND refusals = 0 AND due > 0 RETURNING 1) SELECT count(*) FROM u
$$;
COMMENT ON FUNCTION once.outbox_retry_now() IS 'For a relay: messages whose sink was not reached are due now';

-- A relay says that it waits, or that it works.
CREATE FUNCTION once.outbox_idle(is_idle boolean) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE once.outbox_ring SET idle = is_idle WHERE idle <> is_idle
$$;
COMMENT ON FUNCTION once.outbox_idle(boolean) IS 'For a relay: whether enqueue should wake it';

-- Upkeep, every second or so: scheduled messages whose time has come enter the order; empty slots are given back; the ring
-- rotates. Returns how many messages entered.
CREATE FUNCTION once.outbox_upkeep() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
    now_ms bigint := once.now_ms();
    ring   once.outbox_ring;
    due    once.outbox_scheduled;
    filled boolean;
    placed integer := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock(PG_LOCK_OUTBOX) THEN   -- another relay does it now
        RETURN 0;
    END IF;
    FOR due IN WITH d AS (
                   DELETE FROM once.outbox_scheduled l
                    WHERE l.id IN (SELECT o.id FROM once.outbox_scheduled o WHERE o.not_before <= now_ms ORDER BY o.not_before LIMIT 1000)
                   RETURNING l.*)
               SELECT * FROM d ORDER BY d.not_before LOOP
        PERFORM once.outbox_put(due.id, due.topic, due.message_key, due.content_type, due.headers, due.payload,
                                due.not_before);   -- its age counts from then on
        placed := placed + 1;
    END LOOP;
    SELECT * INTO ring FROM once.outbox_ring;
    FOR slot IN 1..4 LOOP
        CONTINUE WHEN slot = ring.current OR pg_relation_size(format('once.outbox_%s', slot)::regclass) = 0;
        EXECUTE format('SELECT EXISTS (SELECT FROM once.outbox_%s)', slot) INTO filled;
        CONTINUE WHEN filled;
        BEGIN
            EXECUTE format('LOCK TABLE once.outbox_%s IN ACCESS EXCLUSIVE MODE', slot);
            EXECUTE format('SELECT EXISTS (SELECT FROM once.outbox_%s)', slot) INTO filled;
            IF NOT filled THEN
                EXECUTE format('TRUNCATE once.outbox_%s', slot);
            END IF;
        EXCEPTION WHEN lock_not_available THEN   -- a transaction that enqueued there has not committed; try another time
            NULL;
        END;
    END LOOP;
    IF pg_table_size(format('once.outbox_%s', ring.current)::regclass) > ring.turn_bytes THEN
        UPDATE once.outbox_ring r SET current = n.slot
          FROM (SELECT s AS slot FROM generate_series(1, 4) s
                 WHERE pg_relation_size(format('once.outbox_%s', s)::regclass) = 0 ORDER BY (s - ring.current + 4) % 4 LIMIT 1) n;
    END IF;
    RETURN placed;
END $$;
COMMENT ON FUNCTION once.outbox_upkeep() IS 'For a relay: one bounded step of upkeep of the outbox';

-- Counts, up to 100000 each, and the age of the oldest message that is not stalled, and that is.
CREATE FUNCTION once.outbox_counts(OUT pending bigint, OUT stalled bigint, OUT scheduled bigint, OUT dead bigint, OUT lag_ms bigint,
                                   OUT stalled_lag_ms bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    pending := (SELECT count(*) FROM (SELECT FROM once.outbox o WHERE o.slot > 0 LIMIT 100000) x);
    stalled := (SELECT count(*) FROM (SELECT FROM once.outbox o WHERE o.slot = 0 LIMIT 100000) x);
    scheduled := (SELECT count(*) FROM (SELECT FROM once.outbox_scheduled LIMIT 100000) x);
    dead := (SELECT count(*) FROM (SELECT FROM once.outbox_dead LIMIT 100000) x);
    lag_ms := coalesce(once.now_ms() - (SELECT min(f.created_at) FROM once.outbox_lane l
        CROSS JOIN LATERAL (SELECT o.created_at FROM once.outbox o WHERE o.lane = l.lane AND o.slot > 0 ORDER BY o.seq LIMIT 1) f), 0);
    stalled_lag_ms := coalesce(once.now_ms() - (SELECT min(f.created_at) FROM once.outbox_lane l
        CROSS JOIN LATERAL (SELECT o.created_at FROM once.outbox o WHERE o.lane = l.lane AND o.slot = 0 ORDER BY o.seq LIMIT 1) f), 0);
END $$;
COMMENT ON FUNCTION once.outbox_counts() IS 'How many messages are pending, stalled, scheduled, dead; how old the oldest is';

-- All messages, as an operator sees them.
CREATE VIEW once.outbox_all AS
    SELECT CASE WHEN h.ordering_key IS NULL OR (h.due = 0 AND h.reason = '') THEN 'pending' WHEN o.seq = h.head THEN 'retrying' ELSE 'blocked' END AS state,
           o.id, o.seq, o.topic, o.message_key, o.content_type, o.headers, o.payload, o.created_at,
           h.due AS at, CASE WHEN o.seq = h.head THEN h.refusals ELSE 0 END AS refusals, CASE WHEN o.seq = h.head THEN h.delays ELSE 0 END AS delays,
           CASE WHEN o.seq = h.head THEN h.crashes ELSE 0 END AS crashes, CASE WHEN o.seq = h.head THEN h.reason END AS reason
      FROM once.outbox o LEFT JOIN once.outbox_stalled h ON h.ordering_key = coalesce('k' || o.message_key, 'm' || o.seq::text) AND o.slot = 0
    UNION ALL
    SELECT 'scheduled', id, 0, topic, message_key, content_type, headers, payload, created_at, not_before, 0, 0, 0, NULL FROM once.outbox_scheduled
    UNION ALL
    SELECT 'dead', id, seq, topic, message_key, content_type, headers, payload, created_at, died_at, refusals, 0, crashes, reason
      FROM once.outbox_dead;

-- Oldest first. `states` '' means all.
CREATE FUNCTION once.outbox_list(states text, topic_prefix text, most integer)
RETURNS TABLE (state text, id uuid, seq bigint, topic text, message_key text, content_type text, headers text, payload bytea, created_at bigint,
               at bigint, refusals integer, delays integer, crashes integer, reason text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT a.state, a.id, a.seq, a.topic, a.message_key, a.content_type, a.headers, ''::bytea, a.created_at, a.at, a.refusals,
                        a.delays, a.crashes, a.reason
                   FROM once.outbox_all a
                  WHERE (states = '' OR a.state = ANY (string_to_array(states, ','))) AND starts_with(a.topic, topic_prefix)
                  ORDER BY a.created_at, a.seq LIMIT most;
END $$;
COMMENT ON FUNCTION once.outbox_list(text, text, integer) IS 'Messages, oldest first, without payloads';

CREATE FUNCTION once.outbox_show(message uuid)
RETURNS TABLE (state text, id uuid, seq bigint, topic text, message_key text, content_type text, headers text, payload bytea, created_at bigint,
               at bigint, refusals integer, delays integer, crashes integer, reason text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT a.* FROM once.outbox_all a WHERE a.id = message
$$;
COMMENT ON FUNCTION once.outbox_show(uuid) IS 'One message, with its payload';

-- An operator's action: 'retry' adds a dead letter at the end of its ordering key, under its id, and makes a stalled message due;
-- 'drop' removes it. Recorded in once.audit. Returns what it did: retried, hurried, dropped, absent.
CREATE FUNCTION once.outbox_resolve(message uuid, action text, actor bytea, reason bytea) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    d    once.outbox_dead;
    ordering_key text;
    num  bigint := 0;
    did  text;
BEGIN
    IF action NOT IN ('retry', 'drop') OR action IS NULL THEN
        RAISE EXCEPTION 'action ''%'' is neither retry nor drop', action USING ERRCODE = '22023';
    END IF;
    IF reason IS NULL OR length(reason) NOT BETWEEN 1 AND ONCE_REASON_LEN_MAX THEN
        RAISE EXCEPTION 'reason has % bytes, not 1 to 1000', coalesce(length(reason), 0) USING ERRCODE = '22023';
    END IF;
    DELETE FROM once.outbox_dead x WHERE x.id = message RETURNING * INTO d;
    IF FOUND THEN
        num := d.seq;
        did := CASE action WHEN 'retry' THEN 'retried' ELSE 'dropped' END;
        IF action = 'retry' THEN
            PERFORM once.outbox_put(d.id, d.topic, d.message_key, d.content_type, d.headers, d.payload, d.created_at);
        END IF;
    ELSIF action = 'drop' THEN
        DELETE FROM once.outbox_scheduled o WHERE o.id = message;
        IF NOT FOUND THEN
            DELETE FROM once.outbox o WHERE o.id = message
            RETURNING coalesce('k' || o.message_key, 'm' || o.seq::text), o.seq INTO ordering_key, num;
        END IF;
        did := CASE WHEN FOUND THEN 'dropped' END;
        IF ordering_key IS NOT NULL THEN
            PERFORM once.outbox_unstall(ARRAY[ordering_key], once.now_ms());
        END IF;
    ELSE
        UPDATE once.outbox_stalled h SET due = 0 FROM once.outbox o
         WHERE o.id = message AND o.slot = 0 AND h.ordering_key = coalesce('k' || o.message_key, 'm' || o.seq::text) RETURNING o.seq INTO num;
        did := CASE WHEN FOUND THEN 'hurried' END;
    END IF;
    IF did IS NULL THEN
        RETURN 'absent';
    END IF;
    INSERT INTO once.audit (at, record, fence, what, actor, reason)
    VALUES (once.now_ms(), message, coalesce(num, 0), 'message ' || did, actor, reason);
    RETURN did;
END $$;
COMMENT ON FUNCTION once.outbox_resolve(uuid, text, bytea, bytea) IS 'Retry or drop a message, with a reason';
