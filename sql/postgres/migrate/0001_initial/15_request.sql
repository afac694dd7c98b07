-- Requests of unfinished records, for a completer that may have to send them again (once.take_over). Without
-- credentials: the caller that stores a request leaves them out.
--
-- A request belongs to a life of a record and is in its slot. A takeover leaves it where it is; the newest row of a
-- life counts. once.drop_requests() deletes the requests of finished records; the rest goes with the slot.
CREATE TABLE once.request (
    record  uuid NOT NULL,
    fence   bigint NOT NULL,             -- of the claim that brought it
    slot    smallint NOT NULL,
    request bytea NOT NULL,
    PRIMARY KEY (record, fence, slot)
) PARTITION BY LIST (slot);

DO $$
DECLARE
    n int;
BEGIN
    FOR n IN 0..6 LOOP
        EXECUTE format('CREATE TABLE once.request_%s PARTITION OF once.request FOR VALUES IN (%s)', n, n);
    END LOOP;
END $$;
