-- Replaces the outcome of attempt ?1 by ?2, which has no headers and body.
UPDATE once_result SET outcome = ?2 WHERE fence = ?1
