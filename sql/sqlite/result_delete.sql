-- Deletes results together with their claims ?1 to ?2.
DELETE FROM once_result WHERE fence BETWEEN ?1 AND ?2
