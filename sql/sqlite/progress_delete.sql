-- With its claim.
DELETE FROM once_progress WHERE fence = ?1
