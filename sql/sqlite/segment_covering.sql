-- The segment that covers fence ?1, or the nearest one below.
SELECT first, last FROM once_segment WHERE first <= ?1 ORDER BY first DESC LIMIT 1
