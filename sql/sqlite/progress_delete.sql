-- Deletes progress together with its claims ?1 to ?2.
DELETE FROM once_progress WHERE fence BETWEEN ?1 AND ?2
