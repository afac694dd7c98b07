-- Expiry only (K7): the caller has seen that all records from ?1 to ?2 are past their retention.
DELETE FROM once_claim WHERE fence BETWEEN ?1 AND ?2
