-- What was asked, of records that are not finished, where somebody else may have to ask again
-- (once.take_over). Never credentials: whoever stores it leaves them out.
--
-- It belongs to the life of a record and goes with its slot. A takeover leaves it where it is; the newest row of a
-- life counts. What was finished is dropped by once.drop_requests(), or with its slot.
CREATE TABLE once.request (
    record  uuid NOT NULL,
    fence   bigint NOT NULL,             -- of the attempt that brought it
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
