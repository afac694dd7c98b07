-- Segment ?1 was rewritten with ?2 living entries.
UPDATE once_segment SET count = ?2, dead = 0 WHERE first = ?1
