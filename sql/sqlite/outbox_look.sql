-- Messages as an operator sees them, oldest first: id or '', states as ',a,b,' or '', prefix of topics, unused, limit.
SELECT * FROM (
    SELECT CASE WHEN scheduled = 1 THEN 'scheduled' WHEN refusals + delays + crashes + suspect > 0 THEN 'retrying'
                WHEN message_key IS NOT NULL AND EXISTS (SELECT 1 FROM once_outbox AS e WHERE e.message_key = o.message_key AND e.seq < o.seq
                     AND e.scheduled = 0 AND e.refusals + e.delays + e.crashes + e.suspect > 0) THEN 'blocked'
                ELSE 'pending' END AS state,
           id, seq, topic, message_key, content_type, headers, payload, created_at, due AS at, refusals, delays, crashes, reason
    FROM once_outbox AS o WHERE ?1 = '' OR id = ?1
    UNION ALL
    SELECT 'dead', id, seq, topic, message_key, content_type, headers, payload, created_at, died_at, refusals, 0, crashes, reason
    FROM once_outbox_dead WHERE ?1 = '' OR id = ?1
) WHERE (?2 = '' OR instr(?2, ',' || state || ',') > 0) AND substr(topic, 1, length(?3)) = ?3
ORDER BY created_at, seq LIMIT ?5
