-- Dead letters as an operator sees them, oldest first: id or '', states as ',a,b,' or '', prefix of topics, consumer or empty, limit.
SELECT * FROM (
    SELECT CASE retry WHEN 1 THEN 'retrying' ELSE 'dead' END AS state, id, consumer, message_id, source, topic, message_key, content_type,
           headers, payload, died_at, attempts, reason
    FROM once_inbox_dead WHERE ?1 = '' OR id = ?1
) WHERE (?2 = '' OR instr(?2, ',' || state || ',') > 0) AND substr(topic, 1, length(CAST(?3 AS BLOB))) = CAST(?3 AS BLOB)
  AND (length(?4) = 0 OR consumer = ?4)
ORDER BY died_at, id LIMIT ?5
