-- Moves the request of grant ?1 to the next attempt, ?2.
UPDATE once_request SET fence = ?2 WHERE fence = ?1
