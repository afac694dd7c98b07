-- Records that a message is processed: consumer, message id, now. Changes nothing if it is recorded already.
INSERT INTO once_inbox (consumer, message_id, taken_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING
