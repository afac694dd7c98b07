-- With their claims.
DELETE FROM once_progress WHERE fence BETWEEN ?1 AND ?2
