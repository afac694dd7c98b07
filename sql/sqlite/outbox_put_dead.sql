-- Copies a message to the dead letters: seq, id, now, refusals to add, reason. It is deleted after that.
INSERT INTO once_outbox_dead (id, seq, topic, message_key, content_type, headers, payload, created_at, died_at, refusals, crashes, reason)
SELECT id, seq, topic, message_key, content_type, headers, payload, created_at, ?3, refusals + ?4, crashes, ?5
FROM once_outbox WHERE seq = ?1 AND id = ?2
