-- ?2 more claims of segment ?1 are gone.
UPDATE once_segment SET dead = dead + ?2 WHERE first = ?1
