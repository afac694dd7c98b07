-- The functions that a service calls inside its own transaction. docs/sql.md has an example of each.

-- A NULL grant is a mistake of the caller: neither `fenced` nor `absent` would be the right answer.
CREATE FUNCTION once.need_grant(record uuid, fence bigint) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF record IS NULL OR fence IS NULL THEN
        RAISE EXCEPTION '% is NULL', CASE WHEN record IS NULL THEN 'record' ELSE 'fence' END USING ERRCODE = '22023';
    END IF;
END $$;

-- The bounds of an outcome from a service or an operator: a replay returns it as it is stored.
CREATE FUNCTION once.need_outcome(status integer, body bytea, headers text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    header_bytes integer := length(convert_to(headers, 'UTF8'));
BEGIN
    IF status IS NULL THEN
        RAISE EXCEPTION 'status is NULL' USING ERRCODE = '22023';
    END IF;
    IF length(body) > ONCE_BODY_LEN_MAX THEN
        RAISE EXCEPTION 'body is % bytes long, the limit is ONCE_BODY_LEN_MAX', length(body) USING ERRCODE = '54000';
    END IF;
    IF header_bytes > ONCE_HEADERS_LEN_MAX THEN
        RAISE EXCEPTION 'headers are % bytes long, the limit is ONCE_HEADERS_LEN_MAX', header_bytes USING ERRCODE = '54000';
    END IF;
    IF headers <> '' AND headers !~ E'^([!-9;-~]+:[^\r\n]*\r\n)+$' THEN
        RAISE EXCEPTION 'headers are not lines "Name: value", each ended by CR LF' USING ERRCODE = '22023';
    END IF;
END $$;

CREATE FUNCTION once.claim(tenant text, key text, fingerprint bytea DEFAULT decode(repeat('00', 32), 'hex'),
                           lease interval DEFAULT '60 seconds', retention interval DEFAULT '24 hours',
                           takeover text DEFAULT 'escalate', nonce uuid DEFAULT gen_random_uuid(),
                           intent boolean DEFAULT false, request bytea DEFAULT NULL,
                           body_retention interval DEFAULT NULL, key_time boolean DEFAULT false, route text DEFAULT NULL)
RETURNS once.answer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tenant_bytes bytea := convert_to(tenant, 'UTF8');
    key_bytes    bytea := convert_to(key, 'UTF8');
    policy       integer := CASE takeover WHEN 'escalate' THEN ONCE_TAKEOVER_ESCALATE WHEN 'rerun' THEN ONCE_TAKEOVER_RERUN
                                          WHEN 'probe' THEN ONCE_TAKEOVER_PROBE WHEN 'completer' THEN ONCE_TAKEOVER_COMPLETER END;
    lease_ms     bigint := (extract(epoch FROM lease) * 1000)::bigint;
    retention_ms bigint := coalesce((extract(epoch FROM retention) * 1000)::bigint, ONCE_NEVER);
    body_ms      bigint := (extract(epoch FROM body_retention) * 1000)::bigint;
    born         bigint := CASE WHEN key_time THEN once.key_time(key) END;
BEGIN
    IF tenant IS NULL OR length(tenant_bytes) > ONCE_TENANT_LEN_MAX THEN
        RAISE EXCEPTION 'tenant is % bytes long, the limit is ONCE_TENANT_LEN_MAX; '''' is the single tenant', length(tenant_bytes)
            USING ERRCODE = '22023';
    END IF;
    IF nonce IS NULL THEN
        RAISE EXCEPTION 'nonce is NULL; leave it out to have one made' USING ERRCODE = '22023';
    END IF;
    IF key_bytes IS NULL OR length(key_bytes) NOT BETWEEN 1 AND ONCE_KEY_LEN_MAX THEN
        RAISE EXCEPTION 'key has % bytes, not 1 to ONCE_KEY_LEN_MAX', coalesce(length(key_bytes), 0) USING ERRCODE = '22023';
    END IF;
    IF length(fingerprint) IS DISTINCT FROM 32 THEN
        RAISE EXCEPTION 'fingerprint has % bytes, not 32', coalesce(length(fingerprint), 0) USING ERRCODE = '22023';
    END IF;
    IF policy IS NULL THEN
        RAISE EXCEPTION 'takeover ''%'' is not one of escalate, rerun, probe, completer', takeover USING ERRCODE = '22023';
    END IF;
    IF lease_ms IS NULL OR lease_ms NOT BETWEEN 1 AND ONCE_LEASE_MS_MAX THEN
        RAISE EXCEPTION 'lease % is not between 1 ms and 24 hours', lease USING ERRCODE = '22023';
    END IF;
    IF retention IS NOT NULL AND retention_ms NOT BETWEEN 1 AND ONCE_RETENTION_MS_MAX THEN
        RAISE EXCEPTION 'retention % is not between 1 ms and 100 years; NULL keeps for ever', retention
            USING ERRCODE = '22023';
    END IF;
    IF body_ms NOT BETWEEN 1 AND ONCE_RETENTION_MS_MAX THEN
        RAISE EXCEPTION 'body retention % is not between 1 ms and 100 years; NULL keeps the body as long as the record',
            body_retention USING ERRCODE = '22023';
    END IF;
    IF retention_ms >= 0 AND body_ms > retention_ms THEN
        RAISE EXCEPTION 'body retention % is longer than the record''s, %', body_retention, retention
            USING ERRCODE = '22023';
    END IF;
    body_ms := nullif(body_ms, retention_ms);
    IF length(request) > ONCE_REQUEST_LEN_MAX THEN
        RAISE EXCEPTION 'request is % bytes long, the limit is ONCE_REQUEST_LEN_MAX', length(request) USING ERRCODE = '22023';
    END IF;
    policy := policy + CASE WHEN intent THEN PG_FLAG_INTENT ELSE 0 END + PG_ROUTE_UNIT * once.route_id(route);
    IF length(request) > 0 THEN
        RETURN once.claim_with_request(once.record_id(tenant_bytes, key_bytes), tenant_bytes, key_bytes, fingerprint,
                                       lease_ms, retention_ms, policy, nonce, request, body_ms, born);
    END IF;
    RETURN once.claim_record(once.record_id(tenant_bytes, key_bytes), tenant_bytes, key_bytes, fingerprint, lease_ms,
                             retention_ms, policy, nonce, body_ms, born);
END $$;
COMMENT ON FUNCTION once.claim(text, text, bytea, interval, interval, text, uuid, boolean, bytea, interval, boolean, text) IS
    'Ask to execute. arm: execute | probe | replay | mismatch | in progress | unknown | expired. Waits for a transaction '
    'that is just claiming the same key. retention NULL: keep for ever. body_retention NULL: as long as the record. '
    'key_time: a UUIDv7 that is older than the retention and has no record is expired, not executed';

CREATE FUNCTION once.extend(record uuid, fence bigint, lease interval DEFAULT NULL) RETURNS once.answer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    lease_ms bigint := (extract(epoch FROM lease) * 1000)::bigint;
BEGIN
    PERFORM once.need_grant(record, fence);
    IF lease_ms NOT BETWEEN 1 AND ONCE_LEASE_MS_MAX THEN
        RAISE EXCEPTION 'lease % is not between 1 ms and 24 hours', lease USING ERRCODE = '22023';
    END IF;
    RETURN once.extend_record(record, fence, coalesce(lease_ms, 0));
END $$;
COMMENT ON FUNCTION once.extend(uuid, bigint, interval) IS 'Renew the lease. arm: done | fenced';

CREATE FUNCTION once.advance(record uuid, fence bigint, point text, checkpoint bytea DEFAULT '')
RETURNS once.answer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM once.need_grant(record, fence);
    RETURN once.advance_record(record, fence, point, checkpoint, gen_random_uuid());
END $$;
COMMENT ON FUNCTION once.advance(uuid, bigint, text, bytea) IS
    'Record a recovery point, in the transaction that did the phase''s work. arm: done | fenced';

CREATE FUNCTION once.finish(record uuid, fence bigint, status integer, body bytea DEFAULT '',
                            headers text DEFAULT '', state text DEFAULT 'succeeded', retryable boolean DEFAULT false)
RETURNS once.answer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    code integer := CASE state WHEN 'succeeded' THEN ONCE_STATE_SUCCEEDED WHEN 'failed' THEN ONCE_STATE_FAILED
                               WHEN 'unknown' THEN ONCE_STATE_UNKNOWN END;
BEGIN
    PERFORM once.need_grant(record, fence);
    IF code IS NULL THEN
        RAISE EXCEPTION 'state ''%'' is not one of succeeded, failed, unknown', state USING ERRCODE = '22023';
    END IF;
    IF retryable AND code <> ONCE_STATE_FAILED THEN
        RAISE EXCEPTION 'only a failed outcome is retryable' USING ERRCODE = '22023';
    END IF;
    PERFORM once.need_outcome(status, body, headers);
    RETURN once.finish_record(record, fence, code + CASE WHEN retryable THEN PG_RETRYABLE ELSE 0 END, status,
                              convert_to(headers, 'UTF8'), body, false);
END $$;
COMMENT ON FUNCTION once.finish(uuid, bigint, integer, bytea, text, text, boolean) IS
    'Store the outcome. arm: done (even when repeated) | fenced (the answer is what is stored)';

CREATE FUNCTION once.release(record uuid, fence bigint) RETURNS once.answer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM once.need_grant(record, fence);
    RETURN once.release_record(record, fence, false);
END $$;
COMMENT ON FUNCTION once.release(uuid, bigint) IS 'Release the claim: it definitely had no effect. arm: done | fenced';

CREATE FUNCTION once.lookup(tenant text, key text) RETURNS once.answer
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT once.lookup_record(once.record_id(convert_to(tenant, 'UTF8'), convert_to(key, 'UTF8')))
$$;
COMMENT ON FUNCTION once.lookup(text, text) IS 'Read without changing anything. arm: found | absent';

CREATE FUNCTION once.resolve(tenant text, key text, verdict text, reason text, status integer DEFAULT 0,
                             body bytea DEFAULT '', headers text DEFAULT '', state text DEFAULT 'succeeded',
                             seen_fence bigint DEFAULT 0)
RETURNS once.answer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    code integer := CASE verdict WHEN 'done' THEN ONCE_VERDICT_DONE WHEN 'not done' THEN ONCE_VERDICT_NOT_DONE
                                 WHEN 'release' THEN ONCE_VERDICT_RELEASE END;
BEGIN
    IF code IS NULL THEN
        RAISE EXCEPTION 'verdict ''%'' is not one of done, not done, release', verdict USING ERRCODE = '22023';
    END IF;
    IF state IS NULL OR state NOT IN ('succeeded', 'failed') THEN
        RAISE EXCEPTION 'state ''%'' is not one of succeeded, failed', state USING ERRCODE = '22023';
    END IF;
    PERFORM once.need_outcome(status, body, headers);
    RETURN once.resolve_record(once.record_id(convert_to(tenant, 'UTF8'), convert_to(key, 'UTF8')), seen_fence, code,
                               CASE state WHEN 'failed' THEN ONCE_STATE_FAILED ELSE ONCE_STATE_SUCCEEDED END, status, convert_to(headers, 'UTF8'), body,
                               convert_to(session_user::text, 'UTF8'), convert_to(reason, 'UTF8'), gen_random_uuid());
END $$;
COMMENT ON FUNCTION once.resolve(text, text, text, text, integer, bytea, text, text, bigint) IS
    'An operator''s verdict on an unknown record: done | not done | release. Recorded in once.audit';
