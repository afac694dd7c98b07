-- The inbox: the messages that a consumer has processed, and its dead letters.
--
-- Inbox entries (K13): (consumer, message id) is a row that commits with the effect of the message. A transaction that consumes
-- the same message at the same time waits for the first, at the primary key, and then finds a duplicate, or that the first was
-- rolled back. Past its consumer's retention an entry counts as absent (K8); once.expire deletes it. A duplicate only reads.
--
-- Dead letters: messages that `once consume` could not deliver. A row is the whole message, because the broker
-- got an acknowledgement. It is deleted after a later delivery, or when an operator drops it.

-- Consumers with a retention for their inbox entries. Entries of other consumers are kept for ever.
CREATE TABLE once.consumers (
    name         text PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255),
    retention_ms bigint,   -- NULL: for ever
    redelivery_window_ms   bigint    -- how long the broker may deliver a message again; NULL: not known
);

CREATE TABLE once.inbox (
    consumer   text NOT NULL,
    message_id text NOT NULL,
    taken_at   bigint NOT NULL,
    PRIMARY KEY (consumer, message_id)
);
-- Finds the oldest entries of a consumer.
CREATE INDEX inbox_age ON once.inbox (consumer, taken_at);

CREATE FUNCTION once.consumer(name text, retention interval DEFAULT '7 days', redelivery_window interval DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    keep bigint := (extract(epoch FROM retention) * 1000)::bigint;
    far  bigint := (extract(epoch FROM redelivery_window) * 1000)::bigint;
BEGIN
    IF name IS NULL OR octet_length(name) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'consumer has % bytes, not 1 to 255', coalesce(octet_length(name), 0) USING ERRCODE = '22023';
    END IF;
    IF keep <= 0 OR far < 0 THEN
        RAISE EXCEPTION 'retention % or redelivery_window % is not positive', retention, redelivery_window USING ERRCODE = '22023';
    END IF;
    IF keep < far THEN
        RAISE EXCEPTION 'retention % is shorter than the redelivery window %: a message that is delivered again after the retention would be processed twice',
            retention, redelivery_window USING ERRCODE = '22023';
    END IF;
    INSERT INTO once.consumers AS c (name, retention_ms, redelivery_window_ms) VALUES (consumer.name, keep, far)
    ON CONFLICT ON CONSTRAINT consumers_pkey DO UPDATE SET retention_ms = excluded.retention_ms, redelivery_window_ms = excluded.redelivery_window_ms
     WHERE (c.retention_ms, c.redelivery_window_ms) IS DISTINCT FROM (excluded.retention_ms, excluded.redelivery_window_ms);
END $$;
COMMENT ON FUNCTION once.consumer(text, interval, interval) IS
    'Set how long a consumer''s inbox entries are kept (NULL: for ever), and how long its broker may deliver a message again: '
    'a retention shorter than that is refused';

CREATE FUNCTION once.consume(consumer text, message_id text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms bigint := once.now_ms();
BEGIN
    IF consumer IS NULL OR octet_length(consumer) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'consumer has % bytes, not 1 to 255', coalesce(octet_length(consumer), 0) USING ERRCODE = '22023';
    END IF;
    IF message_id IS NULL OR octet_length(message_id) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'message id has % bytes, not 1 to 255', coalesce(octet_length(message_id), 0) USING ERRCODE = '22023';
    END IF;
    LOOP
        INSERT INTO once.inbox (consumer, message_id, taken_at) VALUES (consume.consumer, consume.message_id, now_ms)
        ON CONFLICT ON CONSTRAINT inbox_pkey DO NOTHING;
        IF FOUND THEN
            RETURN true;
        END IF;
        UPDATE once.inbox i SET taken_at = now_ms FROM once.consumers c
         WHERE i.consumer = consume.consumer AND i.message_id = consume.message_id AND c.name = consume.consumer
           AND i.taken_at + c.retention_ms <= now_ms;
        IF FOUND THEN
            RETURN true;
        END IF;
        -- A duplicate, unless once.expire has just deleted its entry.
        IF EXISTS (SELECT FROM once.inbox i WHERE i.consumer = consume.consumer AND i.message_id = consume.message_id) THEN
            RETURN false;
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION once.consume(text, text) IS
    'Record a message as processed, in the transaction of its effect. true: new, go on; false: a duplicate. Waits '
    'for a transaction that is just taking it in (K13)';

-- Deletes up to `most` entries past their retention. For once.expire.
CREATE FUNCTION once.inbox_forget(most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms bigint := once.now_ms();
    gone   integer;
BEGIN
    WITH due AS (
        SELECT w.consumer, w.message_id FROM once.consumers c
         CROSS JOIN LATERAL (SELECT i.consumer, i.message_id FROM once.inbox i
                              WHERE i.consumer = c.name AND i.taken_at <= now_ms - c.retention_ms
                              ORDER BY i.taken_at LIMIT most FOR UPDATE SKIP LOCKED) w
         LIMIT most
    )
    DELETE FROM once.inbox i USING due d WHERE i.consumer = d.consumer AND i.message_id = d.message_id;
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END $$;

-- ------------------------------------------------------------------ dead letters

-- Everything that came from a broker is bytes: brokers do not promise UTF-8.
CREATE TABLE once.inbox_dead (
    id           uuid PRIMARY KEY,       -- derived from consumer, message id and payload: storing a letter twice keeps one
    consumer     text NOT NULL,
    message_id   bytea NOT NULL,
    source       bytea NOT NULL,         -- its position at the broker, for people
    topic        bytea NOT NULL,
    message_key  bytea NOT NULL,         -- empty: none
    content_type bytea NOT NULL,
    headers      bytea NOT NULL,         -- lines "name: value", each ended by CR LF
    payload      bytea NOT NULL,
    died_at      bigint NOT NULL,
    attempts     integer NOT NULL,
    retry        boolean NOT NULL DEFAULT false,  -- an operator wants it delivered
    reason       bytea NOT NULL
);
CREATE INDEX inbox_dead_at ON once.inbox_dead (consumer, died_at);
CREATE INDEX inbox_dead_retry ON once.inbox_dead (consumer) WHERE retry;

-- `again`: it was retried and failed, and is dead again; otherwise a letter that is there already stays unchanged.
CREATE FUNCTION once.inbox_put_dead(id uuid, consumer text, message_id bytea, source bytea, topic bytea, message_key bytea,
                                content_type bytea, headers bytea, payload bytea, attempts integer, reason bytea, again boolean)
RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO once.inbox_dead AS d (id, consumer, message_id, source, topic, message_key, content_type, headers, payload, died_at,
                                      attempts, reason)
    VALUES (inbox_put_dead.id, inbox_put_dead.consumer, inbox_put_dead.message_id, inbox_put_dead.source, inbox_put_dead.topic, inbox_put_dead.message_key,
            inbox_put_dead.content_type, inbox_put_dead.headers, inbox_put_dead.payload, once.now_ms(), inbox_put_dead.attempts, inbox_put_dead.reason)
    ON CONFLICT ON CONSTRAINT inbox_dead_pkey DO UPDATE
    SET died_at = excluded.died_at, attempts = excluded.attempts, reason = excluded.reason, retry = false
    WHERE again
$$;
COMMENT ON FUNCTION once.inbox_put_dead(uuid, text, bytea, bytea, bytea, bytea, bytea, bytea, bytea, integer, bytea, boolean) IS
    'For `once consume`: store a dead letter';

CREATE FUNCTION once.inbox_due(consumer text, most integer)
RETURNS TABLE (id uuid, message_id bytea, source bytea, topic bytea, message_key bytea, content_type bytea, headers bytea, payload bytea)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT d.id, d.message_id, d.source, d.topic, d.message_key, d.content_type, d.headers, d.payload
      FROM once.inbox_dead d WHERE d.consumer = inbox_due.consumer AND d.retry ORDER BY d.died_at LIMIT most
$$;
COMMENT ON FUNCTION once.inbox_due(text, integer) IS 'For `once consume`: dead letters that an operator wants delivered';

CREATE FUNCTION once.inbox_settle(letter uuid) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM once.inbox_dead d WHERE d.id = letter
$$;
COMMENT ON FUNCTION once.inbox_settle(uuid) IS 'For `once consume`: remove a dead letter that was delivered';

-- Counts up to 100000.
CREATE FUNCTION once.inbox_count(consumer text) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT count(*) FROM (SELECT FROM once.inbox_dead d WHERE d.consumer = inbox_count.consumer LIMIT 100000) x
$$;
COMMENT ON FUNCTION once.inbox_count(text) IS 'How many dead letters a consumer has';

CREATE FUNCTION once.inbox_list(states text, topic_prefix text, of_consumer text, most integer)
RETURNS TABLE (state text, id uuid, consumer text, message_id bytea, source bytea, topic bytea, message_key bytea, content_type bytea,
               headers bytea, payload bytea, died_at bigint, attempts integer, reason bytea)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.state, d.id, d.consumer, d.message_id, d.source, d.topic, d.message_key, d.content_type, d.headers, ''::bytea, d.died_at,
           d.attempts, d.reason
      FROM once.inbox_dead d CROSS JOIN LATERAL (SELECT CASE WHEN d.retry THEN 'retrying' ELSE 'dead' END AS state) s
     WHERE (states = '' OR s.state = ANY (string_to_array(states, ','))) AND (of_consumer = '' OR d.consumer = of_consumer)
       AND substring(d.topic FOR octet_length(convert_to(topic_prefix, 'UTF8'))) = convert_to(topic_prefix, 'UTF8')
     ORDER BY d.died_at, d.id LIMIT most
$$;
COMMENT ON FUNCTION once.inbox_list(text, text, text, integer) IS 'Dead letters, oldest first, without payloads';

CREATE FUNCTION once.inbox_show(letter uuid)
RETURNS TABLE (state text, id uuid, consumer text, message_id bytea, source bytea, topic bytea, message_key bytea, content_type bytea,
               headers bytea, payload bytea, died_at bigint, attempts integer, reason bytea)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN d.retry THEN 'retrying' ELSE 'dead' END, d.id, d.consumer, d.message_id, d.source, d.topic, d.message_key,
           d.content_type, d.headers, d.payload, d.died_at, d.attempts, d.reason
      FROM once.inbox_dead d WHERE d.id = letter
$$;
COMMENT ON FUNCTION once.inbox_show(uuid) IS 'One dead letter';

-- An operator's action: 'retry' lets a process that consumes for this consumer deliver it; 'drop' removes it. Recorded in
-- once.audit. Returns what it did: retried, dropped, absent.
CREATE FUNCTION once.inbox_resolve(letter uuid, action text, actor bytea, reason bytea) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    did text;
BEGIN
    IF action NOT IN ('retry', 'drop') OR action IS NULL THEN
        RAISE EXCEPTION 'action ''%'' is neither retry nor drop', action USING ERRCODE = '22023';
    END IF;
    IF reason IS NULL OR length(reason) NOT BETWEEN 1 AND ONCE_REASON_LEN_MAX THEN
        RAISE EXCEPTION 'reason has % bytes, not 1 to 1000', coalesce(length(reason), 0) USING ERRCODE = '22023';
    END IF;
    IF action = 'retry' THEN
        UPDATE once.inbox_dead d SET retry = true WHERE d.id = letter AND NOT d.retry;
        did := 'retried';
    ELSE
        DELETE FROM once.inbox_dead d WHERE d.id = letter;
        did := 'dropped';
    END IF;
    IF NOT FOUND THEN
        RETURN 'absent';
    END IF;
    INSERT INTO once.audit (at, record, fence, what, actor, reason)
    VALUES (once.now_ms(), letter, 0, 'dead letter ' || did, inbox_resolve.actor, inbox_resolve.reason);
    RETURN did;
END $$;
COMMENT ON FUNCTION once.inbox_resolve(uuid, text, bytea, bytea) IS 'An operator''s action on a dead letter: retry | drop';
