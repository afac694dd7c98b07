-- Nothing is in flight any more: fence.
UPDATE once_outbox SET flight = NULL WHERE flight = ?1
