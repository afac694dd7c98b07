-- Not dead any more, or gone for good: id.
DELETE FROM once_outbox_dead WHERE id = ?1
