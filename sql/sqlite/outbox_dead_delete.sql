-- Deletes a dead letter, which was dropped or is pending again: id.
DELETE FROM once_outbox_dead WHERE id = ?1
