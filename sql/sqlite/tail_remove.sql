-- The claim ?2 of record ?1 is gone.
DELETE FROM once_tail WHERE record = ?1 AND fence = ?2
