-- The ids of the keys that this store was sealed with (docs/sealing.md): it is not opened without all of them. The keys
-- themselves are never stored.
CREATE TABLE once.seal_key (
    id    text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9._-]{1,32}$'),
    proof bytea NOT NULL CHECK (length(proof) = 16),   -- tells two keys apart, and reveals nothing about either
    since timestamptz NOT NULL DEFAULT now()
);

CREATE FUNCTION once.seal_keys() RETURNS TABLE (id text, proof bytea)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.id, s.proof FROM once.seal_key s ORDER BY s.id LIMIT ONCE_SEAL_KEY_REFS_MAX + 1
$$;

CREATE FUNCTION once.add_seal_key(new_id text, new_proof bytea) RETURNS TABLE (id text, proof bytea)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO once.seal_key (id, proof) VALUES (new_id, new_proof) ON CONFLICT DO NOTHING;
    SELECT s.id, s.proof FROM once.seal_key s ORDER BY s.id LIMIT ONCE_SEAL_KEY_REFS_MAX + 1
$$;
