-- With its claim.
DELETE FROM once_result WHERE fence = ?1
