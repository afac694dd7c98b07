-- The outbox: messages that are published if and only if their transaction committed (K12).
--
-- A message is a row from its enqueue until its sink confirmed it; then exactly that row is deleted. There is
-- no cursor, so that a transaction that commits late is not skipped: its row is visible from then on, whatever
-- its seq.
--
-- Order: the messages of one message key share an ordering key; a message without a key has its own. Messages
-- of one ordering key are published one by one, in the order of seq among the committed ones. Overlapping
-- transactions are ordered by their commits; call once.serialize(key) first for another order.
--
-- Relays: every ordering key is in one of 64 lanes. A relay leases lanes (FOR UPDATE SKIP LOCKED,
-- once.outbox_take), publishes with no transaction open, and reports the results (once.outbox_settle). Leases
-- keep relays apart; order does not depend on them: a relay publishes a message only after all earlier ones of
-- its ordering key were confirmed, or removed. A relay that lost its lease can only repeat messages that others
-- publish too, under the same ids. Its confirmations remove messages; its failures are ignored (stale fence).
--
-- Stalled: an ordering key whose first message failed gets a row in once.outbox_stalled with the time of the
-- next attempt, and its messages are moved to slot 0 when a relay meets them, each at most once. So stalled
-- messages never slow down the others, however many they are.
--
-- Crashes: a lane's row names the messages in flight. A relay that finds them after the lease has ended marks
-- their ordering keys as suspects. A suspect is tried with nothing else in flight, and only crashes of such
-- attempts count against it: in a batch another message may have caused the crash.
--
-- Space: slots 1 to 4 are a ring. New messages go into the current slot. An empty slot is given back by
-- TRUNCATE, which only waits for transactions that enqueued into it, and which runs under a lock that excludes
-- writers, after a query that found no row. Nothing else depends on a row's slot.

CREATE SEQUENCE once.outbox_seq AS bigint CACHE 1;

CREATE TABLE once.outbox (
    seq          bigint NOT NULL,
    lane         smallint NOT NULL CHECK (lane BETWEEN 0 AND 63),
    slot         smallint NOT NULL,      -- 0: its ordering key is stalled
    id           uuid NOT NULL,          -- sent with every publish, always the same
    topic        text NOT NULL CHECK (octet_length(topic) BETWEEN 1 AND 255),
    message_key  text CHECK (octet_length(message_key) BETWEEN 1 AND 255),  -- NULL: no order
    content_type text NOT NULL CHECK (octet_length(content_type) BETWEEN 1 AND 255),
    headers      text NOT NULL CHECK (octet_length(headers) <= ONCE_MESSAGE_HEADERS_LEN_MAX),      -- lines "name: value", each ended by CR LF
    payload      bytea NOT NULL CHECK (length(payload) <= ONCE_PAYLOAD_LEN_MAX),
    created_at   bigint NOT NULL,
    PRIMARY KEY (lane, seq, slot)
) PARTITION BY LIST (slot);

DO $$
BEGIN
    FOR n IN 0..4 LOOP
        EXECUTE format('CREATE TABLE once.outbox_%s PARTITION OF once.outbox FOR VALUES IN (%s)', n, n);
    END LOOP;
END $$;
-- Finds the next message of a stalled ordering key.
CREATE INDEX outbox_0_ordering_key ON once.outbox_0 ((coalesce('k' || message_key, 'm' || seq::text)), seq);

CREATE TABLE once.outbox_ring (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    current    smallint NOT NULL,       -- takes new messages
    idle       boolean NOT NULL,        -- a relay is waiting: enqueue notifies it
    turn_bytes bigint NOT NULL          -- when the current slot is larger than this, the next one becomes current
) WITH (fillfactor = 10);
INSERT INTO once.outbox_ring (current, idle, turn_bytes) VALUES (1, false, 8 * 1024 * 1024);

CREATE TABLE once.outbox_lane (
    lane        smallint PRIMARY KEY,
    fence       bigint NOT NULL DEFAULT 0,
    lease_until bigint NOT NULL DEFAULT 0,
    taken_at    bigint NOT NULL DEFAULT 0,
    relay       uuid,
    flight      bigint[] NOT NULL DEFAULT '{}'  -- seq of the messages in flight
) WITH (fillfactor = 10);
INSERT INTO once.outbox_lane (lane) SELECT n FROM generate_series(0, 63) n;

CREATE TABLE once.outbox_stalled (
    ordering_key     text PRIMARY KEY,           -- 'k' and the message key, or 'm' and the seq of a message without one
    lane     smallint NOT NULL,
    head     bigint NOT NULL,            -- seq of the message that the counters are about
    due      bigint NOT NULL,            -- not tried before this time
    refusals integer NOT NULL DEFAULT 0, -- by its sink
    delays   integer NOT NULL DEFAULT 0, -- its sink was not reached
    crashes  integer NOT NULL DEFAULT 0, -- of a relay that had only this message in flight
    suspect  boolean NOT NULL DEFAULT false,
    reason   text NOT NULL               -- of the last failure
);
CREATE INDEX outbox_stalled_due ON once.outbox_stalled (lane, due);

-- Scheduled messages: they enter the order when their time has come.
CREATE TABLE once.outbox_scheduled (
    id           uuid PRIMARY KEY,
    not_before   bigint NOT NULL,
    topic        text NOT NULL,
    message_key  text,
    content_type text NOT NULL,
    headers      text NOT NULL,
    payload      bytea NOT NULL,
    created_at   bigint NOT NULL
);
CREATE INDEX outbox_scheduled_due ON once.outbox_scheduled (not_before);

-- Dead letters: messages that are not tried until an operator says so.
CREATE TABLE once.outbox_dead (
    id           uuid PRIMARY KEY,
    seq          bigint NOT NULL,
    topic        text NOT NULL,
    message_key  text,
    content_type text NOT NULL,
    headers      text NOT NULL,
    payload      bytea NOT NULL,
    created_at   bigint NOT NULL,
    died_at      bigint NOT NULL,
    refusals     integer NOT NULL,
    crashes      integer NOT NULL,
    reason       text NOT NULL
);
CREATE INDEX outbox_dead_at ON once.outbox_dead (died_at);

-- The lane of an ordering key.
CREATE FUNCTION once.outbox_lane_of(message_key text) RETURNS smallint
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN message_key IS NULL THEN floor(random() * 64)
                ELSE get_byte(sha256(convert_to(message_key, 'UTF8')), 0) % 64 END::smallint
$$;

-- Adds a message at the end of its ordering key.
CREATE FUNCTION once.outbox_put(id uuid, topic text, message_key text, content_type text, headers text, payload bytea,
                                created_at bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ring once.outbox_ring;
BEGIN
    SELECT * INTO ring FROM once.outbox_ring;
    INSERT INTO once.outbox (seq, lane, slot, id, topic, message_key, content_type, headers, payload, created_at)
    VALUES (nextval('once.outbox_seq'), once.outbox_lane_of(message_key), ring.current, id, topic, message_key,
            content_type, headers, payload, created_at);
    -- Only if a relay waits: commits that notify wait for one another.
    IF ring.idle THEN
        PERFORM pg_notify('once_outbox', '');
    END IF;
END $$;

CREATE FUNCTION once.enqueue(topic text, message_key text, payload bytea, headers jsonb DEFAULT '{}',
                             content_type text DEFAULT 'application/octet-stream', not_before timestamptz DEFAULT NULL)
RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    id    uuid := gen_random_uuid();
    lines text;
    due   bigint := CASE WHEN isfinite(not_before) THEN (extract(epoch FROM not_before) * 1000)::bigint END;
    now   bigint := once.now_ms();
BEGIN
    IF topic IS NULL OR topic !~ '^[!-~]{1,ONCE_TOPIC_LEN_MAX}$' THEN
        RAISE EXCEPTION 'topic ''%'' is not 1 to 255 visible ASCII characters', left(topic, 255) USING ERRCODE = '22023';
    END IF;
    IF octet_length(message_key) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'message key has % bytes, not 1 to 255; NULL means no key', octet_length(message_key) USING ERRCODE = '22023';
    END IF;
    IF payload IS NULL OR length(payload) > ONCE_PAYLOAD_LEN_MAX THEN
        RAISE EXCEPTION 'payload has % bytes, not 0 to 16777216', coalesce(length(payload)::text, 'no') USING ERRCODE = '22023';
    END IF;
    IF content_type IS NULL OR content_type !~ '^[ -~]{1,255}$' THEN
        RAISE EXCEPTION 'content type is not 1 to 255 printable ASCII characters' USING ERRCODE = '22023';
    END IF;
    IF headers IS NULL OR jsonb_typeof(headers) <> 'object' OR
       EXISTS (SELECT FROM jsonb_each(headers) h WHERE jsonb_typeof(h.value) <> 'string' OR
               h.key !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]{1,64}$' OR (h.value #>> '{}') !~ '^[ -~]*$') THEN
        RAISE EXCEPTION 'headers are not an object of HTTP field names with values of printable ASCII' USING ERRCODE = '22023';
    END IF;
    SELECT coalesce(string_agg(h.key || ': ' || h.value || E'\r\n', '' ORDER BY h.key), '') INTO lines
      FROM jsonb_each_text(headers) h;
    IF octet_length(lines) > ONCE_MESSAGE_HEADERS_LEN_MAX THEN
        RAISE EXCEPTION 'headers have % bytes, the limit is ONCE_MESSAGE_HEADERS_LEN_MAX', octet_length(lines) USING ERRCODE = '22023';
    END IF;
    IF NOT isfinite(not_before) THEN
        RAISE EXCEPTION 'not_before is %, not a time', not_before USING ERRCODE = '22023';
    END IF;
    IF due > now THEN
        INSERT INTO once.outbox_scheduled (id, not_before, topic, message_key, content_type, headers, payload, created_at)
        VALUES (id, due, topic, message_key, content_type, lines, payload, now);
    ELSE
        PERFORM once.outbox_put(id, topic, message_key, content_type, lines, payload, now);
    END IF;
    RETURN id;
END $$;
COMMENT ON FUNCTION once.enqueue(text, text, bytea, jsonb, text, timestamptz) IS
    'Stage a message in the caller''s transaction: it will be published if and only if that commits (K12). '
    'Returns its id, the same for ever';
