-- An operator wants a dead letter delivered: id.
UPDATE once_inbox_dead SET retry = 1 WHERE id = ?1 AND retry = 0
