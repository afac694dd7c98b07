-- Pending, stalled, scheduled, dead, up to 100000 of each; when the oldest pending and the oldest stalled one was enqueued: now.
SELECT (SELECT count(*) FROM (SELECT 1 FROM once_outbox WHERE scheduled = 0 AND due <= ?1 LIMIT 100000)),
       (SELECT count(*) FROM (SELECT 1 FROM once_outbox WHERE scheduled = 0 AND due > ?1 LIMIT 100000)),
       (SELECT count(*) FROM (SELECT 1 FROM once_outbox WHERE scheduled = 1 LIMIT 100000)),
       (SELECT count(*) FROM (SELECT 1 FROM once_outbox_dead LIMIT 100000)),
       (SELECT created_at FROM once_outbox WHERE scheduled = 0 AND due <= ?1 ORDER BY seq LIMIT 1),
       (SELECT created_at FROM once_outbox WHERE scheduled = 0 AND due > ?1 ORDER BY seq LIMIT 1)
