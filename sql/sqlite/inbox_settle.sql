-- A dead letter was delivered after all: id.
DELETE FROM once_inbox_dead WHERE id = ?1
