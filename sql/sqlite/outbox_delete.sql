-- Deletes a confirmed message: seq, id.
DELETE FROM once_outbox WHERE seq = ?1 AND id = ?2
