-- Whether a message is due: now.
SELECT 1 FROM once_outbox WHERE due <= ?1 LIMIT 1
