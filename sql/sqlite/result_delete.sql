-- With their claims.
DELETE FROM once_result WHERE fence BETWEEN ?1 AND ?2
