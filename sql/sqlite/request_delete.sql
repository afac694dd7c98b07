-- Deletes requests together with their claims ?1 to ?2, or when their records are finished.
DELETE FROM once_request WHERE fence BETWEEN ?1 AND ?2
