-- The newest fence of record ?1 in the tail.
SELECT fence FROM once_tail WHERE record = ?1
