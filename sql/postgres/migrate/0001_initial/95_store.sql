-- Makes the store: its id and its secret, from four random UUIDs (488 random bits); and the ring: six slots of six
-- hours, so
-- that records with a retention of 24 hours expire without row deletes.

DO $$
DECLARE
    secret    bytea := sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) ||
                              uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
    inner_pad bytea := decode(repeat('36', 64), 'hex');
    outer_pad bytea := decode(repeat('5c', 64), 'hex');
BEGIN
    FOR i IN 0 .. 31 LOOP
        inner_pad := set_byte(inner_pad, i, get_byte(secret, i) # 54);
        outer_pad := set_byte(outer_pad, i, get_byte(secret, i) # 92);
    END LOOP;
    INSERT INTO once.store (store_id, secret, inner_pad, outer_pad)
    VALUES (gen_random_uuid(), secret, inner_pad, outer_pad);
    INSERT INTO once.ring (current, opened_at, period_ms, slots) VALUES (1, once.now_ms(), 6 * 3600 * 1000, 6);
END $$;
