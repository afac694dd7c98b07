-- Stores a dead letter: id, consumer, message id, source, topic, key, content type, headers, payload, now, attempts,
-- reason, whether it was being retried: then a letter that is there is dead again.
INSERT INTO once_inbox_dead (id, consumer, message_id, source, topic, message_key, content_type, headers, payload, died_at, attempts, reason)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
ON CONFLICT (id) DO UPDATE SET died_at = excluded.died_at, attempts = excluded.attempts, reason = excluded.reason, retry = 0 WHERE ?13
