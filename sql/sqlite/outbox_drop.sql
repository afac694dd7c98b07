-- Deletes a message for an operator: id.
DELETE FROM once_outbox WHERE id = ?1
