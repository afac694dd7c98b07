-- The fast path: claims of new keys and finishes of recent grants are inserted without reading anything first.
--
-- Each kind is one INSERT into its slot's own table. Unique indexes decide as ever (K1, K3, K5): if a row is in the
-- way,
-- the transaction fails with unique_violation or check_violation, and the caller repeats it with claim_many and
-- finish_many, which read first. There is no sub-transaction, and the answer has only what the caller does not know: in
-- the batches of a busy daemon these fixed costs are half of the work. A failure has written to the server's log for
-- nothing, so callers use this only after a streak of batches that would have succeeded (src/store/postgres/batch.c).

-- Whether any of these records has rows in these slots.
CREATE FUNCTION once.is_known(slots smallint[], records uuid[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN EXISTS (SELECT FROM once.claim o WHERE o.record = ANY (records) AND o.slot = ANY (slots));
END $$;

CREATE FUNCTION once.refuse_fast_path(what text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '%', what USING ERRCODE = 'unique_violation';
END $$;

-- Claims, in the order of their records: leases and retentions are NULL for the default, as in the table, and the whole
-- arrays may be; keys that are the text of a UUID come as its 16 bytes, with PG_FLAG_UUID_KEY in their takeovers. Then
-- finishes of grants of one slot, in the order of their fences; claimed: the time of each claim. The grants prove that
-- their claims exist, unless the slot was emptied since: then slot becomes NULL, and the table refuses the row. Without
-- claims, or without finishes, their arrays are NULL.
DO $do$
DECLARE
    claims   text := '';
    finishes text := '';
BEGIN
    FOR slot IN 1..6 LOOP
        claims := claims || format($template$
        WHEN %1$s THEN
            WITH inserted AS (
                INSERT INTO once.claim_%1$s (record, nonce, fence, claimed_at, claim_no, slot, takeover, lease_ms, retention_ms,
                                             fingerprint, tenant, key)
                SELECT a.record, a.nonce, nextval('once.fence') + %1$s, at, 1, %1$s, a.takeover, a.lease_ms, a.retention_ms,
                       CASE WHEN (length(a.fingerprint) = 32 AND length(a.tenant) <= ONCE_TENANT_LEN_MAX AND
                                  coalesce(length(a.key) BETWEEN 1 AND ONCE_KEY_LEN_MAX, true) AND
                                  (a.takeover & PG_FLAG_UUID_KEY = 0 OR length(a.key) = 16)) OR
                                 (a.takeover & PG_FLAG_UUID_KEY = 0 AND once.fits(a.tenant, a.key, a.fingerprint))
                            THEN a.fingerprint END, a.tenant, a.key
                  FROM (SELECT unnest(records) AS record, unnest(tenants) AS tenant, unnest(keys) AS key,
                               unnest(fingerprints) AS fingerprint, unnest(leases) AS lease_ms,
                               unnest(retentions) AS retention_ms, unnest(takeovers) AS takeover, unnest(nonces) AS nonce
                        OFFSET 0) a
                RETURNING fence
            )
            SELECT array_agg(w.fence) INTO fences FROM inserted w;$template$, slot);
        finishes := finishes || format($template$
        WHEN %1$s THEN
            INSERT INTO once.result_%1$s (fence, finished_at, status, slot, state, headers, body)
            SELECT u.fence, greatest(at, u.claimed_at), u.status,
                   CASE WHEN u.fence > since THEN (u.fence & PG_SLOT_MASK)::smallint END, u.state, u.headers, u.body
              FROM (SELECT unnest(held) AS fence, unnest(claimed) AS claimed_at, unnest(states) AS state,
                           unnest(statuses) AS status, unnest(headers) AS headers, unnest(bodies) AS body OFFSET 0) u;$template$,
                   slot);
    END LOOP;

    EXECUTE format($template$
CREATE FUNCTION once.fast_batch(records uuid[], tenants bytea[], keys bytea[], fingerprints bytea[], leases bigint[],
                           retentions bigint[], takeovers integer[], nonces uuid[],
                           held bigint[], claimed bigint[], states integer[], statuses integer[], headers bytea[],
                           bodies bytea[], OUT at bigint, OUT fences bigint[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    of_slot   integer := held[1] & PG_SLOT_MASK;
    current   smallint;
    closed    smallint[];
    since     bigint;
    held_ring text;
BEGIN
    -- As in once.lock_ring(), which is called only in the cases that need more.
    held_ring := pg_advisory_xact_lock_shared(PG_LOCK_RING);
    at := CASE WHEN current_setting('transaction_isolation') = 'read committed' AND
                    current_setting('synchronous_standby_names') = '' AND
                    coalesce(current_setting('once.now_ms', true), '') = ''
               THEN (date_part('epoch', clock_timestamp()) * 1000)::bigint
               ELSE once.lock_ring() END;
    SELECT r.current, r.closed, r.since[of_slot] INTO current, closed, since FROM once.ring r;
    IF records IS NOT NULL THEN
        IF closed <> '{}' AND once.is_known(closed, records) THEN
            PERFORM once.refuse_fast_path('a record has rows in another slot');
        END IF;
        CASE current%s
        END CASE;
    END IF;
    IF held IS NOT NULL THEN
        CASE of_slot%s
            ELSE PERFORM once.refuse_fast_path('a claim in slot 0 is not closed by the fast path');
        END CASE;
    END IF;
END $$ $template$, claims, finishes);
END $do$;

-- Claims that are all expected to be replays. A claim that is not gets no row, and the caller repeats all with
-- claim_many.
-- Changes nothing.
CREATE FUNCTION once.fast_replays(records uuid[], fingerprints bytea[]) RETURNS SETOF once.replayed
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET enable_hashjoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    at      bigint;
    current smallint;
BEGIN
    at := once.lock_ring();
    SELECT r.current INTO current FROM once.ring r;
    RETURN QUERY SELECT r.* FROM once.replays(current, at, records, fingerprints) r;
END $$;
