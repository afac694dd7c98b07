-- Clock, record ids, derived keys, routes, locks: used by everything else.

CREATE FUNCTION once.now_ms() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    fake text := current_setting('once.now_ms', true);
BEGIN
    -- A caller must not change the time for others: only a store made for tests uses the setting.
    IF fake IS NOT NULL AND fake <> '' AND (SELECT s.test_clock FROM once.store s) THEN
        RETURN fake::bigint;
    END IF;
    RETURN (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
END $$;
COMMENT ON FUNCTION once.now_ms() IS 'The store''s clock, in milliseconds since 1970';

-- A part of a MAC: its length as 8 bytes, then its bytes.
CREATE FUNCTION once.part(bytes bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN int8send(length(bytes)::bigint) || bytes;
END $$;

-- HMAC-SHA-256 under the store's secret, from the built-in sha256().
CREATE FUNCTION once.mac(message bytea) RETURNS bytea
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT sha256(s.outer_pad || sha256(s.inner_pad || message)) FROM once.store s);
END $$;

-- HMAC-SHA-256 under any key of at most 64 bytes.
CREATE FUNCTION once.hmac(key bytea, message bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    inner_pad bytea := decode(repeat('36', 64), 'hex');
    outer_pad bytea := decode(repeat('5c', 64), 'hex');
BEGIN
    FOR i IN 0 .. length(key) - 1 LOOP
        inner_pad := set_byte(inner_pad, i, get_byte(key, i) # 54);
        outer_pad := set_byte(outer_pad, i, get_byte(key, i) # 92);
    END LOOP;
    RETURN sha256(outer_pad || sha256(inner_pad || message));
END $$;

CREATE FUNCTION once.record_id(tenant bytea, key bytea) RETURNS uuid
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF tenant IS NULL OR key IS NULL THEN   -- no record would be found, and the operation would be executed again
        RAISE EXCEPTION '% is NULL', CASE WHEN tenant IS NULL THEN 'tenant' ELSE 'key' END USING ERRCODE = '22023';
    END IF;
    RETURN encode(substr(once.mac(once.part('once record 1') || once.part(tenant) || once.part(key)), 1, 16),
                  'hex')::uuid;
END $$;
COMMENT ON FUNCTION once.record_id(bytea, bytea) IS 'The name of (tenant, key) in this store';

CREATE FUNCTION once.child_key(record uuid, call text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF record IS NULL OR call IS NULL THEN   -- NULL is not the same key on every attempt
        RAISE EXCEPTION '% is NULL', CASE WHEN record IS NULL THEN 'record' ELSE 'call' END USING ERRCODE = '22023';
    END IF;
    RETURN encode(substr(once.mac(once.part('once child 1') || once.part(uuid_send(record)) ||
                                  once.part(convert_to(call, 'UTF8'))), 1, 24), 'hex');
END $$;
COMMENT ON FUNCTION once.child_key(uuid, text) IS
    'The key for a foreign call on behalf of a record: the same on every attempt, 48 hex digits';

CREATE FUNCTION once.key_time(key text) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF key ~* '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' THEN
        RETURN ('x' || substr(key, 1, 8) || substr(key, 10, 4))::bit(48)::bigint;
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION once.key_time(text) IS
    'The time that a UUIDv7 carries, in milliseconds since 1970; NULL for other keys';

CREATE FUNCTION once.secret() RETURNS bytea
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.secret FROM once.store s
$$;
COMMENT ON FUNCTION once.secret() IS 'For libonce, which derives names and fingerprints itself';

CREATE FUNCTION once.version() RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(max(m.number), 0) FROM once.migration m
$$;

-- The number of a route, 0 for none; adds a new name. A route must not make a claim wait or fail: while another
-- transaction
-- adds a name, and in a transaction that is read-only or has an old snapshot, a new name gets 0.
CREATE FUNCTION once.route_id(wanted text) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number integer;
BEGIN
    IF coalesce(wanted, '') = '' THEN
        RETURN 0;
    END IF;
    IF wanted !~ '^[!-~]{1,ONCE_ROUTE_LEN_MAX}$' THEN
        RAISE EXCEPTION 'route ''%'' is not 1 to ONCE_ROUTE_LEN_MAX visible ASCII characters', wanted USING ERRCODE = '22023';
    END IF;
    SELECT r.id INTO number FROM once.route r WHERE r.name = wanted;
    IF number IS NOT NULL THEN
        RETURN number;
    END IF;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') OR
       current_setting('transaction_read_only') = 'on' OR NOT pg_try_advisory_xact_lock(PG_LOCK_SCHEMA) THEN
        RETURN 0;
    END IF;
    SELECT r.id INTO number FROM once.route r WHERE r.name = wanted;   -- the last holder of the lock may have added it
    IF number IS NULL THEN
        INSERT INTO once.route (id, name) SELECT count(*) + 1, wanted FROM once.route HAVING count(*) < ONCE_ROUTE_COUNT_MAX
        RETURNING id INTO number;
    END IF;
    RETURN coalesce(number, ONCE_ROUTE_OTHER);
END $$;

CREATE FUNCTION once.route_name(wanted integer) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CASE WHEN wanted = ONCE_ROUTE_OTHER THEN 'other' ELSE (SELECT r.name FROM once.route r WHERE r.id = wanted) END;
END $$;

CREATE FUNCTION once.routes() RETURNS TABLE (id smallint, name text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.id, r.name FROM once.route r ORDER BY r.id
$$;

-- A write, so that COMMIT waits as synchronous_commit asks for: after it, all earlier commits are durable, too
-- (FACT-6).
CREATE FUNCTION once.barrier() RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_logical_emit_message(true, 'once', 'barrier')
$$;

-- Locks the ring, shared, to the end of the transaction: no slot becomes current and none is emptied meanwhile. The
-- slots
-- must be read in a later statement. A transaction that reads from one snapshot (REPEATABLE READ, SERIALIZABLE) cannot
-- do that: if the ring rotated after its snapshot, the row lock fails with a serialisation error (40001), and the
-- caller
-- has to repeat the transaction. Returns the time.
CREATE FUNCTION once.lock_ring() RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held text;
BEGIN
    held := pg_advisory_xact_lock_shared(PG_LOCK_RING);   -- an expression: as a statement (PERFORM) it costs ten
                                                          -- times as much
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        PERFORM 1 FROM once.ring FOR SHARE;
    END IF;
    -- With synchronous standbys, a transaction that only reads waits for them, too: it may see a commit whose own
    -- wait was
    -- cut short (FACT-6).
    IF current_setting('synchronous_standby_names') <> '' AND pg_current_xact_id_if_assigned() IS NULL AND
       current_setting('transaction_read_only') = 'off' THEN
        PERFORM once.barrier();
    END IF;
    IF coalesce(current_setting('once.now_ms', true), '') <> '' THEN
        RETURN once.now_ms();
    END IF;
    RETURN (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
END $$;

-- A running record changes without a change of its claim's row: a finish inserts a row elsewhere, and a takeover only
-- locks the row. A transaction that reads from one snapshot would wait for the lock, not see the change, and get no
-- error 40001. So it is refused (K3).
CREATE FUNCTION once.need_read_committed() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION 'a running record needs READ COMMITTED: % does not see what others did to it since',
            upper(current_setting('transaction_isolation'))
            USING ERRCODE = '25001', HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED';
    END IF;
END $$;

CREATE FUNCTION once.serialize(natural_key text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF natural_key IS NULL THEN   -- it would lock nothing
        RAISE EXCEPTION 'natural key is NULL' USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock(('x' || encode(substr(sha256(convert_to('once ' || natural_key, 'UTF8')), 1, 8), 'hex'))
                                  ::bit(64)::bigint);
END $$;
COMMENT ON FUNCTION once.serialize(text) IS
    'One transaction at a time per natural key, until it ends: for operations whose row does not exist yet';
