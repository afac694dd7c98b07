-- Expiry deleted ?2 more claims of segment ?1.
UPDATE once_segment SET dead = dead + ?2 WHERE first = ?1
