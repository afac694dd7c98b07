-- Stages a message: id, topic, key, content type, headers, payload, now, due, scheduled.
INSERT INTO once_outbox (id, topic, message_key, content_type, headers, payload, created_at, due, scheduled)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
