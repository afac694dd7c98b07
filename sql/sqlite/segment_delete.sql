-- Deletes segment ?1, which has no entries left.
DELETE FROM once_segment WHERE first = ?1
