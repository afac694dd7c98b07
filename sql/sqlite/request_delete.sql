-- With their claims, or when it was finished.
DELETE FROM once_request WHERE fence BETWEEN ?1 AND ?2
