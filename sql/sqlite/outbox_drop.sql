-- An operator does not want it published: id.
DELETE FROM once_outbox WHERE id = ?1
