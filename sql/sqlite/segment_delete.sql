-- Nothing of segment ?1 is left.
DELETE FROM once_segment WHERE first = ?1
