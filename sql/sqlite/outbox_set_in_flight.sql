-- A message is in flight: seq, fence.
UPDATE once_outbox SET flight = ?2 WHERE seq = ?1
