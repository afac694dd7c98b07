-- Group commit: claims and finishes as sets, for the batches of a daemon.
--
-- Parameters are arrays in one order, claims by record, finishes by fence, so that two batches do not deadlock. A
-- daemon
-- tries most batches in 36_fast_path.sql first. Here, too, claims of new keys and finishes by their holders are tried
-- as
-- one INSERT into the table of their slot, without ON CONFLICT, which would search the index twice and write a second
-- log record for each row. If a row of another transaction is in the way, that INSERT is rolled back and repeated with
-- ON CONFLICT DO NOTHING; a new statement reads the rows that this did not insert. Most of them only need an answer
-- (replay, in progress, ...), the functions above decide the others one by one.
--
-- Plans are pinned to index scans: a batch is small, the tables are not, and their statistics may be old.
--
-- The first row of an answer is for all operations that succeeded at once, in arrays: a row for each would cost more
-- than
-- the work itself. It has only what the caller does not know: fences and the time. The second row of once.finish_many
-- is like it, for the INSERT with ON CONFLICT. Each other row has n, the position of an operation, and its answer.

-- The fences of claims that were closed; and those that did not finish at the batch's time or have their own retention,
-- with both.
CREATE TYPE once.closing AS (done bigint[], odd bigint[], times bigint[], retentions bigint[]);

-- A replay for the i-th claim: the members that the caller does not know.
CREATE TYPE once.replayed AS (
    i            integer,
    fence        bigint,
    attempt      integer,
    state        smallint,    -- as in once.result
    status       integer,
    headers      bytea,
    body         bytea,
    body_expired    boolean,     -- they are not kept any more
    point        text,
    checkpoint   bytea,
    takeover     smallint,    -- as in once.claim
    created_at   bigint,
    claimed_at   bigint,
    finished_at  bigint,
    retention_ms bigint,
    body_retention_ms bigint,
    is_named     boolean      -- its key's text is kept
);

-- The INSERTs without ON CONFLICT, for each slot of the ring. Only claim_many and finish_many call them, as the owner
-- and
-- with their settings. NULL: a row was in the way, and nothing was inserted.
DO $do$
BEGIN
    FOR slot IN 1..6 LOOP
        -- Claims of new keys. `known` are records of other slots. Records that have a row here are left out before
        -- the INSERT:
        -- a batch of replays writes nothing, and uses no fence.
        EXECUTE format($template$
CREATE FUNCTION once.put_claims_%1$s(at bigint, known uuid[], records uuid[], tenants bytea[], keys bytea[],
                                     fingerprints bytea[], leases bigint[], retentions bigint[], takeovers integer[],
                                     nonces uuid[], bodies bigint[], births bigint[])
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    fences bigint[];
BEGIN
    WITH inserted AS (
        INSERT INTO once.claim_%1$s (record, nonce, fence, claimed_at, claim_no, slot, takeover, lease_ms, retention_ms,
                                     body_retention_ms, fingerprint, tenant, key)
        SELECT a.record, a.nonce, nextval('once.fence') + %1$s, at, 1, %1$s, coalesce(a.takeover, ONCE_TAKEOVER_ESCALATE),
               nullif(a.lease_ms, ONCE_LEASE_MS_DEFAULT), nullif(a.retention_ms, ONCE_RETENTION_MS_DEFAULT), a.body_retention_ms,
               CASE WHEN (length(a.fingerprint) = 32 AND length(a.tenant) <= ONCE_TENANT_LEN_MAX AND
                          coalesce(length(a.key) BETWEEN 1 AND ONCE_KEY_LEN_MAX, true)) OR once.fits(a.tenant, a.key, a.fingerprint)
                    THEN a.fingerprint END, a.tenant, a.key
          FROM (SELECT unnest(records) AS record, unnest(tenants) AS tenant, unnest(keys) AS key,
                       unnest(fingerprints) AS fingerprint, unnest(leases) AS lease_ms,
                       unnest(retentions) AS retention_ms, unnest(takeovers) AS takeover, unnest(nonces) AS nonce,
                       unnest(bodies) AS body_retention_ms, unnest(births) AS born
                OFFSET 0) a
         WHERE a.record <> ALL (known) AND
               (a.born IS NULL OR NOT once.is_outside(a.born, coalesce(a.retention_ms, ONCE_RETENTION_MS_DEFAULT), at)) AND
               NOT EXISTS (SELECT FROM once.claim_%1$s c WHERE c.record = a.record)
        RETURNING fence
    )
    SELECT coalesce(array_agg(w.fence), '{}') INTO fences FROM inserted w;
    RETURN fences;
EXCEPTION
    WHEN unique_violation THEN
        RETURN NULL;
END $$ $template$, slot);

        -- A fence names the slot that its claim was made in.
        EXECUTE format($template$
CREATE FUNCTION once.close_claimed_%1$s(now_ms bigint, records uuid[], held bigint[], states integer[],
                                        statuses integer[], headers bytea[], bodies bytea[])
RETURNS once.closing
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    closing once.closing;
BEGIN
    WITH claims AS MATERIALIZED (
        SELECT u.*, greatest(now_ms, c.claimed_at) AS finished_at, c.retention_ms,
               c.retention_ms IS NOT NULL OR c.claimed_at > now_ms AS odd
          FROM (SELECT unnest(records) AS record, unnest(held) AS fence, unnest(states) AS state,
                       unnest(statuses) AS status, unnest(headers) AS headers, unnest(bodies) AS body OFFSET 0) u
          JOIN once.claim_%1$s c ON c.record = u.record AND c.fence = u.fence
    ), inserted AS (
        INSERT INTO once.result_%1$s (fence, finished_at, status, slot, state, headers, body)
        SELECT c.fence, c.finished_at, c.status, %1$s, c.state, nullif(c.headers, ''), nullif(c.body, '')
          FROM claims c
        RETURNING fence
    )
    SELECT i.fences, c.fences, c.times, c.retentions INTO closing
      FROM (SELECT coalesce(array_agg(w.fence), '{}') AS fences FROM inserted w) i,
           (SELECT array_agg(c.fence) AS fences, array_agg(c.finished_at) AS times,
                   array_agg(coalesce(c.retention_ms, ONCE_RETENTION_MS_DEFAULT)) AS retentions
              FROM claims c WHERE c.odd) c;
    RETURN closing;
EXCEPTION
    WHEN unique_violation THEN
        RETURN NULL;
END $$ $template$, slot);
    END LOOP;
END $do$;

-- Replays: records whose newest claim has a final outcome, and that are not past their retention (K8).
DO $do$
DECLARE
    replays text := '';
BEGIN
    FOR slot IN 1..6 LOOP
        replays := replays || format($template$
        WHEN %1$s THEN RETURN QUERY
            SELECT u.i, c.fence, coalesce(c.attempt, 1), r.state, r.status,
                   CASE WHEN t.body_expired THEN NULL ELSE r.headers END, CASE WHEN t.body_expired THEN NULL ELSE r.body END, t.body_expired,
                   p.point, p.checkpoint, c.takeover, coalesce(c.created_at, c.claimed_at), c.claimed_at, r.finished_at,
                   coalesce(c.retention_ms, ONCE_RETENTION_MS_DEFAULT), c.body_retention_ms, c.key IS NOT NULL
              FROM (SELECT unnest(records) AS record, unnest(fingerprints) AS fingerprint,
                           generate_subscripts(records, 1) AS i OFFSET 0) u
             CROSS JOIN LATERAL (SELECT w.* FROM once.claim_%1$s w WHERE w.record = u.record
                                  ORDER BY w.claim_no DESC LIMIT 1) c
             CROSS JOIN LATERAL (SELECT w.* FROM once.result_%1$s w WHERE w.fence = c.fence OFFSET 0) r
             CROSS JOIN LATERAL (SELECT coalesce(r.finished_at + c.body_retention_ms <= at, false) AS body_expired) t
              LEFT JOIN LATERAL (SELECT w.* FROM once.progress_%1$s w WHERE w.fence = c.fence OFFSET 0) p ON true
             WHERE c.fingerprint = u.fingerprint AND r.state & PG_END_MASK IN (ONCE_STATE_SUCCEEDED, ONCE_STATE_FAILED)
               AND (c.retention_ms < 0 OR r.finished_at + coalesce(c.retention_ms, ONCE_RETENTION_MS_DEFAULT) > at);$template$, slot);
    END LOOP;
    EXECUTE format($template$
CREATE FUNCTION once.replays(of_slot smallint, at bigint, records uuid[], fingerprints bytea[]) RETURNS SETOF once.replayed
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    CASE of_slot%s
    END CASE;
END $$ $template$, replays);
END $do$;

-- The same, as answers.
CREATE FUNCTION once.replay_answers(of_slot smallint, at bigint, records uuid[], tenants bytea[], keys bytea[],
                                    fingerprints bytea[])
RETURNS TABLE (i integer, answer once.answer)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
        SELECT r.i, ROW('replay', records[r.i], r.fence, r.attempt,
                        CASE r.state & PG_STATE_MASK WHEN ONCE_STATE_SUCCEEDED THEN 'succeeded' ELSE 'failed' END, false, r.status, r.headers, r.body,
                        r.state & PG_BODY_DROPPED <> 0 OR r.body_expired, r.point, r.checkpoint, NULL,
                        CASE r.takeover & PG_TAKEOVER_MASK WHEN ONCE_TAKEOVER_RERUN THEN 'rerun' WHEN ONCE_TAKEOVER_PROBE THEN 'probe'
                             WHEN ONCE_TAKEOVER_COMPLETER THEN 'completer' ELSE 'escalate' END,
                        r.created_at, r.claimed_at, NULL, NULL, r.finished_at,
                        CASE WHEN r.retention_ms >= 0 THEN r.finished_at + r.retention_ms END,
                        r.retention_ms, fingerprints[r.i], CASE WHEN r.takeover & PG_FLAG_FORGOTTEN <> 0 THEN '' ELSE tenants[r.i] END,
                        CASE WHEN r.is_named THEN keys[r.i] END,
                        NULL, r.body_retention_ms, r.body_expired, r.takeover & PG_FLAG_FORGOTTEN <> 0, NULL, false)::once.answer
          FROM once.replays(of_slot, at, records, fingerprints) r;
END $$;

-- Leases, retentions, takeovers, body retentions and births may be NULL: then all have the default. births: the times
-- in
-- keys, if they are to be checked. expects: most are expected to be replays; these are read first, and only the others
-- are tried as new keys.
CREATE FUNCTION once.claim_many(records uuid[], tenants bytea[], keys bytea[], fingerprints bytea[],
                                leases bigint[], retentions bigint[], takeovers integer[], nonces uuid[],
                                bodies bigint[] DEFAULT NULL, births bigint[] DEFAULT NULL, expects boolean DEFAULT false)
RETURNS TABLE (n integer, at bigint, granted uuid[], fences bigint[], answer once.answer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET enable_hashjoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    current smallint;
    closed  smallint[];
    live    smallint[];           -- slots that may have rows
    known   uuid[] := '{}';       -- records that have rows in closed slots
    rest_of integer[] := '{}';    -- positions of claims that were not granted
    said    integer[] := '{}';    -- positions of replays
    g       integer := 1;
    rest    record;
BEGIN
    at := once.lock_ring();
    SELECT r.current, r.closed INTO current, closed FROM once.ring r;
    IF closed <> '{}' THEN
        known := ARRAY(SELECT o.record FROM once.claim o WHERE o.record = ANY (records) AND o.slot = ANY (closed));
    END IF;
    IF expects THEN
        FOR rest IN SELECT r.* FROM once.replay_answers(current, at, records, tenants, keys, fingerprints) r LOOP
            n := rest.i;
            answer := rest.answer;
            RETURN NEXT;
            said := said || n;
        END LOOP;
        IF cardinality(said) = cardinality(records) THEN
            RETURN;
        END IF;
        known := known || ARRAY(SELECT records[s] FROM unnest(said) s);
        n := NULL;
        answer := NULL;
    END IF;
    CASE current
        WHEN 1 THEN fences := once.put_claims_1(at, known, records, tenants, keys, fingerprints, leases, retentions, takeovers, nonces, bodies, births);
        WHEN 2 THEN fences := once.put_claims_2(at, known, records, tenants, keys, fingerprints, leases, retentions, takeovers, nonces, bodies, births);
        WHEN 3 THEN fences := once.put_claims_3(at, known, records, tenants, keys, fingerprints, leases, retentions, takeovers, nonces, bodies, births);
        WHEN 4 THEN fences := once.put_claims_4(at, known, records, tenants, keys, fingerprints, leases, retentions, takeovers, nonces, bodies, births);
        WHEN 5 THEN fences := once.put_claims_5(at, known, records, tenants, keys, fingerprints, leases, retentions, takeovers, nonces, bodies, births);
        WHEN 6 THEN fences := once.put_claims_6(at, known, records, tenants, keys, fingerprints, leases, retentions, takeovers, nonces, bodies, births);
    END CASE;
    IF cardinality(fences) = cardinality(records) THEN
        RETURN NEXT;   -- granted is NULL: all were, in this order
        RETURN;
    END IF;
    live := closed || current;
    IF fences IS NULL THEN   -- another transaction was faster, or the batch has a record twice
        known := ARRAY(SELECT o.record FROM once.claim o WHERE o.record = ANY (records) AND o.slot = ANY (live));
        WITH inserted AS (
            INSERT INTO once.claim (record, nonce, fence, claimed_at, claim_no, slot, takeover, lease_ms, retention_ms,
                                    body_retention_ms, fingerprint, tenant, key)
            SELECT a.record, a.nonce, nextval('once.fence') + current, at, 1, current, coalesce(a.takeover, ONCE_TAKEOVER_ESCALATE),
                   nullif(a.lease_ms, ONCE_LEASE_MS_DEFAULT), nullif(a.retention_ms, ONCE_RETENTION_MS_DEFAULT), a.body_retention_ms,
                   CASE WHEN once.fits(a.tenant, a.key, a.fingerprint) THEN a.fingerprint END, a.tenant, a.key
              FROM (SELECT unnest(records) AS record, unnest(tenants) AS tenant, unnest(keys) AS key,
                           unnest(fingerprints) AS fingerprint, unnest(leases) AS lease_ms,
                           unnest(retentions) AS retention_ms, unnest(takeovers) AS takeover, unnest(nonces) AS nonce,
                           unnest(bodies) AS body_retention_ms, unnest(births) AS born
                    OFFSET 0) a
             WHERE a.record <> ALL (known)
               AND (a.born IS NULL OR NOT once.is_outside(a.born, coalesce(a.retention_ms, ONCE_RETENTION_MS_DEFAULT), at))
            ON CONFLICT (record, claim_no, slot) DO NOTHING
            RETURNING record, fence
        )
        SELECT coalesce(array_agg(w.record), '{}'), coalesce(array_agg(w.fence), '{}') INTO granted, fences
          FROM inserted w;
    ELSIF fences = '{}' THEN
        granted := '{}';
    ELSE
        granted := ARRAY(SELECT c.record FROM once.claim c
                          WHERE c.record = ANY (records) AND c.slot = current AND c.fence = ANY (fences)
                          ORDER BY c.fence);
    END IF;
    RETURN NEXT;
    -- Both are in the order of records. If a caller's are not, a grant is among the others as well, and found by its
    -- nonce.
    FOR i IN 1 .. cardinality(records) LOOP
        IF records[i] = granted[g] THEN
            g := g + 1;
        ELSE
            rest_of := rest_of || i;
        END IF;
    END LOOP;
    granted := NULL;
    fences := NULL;
    IF NOT expects THEN
        FOR rest IN SELECT r.* FROM once.replay_answers(current, at, records, tenants, keys, fingerprints) r LOOP
            n := rest.i;
            answer := rest.answer;
            RETURN NEXT;
            said := said || n;
        END LOOP;
    END IF;
    IF cardinality(said) = cardinality(rest_of) THEN
        RETURN;
    END IF;
    rest_of := ARRAY(SELECT o FROM unnest(rest_of) o WHERE o <> ALL (said));
    FOR rest IN
        SELECT u.i, CASE WHEN r.arm IS NOT NULL
                         THEN once.answer_of(r.arm, CASE WHEN r.arm <> 'mismatch' THEN x.s END, at) END AS answer
          FROM (SELECT o.i, records[o.i] AS record, fingerprints[o.i] AS fingerprint, nonces[o.i] AS nonce
                  FROM unnest(rest_of) AS o (i) OFFSET 0) u
          LEFT JOIN LATERAL (SELECT s FROM once.stored s WHERE s.record = u.record AND s.slot = ANY (live)
                              ORDER BY s.fence DESC LIMIT 1) x ON true
         CROSS JOIN LATERAL (SELECT CASE WHEN once.is_gone(x.s, at) THEN NULL
                                         WHEN (x.s).fingerprint <> u.fingerprint THEN 'mismatch'
                                         WHEN (x.s).state = ONCE_STATE_UNKNOWN THEN 'unknown'
                                         WHEN (x.s).state IN (ONCE_STATE_SUCCEEDED, ONCE_STATE_FAILED) AND NOT (x.s).retryable THEN 'replay'
                                         WHEN (x.s).state IS NULL AND (x.s).nonce <> u.nonce AND
                                              (x.s).lease_until > at THEN 'in progress'
                                    END AS arm OFFSET 0) r
    LOOP
        n := rest.i;
        answer := rest.answer;
        IF answer.arm IS NULL THEN
            answer := once.claim_record(records[n], tenants[n], keys[n], fingerprints[n], coalesce(leases[n], ONCE_LEASE_MS_DEFAULT),
                                        coalesce(retentions[n], ONCE_RETENTION_MS_DEFAULT), coalesce(takeovers[n], ONCE_TAKEOVER_ESCALATE), nonces[n],
                                        bodies[n], births[n]);
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

CREATE FUNCTION once.finish_many(records uuid[], held bigint[], states integer[], statuses integer[], headers bytea[],
                                 bodies bytea[], again boolean)
RETURNS TABLE (n integer, at bigint, done bigint[], odd bigint[], times bigint[], retentions bigint[],
               answer once.answer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET enable_hashjoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    newest  integer := held[cardinality(held)] & PG_SLOT_MASK;   -- its slot
    closing once.closing;
    all_done bigint[];
    others  integer[] := '{}';
    d       integer := 1;
BEGIN
    at := once.lock_ring();
    CASE newest
        WHEN 1 THEN closing := once.close_claimed_1(at, records, held, states, statuses, headers, bodies);
        WHEN 2 THEN closing := once.close_claimed_2(at, records, held, states, statuses, headers, bodies);
        WHEN 3 THEN closing := once.close_claimed_3(at, records, held, states, statuses, headers, bodies);
        WHEN 4 THEN closing := once.close_claimed_4(at, records, held, states, statuses, headers, bodies);
        WHEN 5 THEN closing := once.close_claimed_5(at, records, held, states, statuses, headers, bodies);
        WHEN 6 THEN closing := once.close_claimed_6(at, records, held, states, statuses, headers, bodies);
        ELSE closing := NULL;
    END CASE;
    done := coalesce(closing.done, '{}');
    odd := closing.odd;
    times := closing.times;
    retentions := closing.retentions;
    RETURN NEXT;
    IF cardinality(done) = cardinality(held) THEN
        RETURN;
    END IF;
    -- The rest: claims of other slots, or all if another transaction had closed one of them. Claims in slot 0 are
    -- closed one by
    -- one (once.close_claim).
    WITH claims AS MATERIALIZED (
        SELECT u.*, c.slot, greatest(finish_many.at, c.claimed_at) AS finished_at, c.retention_ms
          FROM (SELECT unnest(records) AS record, unnest(held) AS fence, unnest(states) AS state,
                       unnest(statuses) AS status, unnest(headers) AS headers, unnest(bodies) AS body OFFSET 0) u
          JOIN once.claim c ON c.record = u.record AND c.slot = (u.fence & PG_SLOT_MASK)::smallint AND c.fence = u.fence
                             AND c.slot > 0
         WHERE u.fence <> ALL (done)
    ), inserted AS (
        INSERT INTO once.result (fence, finished_at, status, slot, state, headers, body)
        SELECT c.fence, c.finished_at, c.status, c.slot, c.state, nullif(c.headers, ''), nullif(c.body, '')
          FROM claims c
        ON CONFLICT DO NOTHING
        RETURNING fence
    )
    SELECT i.fences, c.fences, c.times, c.retentions INTO closing
      FROM (SELECT coalesce(array_agg(w.fence), '{}') AS fences FROM inserted w) i,
           (SELECT array_agg(c.fence) AS fences, array_agg(c.finished_at) AS times,
                   array_agg(coalesce(c.retention_ms, ONCE_RETENTION_MS_DEFAULT)) AS retentions FROM claims c) c;
    all_done := ARRAY(SELECT f FROM unnest(done || closing.done) f ORDER BY f);
    done := closing.done;
    odd := closing.odd;
    times := closing.times;
    retentions := closing.retentions;
    RETURN NEXT;
    FOR i IN 1 .. cardinality(held) LOOP
        IF held[i] = all_done[d] THEN
            d := d + 1;
        ELSE
            others := others || i;
        END IF;
    END LOOP;
    done := NULL;
    odd := NULL;
    times := NULL;
    retentions := NULL;
    FOREACH n IN ARRAY others LOOP
        answer := once.finish_record(records[n], held[n], states[n], statuses[n], headers[n], bodies[n], again);
        RETURN NEXT;
    END LOOP;
END $$;
