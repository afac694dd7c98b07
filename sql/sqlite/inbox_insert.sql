-- A message is taken in: consumer, message id, now. Changes nothing if it was before.
INSERT INTO once_inbox (consumer, message_id, taken_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING
