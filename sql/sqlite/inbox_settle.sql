-- Deletes a dead letter, which was delivered or dropped: id.
DELETE FROM once_inbox_dead WHERE id = ?1
