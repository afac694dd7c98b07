-- Expiry only (K7): the caller has seen that its record is past its retention.
DELETE FROM once_claim WHERE fence = ?1
