-- Dead letters that an operator wants delivered: consumer, limit.
SELECT id, message_id, source, topic, message_key, content_type, headers, payload FROM once_inbox_dead
WHERE consumer = ?1 AND retry = 1 ORDER BY died_at LIMIT ?2
