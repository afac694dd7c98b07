-- Whether the time of a scheduled message has come: now.
SELECT 1 FROM once_outbox WHERE scheduled = 1 AND due <= ?1 LIMIT 1
