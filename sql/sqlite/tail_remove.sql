-- Expiry deleted claim ?2 of record ?1.
DELETE FROM once_tail WHERE record = ?1 AND fence = ?2
