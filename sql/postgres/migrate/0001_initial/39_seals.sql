-- Which keys bytes of this store are sealed with (docs/sealing.md): so that nobody opens it without them unnoticed. The keys
-- themselves are never here.
CREATE TABLE once.seal (
    id    text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9._-]{1,32}$'),
    proof bytea NOT NULL CHECK (length(proof) = 16),   -- tells two keys apart and nothing about either
    since timestamptz NOT NULL DEFAULT now()
);

CREATE FUNCTION once.seals() RETURNS TABLE (id text, proof bytea)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.id, s.proof FROM once.seal s ORDER BY s.id LIMIT 257
$$;

CREATE FUNCTION once.note_seal(new_id text, new_proof bytea) RETURNS TABLE (id text, proof bytea)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO once.seal (id, proof) VALUES (new_id, new_proof) ON CONFLICT DO NOTHING;
    SELECT s.id, s.proof FROM once.seal s ORDER BY s.id LIMIT 257
$$;
