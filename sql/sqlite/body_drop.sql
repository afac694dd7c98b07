-- Replaces the outcome of result ?1 by ?2, which has its state but no headers and body. NULL: the outcome is damaged,
-- and
-- stays for a check to find.
UPDATE once_result SET outcome = ifnull(?2, outcome), body_until = NULL WHERE fence = ?1
