-- A message whose time has come takes its place, and is late from then on: now.
UPDATE once_outbox SET scheduled = 0, created_at = due, seq = (SELECT max(seq) FROM once_outbox) + 1
WHERE seq = (SELECT seq FROM once_outbox WHERE scheduled = 1 AND due <= ?1 ORDER BY due LIMIT 1)
