-- Privileges. PUBLIC has none, and only the owner may use tables. Functions that are not named here are called by
-- functions
-- that run as the owner.

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA once FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA once FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA once FROM PUBLIC;

-- For services.
GRANT EXECUTE ON FUNCTION
    once.claim(text, text, bytea, interval, interval, text, uuid, boolean, bytea, interval, boolean, text),
    once.take_over(uuid, bigint, interval, uuid, boolean),
    once.extend(uuid, bigint, interval),
    once.advance(uuid, bigint, text, bytea),
    once.finish(uuid, bigint, integer, bytea, text, text, boolean),
    once.guard(uuid, bigint),
    once.release(uuid, bigint),
    once.lookup(text, text),
    once.consume(text, text),
    once.consumer(text, interval, interval),
    once.enqueue(text, text, bytea, jsonb, text, timestamptz),
    once.serialize(text),
    once.child_key(uuid, text),
    once.key_time(text),
    once.record_id(bytea, bytea),
    once.fingerprint(text, text, text, text, bytea, text[], boolean, text[]),
    once.now_ms(),
    once.version()
    TO once_app;

-- Functions that those call, and that run as the caller.
GRANT EXECUTE ON FUNCTION
    once.part(bytea), once.mac(bytea), once.hmac(bytea, bytea),
    once.need_grant(uuid, bigint), once.need_outcome(integer, bytea, text),
    once.json_string(text), once.json_quoted(bytea), once.json_escape(bytea), once.json_canonical(bytea, text[])
    TO once_app;

-- For libonce, and called by those above.
GRANT EXECUTE ON FUNCTION
    once.secret(),
    once.seal_keys(),
    once.add_seal_key(text, bytea),
    once.barrier(),
    once.route_id(text),
    once.routes(),
    once.claim_record(uuid, bytea, bytea, bytea, bigint, bigint, integer, uuid, bigint, bigint),
    once.claim_many(uuid[], bytea[], bytea[], bytea[], bigint[], bigint[], integer[], uuid[], bigint[], bigint[], boolean),
    once.take_over_record(uuid, bigint, bigint, boolean, uuid, boolean),
    once.claim_with_request(uuid, bytea, bytea, bytea, bigint, bigint, integer, uuid, bytea, bigint, bigint),
    once.lookup_with_request(uuid),
    once.drop_requests(integer),
    once.extend_record(uuid, bigint, bigint),
    once.advance_record(uuid, bigint, text, bytea, uuid),
    once.finish_record(uuid, bigint, integer, integer, bytea, bytea, boolean),
    once.finish_many(uuid[], bigint[], integer[], integer[], bytea[], bytea[], boolean),
    once.fast_batch(uuid[], bytea[], bytea[], bytea[], bigint[], bigint[], integer[], uuid[],
               bigint[], bigint[], integer[], integer[], bytea[], bytea[]),
    once.fast_replays(uuid[], bytea[]),
    once.release_record(uuid, bigint, boolean),
    once.lookup_record(uuid),
    once.list(bigint, bigint), once.list_unknown(bigint, bigint),
    once.unfinished(bigint, bigint),
    once.unfinished_attempts(bigint, bigint, boolean),
    once.lookup_many(uuid[]),
    once.history(uuid),
    once.check_rows(bigint, bigint),
    once.check_counts(bigint, bigint),
    once.check_orphans(),
    once.counts(),
    once.usage(bigint, bigint, bigint),
    once.expire(integer)    -- bounded, and removes only expired records
    TO once_app;

-- For operators.
GRANT EXECUTE ON FUNCTION
    once.resolve(text, text, text, text, integer, bytea, text, text, bigint),
    once.resolve_record(uuid, bigint, integer, integer, integer, bytea, bytea, bytea, bytea, uuid),
    once.forget(text, text, text, boolean, bigint),
    once.forget_record(uuid, bigint, boolean, bytea, bytea, uuid),
    once.outbox_list(text, text, integer),
    once.outbox_show(uuid),
    once.outbox_resolve(uuid, text, bytea, bytea)
    TO once_ops;

-- For a relay.
GRANT EXECUTE ON FUNCTION
    once.outbox_take(uuid, bigint, integer, boolean),
    once.outbox_settle(integer[], bigint[], integer[], bigint[], integer[], bigint[], integer[], bigint[], bytea[]),
    once.outbox_retry_now(),
    once.outbox_idle(boolean),
    once.outbox_upkeep(),
    once.outbox_counts()
    TO once_ops;

-- For `once consume`, and for operators of its dead letters.
GRANT EXECUTE ON FUNCTION
    once.inbox_put_dead(uuid, text, bytea, bytea, bytea, bytea, bytea, bytea, bytea, integer, bytea, boolean),
    once.inbox_due(text, integer),
    once.inbox_settle(uuid),
    once.inbox_count(text),
    once.inbox_list(text, text, text, integer),
    once.inbox_show(uuid),
    once.inbox_resolve(uuid, text, bytea, bytea)
    TO once_ops;
