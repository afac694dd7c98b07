-- Copies a dead letter to the end of the outbox: id. The dead letter is deleted after that.
INSERT INTO once_outbox (id, topic, message_key, content_type, headers, payload, created_at, due)
SELECT id, topic, message_key, content_type, headers, payload, created_at, 0 FROM once_outbox_dead WHERE id = ?1
