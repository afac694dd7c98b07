-- The suspect that is tried next, alone: now, limit.
SELECT seq, id, topic, message_key, content_type, headers, payload, created_at, refusals, delays, crashes, suspect FROM once_outbox AS o
WHERE scheduled = 0 AND due <= ?1 AND suspect = 1
  AND (message_key IS NULL OR NOT EXISTS (SELECT 1 FROM once_outbox AS e WHERE e.message_key = o.message_key AND e.seq < o.seq
                                          AND e.scheduled = 0))
ORDER BY due, seq LIMIT min(?2, 1)
