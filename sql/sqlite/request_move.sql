-- The request of the grant ?1 is the next attempt's, ?2, from now on.
UPDATE once_request SET fence = ?2 WHERE fence = ?1
