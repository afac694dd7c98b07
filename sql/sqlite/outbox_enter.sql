-- A scheduled message whose time has come enters the order, and its age counts from then on: now.
UPDATE once_outbox SET scheduled = 0, created_at = due, seq = (SELECT max(seq) FROM once_outbox) + 1
WHERE seq = (SELECT seq FROM once_outbox WHERE scheduled = 1 AND due <= ?1 ORDER BY due LIMIT 1)
