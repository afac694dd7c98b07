-- Who may do what. Nothing is for PUBLIC; tables are nobody's but the owner's.

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA once FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA once FROM PUBLIC;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA once TO once_app;
REVOKE EXECUTE ON FUNCTION
    once.resolve(text, text, text, text, integer, bytea, text, text, bigint),
    once.resolve_record(uuid, bigint, integer, integer, integer, bytea, bytea, bytea, bytea, uuid),
    once.expire(integer), once.empty_slot(smallint), once.move_finished(smallint, integer)
    FROM once_app;
GRANT EXECUTE ON FUNCTION
    once.resolve(text, text, text, text, integer, bytea, text, text, bigint),
    once.resolve_record(uuid, bigint, integer, integer, integer, bytea, bytea, bytea, bytea, uuid),
    once.expire(integer)
    TO once_ops;
