-- Messages to publish, in order: now, limit. None of a key with an earlier message that waits or is suspect.
SELECT seq, id, topic, message_key, content_type, headers, payload, created_at, refusals, delays, crashes, suspect FROM once_outbox AS o
WHERE scheduled = 0 AND due <= ?1 AND suspect = 0
  AND (message_key IS NULL OR NOT EXISTS (SELECT 1 FROM once_outbox AS e WHERE e.message_key = o.message_key AND e.seq < o.seq
                                          AND e.scheduled = 0 AND (e.due > ?1 OR e.suspect = 1)))
ORDER BY seq LIMIT ?2
